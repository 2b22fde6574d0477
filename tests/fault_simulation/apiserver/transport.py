"""The API server over HTTP, as far as reflectors and leader election use it: chunks of bytes, delayed or lost.

A watch can end, break, stall, be cut inside a line, deliver a malformed line, or expire with 410 Gone. Its events are
always in order, as the API guarantees.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from kubestow.client.rest.credentials import Credentials
from kubestow.client.rest.transport import JSON, Transport
from kubestow.errors import Unreachable
from kubestow.scheduling.events.resources import WATCHED
from kubestow.scheduling.interfaces import Clock, Resource
from tests.fault_simulation.apiserver.server import SimulatedServer, WatchEvent
from tests.fault_simulation.faults import Fault, Faults

__all__ = ["SimulatedTransport"]

#: Seconds between two bookmarks on an idle watch.
_BOOKMARK_INTERVAL = 60.0

Send = Callable[[str, Callable[[], bytes]], Coroutine[Any, Any, bytes]]


class SimulatedTransport(Transport):
    """Connections of one process to the simulated server; ``send`` sends a request and returns its response."""

    def __init__(self, server: SimulatedServer, *, send: Send, faults: Faults, clock: Clock, timeout: float) -> None:
        super().__init__(Credentials("http://server"), clock=clock)
        self._objects, self._send_request, self._faults, self._request_timeout = server, send, faults, timeout

    async def request(self, method: str, path: str, body: bytes | None = None, *, content_type: str = JSON) -> bytes:
        try:
            async with asyncio.timeout(self._request_timeout):
                return await self._send_request(
                    f"{method} {urlsplit(path).path}", lambda: self._respond(method, path, body)
                )
        except TimeoutError:
            raise Unreachable(self.server, "no answer in time") from None

    def _respond(self, method: str, path: str, body: bytes | None) -> bytes:
        if "/leases" in path:
            return self._objects.lease.respond(method, body)
        items = self._objects.listed(_resource(path))
        return msgspec.json.encode({"metadata": {"resourceVersion": str(self._objects.version)}, "items": items})

    @asynccontextmanager
    async def stream(self, path: str, *, idle_timeout: float) -> AsyncIterator[AsyncIterator[bytes]]:
        query = dict(parse_qsl(urlsplit(path).query))
        await asyncio.sleep(self._faults.random.uniform(0.0, 0.1))
        if self._faults.occurs(Fault.REJECTED):
            raise self._faults.server_error(of_write=False)
        async with aclosing(self._watch_chunks(_resource(path), query, idle_timeout)) as chunks:
            yield chunks

    async def _watch_chunks(
        self, resource: Resource, query: dict[str, str], idle_timeout: float
    ) -> AsyncGenerator[bytes, None]:
        """The chunks of a watch, with faults, until it ends."""
        faults, ends = self._faults, asyncio.get_running_loop().time() + float(query["timeoutSeconds"])
        async for line in self._lines(resource, query, ends):
            if faults.occurs(Fault.DELAY):
                await asyncio.sleep(faults.random.expovariate(1.0))
            if faults.occurs(Fault.BREAKS) and faults.random.random() < 0.2:
                yield line[: faults.random.randrange(len(line))]
                if faults.random.random() < 0.5:
                    return
                raise Unreachable(self.server, "injected break")
            if faults.occurs(Fault.MALFORMED) and faults.random.random() < 0.2:
                yield line[: len(line) // 2] + b"\n"
            if faults.occurs(Fault.STALLED) and faults.random.random() < 0.1:
                await asyncio.sleep(idle_timeout)
                raise Unreachable(self.server, "no answer in time")
            cut = faults.random.randrange(len(line))
            yield line[:cut]
            yield line[cut:]

    async def _lines(self, resource: Resource, query: dict[str, str], ends: float) -> AsyncIterator[bytes]:
        history, changed = self._objects.history[resource], asyncio.Event()
        self._objects.watchers[resource].append(changed)
        try:
            if "sendInitialEvents" in query:
                version, position = self._objects.version, len(history)
                for obj in self._objects.listed(resource):
                    yield _line("ADDED", obj)
                yield _bookmark(version, complete=True)
            else:
                position = _position(history, int(query["resourceVersion"]))
                if self._faults.occurs(Fault.EXPIRY):
                    yield _line("ERROR", {"code": 410, "reason": "Expired", "message": "too old resource version"})
                    return
            while (left := ends - asyncio.get_running_loop().time()) > 0:
                for change in history[position:]:
                    yield _line(change.type, change.obj)
                    position += 1
                if position == len(history):
                    changed.clear()
                    if not await _wait(changed, min(left, _BOOKMARK_INTERVAL)):
                        yield _bookmark(self._objects.version)
        finally:
            self._objects.watchers[resource].remove(changed)


def _resource(path: str) -> Resource:
    collection = urlsplit(path).path
    return next(resource for resource in WATCHED if f"{resource.prefix}/{resource.plural}" == collection)


def _position(history: list[WatchEvent], version: int) -> int:
    """The index in a history of the first event after a version."""
    position = len(history)
    while position and int(history[position - 1].obj.metadata.resource_version) > version:
        position -= 1
    return position


def _line(event_type: str, obj: Any) -> bytes:
    return msgspec.json.encode({"type": event_type, "object": obj}) + b"\n"


def _bookmark(version: int, *, complete: bool = False) -> bytes:
    annotations = {"k8s.io/initial-events-end": "true"} if complete else {}
    return _line("BOOKMARK", {"metadata": {"resourceVersion": str(version), "annotations": annotations}})


async def _wait(changed: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await changed.wait()
    except TimeoutError:
        return False
    return True
