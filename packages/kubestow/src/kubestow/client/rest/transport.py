"""Requests to one API server over persistent connections: bytes in, bytes out, failures as APIError or Unreachable.

All traffic of the client goes through :meth:`Transport.request`, or :meth:`Transport.stream` for a watch. The transport
handles two things for all callers: it retries after the delay of ``Retry-After`` (at most a minute each time), unless a
caller does so itself, and it reloads credentials once after a 401 or a TLS handshake that failed. All other retries are
made by the caller, which can tell whether they are safe.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol, Self
from urllib.parse import quote, urlsplit

import msgspec
from multidict import CIMultiDict

from kubestow.api.json_text import UNDECODABLE
from kubestow.client.rest.connection_pool import ConnectionPool
from kubestow.client.rest.credentials import Credentials
from kubestow.client.rest.server_connection import ConnectionBroken, ServerConnection, ServerResponse
from kubestow.errors import APIError, InputError, Unreachable
from kubestow.log_fields import fields
from kubestow.scheduling.interfaces import Clock
from kubestow.version import VERSION

_log = logging.getLogger(__name__)

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
USER_AGENT = f"kubestow/{VERSION}"

#: Called after each request with its method, the server, the status (``<error>`` without a response) and the seconds
#: until the end of the response, or of its head for a stream.
OnResponse = Callable[[str, str, str, float], None]


class TracedRequest(Protocol):
    """A request that is part of a trace."""

    @property
    def traceparent(self) -> str:
        """The value of its header ``traceparent``."""

    def ended(self, code: str) -> None:
        """The request ended, with what :data:`OnResponse` gets as status."""


class RequestTracer(Protocol):
    """Traces requests."""

    def request_started(self, method: str, server: str, path: str) -> TracedRequest | None:
        """A request to a server is about to be sent by the running task; None if it is not part of a trace."""


_RETRIES = 10
#: The longest Retry-After, in seconds, that is respected: a load balancer may send a longer one than the outage lasts.
_MAX_RETRY_AFTER = 60.0
#: The API server itself ends requests other than watches after 60 s.
REQUEST_TIMEOUT = 70.0
#: The characters that a request target consists of, and those of them that are not letters, digits or ``_.-~``.
_TARGET = re.compile(r"[!-~]*")
_RESERVED = "!#$%&'()*+,/:;=?@[]"

_CONNECTION_ERRORS = (ConnectionBroken, TimeoutError, OSError)


class Transport:
    """Connections to one API server. Use as ``async with``; requests may run concurrently.

    ``timeout`` is the limit in seconds for getting a connection, and again for the response; ``on_response`` is called
    after each request, for metrics; ``tracer`` joins requests to the traces of what they are made for.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        clock: Clock,
        rate_limiter: TokenBucketRateLimiter | None = None,
        user_agent: str = USER_AGENT,
        timeout: float = REQUEST_TIMEOUT,
        on_response: OnResponse | None = None,
        tracer: RequestTracer | None = None,
    ) -> None:
        self._credentials, self._clock, self._rate_limiter = credentials, clock, rate_limiter
        self._tracer = tracer
        self._user_agent, self._timeout, self._on_response = user_agent, timeout, on_response
        self._authority = urlsplit(credentials.server).netloc.rpartition("@")[2]
        self._base_path = urlsplit(credentials.server).path
        self._pool = ConnectionPool(
            credentials.server,
            tls=credentials.tls_for_connection,
            tls_server_name=credentials.tls_server_name,
            proxy=credentials.proxy,
        )
        #: The headers of every request, and the credential headers that they contain.
        self._headers = ""
        self._headers_from: CIMultiDict[str] | None = None

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return self._credentials.server

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        self._pool.close()
        await asyncio.sleep(0)  # closed transports release their sockets in the next iteration

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = JSON,
        retries: int = _RETRIES,
    ) -> bytes:
        """Send a request and return the body of the successful response.

        ``path`` is percent-encoded and includes the query. A response with Retry-After is retried up to ``retries``
        times. Raises APIError and Unreachable. The error of the last try is in doubt if that of any earlier try was.
        """
        in_doubt = False
        for attempt in range(retries + 1):
            try:
                return await self._request_once(method, path, body, content_type)
            except APIError as error:
                in_doubt = error.in_doubt = error.in_doubt or in_doubt
                if error.retry_after is None or attempt == retries or not (error.code == 429 or error.code >= 500):
                    raise
                extra = fields(verb=method, path=path, err=str(error), retryAfter=error.retry_after)
                _log.debug("%s %s: %s; retrying after %g s", method, path, error, error.retry_after, extra=extra)
                await self._clock.sleep(error.retry_after)
        raise AssertionError("the last attempt returns or raises")

    @asynccontextmanager
    async def stream(self, path: str, *, idle_timeout: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """GET an endless response as chunks of bytes.

        A connection that is idle for ``idle_timeout`` seconds counts as broken. Raises APIError and Unreachable, on
        entry and from the iterator of chunks.
        """
        if self._rate_limiter is not None:
            await self._rate_limiter.wait()
        connection = await self._open_stream(path)
        chunks = self._chunks(connection, idle_timeout)
        try:
            yield chunks
        finally:
            await chunks.aclose()
            self._pool.release(connection)

    async def _open_stream(self, path: str) -> ServerConnection:
        """A connection that has received the head of a successful response."""
        for attempt in range(2):
            rejected = self._credentials.headers
            connection, response = await self._round_trip("GET", path, None, "", streams=True)
            if response.status < 300:
                return connection
            try:
                async with asyncio.timeout(self._timeout):
                    response.body = b"".join([chunk async for chunk in connection.chunks()])
            except _CONNECTION_ERRORS as error:
                raise self._unreachable(error) from error
            finally:
                self._pool.release(connection)
            if attempt or response.status != 401 or not await self._reload_credentials(rejected):
                break
        raise _api_error(response)

    async def _chunks(self, connection: ServerConnection, idle_timeout: float) -> AsyncGenerator[bytes, None]:
        try:
            async for chunk in connection.chunks(idle_timeout):
                yield chunk
        except _CONNECTION_ERRORS as error:
            raise self._unreachable(error) from error

    async def _request_once(self, method: str, path: str, body: bytes | None, content_type: str) -> bytes:
        if self._rate_limiter is not None:
            await self._rate_limiter.wait()
        rejected = self._credentials.headers
        _, response = await self._round_trip(method, path, body, content_type)
        if response.status == 401 and await self._reload_credentials(rejected):
            _, response = await self._round_trip(method, path, body, content_type)
        if response.status >= 300:
            raise _api_error(response)
        return response.body

    async def _round_trip(
        self, method: str, path: str, body: bytes | None, content_type: str, *, streams: bool = False
    ) -> tuple[ServerConnection, ServerResponse]:
        """The response to a request, read as a whole unless it ``streams``; then the caller releases the connection.

        Raises Unreachable.
        """
        self._use_current_credentials()
        traced = None if self._tracer is None else self._tracer.request_started(method, self._authority, path)
        request = self._encode(method, path, body, content_type, "" if traced is None else traced.traceparent)
        started, code = self._clock.monotonic(), "<error>"
        try:
            connection, response = await self._exchange(method, request, streams=streams)
            code = str(response.status)
        except _CONNECTION_ERRORS as error:
            raise self._unreachable(error) from error
        finally:
            if self._on_response is not None:
                self._on_response(method, self._authority, code, self._clock.monotonic() - started)
            if traced is not None:
                traced.ended(code)
        return connection, response

    async def _exchange(self, method: str, request: bytes, *, streams: bool) -> tuple[ServerConnection, ServerResponse]:
        """Send a request on a connection of the pool.

        The server may close a connection that was idle just when a request is sent on it. A GET is then sent again on
        another connection. A write may have taken effect, and would conflict with itself.
        """
        pool = self._pool
        while True:
            connection, reused = await self._connection()
            response = None
            try:
                if streams:
                    response = await connection.open(request, self._timeout)
                    pool.begin_stream(connection)
                else:
                    response = await connection.request(request, self._timeout)
                return connection, response
            except ConnectionBroken as error:
                if not (reused and error.before_response and method == "GET"):
                    raise
            finally:
                if response is None or not streams:
                    pool.release(connection)

    async def _connection(self) -> tuple[ServerConnection, bool]:
        """A connection of the pool, and whether it has carried requests before.

        The authority of the server or the client certificate may just have been replaced. If the TLS handshake fails
        and there are other files by now, it is tried once more.
        """
        tls = self._credentials.tls
        try:
            return await self._pool.acquire(self._timeout)
        except ssl.SSLError:
            try:
                await self._credentials.refresh()
            except InputError as error:
                _log.warning("cannot reload the credentials: %s", error, extra=fields(err=str(error)))
            if self._credentials.tls is tls:
                raise
        return await self._pool.acquire(self._timeout)

    def _use_current_credentials(self) -> None:
        """Have requests carry the credentials as they are now, in their headers and by their connections."""
        if self._headers_from is not self._credentials.headers:
            headers = {"Host": self._authority, "User-Agent": self._user_agent}
            headers |= {"Accept": JSON, "Accept-Encoding": "identity"}
            pairs = [*headers.items(), *self._credentials.headers.items()]
            for name, value in pairs:
                if not value.isprintable():
                    raise Unreachable(self.server, f"the header {name} contains a character that is not printable")
            self._headers = "".join(f"{name}: {value}\r\n" for name, value in pairs) + self._pool.proxy_headers
            self._headers_from = self._credentials.headers
            self._pool.retire()

    def _encode(self, method: str, path: str, body: bytes | None, content_type: str, traceparent: str) -> bytes:
        """The request as it is sent. No character of the path can end the request line."""
        if _TARGET.fullmatch(path) is None:
            path = quote(path, safe=_RESERVED)
        head = f"{method} {self._pool.target_prefix}{self._base_path}{path} HTTP/1.1\r\n{self._headers}"
        if traceparent:
            head = f"{head}traceparent: {traceparent}\r\n"
        if body is None:
            return f"{head}\r\n".encode()
        head = f"{head}Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body

    async def _reload_credentials(self, rejected: Mapping[str, str]) -> bool:
        try:
            return await self._credentials.reload(rejected)
        except InputError as error:
            _log.warning(
                "cannot reload the credentials that the API server rejected: %s", error, extra=fields(err=str(error))
            )
            return False

    def _unreachable(self, error: Exception) -> Unreachable:
        return Unreachable(self.server, describe_connection_error(error))


class ReadOnlyTransport(Transport):
    """A transport that sends GET requests only: whatever a caller asks for, nothing on the server changes."""

    async def _round_trip(
        self, method: str, path: str, body: bytes | None, content_type: str, *, streams: bool = False
    ) -> tuple[ServerConnection, ServerResponse]:
        """As that of :class:`Transport`, through which all requests go. Raises ValueError for another method."""
        if method != "GET" or body is not None:
            raise ValueError(f"{method} {path}: this client only reads")
        return await super()._round_trip(method, path, None, content_type, streams=streams)


def describe_connection_error(error: Exception) -> str:
    """One line of text for an exception of a connection or of the operating system."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verification failed: {error}"
    if isinstance(error, socket.gaierror):
        return "no such host"
    if isinstance(error, OSError) and error.errno is not None and error.errno in errno.errorcode:
        return os.strerror(error.errno).lower()
    if isinstance(error, TimeoutError):
        return "request timed out"
    return str(error) or type(error).__name__


def _api_error(response: ServerResponse) -> APIError:
    """The failure that a response stands for; one sent by a proxy or load balancer contains no Status."""
    body = response.body
    header = response.headers.get(b"retry-after", b"")
    retry_after = _cap(float(header) if header.isdigit() else None)
    try:
        status = msgspec.json.decode(body, type=APIStatus)
    except UNDECODABLE:
        text = " ".join(body[:200].decode(errors="replace").split())
        message = f"{response.status} {response.reason}: {text}" if text else ""
        return APIError(response.status, response.reason or "", message, retry_after=retry_after)
    if retry_after is None:
        retry_after = _cap(status.retry_after)
    return APIError(response.status, status.reason, status.message, retry_after=retry_after)


def _cap(retry_after: float | None) -> float | None:
    return None if retry_after is None else min(retry_after, _MAX_RETRY_AFTER)


class _StatusDetails(msgspec.Struct, rename="camel"):
    retry_after_seconds: float | None = None


class APIStatus(msgspec.Struct):
    """The fields of a ``v1.Status`` that become an :class:`APIError`.

    It is the body of a response, or the object of an ERROR event of a watch.
    """

    code: int = 0
    reason: str = ""
    message: str = ""
    details: _StatusDetails | None = None

    @property
    def retry_after(self) -> float | None:
        """The delay in seconds that the server requests before a retry."""
        return None if self.details is None else self.details.retry_after_seconds

    def error(self) -> APIError:
        """The failure that an ERROR event of a watch stands for."""
        return APIError(self.code, self.reason, self.message)


@dataclass(frozen=True, slots=True)
class RateLimit:
    """``qps`` requests per second on average, up to ``burst`` at once; unlimited unless ``qps`` is positive."""

    qps: float = 0.0
    burst: int = 0


UNLIMITED = RateLimit()


class TokenBucketRateLimiter:
    """A token bucket on an injected clock. ``limit.qps`` must be positive."""

    def __init__(self, limit: RateLimit, *, clock: Clock) -> None:
        self._qps, self._burst, self._clock = limit.qps, max(limit.burst, 1), clock
        self._tokens, self._filled_at = float(self._burst), clock.monotonic()

    async def wait(self) -> None:
        """Take one token; sleep until there is one. Waiters are served in order of arrival."""
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._qps)
        self._filled_at = now
        self._tokens -= 1
        if self._tokens < 0:  # the deficit counts the tokens reserved by this waiter and those before it
            await self._clock.sleep(-self._tokens / self._qps)
