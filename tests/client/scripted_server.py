"""An API server that answers from a script, and remembers what it was asked.

For every (method, path) there is a queue of answers; when it is used up, requests are held open without an answer until
the server stops.
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

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Asked:
    """One request as it arrived."""

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
    asked: list[Asked] = field(default_factory=list)
    script: defaultdict[tuple[str, str], deque[Answer]] = field(default_factory=lambda: defaultdict(deque))
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def answers(self, method: str, path: str, *answers: Answer) -> None:
        self.script[method, path].extend(answers)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        text = await request.text()
        self.asked.append(Asked(request.method, request.path, dict(request.query), dict(request.headers), text))
        self._arrived.set()
        answers = self.script[request.method, request.path]
        return await (answers.popleft() if answers else self.hold)(request)

    async def until_asked(self, count: int) -> None:
        """Wait for that many requests in all."""
        async with asyncio.timeout(10):
            while len(self.asked) < count:
                self._arrived.clear()
                await self._arrived.wait()

    async def hold(self, request: web.Request) -> web.StreamResponse:
        await self.stopping.wait()
        return web.Response(status=503)

    def watch(self, *lines: dict[str, Any] | bytes, end: str = "open") -> Answer:
        """A chunked stream of lines, then: ``open`` goes on in silence, ``close`` ends it, ``cut`` breaks it off."""

        async def answer(request: web.Request) -> web.StreamResponse:
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

        return answer


def answer(status: int = 200, body: Any = None, **headers: str) -> Answer:
    """An answer with a JSON body (bytes are sent as they are); headers are spelled with underscores."""
    data = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
    spelled = {name.replace("_", "-"): value for name, value in headers.items()}

    async def respond(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, body=data, headers={"Content-Type": "application/json"} | spelled)

    return respond


def failure(code: int, reason: str, message: str = "no", **headers: str) -> Answer:
    """A failure as the API server says it."""
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return answer(code, status | {"message": message, "reason": reason, "code": code}, **headers)


async def disconnect(request: web.Request) -> web.StreamResponse:
    """No answer: the connection is closed."""
    assert request.transport is not None
    request.transport.close()
    return web.Response()


@asynccontextmanager
async def running(tls: ssl.SSLContext | None = None) -> AsyncIterator[ScriptedServer]:
    """The server, listening on a port of its own."""
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
