"""The API over HTTP: requests from aiohttp to the API handler, responses and watch streams back.

One aiohttp handler serves every path. For a persistent cluster, no response is sent before the writes it depends on are
on disk.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from kubestow.http import aiohttp_messages
from kubestow.http.aiohttp_messages import BodyTooLarge
from kubestow.http.messages import HTTPResponse, StatusError, UserInfo
from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.endpoints.api_handler import APIHandler
from kubestow_devcluster.apiserver.endpoints.request_authorization import authorize_request, effective_user
from kubestow_devcluster.apiserver.endpoints.requests import Request, RequestHeaders
from kubestow_devcluster.apiserver.security.authentication import RequestAuthenticator
from kubestow_devcluster.apiserver.security.authorization import Attributes, Authorizer
from kubestow_devcluster.apiserver.server.host_filter import HostFilter
from kubestow_devcluster.apiserver.server.path_forwarder import PathForwarder

__all__ = ["MAX_REQUEST_BODY", "HTTPHandler"]

#: Bytes of the largest request body: kube-apiserver's limit, which follows from etcd's.
MAX_REQUEST_BODY = 3 * 1024 * 1024
#: Seconds to receive a request body.
_RECEIVE_SECONDS = 60.0

#: Returns when all earlier writes are durable. Raises a 500 StatusError when the disk failed.
WaitDurable = Callable[[], Awaitable[None]]


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
        except StatusError as error:
            response = HTTPResponse.error(error)
            response.headers["Connection"] = "close"
            return aiohttp_messages.whole(response)
        result = await self._api.handle(request)
        if self._wait_durable is not None:
            try:
                await self._wait_durable()
            except StatusError as error:
                result = HTTPResponse.error(error)
        if result.stream is not None:
            return await aiohttp_messages.send_stream(incoming, result, before_part=self._wait_durable)
        return await aiohttp_messages.send(incoming, result)

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
    try:
        return await aiohttp_messages.read_body(incoming, max_size=MAX_REQUEST_BODY, seconds=_RECEIVE_SECONDS)
    except BodyTooLarge:
        raise statuses.too_large(MAX_REQUEST_BODY) from None
    except TimeoutError:
        raise statuses.request_timeout() from None


def _text(header: str) -> str:
    """The header with bytes that are not UTF-8 replaced, because it is stored in managedFields."""
    return header if header.isascii() else header.encode(errors="surrogateescape").decode(errors="replace")
