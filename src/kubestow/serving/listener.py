"""The listening socket and its connections, with limits against slow, excessive and malformed clients.

Handshakes and requests have a deadline, request lines and headers a maximum size, connections a maximum number, and
bodies are not read. Input that is not HTTP is answered by the HTTP library and logged only at verbosity 4.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from kubestow.errors import InputError
from kubestow.observability.logs import V
from kubestow.serving.http_messages import HTTPRequest, HTTPResponse, PeerCertificate
from kubestow.serving.options import ServingOptions

__all__ = ["SecureListener"]

_log = logging.getLogger(__name__)

_HANDSHAKE_SECONDS = 10.0
#: From the start of the connection, or of the previous request on it, to the last byte of the response.
_REQUEST_SECONDS = 60.0
#: For requests in flight when the listener stops.
_SHUTDOWN_SECONDS = 5.0
_MAX_CONNECTIONS = 256
#: Bytes of the request line and of each header; number of headers.
_MAX_LINE_BYTES, _MAX_HEADERS = 8190, 100

_HEADERS = {"Cache-Control": "no-cache, private", "Server": "kubestow"}


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
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen. Raises InputError if the address is not available."""
        options = self._options
        self._connections = connections = _Connections(
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
        try:
            self._server = await asyncio.get_running_loop().create_server(
                connections,
                options.address,
                options.port,
                ssl=self._context,
                ssl_handshake_timeout=_HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=_SHUTDOWN_SECONDS,
                reuse_port=options.reuse_port or None,
                reuse_address=options.reuse_address or None,
            )
        except OSError as error:
            problem = "is in use by another process" if error.errno == errno.EADDRINUSE else error.strerror or error
            raise InputError("--secure-port", f"{options.address}:{options.port} {problem}") from None
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening, give requests in flight a few seconds, and close all connections."""
        if self._server is not None:
            self._server.close()
        if self._connections is not None:
            self._connections.pre_shutdown()
            await self._connections.shutdown(_SHUTDOWN_SECONDS)

    async def _respond(self, incoming: web.BaseRequest) -> web.StreamResponse:
        assert self._connections is not None
        self._connections.set_deadline(incoming.protocol)
        response = await self._handle(_parse(incoming))
        headers = {**_HEADERS, **response.headers, "Content-Type": response.content_type}
        outgoing = web.Response(status=response.status, body=response.body, headers=headers)
        if incoming.can_read_body:
            outgoing.force_close()  # otherwise the library would read the body
        return outgoing


class _Connections(web.Server):
    """All connections, each with a deadline that every new request extends."""

    def __init__(self, handler: Any, **options: Any) -> None:
        super().__init__(handler, **options)
        self._deadlines: dict[web.RequestHandler, asyncio.TimerHandle] = {}

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        if len(self._deadlines) >= _MAX_CONNECTIONS:
            transport.abort()
        else:
            self.set_deadline(handler)

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        deadline = self._deadlines.pop(handler, None)
        if deadline is not None:
            deadline.cancel()

    def set_deadline(self, handler: web.RequestHandler) -> None:
        """Abort the connection unless another request starts, or the connection closes, within the deadline."""
        if (former := self._deadlines.get(handler)) is not None:
            former.cancel()
        self._deadlines[handler] = asyncio.get_running_loop().call_later(_REQUEST_SECONDS, _abort, handler)


def _abort(handler: web.RequestHandler) -> None:
    if isinstance(handler.transport, asyncio.Transport):
        handler.transport.abort()


def _parse(incoming: web.BaseRequest) -> HTTPRequest:
    headers: dict[str, list[str]] = {}
    for name, value in incoming.headers.items():
        headers.setdefault(name.lower(), []).append(value)
    query: dict[str, list[str]] = {}
    for name, value in incoming.rel_url.query.items():
        query.setdefault(name, []).append(value)
    return HTTPRequest(incoming.method, incoming.rel_url.path, query, headers, _certificate(incoming))


def _certificate(incoming: web.BaseRequest) -> PeerCertificate | None:
    connection = incoming.get_extra_info("ssl_object")
    der = None if connection is None else connection.getpeercert(binary_form=True)
    if not der:
        return None
    subject: dict[str, list[str]] = {}
    for relative_name in connection.getpeercert().get("subject", ()):
        for attribute, value in relative_name:
            subject.setdefault(attribute, []).append(value)
    common_name = subject.get("commonName", [""])[-1]
    return PeerCertificate(common_name, tuple(subject.get("organizationName", ())), der)


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
