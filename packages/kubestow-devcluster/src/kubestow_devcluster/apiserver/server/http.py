"""The API over HTTP: requests from aiohttp to the API handler, responses and watch streams back.

One aiohttp handler serves every path. Request bodies are limited while they are read, large responses are gzipped for
clients that accept it, and connections of clients that stop reading are closed. For a persistent cluster, no response
is sent before the writes it depends on are on disk.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Awaitable, Callable, Iterator

from aiohttp import ClientConnectionResetError, web
from aiohttp.http_exceptions import HttpProcessingError

from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.endpoints.api_handler import APIHandler
from kubestow_devcluster.apiserver.endpoints.request_authorization import authorize_request, effective_user
from kubestow_devcluster.apiserver.endpoints.requests import Request, RequestHeaders, Response, WatchStream
from kubestow_devcluster.apiserver.security.authentication import RequestAuthenticator
from kubestow_devcluster.apiserver.security.authorization import Attributes, Authorizer
from kubestow_devcluster.apiserver.security.users import UserInfo
from kubestow_devcluster.apiserver.server.host_filter import HostFilter
from kubestow_devcluster.apiserver.server.path_forwarder import PathForwarder

__all__ = ["MAX_REQUEST_BODY", "HTTPHandler", "connection_log"]

#: Bytes of the largest request body: kube-apiserver's limit, which follows from etcd's.
MAX_REQUEST_BODY = 3 * 1024 * 1024
#: Responses with more bytes than this are gzipped.
_MIN_GZIP_SIZE = 128 * 1024
#: Seconds to receive a request body, and without progress in sending a response, before the connection is closed.
_STALL_TIMEOUT = 60.0

_NO_CACHE = {"Cache-Control": "no-cache, private"}

#: Returns when all earlier writes are durable. Raises a 500 StatusError when the disk failed.
WaitDurable = Callable[[], Awaitable[None]]


def _is_server_error(record: logging.LogRecord) -> bool:
    """Whether a log record is about the server and not about an invalid request, which aiohttp logs as well."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


#: The logger that aiohttp reports connection errors to.
connection_log = logging.getLogger(__name__)
connection_log.addFilter(_is_server_error)


class HTTPHandler:
    """The request handler of ``aiohttp.web.Server``. ``wait_durable`` is None for a cluster in memory."""

    def __init__(
        self,
        api: APIHandler,
        authenticator: RequestAuthenticator,
        authorizer: Authorizer,
        host_filter: HostFilter,
        wait_durable: WaitDurable | None = None,
        forwarder: PathForwarder | None = None,
    ) -> None:
        self._api, self._authenticator, self._authorizer = api, authenticator, authorizer
        self._forwarder = forwarder
        self._wait_durable = wait_durable
        # Credentials are a better proof that no foreign web page sends the request.
        self._host_filter = None if authenticator.is_enabled else host_filter

    async def __call__(self, incoming: web.BaseRequest) -> web.StreamResponse:
        try:
            if self._host_filter is not None:
                self._host_filter.check(incoming.headers)
            if incoming.method == "OPTIONS" and incoming.rel_url.raw_path == "*":
                return web.Response()  # from Go's HTTP library, which does not pass it on to kube-apiserver
            if self._forwarder is not None and incoming.rel_url.raw_path in self._forwarder.paths:
                return await self._forward(self._forwarder, incoming)
            request = await self._read(incoming)
        except statuses.StatusError as error:
            response = Response.error(error)
            response.headers["Connection"] = "close"
            return _whole(response)
        result = await self._api.handle(request)
        if self._wait_durable is not None:
            try:
                await self._wait_durable()
            except statuses.StatusError as error:
                result = Response.error(error)
        if isinstance(result, WatchStream):
            return await _send_stream(incoming, result, self._wait_durable)
        if isinstance(result.body, bytes):
            if len(result.body) > _MIN_GZIP_SIZE and _accepts_gzip(incoming):
                return await _send_chunks(incoming, result, iter((result.body,)))
            return _whole(result)
        return await _send_chunks(incoming, result, result.body)

    async def _forward(self, forwarder: PathForwarder, incoming: web.BaseRequest) -> web.StreamResponse:
        """Forward a request. Raises a StatusError for one that is not allowed."""
        path = incoming.rel_url.raw_path
        if not forwarder.paths.is_public(path):
            attributes = Attributes(incoming.method.lower(), path=path)
            authorize_request(self._authorizer, self._user(incoming), attributes)
        return await forwarder.forward(incoming)

    def _user(self, incoming: web.BaseRequest) -> UserInfo:
        """The user of a request, or the one it impersonates. Raises a StatusError."""
        connection = None if incoming.transport is None else incoming.transport.get_extra_info("ssl_object")
        headers = incoming.headers
        user = self._authenticator.authenticate_request(headers, incoming.rel_url.raw_path, connection)
        return effective_user(self._authorizer, user, headers)

    async def _read(self, incoming: web.BaseRequest) -> Request:
        """Raises a StatusError for a request that is not authenticated or whose body is too large or too slow."""
        headers, url = incoming.headers, incoming.rel_url
        user = self._user(incoming)
        body = await _read_body(incoming) if incoming.body_exists else b""
        return Request(
            method=incoming.method,
            path=url.raw_path,
            query=dict(url.query) if url.raw_query_string else {},
            headers=RequestHeaders(
                accept=",".join(headers.getall("Accept", ())),
                content_type=headers.get("Content-Type", ""),
                user_agent=_text(headers.get("User-Agent", "")),
                if_none_match=headers.get("If-None-Match", ""),
            ),
            body=body,
            user=user,
            host=incoming.host,
        )


async def _read_body(incoming: web.BaseRequest) -> bytes:
    """Raises a 413 StatusError for a body over the limit, a 504 one for a client that stalls."""
    if (incoming.content_length or 0) > MAX_REQUEST_BODY:
        raise statuses.too_large(MAX_REQUEST_BODY)
    if incoming.content.is_eof():
        # A small body arrives together with the headers.
        body = incoming.content.read_nowait()
        if len(body) > MAX_REQUEST_BODY:
            raise statuses.too_large(MAX_REQUEST_BODY)
        return body
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(_STALL_TIMEOUT):
            async for chunk in incoming.content.iter_any():
                size += len(chunk)
                if size > MAX_REQUEST_BODY:
                    raise statuses.too_large(MAX_REQUEST_BODY)
                chunks.append(chunk)
    except TimeoutError:
        raise statuses.request_timeout() from None
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _text(header: str) -> str:
    """The header with bytes that are not UTF-8 replaced, because it is stored in managedFields."""
    return header if header.isascii() else header.encode(errors="surrogateescape").decode(errors="replace")


def _headers(response: Response) -> dict[str, str]:
    headers = _NO_CACHE | response.headers
    if response.content_type:
        headers["Content-Type"] = response.content_type
    return headers


def _whole(response: Response) -> web.Response:
    assert isinstance(response.body, bytes)
    return web.Response(status=response.status, body=response.body, headers=_headers(response))


def _accepts_gzip(incoming: web.BaseRequest) -> bool:
    return "gzip" in incoming.headers.get("Accept-Encoding", "")


async def _send_chunks(incoming: web.BaseRequest, response: Response, chunks: Iterator[bytes]) -> web.StreamResponse:
    """Send a long response in chunks; other requests are served in between."""
    first, second = next(chunks, b""), next(chunks, None)
    if second is None and len(first) <= _MIN_GZIP_SIZE:
        return _whole(Response(response.status, first, response.content_type, response.headers))
    outgoing = web.StreamResponse(status=response.status, headers=_headers(response))
    gzip = zlib.compressobj(level=1, wbits=31) if _accepts_gzip(incoming) else None
    if gzip is not None:
        outgoing.headers["Content-Encoding"] = "gzip"
        outgoing.headers["Vary"] = "Accept-Encoding"
    try:
        await outgoing.prepare(incoming)
        chunk: bytes | None = first
        while chunk is not None:
            # zlib releases the GIL, so compression runs beside the event loop.
            encoded = await asyncio.to_thread(gzip.compress, chunk) if gzip is not None else chunk
            async with asyncio.timeout(_STALL_TIMEOUT):
                await outgoing.write(encoded)
            chunk, second = second, next(chunks, None)
            await asyncio.sleep(0)
        if gzip is not None:
            await outgoing.write(gzip.flush())
        await outgoing.write_eof()
    except (ConnectionResetError, ClientConnectionResetError):
        pass  # The client closed the connection.
    except TimeoutError:
        _abort(incoming)
    return outgoing


async def _send_stream(
    incoming: web.BaseRequest, stream: WatchStream, wait_durable: WaitDurable | None
) -> web.StreamResponse:
    outgoing = web.StreamResponse(headers=_NO_CACHE | {"Content-Type": stream.content_type})
    outgoing.enable_chunked_encoding()
    try:
        await outgoing.prepare(incoming)
        async for chunk in stream.events:
            if chunk:
                if wait_durable is not None:
                    await wait_durable()
                async with asyncio.timeout(_STALL_TIMEOUT):
                    await outgoing.write(chunk)
        await outgoing.write_eof()
    except (ConnectionResetError, ClientConnectionResetError):
        pass  # Clients end a watch by closing the connection.
    except (TimeoutError, statuses.StatusError):
        _abort(incoming)
    return outgoing


def _abort(incoming: web.BaseRequest) -> None:
    if incoming.transport is not None:
        incoming.transport.abort()
