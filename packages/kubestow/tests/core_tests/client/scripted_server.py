"""An HTTP server that returns scripted responses and records the requests.

Each (method, path) has a queue of responses; once it is empty, further requests are left open until the server stops.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiohttp import web

from core_tests.hang_limit import HANG_LIMIT

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

Responder = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class RecordedRequest:
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


@dataclass
class ScriptedServer:
    url: str = ""
    requests: list[RecordedRequest] = field(default_factory=list)
    script: defaultdict[tuple[str, str], deque[Responder]] = field(default_factory=lambda: defaultdict(deque))
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def respond(self, method: str, path: str, *responders: Responder) -> None:
        """Append responses to requests of this method and path."""
        self.script[method, path].extend(responders)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        text = await request.text()
        recorded = RecordedRequest(request.method, request.path, dict(request.query), dict(request.headers), text)
        self.requests.append(recorded)
        self._arrived.set()
        responders = self.script[request.method, request.path]
        return await (responders.popleft() if responders else self.hang)(request)

    async def wait_for_requests(self, count: int) -> None:
        """Return once ``count`` requests have arrived in total."""
        async with asyncio.timeout(HANG_LIMIT):
            while len(self.requests) < count:
                self._arrived.clear()
                await self._arrived.wait()

    async def hang(self, request: web.Request) -> web.StreamResponse:
        """No response until the server stops."""
        await self.stopping.wait()
        return web.Response(status=503)

    def watch(self, *lines: dict[str, Any] | bytes, end: str = "open") -> Responder:
        """A chunked stream of lines. Then it stays ``open`` without data, ends (``close``), or breaks (``cut``)."""

        async def respond(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            response.enable_chunked_encoding()
            await response.prepare(request)
            for line in lines:
                await response.write(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")
            if end == "open":
                await self.stopping.wait()
            elif end == "cut" and request.transport is not None:
                request.transport.close()
            return response

        return respond


def response(status: int = 200, body: Any = None, **headers: str) -> Responder:
    """A response with a JSON body (bytes are sent unchanged); header names are spelled with underscores."""
    data = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
    sent = {name.replace("_", "-"): value for name, value in headers.items()}

    async def respond(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, body=data, headers={"Content-Type": "application/json"} | sent)

    return respond


def bound() -> Responder:
    """The response to a binding."""
    return response(201, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})


def failure(code: int, reason: str, message: str = "no", **headers: str) -> Responder:
    """A failure Status."""
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return response(code, status | {"message": message, "reason": reason, "code": code}, **headers)


async def disconnect(request: web.Request) -> web.StreamResponse:
    """Closes the connection without a response."""
    assert request.transport is not None
    request.transport.close()
    return web.Response()


@asynccontextmanager
async def scripted_server(tls: ssl.SSLContext | None = None) -> AsyncIterator[ScriptedServer]:
    """A running server on a free port."""
    server = ScriptedServer()
    application = web.Application(client_max_size=2**24)
    application.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(application, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "localhost", 0, ssl_context=tls)
    await site.start()
    port = runner.addresses[0][1]
    server.url = f"{'https' if tls else 'http'}://localhost:{port}"
    try:
        yield server
    finally:
        server.stopping.set()
        await runner.cleanup()
