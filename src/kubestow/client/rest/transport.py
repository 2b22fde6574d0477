"""Requests to one API server over persistent connections: bytes in, bytes out, failures as errors of our tree.

Everything the client says goes through :meth:`Transport.request`, or :meth:`Transport.stream` for a watch. An answer
that is no success becomes an APIError, no answer at all becomes Unreachable. Two things are put right here, for all
callers: a server that says when to come back (``Retry-After``) is asked again then, or after a minute if that is
sooner, and a token that it refuses is renewed once. All other retrying belongs to those who know what a request means.
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
import msgspec
from aiohttp.connector import AddrInfoType
from yarl import URL

from kubestow.client.rest.credentials import Credentials
from kubestow.client.rest.rate_limiter import RateLimit
from kubestow.errors import APIError, InputError, Unreachable
from kubestow.scheduling.ports import Clock
from kubestow.version import VERSION

__all__ = ["JSON", "MERGE_PATCH", "STRATEGIC_MERGE_PATCH", "USER_AGENT", "OnAnswer", "Transport", "problem_of"]

_log = logging.getLogger(__name__)

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
USER_AGENT = f"kubestow/{VERSION}"

#: Is told of each request: method, server, status (``<error>`` without an answer) and the seconds until then.
OnAnswer = Callable[[str, str, str, float], None]

_RETRIES = 10
#: What a server may ask for at most, in seconds; whoever speaks for it while it is away may not know when it is back.
_LONGEST_PATIENCE = 60.0
_CONNECTIONS = 256
_CONNECT_TIMEOUT = 30.0
#: A request for which a server may take its time is cut off by the server itself after a minute.
_REQUEST_TIMEOUT = 70.0
#: Bytes read ahead from a stream; what has come is handled in one go, so a larger buffer costs less per event.
_STREAM_BUFFER = 2**18


#: What is raised when a server does not answer, or not to the end.
_NO_ANSWER = (aiohttp.ClientError, TimeoutError, OSError)


class _StatusDetails(msgspec.Struct):
    retryAfterSeconds: float | None = None  # noqa: N815


class _Status(msgspec.Struct):
    """The part of a ``v1.Status`` that explains a failure."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: _StatusDetails | None = None


class Transport:
    """Connections to one API server. Use as ``async with``; several requests may be under way at once."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        clock: Clock,
        limit: RateLimit | None = None,
        user_agent: str = USER_AGENT,
        timeout: float = _REQUEST_TIMEOUT,
        on_answer: OnAnswer | None = None,
    ) -> None:
        self._on_answer = on_answer
        self._credentials, self._clock, self._limit = credentials, clock, limit
        self._user_agent = user_agent
        self._timeout = aiohttp.ClientTimeout(total=timeout, sock_connect=_CONNECT_TIMEOUT)
        self._session: aiohttp.ClientSession | None = None

    @property
    def server(self) -> str:
        """The address of the API server."""
        return self._credentials.server

    async def __aenter__(self) -> Self:
        tls = self._credentials.tls
        connector = aiohttp.TCPConnector(
            ssl=True if tls is None else tls,
            limit=_CONNECTIONS,
            keepalive_timeout=30,
            socket_factory=_socket_that_notices_silence,
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
        """Send a request and return the body of the successful answer. ``path`` is percent-encoded, with its query.

        Raises APIError and Unreachable. What is refused in the end is in doubt all the same if an earlier try was.
        """
        in_doubt = False
        for attempt in range(_RETRIES + 1):
            try:
                return await self._send(method, path, body, content_type)
            except APIError as error:
                in_doubt = error.in_doubt = error.in_doubt or in_doubt
                if error.retry_after is None or attempt == _RETRIES or not _worth_waiting(error.code):
                    raise
                _log.debug("%s %s: %s; asked to wait %g s", method, path, error, error.retry_after)
                await self._clock.sleep(error.retry_after)
        raise AssertionError("the last attempt returns or raises")

    @asynccontextmanager
    async def stream(self, path: str, *, silence: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """GET an answer without end, as chunks of bytes as they come.

        A connection on which nothing comes for ``silence`` seconds counts as broken. Raises APIError and Unreachable,
        on entering and from the chunks.
        """
        timeout = aiohttp.ClientTimeout(sock_connect=_CONNECT_TIMEOUT, sock_read=silence)
        if self._limit is not None:
            await self._limit.wait()
        try:
            response = await self._open("GET", path, timeout=timeout, read_bufsize=_STREAM_BUFFER)
        except _NO_ANSWER as error:
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
        except _NO_ANSWER as error:
            raise self._unreachable(error) from error

    async def _send(self, method: str, path: str, body: bytes | None, content_type: str) -> bytes:
        if self._limit is not None:
            await self._limit.wait()
        try:
            response = await self._open(method, path, data=body, content_type=content_type if body else "")
            return await response.read()
        except _NO_ANSWER as error:
            raise self._unreachable(error) from error

    async def _open(self, method: str, path: str, *, content_type: str = "", **options: Any) -> aiohttp.ClientResponse:
        """The response whose status is a success, its body not yet read."""
        response, headers = await self._exchange(method, path, content_type, options)
        if response.status == 401 and await self._renewed(headers):
            response.release()
            response, _ = await self._exchange(method, path, content_type, options)
        if response.status >= 300:
            raise _api_error(response, await response.read())
        return response

    async def _exchange(
        self, method: str, path: str, content_type: str, options: dict[str, Any]
    ) -> tuple[aiohttp.ClientResponse, Any]:
        assert self._session is not None, "the transport is used outside its async with"
        credentials = self._credentials
        known = headers = credentials.headers
        if content_type:
            headers = known.copy()
            headers["Content-Type"] = content_type
        url = URL(credentials.server + path, encoded=True)
        began, code = self._clock.monotonic(), "<error>"
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
            if self._on_answer is not None:
                self._on_answer(method, url.authority, code, self._clock.monotonic() - began)
        return response, known

    async def _renewed(self, refused: Any) -> bool:
        try:
            return await self._credentials.renew(refused)
        except InputError as error:
            _log.warning("the API server refused our credentials, and they cannot be renewed: %s", error)
            return False

    def _unreachable(self, error: Exception) -> Unreachable:
        return Unreachable(self.server, problem_of(error))


def _worth_waiting(code: int) -> bool:
    return code == 429 or code >= 500


def problem_of(error: Exception) -> str:
    """What went wrong with a connection, in words."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"its certificate is not to be trusted: {error.certificate_error}"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "its name does not resolve"
    if isinstance(error, OSError) and error.errno is not None and error.errno in errno.errorcode:
        return os.strerror(error.errno).lower()
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "closed the connection without an answer"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "broke off in the middle of an answer"
    return str(error) or type(error).__name__


def _api_error(response: aiohttp.ClientResponse, body: bytes) -> APIError:
    """The failure as the API server says it; a proxy in between speaks only HTTP."""
    header = response.headers.get("Retry-After", "")
    retry_after = _patience(float(header) if header.isdecimal() else None)
    try:
        status = msgspec.json.decode(body, type=_Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = " ".join(body[:200].decode(errors="replace").split())
        message = f"{response.status} {response.reason}: {text}" if text else ""
        return APIError(response.status, response.reason or "", message, retry_after=retry_after)
    if retry_after is None and status.details is not None:
        retry_after = _patience(status.details.retryAfterSeconds)
    return APIError(response.status, status.reason, status.message, retry_after=retry_after)


def _patience(seconds: float | None) -> float | None:
    return None if seconds is None else min(seconds, _LONGEST_PATIENCE)


def _socket_that_notices_silence(address: AddrInfoType) -> socket.socket:
    """A socket whose kernel asks a silent peer whether it is still there: a dead one is found within a minute."""
    family, kind, protocol, _, _ = address
    connection = socket.socket(family=family, type=kind, proto=protocol)
    connection.setblocking(False)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):  # not every platform lets one choose
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return connection
