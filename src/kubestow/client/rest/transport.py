"""Requests to one API server over persistent connections: bytes in, bytes out, failures as APIError or Unreachable.

All traffic of the client goes through :meth:`Transport.request`, or :meth:`Transport.stream` for a watch. The transport
handles two things for all callers: it retries after the delay of ``Retry-After`` (at most a minute each time), and it
reloads credentials once after a 401. Every other retry is up to the caller, which knows whether it is safe.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

import aiohttp
from aiohttp.connector import AddrInfoType
from yarl import URL

from kubestow.api.meta import UNDECODABLE
from kubestow.client.rest.api_status import APIStatus
from kubestow.client.rest.credentials import Credentials
from kubestow.client.rest.rate_limiter import TokenBucketRateLimiter
from kubestow.errors import APIError, InputError, Unreachable
from kubestow.scheduling.interfaces import Clock
from kubestow.version import VERSION

__all__ = [
    "JSON",
    "MERGE_PATCH",
    "STRATEGIC_MERGE_PATCH",
    "USER_AGENT",
    "OnResponse",
    "Transport",
    "describe_connection_error",
]

_log = logging.getLogger(__name__)

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
USER_AGENT = f"kubestow/{VERSION}"

#: Called after each request with its method, the server, the status (``<error>`` without a response) and the seconds
#: until the response headers.
OnResponse = Callable[[str, str, str, float], None]

_RETRIES = 10
#: The longest Retry-After, in seconds, that is respected: a load balancer may send a longer one than the outage lasts.
_MAX_RETRY_AFTER = 60.0
_CONNECTIONS = 256
_CONNECT_TIMEOUT = 30.0
#: The API server itself ends requests other than watches after 60 s.
_REQUEST_TIMEOUT = 70.0
#: Bytes read ahead from a stream; all that has arrived is decoded at once, so a larger buffer costs less per event.
_STREAM_BUFFER = 2**18

#: Raised by aiohttp when there is no response, or only a part of one.
_CONNECTION_ERRORS = (aiohttp.ClientError, TimeoutError, OSError)


class Transport:
    """Connections to one API server. Use as ``async with``; requests may run concurrently.

    ``timeout`` is the limit for a whole request in seconds; ``on_response`` is called after each request, for metrics.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        clock: Clock,
        rate_limiter: TokenBucketRateLimiter | None = None,
        user_agent: str = USER_AGENT,
        timeout: float = _REQUEST_TIMEOUT,
        on_response: OnResponse | None = None,
    ) -> None:
        self._credentials, self._clock, self._rate_limiter = credentials, clock, rate_limiter
        self._user_agent, self._on_response = user_agent, on_response
        self._timeout = aiohttp.ClientTimeout(total=timeout, sock_connect=_CONNECT_TIMEOUT)
        self._session: aiohttp.ClientSession | None = None

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return self._credentials.server

    async def __aenter__(self) -> Self:
        tls = self._credentials.tls
        connector = aiohttp.TCPConnector(
            ssl=True if tls is None else tls,
            limit=_CONNECTIONS,
            keepalive_timeout=30,
            socket_factory=_keepalive_socket,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers={"User-Agent": self._user_agent, "Accept": JSON, "Accept-Encoding": "identity"},
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=self._timeout,
            proxy=self._credentials.proxy,
            auto_decompress=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._session is not None
        await self._session.close()

    async def request(self, method: str, path: str, body: bytes | None = None, *, content_type: str = JSON) -> bytes:
        """Send a request and return the body of the successful response.

        ``path`` is percent-encoded and includes the query. Raises APIError and Unreachable. The error of the last try
        is in doubt if that of any earlier try was.
        """
        in_doubt = False
        for attempt in range(_RETRIES + 1):
            try:
                return await self._send(method, path, body, content_type)
            except APIError as error:
                in_doubt = error.in_doubt = error.in_doubt or in_doubt
                if error.retry_after is None or attempt == _RETRIES or not _is_retriable(error.code):
                    raise
                _log.debug("%s %s: %s; retrying after %g s", method, path, error, error.retry_after)
                await self._clock.sleep(error.retry_after)
        raise AssertionError("the last attempt returns or raises")

    @asynccontextmanager
    async def stream(self, path: str, *, idle_timeout: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """GET an endless response as chunks of bytes.

        A connection that is idle for ``idle_timeout`` seconds counts as broken. Raises APIError and Unreachable, on
        entry and from the iterator of chunks.
        """
        timeout = aiohttp.ClientTimeout(sock_connect=_CONNECT_TIMEOUT, sock_read=idle_timeout)
        if self._rate_limiter is not None:
            await self._rate_limiter.wait()
        try:
            response = await self._open("GET", path, timeout=timeout, read_bufsize=_STREAM_BUFFER)
        except _CONNECTION_ERRORS as error:
            raise self._unreachable(error) from error
        chunks = self._chunks(response)
        try:
            yield chunks
        finally:
            await chunks.aclose()
            response.close()

    async def _chunks(self, response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
        try:
            async for chunk in response.content.iter_any():
                yield chunk
        except _CONNECTION_ERRORS as error:
            raise self._unreachable(error) from error

    async def _send(self, method: str, path: str, body: bytes | None, content_type: str) -> bytes:
        if self._rate_limiter is not None:
            await self._rate_limiter.wait()
        try:
            response = await self._open(method, path, data=body, content_type=content_type if body else "")
            return await response.read()
        except _CONNECTION_ERRORS as error:
            raise self._unreachable(error) from error

    async def _open(self, method: str, path: str, *, content_type: str = "", **options: Any) -> aiohttp.ClientResponse:
        """The response to a successful request, its body not yet read."""
        response, headers = await self._round_trip(method, path, content_type, options)
        if response.status == 401 and await self._reload_credentials(headers):
            response.release()
            response, _ = await self._round_trip(method, path, content_type, options)
        if response.status >= 300:
            raise _api_error(response, await response.read())
        return response

    async def _round_trip(
        self, method: str, path: str, content_type: str, options: dict[str, Any]
    ) -> tuple[aiohttp.ClientResponse, Any]:
        """The response, and the credential headers that the request was sent with."""
        assert self._session is not None, "the transport is used outside its async with"
        credentials = self._credentials
        credential_headers = headers = credentials.headers
        if content_type:
            headers = credential_headers.copy()
            headers["Content-Type"] = content_type
        url = URL(credentials.server + path, encoded=True)
        started, code = self._clock.monotonic(), "<error>"
        try:
            response = await self._session.request(
                method,
                url,
                headers=headers,
                server_hostname=credentials.tls_server_name,
                allow_redirects=False,
                **options,
            )
            code = str(response.status)
        finally:
            if self._on_response is not None:
                self._on_response(method, url.authority, code, self._clock.monotonic() - started)
        return response, credential_headers

    async def _reload_credentials(self, rejected: Any) -> bool:
        try:
            return await self._credentials.reload(rejected)
        except InputError as error:
            _log.warning("cannot reload the credentials that the API server rejected: %s", error)
            return False

    def _unreachable(self, error: Exception) -> Unreachable:
        return Unreachable(self.server, describe_connection_error(error))


def _is_retriable(code: int) -> bool:
    return code == 429 or code >= 500


def describe_connection_error(error: Exception) -> str:
    """One line of text for an exception of aiohttp or of the operating system."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"certificate verification failed: {error.certificate_error}"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "no such host"
    if isinstance(error, OSError) and error.errno is not None and error.errno in errno.errorcode:
        return os.strerror(error.errno).lower()
    if isinstance(error, TimeoutError):
        return "request timed out"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "connection closed before a response"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "connection closed in the middle of a response"
    return str(error) or type(error).__name__


def _api_error(response: aiohttp.ClientResponse, body: bytes) -> APIError:
    """The failure that a response stands for; one sent by a proxy or load balancer contains no Status."""
    header = response.headers.get("Retry-After", "")
    retry_after = _cap(float(header) if header.isdecimal() else None)
    try:
        status = APIStatus.parse(body)
    except UNDECODABLE:
        text = " ".join(body[:200].decode(errors="replace").split())
        message = f"{response.status} {response.reason}: {text}" if text else ""
        return APIError(response.status, response.reason or "", message, retry_after=retry_after)
    if retry_after is None:
        retry_after = _cap(status.retry_after)
    return APIError(response.status, status.reason, status.message, retry_after=retry_after)


def _cap(retry_after: float | None) -> float | None:
    return None if retry_after is None else min(retry_after, _MAX_RETRY_AFTER)


def _keepalive_socket(address: AddrInfoType) -> socket.socket:
    """A socket with TCP keep-alive, so that a dead peer is detected within a minute."""
    family, kind, protocol, _, _ = address
    connection = socket.socket(family=family, type=kind, proto=protocol)
    connection.setblocking(False)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):  # not on every platform
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return connection
