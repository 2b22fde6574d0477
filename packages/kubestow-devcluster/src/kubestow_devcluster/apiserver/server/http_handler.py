"""The API over HTTP: requests from the HTTP server to the API handler, responses and watch streams back.

One aiohttp handler serves every path. For a persistent cluster, no response is sent before the writes it depends on are
on disk.

:class:`HostFilter` protects a server without authentication from web pages in a browser on this machine.
A page can send requests to a server on loopback: directly (cross-site request forgery), or under its own host name,
which it lets resolve to 127.0.0.1 (DNS rebinding). Both show in headers that a page cannot change, ``Origin`` and
``Host``. A GET for an image or a script has no ``Origin``; it shows in ``Sec-Fetch-Site``. Its response cannot be read,
but has been made.
Accepted hosts are regular expressions, as for ``kubectl proxy --accept-hosts``.

:class:`PathForwarder` forwards requests for some paths to another process of this cluster over a Unix socket.
As kube-apiserver does for aggregated APIs, this server authenticates and authorizes the request first. Neither
credentials nor a body are passed on, and only GET and HEAD are forwarded. Responses are passed on part by part, as
streams need it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import re2
from aiohttp import ClientConnectionResetError, web
from multidict import MultiMapping
from yarl import URL

from kubestow.errors import InputError
from kubestow.http import aiohttp_messages
from kubestow.http.aiohttp_messages import BodyTooLarge
from kubestow.http.messages import HTTPResponse, StatusError, UserInfo
from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.endpoints.api_handler import APIHandler
from kubestow_devcluster.apiserver.endpoints.requests import Request, RequestHeaders, authorize_request, effective_user
from kubestow_devcluster.apiserver.security.authentication import RequestAuthenticator
from kubestow_devcluster.apiserver.security.authorization import Attributes, Authorizer

#: The default of ``kubectl proxy``.
DEFAULT_ACCEPT_HOSTS = r"^localhost$,^127\.0\.0\.1$,^\[::1\]$"


class HostFilter:
    """Accepts requests by the headers that browsers set; ``accept_hosts`` are separated by commas.

    Raises InputError for an invalid regular expression.
    """

    def __init__(self, accept_hosts: str = DEFAULT_ACCEPT_HOSTS) -> None:
        self._patterns = [_compile(pattern) for pattern in accept_hosts.split(",")]

    def check(self, headers: MultiMapping[str]) -> None:
        """Raises a 403 StatusError for a request that a foreign web page may have sent.

        A request without ``Host``, as HTTP/1.0 permits, is not from a browser. Links of a foreign page may be followed.
        """
        host = headers.get("Host")
        if host is not None and not _is_address(_host_name(host)) and not self._accepts(_host_name(host)):
            raise statuses.forbidden_host(f"host {host!r} is not accepted")
        for origin in headers.getall("Origin", ()):
            netloc = _network_location(origin)
            if netloc != host and not self._accepts(_host_name(netloc)):
                raise statuses.forbidden_host(f"origin {origin!r} is not accepted")
        # A page of another site loads this as a part of itself, without an ``Origin`` that could be checked.
        if (
            "Origin" not in headers
            and headers.get("Sec-Fetch-Site") == "cross-site"
            and headers.get("Sec-Fetch-Mode") != "navigate"
        ):
            raise statuses.forbidden_host("the page of another site is not accepted")

    def _accepts(self, host: str) -> bool:
        return any(pattern.search(host) for pattern in self._patterns)


def _compile(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        problem = error.args[0].decode(errors="replace")
        raise InputError("--accept-hosts", f"expected regular expressions, got {pattern!r}: {problem}") from None


def _network_location(origin: str) -> str:
    """The host and port of an origin; empty for ``null`` and for what is not an origin."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _host_name(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and (port.isdecimal() or not port) else host


def _is_address(host: str) -> bool:
    """Whether a host is an IP address, which DNS cannot rebind."""
    try:
        ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


_PASSED_ON = ("Accept", "Accept-Encoding", "If-None-Match", "Sec-Fetch-Site")
#: Headers that are about one connection and not about the response.
_HOP_BY_HOP = frozenset({"connection", "content-length", "date", "keep-alive", "server", "transfer-encoding"})
#: Seconds to connect, and seconds in which a client has to read a part.
_CONNECT_TIMEOUT, _STALL_TIMEOUT = 5.0, 60.0
#: A part of the path of a file: without escapes, and not ``..``.
_FILE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")


@dataclass(frozen=True, slots=True)
class ForwardedPaths:
    """The ``root`` path and everything below it and ``others``, and the ``socket`` that requests are forwarded to.

    Clients need no credentials for the root itself and for what is below ``public``: files without data.
    """

    root: str
    public: str
    socket: Path
    others: tuple[str, ...] = ()

    def __contains__(self, path: str) -> bool:
        return path == self.root or path.startswith((f"{self.root}/", *self.others))

    def is_public(self, path: str) -> bool:
        """Whether a path, which is among these, may be read without credentials."""
        names = path.removeprefix(self.public).split("/")
        return path == self.root or (path.startswith(self.public) and all(map(_FILE_NAME.fullmatch, names)))


class PathForwarder:
    """Forwards requests; :meth:`close` ends those in progress."""

    def __init__(self, paths: ForwardedPaths) -> None:
        self.paths = paths
        self._session: aiohttp.ClientSession | None = None

    async def forward(self, incoming: web.BaseRequest) -> web.StreamResponse:
        """Send the response of the other process. Raises a StatusError: 405 for a write, 503 without a response."""
        if incoming.method not in ("GET", "HEAD"):
            raise statuses.method_not_allowed()
        headers = {name: value for name in _PASSED_ON if (value := incoming.headers.get(name)) is not None}
        # The path as it was authorized, not normalized.
        url = URL(f"http://localhost{incoming.rel_url.raw_path_qs}", encoded=True)
        try:
            if self._session is None:
                self._session = aiohttp.ClientSession(
                    connector=aiohttp.UnixConnector(str(self.paths.socket), limit=0),
                    timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT),
                    auto_decompress=False,
                    cookie_jar=aiohttp.DummyCookieJar(),
                )
            async with self._session.request(
                incoming.method, url, headers=headers, allow_redirects=False, skip_auto_headers=("Accept-Encoding",)
            ) as response:
                return await _pass_on(incoming, response)
        except (aiohttp.ClientConnectionError, OSError):
            raise statuses.StatusError(503, "ServiceUnavailable", "the scheduler is not running", details={}) from None

    async def close(self) -> None:
        """Close the connections to the other process."""
        if self._session is not None:
            await self._session.close()


async def _pass_on(incoming: web.BaseRequest, response: aiohttp.ClientResponse) -> web.StreamResponse:
    headers = {name: value for name, value in response.headers.items() if name.lower() not in _HOP_BY_HOP}
    outgoing = web.StreamResponse(status=response.status, headers=headers)
    if response.content_length is None:
        outgoing.enable_chunked_encoding()
    else:
        outgoing.content_length = response.content_length
    try:
        await outgoing.prepare(incoming)
        async for part in response.content.iter_any():
            async with asyncio.timeout(_STALL_TIMEOUT):
                await outgoing.write(part)
        await outgoing.write_eof()
    except (ConnectionResetError, ClientConnectionResetError):
        pass  # the client has gone
    except (TimeoutError, aiohttp.ClientError):  # either side stopped in the middle
        if incoming.transport is not None:
            incoming.transport.abort()
    return outgoing


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
                path = incoming.rel_url.raw_path
                if not self._forwarder.paths.is_public(path):
                    attributes = Attributes(incoming.method.lower(), path=path)
                    authorize_request(self._authorizer, self._user(incoming), attributes)
                return await self._forwarder.forward(incoming)
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
        user_agent = headers.get("User-Agent", "")
        if not user_agent.isascii():
            # It is stored in managedFields, so bytes that are not UTF-8 are replaced.
            user_agent = user_agent.encode(errors="surrogateescape").decode(errors="replace")
        return Request(
            method=incoming.method,
            path=url.raw_path,
            query=dict(url.query) if url.raw_query_string else {},
            headers=RequestHeaders(
                accept=",".join(headers.getall("Accept", ())),
                content_type=headers.get("Content-Type", ""),
                user_agent=user_agent,
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
