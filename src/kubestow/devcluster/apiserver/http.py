"""The API on sockets: aiohttp requests into our own, answers and streams out again.

One handler takes every request; there are no routes. Bodies are limited while they are read, large answers are
gzipped for clients that ask for it, and a watch whose client stopped reading is cut off after a while. Where a cluster
is kept on disk, nothing is sent before all that it may tell of is there.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Awaitable, Callable, Iterator

from aiohttp import ClientConnectionResetError, web
from aiohttp.http_exceptions import HttpProcessingError

from kubestow.devcluster.apiserver import statuses
from kubestow.devcluster.apiserver.authentication import Authenticator
from kubestow.devcluster.apiserver.request_handler import API
from kubestow.devcluster.apiserver.requests import Answer, Request, Stream

__all__ = ["MAX_BODY", "Handler", "connection_log"]

#: Largest request body, in bytes: etcd's limit, as a real server has it.
MAX_BODY = 3 * 1024 * 1024
#: Answers longer than this many bytes are gzipped on request.
GZIP_FROM = 128 * 1024
#: Seconds a client may leave its socket full, or let us wait for the rest of a body, before it is dropped.
STALLED = 60.0

_NO_CACHE = {"Cache-Control": "no-cache, private"}


#: Returns when everything written so far is kept; raises a Failure when it will not be.
Settled = Callable[[], Awaitable[None]]


def _is_worth_a_line(record: logging.LogRecord) -> bool:
    """Whether something is wrong with us, and not with what was sent: aiohttp logs both alike, with a traceback."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


#: Where aiohttp tells of what goes wrong on a connection.
connection_log = logging.getLogger(__name__)
connection_log.addFilter(_is_worth_a_line)


class Handler:
    """The request handler of ``aiohttp.web.Server``. ``settled`` is None for a cluster in memory alone."""

    def __init__(self, api: API, authenticator: Authenticator, settled: Settled | None = None) -> None:
        self._api, self._authenticator, self._settled = api, authenticator, settled

    async def __call__(self, incoming: web.BaseRequest) -> web.StreamResponse:
        try:
            request = await self._read(incoming)
        except statuses.StatusError as failure:
            answer = Answer.failure(failure)
            answer.headers["Connection"] = "close"
            return _response(answer)
        result = await self._api.handle(request)
        if self._settled is not None:
            try:
                await self._settled()
            except statuses.StatusError as failure:
                result = Answer.failure(failure)
        if isinstance(result, Stream):
            return await _stream(incoming, result, self._settled)
        if isinstance(result.body, bytes):
            if len(result.body) > GZIP_FROM and _takes_gzip(incoming):
                return await _send_parts(incoming, result, iter((result.body,)))
            return _response(result)
        return await _send_parts(incoming, result, result.body)

    async def _read(self, incoming: web.BaseRequest) -> Request:
        headers, url = incoming.headers, incoming.rel_url
        peer = None if incoming.transport is None else incoming.transport.get_extra_info("ssl_object")
        user = self._authenticator.user(headers, url.raw_path, peer)
        body = await _body(incoming) if incoming.body_exists else b""
        return Request(
            method=incoming.method,
            path=url.raw_path,
            query=dict(url.query) if url.raw_query_string else {},
            accept=",".join(headers.getall("Accept", ())),
            content_type=headers.get("Content-Type", ""),
            user_agent=_readable(headers.get("User-Agent", "")),
            if_none_match=headers.get("If-None-Match", ""),
            body=body,
            user=user,
            host=incoming.host,
        )


async def _body(incoming: web.BaseRequest) -> bytes:
    """Raises a 413 Failure before more than the limit is held, a 504 one for a client that does not get on."""
    if (incoming.content_length or 0) > MAX_BODY:
        raise statuses.too_large(MAX_BODY)
    if incoming.content.is_eof():
        # It came along with the headers, as small ones do.
        whole = incoming.content.read_nowait()
        if len(whole) > MAX_BODY:
            raise statuses.too_large(MAX_BODY)
        return whole
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(STALLED):
            async for part in incoming.content.iter_any():
                size += len(part)
                if size > MAX_BODY:
                    raise statuses.too_large(MAX_BODY)
                parts.append(part)
    except TimeoutError:
        raise statuses.timed_out() from None
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _readable(header: str) -> str:
    """A header that is going to be stored or shown; bytes that are no UTF-8 are replaced."""
    return header if header.isascii() else header.encode(errors="surrogateescape").decode(errors="replace")


def _headers(answer: Answer) -> dict[str, str]:
    headers = _NO_CACHE | answer.headers
    if answer.content_type:
        headers["Content-Type"] = answer.content_type
    return headers


def _response(answer: Answer) -> web.Response:
    assert isinstance(answer.body, bytes)
    return web.Response(status=answer.status, body=answer.body, headers=_headers(answer))


def _takes_gzip(incoming: web.BaseRequest) -> bool:
    return "gzip" in incoming.headers.get("Accept-Encoding", "")


async def _send_parts(incoming: web.BaseRequest, answer: Answer, parts: Iterator[bytes]) -> web.StreamResponse:
    """A long answer, part by part; other requests are served between two parts."""
    first, second = next(parts, b""), next(parts, None)
    if second is None and len(first) <= GZIP_FROM:
        return _response(Answer(answer.status, first, answer.content_type, answer.headers))
    response = web.StreamResponse(status=answer.status, headers=_headers(answer))
    gzip = zlib.compressobj(level=1, wbits=31) if _takes_gzip(incoming) else None
    if gzip is not None:
        response.headers["Content-Encoding"] = "gzip"
        response.headers["Vary"] = "Accept-Encoding"
    try:
        await response.prepare(incoming)
        part: bytes | None = first
        while part is not None:
            # Compression runs beside the event loop: zlib lets go of the interpreter.
            written = await asyncio.to_thread(gzip.compress, part) if gzip is not None else part
            async with asyncio.timeout(STALLED):
                await response.write(written)
            part, second = second, next(parts, None)
            await asyncio.sleep(0)
        if gzip is not None:
            await response.write(gzip.flush())
        await response.write_eof()
    except (ConnectionResetError, ClientConnectionResetError):
        pass  # The client went away; there is nobody left to tell.
    except TimeoutError:
        _drop(incoming)
    return response


async def _stream(incoming: web.BaseRequest, stream: Stream, settled: Settled | None) -> web.StreamResponse:
    headers = _NO_CACHE | {"Content-Type": stream.content_type}
    response = web.StreamResponse(headers=headers)
    response.enable_chunked_encoding()
    try:
        await response.prepare(incoming)
        async for part in stream.events:
            if part:
                if settled is not None:
                    await settled()
                async with asyncio.timeout(STALLED):
                    await response.write(part)
        await response.write_eof()
    except (ConnectionResetError, ClientConnectionResetError):
        pass  # The client closed its watch, which is how watches end.
    except (TimeoutError, statuses.StatusError):
        _drop(incoming)
    return response


def _drop(incoming: web.BaseRequest) -> None:
    if incoming.transport is not None:
        incoming.transport.abort()
