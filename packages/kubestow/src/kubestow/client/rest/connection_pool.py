"""Connections to one server: opened on demand, directly or through a proxy, and kept for later requests.

The most recently used connection is used first, so that surplus connections become idle and are closed. When the limit
is reached, requests wait in order of arrival. Streams do not count against the limit: there is one long-lived stream
per watched resource.

The proxy is that of the environment (``HTTPS_PROXY``, ``HTTP_PROXY``, ``NO_PROXY``). ``NO_PROXY`` is evaluated as Go
programs do: networks such as ``10.0.0.0/8`` match addresses, ``.example.org`` matches subdomains but not the domain
itself, and loopback addresses are never proxied. ``urllib`` does not support networks.
"""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
from collections import deque
from collections.abc import Callable
from urllib.parse import SplitResult, unquote, urlsplit

import aiohappyeyeballs
from aiohappyeyeballs import AddrInfoType

from kubestow.client.rest.server_connection import ConnectionBroken, ServerConnection
from kubestow.process import open_file_limit

#: Seconds after which another address of a server is tried beside the first (RFC 8305).
_NEXT_ADDRESS_DELAY = 0.25
_CONNECT_TIMEOUT = 30.0
_DEFAULT_PORTS = {"https": 443, "http": 80}
#: As many requests as keep an API server busy. A burst of bindings opens as many connections as it may, and a TLS
#: handshake costs the client more CPU time than several requests.
_MAX_CONNECTIONS = 32
#: A pool takes up at most one in so many of the files that the process may open, besides streams.
_FILES_PER_CONNECTION = 8


class ConnectionPool:
    """Connections to a server, at most ``limit`` at a time besides those that carry streams.

    ``tls`` returns the settings for a new connection if the server is an https URL; None means the default.
    Connections that were idle for ``idle_timeout`` seconds are closed, before a load balancer drops them silently.
    """

    def __init__(
        self,
        server: str,
        *,
        tls: Callable[[], ssl.SSLContext | None],
        tls_server_name: str | None = None,
        proxy: str | None = None,
        limit: int = _MAX_CONNECTIONS,
        idle_timeout: float = 30.0,
    ) -> None:
        self._server = urlsplit(server)
        self._is_encrypted, self._tls = self._server.scheme == "https", tls
        self._tls_server_name = tls_server_name or self._server.hostname or ""
        self._proxy = None if proxy is None else urlsplit(proxy)
        self._limit = max(1, min(limit, open_file_limit() // _FILES_PER_CONNECTION))
        self._idle_timeout = idle_timeout
        self._idle: deque[ServerConnection] = deque()
        self._in_use: set[ServerConnection] = set()
        self._streams: set[ServerConnection] = set()
        self._opening = 0
        self._generation = 0
        self._waiters: deque[asyncio.Future[None]] = deque()
        #: What precedes the path in a request: scheme and host of the server where a proxy forwards plain HTTP.
        forwards = self._proxy is not None and not self._is_encrypted
        self.target_prefix = f"http://{self._server.netloc.rpartition('@')[2]}" if forwards else ""
        #: Headers for the proxy, as far as it reads those of requests.
        self.proxy_headers = _proxy_authorization(self._proxy) if self.target_prefix else ""

    async def acquire(self, time_limit: float | None = None) -> tuple[ServerConnection, bool]:
        """A connection, and whether it has carried requests before; give it back with :meth:`release`.

        Raises OSError and TimeoutError when the server cannot be reached or no connection becomes free within
        ``time_limit`` seconds, and ConnectionBroken when the proxy fails.
        """
        connection = None if self._waiters else self._take_idle()
        if connection is not None:
            return connection, True
        async with asyncio.timeout(time_limit):
            return await self._wait_or_open()

    def _take_idle(self) -> ServerConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable and not self._is_stale(connection):
                self._in_use.add(connection)
                return connection
            connection.close()
        return None

    async def _wait_or_open(self) -> tuple[ServerConnection, bool]:
        has_waited = False
        while True:
            if has_waited or not self._waiters:
                connection = self._take_idle()
                if connection is not None:
                    return connection, True
                if len(self._in_use) + self._opening < self._limit:
                    return await self._open(), False
            waiter = asyncio.get_running_loop().create_future()
            if has_waited:
                self._waiters.appendleft(waiter)
            else:
                self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake_next()
                raise
            has_waited = True

    def begin_stream(self, connection: ServerConnection) -> None:
        """Leave a connection in use out of the limit until it is released."""
        self._in_use.remove(connection)
        self._streams.add(connection)
        self._wake_next()

    def release(self, connection: ServerConnection) -> None:
        """Keep a connection for the next request, or close it if it is retired or its response is not complete."""
        self._in_use.discard(connection)
        self._streams.discard(connection)
        if connection.reusable and connection.generation == self._generation:
            connection.idle_since = asyncio.get_running_loop().time()
            self._idle.append(connection)
        else:
            connection.close()
        while self._idle and (self._is_stale(self._idle[0]) or not self._idle[0].reusable):
            self._idle.popleft().close()  # it cannot be used any more
        self._wake_next()

    def _is_stale(self, connection: ServerConnection) -> bool:
        return asyncio.get_running_loop().time() - connection.idle_since > self._idle_timeout

    def retire(self) -> None:
        """Open other connections for later requests: a connection keeps the certificates of its TLS handshake."""
        self._generation += 1
        while self._idle:
            self._idle.popleft().close()

    def close(self) -> None:
        """Close all connections."""
        for connection in (*self._idle, *self._in_use, *self._streams):
            connection.close()
        self._idle.clear()

    def _wake_next(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    # -- opening -------------------------------------------------------------------------------------------------

    async def _open(self) -> ServerConnection:
        self._opening += 1
        generation = self._generation
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT):
                if self._proxy is None:
                    connection = await _connect(self._server, self._current_tls(), self._tls_server_name)
                else:
                    connection = await self._connect_through(self._proxy)
        except BaseException:
            self._wake_next()
            raise
        finally:
            self._opening -= 1
        connection.generation = generation
        self._in_use.add(connection)
        return connection

    def _current_tls(self) -> ssl.SSLContext | None:
        """The TLS settings for a new connection to the server; None for a server without encryption."""
        return (self._tls() or ssl.create_default_context()) if self._is_encrypted else None

    async def _connect_through(self, proxy: SplitResult) -> ServerConnection:
        proxy_tls = ssl.create_default_context() if proxy.scheme == "https" else None
        connection = await _connect(proxy, proxy_tls, proxy.hostname or "")
        tls = self._current_tls()
        if tls is None:
            return connection
        host = self._server.hostname or ""
        target = f"{f'[{host}]' if ':' in host else host}:{_port(self._server)}"
        try:
            head = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{_proxy_authorization(proxy)}\r\n"
            response = await connection.open(head.encode("ascii"))
            if response.status != 200:
                problem = f"the proxy refused the connection: {response.status} {response.reason}"
                raise ConnectionBroken(problem, before_response=True)
            await connection.start_tls(tls, self._tls_server_name)
        except BaseException:
            connection.close()
            raise
        return connection


async def _connect(server: SplitResult, tls: ssl.SSLContext | None, tls_server_name: str) -> ServerConnection:
    loop = asyncio.get_running_loop()
    try:
        addresses = await loop.getaddrinfo(server.hostname or "", _port(server), type=socket.SOCK_STREAM)
    except UnicodeError as error:  # a label that is empty or too long
        raise socket.gaierror(socket.EAI_NONAME, str(error)) from None
    connected = await aiohappyeyeballs.start_connection(
        addresses, happy_eyeballs_delay=_NEXT_ADDRESS_DELAY, interleave=1, socket_factory=_keepalive_socket
    )
    _, connection = await loop.create_connection(
        ServerConnection, sock=connected, ssl=tls, server_hostname=tls_server_name if tls is not None else None
    )
    return connection


def _port(url: SplitResult) -> int:
    return url.port or _DEFAULT_PORTS.get(url.scheme, 80)


def _proxy_authorization(proxy: SplitResult | None) -> str:
    if proxy is None or proxy.username is None:
        return ""
    credentials = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return f"Proxy-Authorization: Basic {base64.b64encode(credentials.encode()).decode()}\r\n"


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
