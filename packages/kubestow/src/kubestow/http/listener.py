"""Listening sockets and their connections, with limits against slow, excessive and malformed clients.

Request lines and headers have a maximum size. With :class:`ConnectionLimits`, handshakes and requests have a deadline
too, and connections a maximum number: a connection is idle while no request of it is in progress, which is during the
TLS handshake, before its first request, and between requests. Idle connections give way: when the port or the address
of a peer has reached its maximum, its connection that has been idle the longest is closed. If none is idle, the new
connection is *reserved*: it may send one health check and nothing else, so that slow requests cannot hide whether the
process lives.

Input that is not HTTP is answered by the HTTP library and logged only at verbosity 4.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from kubestow.log_fields import V, fields
from kubestow.process import open_file_limit

_log = logging.getLogger(__name__)

#: Connections that the kernel completes before they are accepted.
_BACKLOG = 1024
#: The connections of a port take up at most one in so many of the files that the process may open: there are several
#: ports, the client of the API server, and files.
_FILES_PER_CONNECTION = 4
#: Until the next try after a connection could not be accepted.
_ACCEPT_RETRY_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """The limits on the connections of one port.

    At most ``maximum`` connections, ``per_peer`` of them of one address, and ``reserved`` more for health checks; fewer
    if the process may open few files (RLIMIT_NOFILE).
    ``handshake_seconds`` limits the TLS handshake. A request has ``request_seconds`` from the start of the connection,
    or of the previous request on it, to the last byte of the response; in a stream, between two parts of it.
    """

    maximum: int = 256
    per_peer: int = 64
    reserved: int = 16
    handshake_seconds: float = 10.0
    request_seconds: float = 60.0


@dataclass(eq=False, slots=True)
class ClientConnection:
    """One connection. ``close`` closes it at once; ``is_reserved`` connections are for health checks only."""

    peer: str
    close: Callable[[], None]
    is_reserved: bool = False


class ConnectionTable:
    """The open connections of a port, and which of them is closed for a new one."""

    def __init__(self, *, maximum: int, per_peer: int, reserved: int) -> None:
        self._maximum, self._per_peer, self._max_reserved = maximum, per_peer, reserved
        self._open: set[ClientConnection] = set()
        #: The number of connections by peer address, without the reserved ones.
        self._by_peer: Counter[str] = Counter()
        #: The idle connections, the longest idle first.
        self._idle: dict[ClientConnection, None] = {}
        #: The reserved connections, the oldest first.
        self._reserved: dict[ClientConnection, None] = {}

    def __len__(self) -> int:
        return len(self._open) + len(self._reserved)

    def add(self, peer: str, close: Callable[[], None]) -> ClientConnection:
        """Add a connection, for which others may be closed."""
        connection = ClientConnection(peer, close)
        if self._by_peer[peer] >= self._per_peer:
            connection.is_reserved = not self.close_longest_idle(peer)
        elif len(self._open) >= self._maximum:
            connection.is_reserved = not self.close_longest_idle()
        if connection.is_reserved:
            while len(self._reserved) >= self._max_reserved:
                self._close(next(iter(self._reserved)))
            self._reserved[connection] = None
        else:
            self._open.add(connection)
            self._by_peer[peer] += 1
            self._idle[connection] = None
        return connection

    def remove(self, connection: ClientConnection) -> None:
        """Remove a connection that is closed; without effect if it has been removed."""
        self._idle.pop(connection, None)
        self._reserved.pop(connection, None)
        if connection in self._open:
            self._open.remove(connection)
            self._by_peer[connection.peer] -= 1
            if not self._by_peer[connection.peer]:
                del self._by_peer[connection.peer]

    def set_busy(self, connection: ClientConnection) -> None:
        """A request of this connection is in progress."""
        self._idle.pop(connection, None)

    def set_idle(self, connection: ClientConnection) -> None:
        """The request has ended."""
        if connection in self._open:
            self._idle[connection] = None

    def close_longest_idle(self, peer: str | None = None) -> bool:
        """Close the connection, of a peer or of all, that has been idle the longest; False if none is idle."""
        found = next((one for one in self._idle if peer is None or one.peer == peer), None)
        if found is None:
            return False
        self._close(found)
        return True

    def _close(self, connection: ClientConnection) -> None:
        self.remove(connection)
        connection.close()


class HTTPListener:
    """Accepts connections and passes each request to ``respond``, which must not raise. ``name`` is that of its tasks.

    Without ``limits`` connections are unlimited. ``cancels`` cancels the handling of a request whose client has gone.
    ``max_line_size`` bytes is the limit on the request line and on each header; connections without a request are
    closed after ``keepalive_seconds``. When the listener stops, responses in progress have ``shutdown_seconds``. Bodies
    that were not read are read and dropped for ``lingering_seconds``, so that the client reads the response.
    """

    def __init__(
        self,
        respond: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        *,
        name: str,
        limits: ConnectionLimits | None = None,
        cancels: bool = True,
        max_line_size: int = 8190,
        max_headers: int = 128,
        keepalive_seconds: float = 3600.0,
        lingering_seconds: float = 10.0,
        shutdown_seconds: float = 1.0,
    ) -> None:
        self._name, self._limits, self._shutdown_seconds = name, limits, shutdown_seconds
        self._connections = _Connections(
            respond,
            limits,
            access_log=None,
            logger=_http_log,
            # A small compressed body may decompress to a thousand times its size.
            auto_decompress=False,
            max_line_size=max_line_size,
            max_field_size=max_line_size,
            max_headers=max_headers,
            keepalive_timeout=keepalive_seconds,
            lingering_time=lingering_seconds,
            handler_cancellation=cancels,
        )
        self._sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []

    async def listen(
        self, address: str, port: int, *, tls: ssl.SSLContext | None = None, reuse_port: bool = False
    ) -> int:
        """Listen on all addresses of a host name, or on all of the machine if it is empty, and return the port.

        Port 0 selects a free one. Raises OSError if the address is not available.
        """
        for listening in await _listening_sockets(address, port, reuse_port=reuse_port):
            self.accept(listening, tls)
        return int(self._sockets[0].getsockname()[1])

    def accept(self, listening: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        """Accept the connections of a socket that listens, which :meth:`stop` closes."""
        self._sockets.append(listening)
        self._accepting.append(asyncio.create_task(self._accept(listening, tls), name=self._name))

    async def stop(self) -> None:
        """Stop listening, give requests in flight a little time, and close all connections."""
        loop = asyncio.get_running_loop()
        for accepting, listening in zip(self._accepting, self._sockets, strict=True):
            # asyncio would accept a connection that it has seen already for the task that is cancelled, and fail.
            loop.remove_reader(listening)
            accepting.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        for listening in self._sockets:
            listening.close()
        await self._connections.stop_handshakes()
        self._connections.pre_shutdown()
        await self._connections.shutdown(self._shutdown_seconds)

    def request(self, incoming: web.BaseRequest) -> contextlib.AbstractContextManager[ClientConnection]:
        """A request in progress, on a port with limits."""
        return self._connections.request(incoming.protocol)

    def extend_deadline(self, incoming: web.BaseRequest) -> None:
        """Start the time limit of a request anew, on a port with limits."""
        self._connections.set_deadline(incoming.protocol)

    async def _accept(self, listening: socket.socket, tls: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
            except OSError as error:  # typically no more file descriptors
                _log.warning("Unable to accept a connection", extra=fields(err=error.strerror or str(error)))
                self._connections.close_longest_idle()
                await asyncio.sleep(_ACCEPT_RETRY_SECONDS)
                continue
            # The address of a client of a Unix socket is not a pair.
            self._connections.open(accepted, address[0] if isinstance(address, tuple) else "", tls)
            await asyncio.sleep(0)  # sock_accept does not suspend while connections are waiting


async def _listening_sockets(address: str, port: int, *, reuse_port: bool) -> list[socket.socket]:
    """One socket for each address of the host. Raises OSError."""
    try:
        flags = socket.AI_PASSIVE | socket.AI_NUMERICHOST
        infos = socket.getaddrinfo(address or None, port, type=socket.SOCK_STREAM, flags=flags)
    except socket.gaierror:  # a name, whose resolution takes a while
        infos = await asyncio.get_running_loop().getaddrinfo(
            address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    sockets: list[socket.socket] = []
    try:
        for family, resolved in dict.fromkeys((info[0], info[4]) for info in infos):
            try:
                listening = socket.create_server(resolved[:2], family=family, backlog=_BACKLOG, reuse_port=reuse_port)
            except OSError as error:
                if error.errno == errno.EAFNOSUPPORT and len(infos) > 1:  # a kernel without IPv6
                    continue
                raise
            listening.setblocking(False)
            sockets.append(listening)
    except OSError:
        for listening in sockets:
            listening.close()
        raise
    return sockets


class _Connections(web.Server):
    """All connections; with limits, each has a deadline that every new request extends."""

    def __init__(self, handler: Any, limits: ConnectionLimits | None, **options: Any) -> None:
        super().__init__(handler, **options)
        self._limits = limits
        self._table: ConnectionTable | None = None
        if limits is not None:
            share = max(1, open_file_limit() // _FILES_PER_CONNECTION)
            maximum, reserved = min(limits.maximum, share), min(limits.reserved, share)
            self._table = ConnectionTable(maximum=maximum, per_peer=min(limits.per_peer, maximum), reserved=reserved)
        #: With limits only.
        self._by_handler: dict[web.RequestHandler, ClientConnection] = {}
        self._made: set[web.RequestHandler] = set()
        self._deadlines: dict[web.RequestHandler, asyncio.TimerHandle] = {}
        self._handshakes: set[asyncio.Task[None]] = set()

    def open(self, accepted: socket.socket, peer: str, tls: ssl.SSLContext | None) -> None:
        handler = self()
        handshake = asyncio.create_task(self._shake_hands(accepted, handler, tls), name="handshake")

        def close() -> None:
            handshake.cancel()
            _abort(handler)

        if self._table is not None:
            self._by_handler[handler] = self._table.add(peer, close)
        self._handshakes.add(handshake)
        handshake.add_done_callback(self._handshakes.discard)

    async def _shake_hands(
        self, accepted: socket.socket, handler: web.RequestHandler, tls: ssl.SSLContext | None
    ) -> None:
        limits = {}
        if tls is not None and self._limits is not None:
            limits = {"ssl_handshake_timeout": self._limits.handshake_seconds, "ssl_shutdown_timeout": 5.0}
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: handler, accepted, ssl=tls, **limits)
        except OSError as error:  # ssl.SSLError is one
            _log.log(V(4), "TLS handshake error", extra=fields(err=str(error)))
        finally:
            if handler not in self._made:  # the handshake failed
                accepted.close()
                self._forget(handler)

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._made.add(handler)
        self.set_deadline(handler)

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        deadline = self._deadlines.pop(handler, None)
        if deadline is not None:
            deadline.cancel()
        self._forget(handler)

    def _forget(self, handler: web.RequestHandler) -> None:
        self._made.discard(handler)
        connection = self._by_handler.pop(handler, None)
        if connection is not None and self._table is not None:
            self._table.remove(connection)

    def close_longest_idle(self) -> None:
        """Make room for a connection; without limits it is not known which are idle."""
        if self._table is not None:
            self._table.close_longest_idle()

    @contextlib.contextmanager
    def request(self, handler: web.RequestHandler) -> Iterator[ClientConnection]:
        """A request of a connection in progress."""
        assert self._table is not None
        self.set_deadline(handler)
        connection = self._by_handler[handler]
        self._table.set_busy(connection)
        try:
            yield connection
        finally:
            self._table.set_idle(connection)

    def set_deadline(self, handler: web.RequestHandler) -> None:
        """Abort the connection unless another request starts, or the connection closes, within the deadline."""
        if self._limits is None:
            return
        if (former := self._deadlines.get(handler)) is not None:
            former.cancel()
        seconds = self._limits.request_seconds
        self._deadlines[handler] = asyncio.get_running_loop().call_later(seconds, _abort, handler)

    async def stop_handshakes(self) -> None:
        for handshake in self._handshakes:
            handshake.cancel()
        await asyncio.gather(*self._handshakes, return_exceptions=True)


def _abort(handler: web.RequestHandler) -> None:
    if handler.transport is not None:
        handler.transport.abort()


def _shorten(record: logging.LogRecord) -> bool:
    """Whether to log a record of the HTTP library: one line per malformed request at verbosity 4, and all failures."""
    error = record.exc_info[1] if record.exc_info else None
    if not isinstance(error, HttpProcessingError):
        return True
    if not _log.isEnabledFor(V(4)):
        return False
    record.msg, record.args, record.exc_info = "%s: %s", (record.getMessage(), type(error).__name__), None
    record.levelno, record.levelname = logging.DEBUG, "DEBUG"
    return True


#: The logger of the HTTP library.
_http_log = logging.getLogger(f"{__name__}.http")
_http_log.addFilter(_shorten)
