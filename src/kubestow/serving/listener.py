"""The secure port: sockets, and the limits that hold for whoever is at the other end.

A stranger may open connections, say nothing, say too much, or never read what is answered. So handshakes and requests
have a deadline each, headers a size, connections a number, and bodies are not read at all. What is broken already below
HTTP is answered by the HTTP library in a word, and told of in the log only to those who want to know everything.
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

#: Seconds for a TLS handshake; for a request from the connection's (or the last request's) beginning to the last byte
#: that is read of its answer; and for what is under way when the server stops.
_HANDSHAKE, _REQUEST, _STOPPING = 10.0, 60.0, 5.0
#: Connections at one time.
_CONNECTIONS = 256
#: Bytes of a request's first line and of each header, and how many headers it may have.
_LINE, _HEADERS = 8190, 100

_ALWAYS = {"Cache-Control": "no-cache, private", "Server": "kubestow"}


class SecureListener:
    """Listens, and has ``answer`` answer. ``port`` is the one it got, once it is started."""

    def __init__(
        self, options: ServingOptions, context: ssl.SSLContext, answer: Callable[[HTTPRequest], Awaitable[HTTPResponse]]
    ) -> None:
        self.port = options.port
        self._options, self._context, self._answer = options, context, answer
        self._connections: _Connections | None = None
        self._listening: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen. Raises InputError for an address that cannot be had."""
        options = self._options
        self._connections = connections = _Connections(
            self._handle,
            access_log=None,
            logger=_complaints(),
            max_line_size=_LINE,
            max_field_size=_LINE,
            max_headers=_HEADERS,
            keepalive_timeout=_REQUEST,
            lingering_time=0.0,
            handler_cancellation=True,
        )
        try:
            self._listening = await asyncio.get_running_loop().create_server(
                connections,
                options.address,
                options.port,
                ssl=self._context,
                ssl_handshake_timeout=_HANDSHAKE,
                ssl_shutdown_timeout=_STOPPING,
                reuse_port=options.reuse_port or None,
                reuse_address=options.reuse_address or None,
            )
        except OSError as error:
            problem = "is in use by another process" if error.errno == errno.EADDRINUSE else error.strerror or error
            raise InputError("--secure-port", f"{options.address}:{options.port} {problem}") from None
        self.port = self._listening.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening, let answers under way be read for a moment, close everything."""
        if self._listening is not None:
            self._listening.close()
        if self._connections is not None:
            self._connections.pre_shutdown()
            await self._connections.shutdown(_STOPPING)

    async def _handle(self, incoming: web.BaseRequest) -> web.StreamResponse:
        assert self._connections is not None
        self._connections.begin(incoming.protocol)
        answer = await self._answer(_understood(incoming))
        headers = {**_ALWAYS, **answer.headers, "Content-Type": answer.content_type}
        response = web.Response(status=answer.status, body=answer.body, headers=headers)
        if incoming.can_read_body:
            response.force_close()  # rather than read what nobody asked for
        return response


class _Connections(web.Server):
    """All connections, each with a deadline that a new request moves."""

    def __init__(self, handler: Any, **options: Any) -> None:
        super().__init__(handler, **options)
        self._deadlines: dict[web.RequestHandler, asyncio.TimerHandle] = {}

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        if len(self._deadlines) >= _CONNECTIONS:
            transport.abort()
        else:
            self.begin(handler)

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        deadline = self._deadlines.pop(handler, None)
        if deadline is not None:
            deadline.cancel()

    def begin(self, handler: web.RequestHandler) -> None:
        """Something begins that has to be over in time: a connection, or a request on it."""
        if (former := self._deadlines.get(handler)) is not None:
            former.cancel()
        self._deadlines[handler] = asyncio.get_running_loop().call_later(_REQUEST, _abort, handler)


def _abort(handler: web.RequestHandler) -> None:
    if isinstance(handler.transport, asyncio.Transport):
        handler.transport.abort()


def _understood(incoming: web.BaseRequest) -> HTTPRequest:
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
    named: dict[str, list[str]] = {}
    for relative in connection.getpeercert().get("subject", ()):
        for attribute, value in relative:
            named.setdefault(attribute, []).append(value)
    common_name = named.get("commonName", [""])[-1]
    return PeerCertificate(common_name, tuple(named.get("organizationName", ())), der)


def _complaints() -> logging.Logger:
    """Where the HTTP library complains of its peers: one line each, without the library's own stack."""
    logger = logging.getLogger(f"{__name__}.http")
    logger.filters[:] = [_brief]
    return logger


def _brief(record: logging.LogRecord) -> bool:
    if not _log.isEnabledFor(V(4)):
        return False
    if record.exc_info and record.exc_info[1] is not None:
        record.msg, record.args = "%s: %s", (record.getMessage(), type(record.exc_info[1]).__name__)
        record.exc_info = None
    record.levelno, record.levelname = logging.DEBUG, "DEBUG"
    return True
