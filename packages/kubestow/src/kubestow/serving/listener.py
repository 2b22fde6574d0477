"""The listening sockets and their connections, with limits against slow, excessive and malformed clients.

Handshakes and requests have a deadline, request lines and headers a maximum size, connections a maximum number
(:mod:`connection_table`), and bodies are not read. Input that is not HTTP is answered by the HTTP library and logged
only at verbosity 4.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

from aiohttp import web

from kubestow.errors import InputError
from kubestow.observability.logs import V, fields
from kubestow.serving import aiohttp_messages
from kubestow.serving.connection_table import Connection, ConnectionTable
from kubestow.serving.http_messages import HTTPRequest, HTTPResponse, StatusError
from kubestow.serving.options import ServingOptions

__all__ = ["SecureListener"]

_log = logging.getLogger(__name__)

_HANDSHAKE_SECONDS = 10.0
#: From the start of the connection, or of the previous request on it, to the last byte of the response; in a stream,
#: between two parts of it.
_REQUEST_SECONDS = 60.0
#: For requests in flight when the listener stops.
_SHUTDOWN_SECONDS = 5.0
_MAX_CONNECTIONS = 256
_MAX_CONNECTIONS_PER_PEER = 64
#: Connections beyond the maximum, for health checks only.
_RESERVED_CONNECTIONS = 16
#: Connections that the kernel completes before they are accepted.
_BACKLOG = 128
#: Until the next try after a connection could not be accepted.
_ACCEPT_RETRY_SECONDS = 0.1
#: Bytes of the request line and of each header; number of headers.
_MAX_LINE_BYTES, _MAX_HEADERS = 8190, 100
_HEALTH_CHECKS = ("/healthz", "/livez", "/readyz")


class SecureListener:
    """Accepts connections and passes each request to ``handle``. ``port`` is the actual port after :meth:`start`."""

    def __init__(
        self,
        options: ServingOptions,
        context: ssl.SSLContext,
        handle: Callable[[HTTPRequest], Awaitable[HTTPResponse]],
    ) -> None:
        self.port = options.port
        self._options, self._context, self._handle = options, context, handle
        self._connections: _Connections | None = None
        self._sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Listen. Raises InputError if the address is not available."""
        self._connections = _Connections(
            self._respond,
            access_log=None,
            logger=_http_logger(),
            max_line_size=_MAX_LINE_BYTES,
            max_field_size=_MAX_LINE_BYTES,
            max_headers=_MAX_HEADERS,
            keepalive_timeout=_REQUEST_SECONDS,
            lingering_time=0.0,
            handler_cancellation=True,
        )
        options = self._options
        try:
            self._sockets = await _listening_sockets(options)
        except OSError as error:
            problem = "is in use by another process" if error.errno == errno.EADDRINUSE else error.strerror or error
            raise InputError("--secure-port", f"{options.address}:{options.port} {problem}") from None
        self.port = self._sockets[0].getsockname()[1]
        self._accepting = [
            asyncio.create_task(self._accept(listening, self._connections), name="secure port")
            for listening in self._sockets
        ]

    async def stop(self) -> None:
        """Stop listening, give requests in flight a few seconds, and close all connections."""
        for accepting in self._accepting:
            accepting.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        for listening in self._sockets:
            listening.close()
        if self._connections is not None:
            await self._connections.stop_handshakes()
            self._connections.pre_shutdown()
            await self._connections.shutdown(_SHUTDOWN_SECONDS)

    async def _accept(self, listening: socket.socket, connections: _Connections) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
            except OSError as error:  # typically no more file descriptors
                _log.warning("Unable to accept a connection", extra=fields(err=error.strerror or str(error)))
                connections.table.close_longest_idle()
                await asyncio.sleep(_ACCEPT_RETRY_SECONDS)
                continue
            connections.open(accepted, address[0], self._context)
            await asyncio.sleep(0)  # sock_accept does not suspend while connections are waiting

    async def _respond(self, incoming: web.BaseRequest) -> web.StreamResponse:
        assert self._connections is not None
        with self._connections.request(incoming.protocol) as connection:
            request = aiohttp_messages.parse(incoming)
            if connection.is_reserved and not request.path.startswith(_HEALTH_CHECKS):
                response = StatusError(503, "ServiceUnavailable", "too many requests are in progress").response
            else:
                response = await self._handle(request)
            if response.stream is not None:
                extend_deadline = partial(self._connections.set_deadline, incoming.protocol)
                return await aiohttp_messages.send_stream(incoming, response, extend_deadline)
        outgoing = aiohttp_messages.whole(response)
        if incoming.can_read_body or connection.is_reserved:
            outgoing.force_close()  # the library would read the body; a reserved connection has one request
        return outgoing


async def _listening_sockets(options: ServingOptions) -> list[socket.socket]:
    """One socket for each address of the host. Raises OSError."""
    infos = await asyncio.get_running_loop().getaddrinfo(
        options.address or None, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    try:
        for family, address in dict.fromkeys((info[0], info[4]) for info in infos):
            listening = socket.create_server(
                address[:2], family=family, backlog=_BACKLOG, reuse_port=options.reuse_port
            )
            listening.setblocking(False)
            sockets.append(listening)
    except OSError:
        for listening in sockets:
            listening.close()
        raise
    return sockets


class _Connections(web.Server):
    """All connections, each with a deadline that every new request extends."""

    def __init__(self, handler: Any, **options: Any) -> None:
        super().__init__(handler, **options)
        self.table = ConnectionTable(
            maximum=_MAX_CONNECTIONS, per_peer=_MAX_CONNECTIONS_PER_PEER, reserved=_RESERVED_CONNECTIONS
        )
        self._by_handler: dict[web.RequestHandler, Connection] = {}
        self._deadlines: dict[web.RequestHandler, asyncio.TimerHandle] = {}
        self._handshakes: set[asyncio.Task[None]] = set()

    def open(self, accepted: socket.socket, peer: str, context: ssl.SSLContext) -> None:
        """Start the TLS handshake of an accepted connection."""
        handler = self()
        handshake = asyncio.create_task(self._shake_hands(accepted, handler, context), name="TLS handshake")

        def close() -> None:
            handshake.cancel()
            _abort(handler)

        self._by_handler[handler] = self.table.add(peer, close)
        self._handshakes.add(handshake)
        handshake.add_done_callback(self._handshakes.discard)

    async def _shake_hands(self, accepted: socket.socket, handler: web.RequestHandler, context: ssl.SSLContext) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: handler,
                accepted,
                ssl=context,
                ssl_handshake_timeout=_HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=_SHUTDOWN_SECONDS,
            )
        except OSError as error:  # ssl.SSLError is one
            _log.log(V(4), "TLS handshake error", extra=fields(err=str(error)))
        finally:
            if handler not in self._deadlines:  # the handshake failed
                accepted.close()
                self._forget(handler)

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self.set_deadline(handler)

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        deadline = self._deadlines.pop(handler, None)
        if deadline is not None:
            deadline.cancel()
        self._forget(handler)

    def _forget(self, handler: web.RequestHandler) -> None:
        connection = self._by_handler.pop(handler, None)
        if connection is not None:
            self.table.remove(connection)

    @contextlib.contextmanager
    def request(self, handler: web.RequestHandler) -> Iterator[Connection]:
        """A request of a connection in progress."""
        self.set_deadline(handler)
        connection = self._by_handler[handler]
        self.table.set_busy(connection)
        try:
            yield connection
        finally:
            self.table.set_idle(connection)

    def set_deadline(self, handler: web.RequestHandler) -> None:
        """Abort the connection unless another request starts, or the connection closes, within the deadline."""
        if (former := self._deadlines.get(handler)) is not None:
            former.cancel()
        self._deadlines[handler] = asyncio.get_running_loop().call_later(_REQUEST_SECONDS, _abort, handler)

    async def stop_handshakes(self) -> None:
        for handshake in self._handshakes:
            handshake.cancel()
        await asyncio.gather(*self._handshakes, return_exceptions=True)


def _abort(handler: web.RequestHandler) -> None:
    if handler.transport is not None:
        handler.transport.abort()


def _http_logger() -> logging.Logger:
    """The logger of the HTTP library: one line per malformed request, at verbosity 4, without a traceback."""
    logger = logging.getLogger(f"{__name__}.http")
    logger.filters[:] = [_shorten]
    return logger


def _shorten(record: logging.LogRecord) -> bool:
    if not _log.isEnabledFor(V(4)):
        return False
    if record.exc_info and record.exc_info[1] is not None:
        record.msg, record.args = "%s: %s", (record.getMessage(), type(record.exc_info[1]).__name__)
        record.exc_info = None
    record.levelno, record.levelname = logging.DEBUG, "DEBUG"
    return True
