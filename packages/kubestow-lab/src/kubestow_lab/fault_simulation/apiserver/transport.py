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
from kubestow.client.rest.transport import Transport
from kubestow.errors import APIError, Unreachable
from kubestow.scheduling.interfaces import Clock, Resource
from kubestow_lab.fault_simulation.apiserver.outages import Outages
from kubestow_lab.fault_simulation.apiserver.server import SERVED, SimulatedServer, WatchEvent
from kubestow_lab.fault_simulation.faults import Fault, Faults
from kubestow_lab.fault_simulation.marks import Mark, Marks

#: Seconds between two bookmarks on an idle watch.
_BOOKMARK_INTERVAL = 60.0

Send = Callable[[str, Callable[[], bytes]], Coroutine[Any, Any, bytes]]


class SimulatedTransport(Transport):
    """Connections of one process to the simulated server; ``send`` sends a request and returns its response.

    ``note_request`` is called for requests that are sent otherwise, ``note_watch`` with the version that a watch goes
    on from. Some servers support streaming lists, others page.
    """

    def __init__(
        self,
        server: SimulatedServer,
        outages: Outages,
        *,
        send: Send,
        note_request: Callable[[str], None],
        note_watch: Callable[[Resource, int], None],
        faults: Faults,
        marks: Marks,
        clock: Clock,
        timeout: float,
    ) -> None:
        super().__init__(Credentials("http://server"), clock=clock)
        self._objects, self._outages, self._faults, self._marks = server, outages, faults, marks
        self._send_request, self._note_request, self._request_timeout = send, note_request, timeout
        self._note_watch = note_watch
        self._streams_lists = faults.random.random() < 0.7
        #: The rest of each list that has been sent in part: the restart before it, its version and its objects.
        self._continued: dict[str, tuple[int, int, list[Any]]] = {}

    async def _request_once(self, method: str, path: str, body: bytes | None, content_type: str) -> bytes:
        try:
            async with asyncio.timeout(self._request_timeout):
                return await self._send_request(
                    f"{method} {urlsplit(path).path}", lambda: self._respond(method, path, body)
                )
        except TimeoutError:
            raise Unreachable(self.server, "no answer in time") from None

    def _respond(self, method: str, path: str, body: bytes | None) -> bytes:
        if "/leases" in path:
            name = msgspec.json.decode(body)["metadata"]["name"] if body else urlsplit(path).path.rpartition("/")[2]
            return self._objects.lease_named(name).respond(method, body)
        return self._page(_resource(path), dict(parse_qsl(urlsplit(path).query)))

    def _page(self, resource: Resource, query: dict[str, str]) -> bytes:
        """The next objects of a list, which may be fewer than its limit. Raises APIError."""
        if "continue" in query:
            # Kept, because a client that got no answer asks again.
            restarts, version, items = self._continued[query["continue"]]
            if restarts != self._outages.restarts or self._faults.occurs(Fault.EXPIRY):
                self._marks.reach(Mark.LIST_EXPIRED)
                raise APIError(410, "Expired", "The provided continue parameter is too old")
        else:
            version, items = self._objects.version, self._objects.listed(resource)
        size = self._faults.random.randint(1, 20) if int(query["limit"]) else len(items)
        metadata = {"resourceVersion": str(version)}
        if items[size:]:
            metadata["continue"] = f"{resource.plural} {version} {len(items)}"
            self._continued[metadata["continue"]] = self._outages.restarts, version, items[size:]
        return msgspec.json.encode({"metadata": metadata, "items": items[:size]})

    @asynccontextmanager
    async def stream(self, path: str, *, idle_timeout: float) -> AsyncIterator[AsyncIterator[bytes]]:
        query = dict(parse_qsl(urlsplit(path).query))
        self._note_request(f"WATCH {urlsplit(path).path}")
        if "sendInitialEvents" not in query:
            self._note_watch(_resource(path), int(query["resourceVersion"]))
        await asyncio.sleep(self._faults.random.uniform(0.0, 0.1))
        await self._outages.admit()
        if "sendInitialEvents" in query and not self._streams_lists:
            raise APIError(422, "Invalid", "sendInitialEvents: Forbidden")
        if self._faults.occurs(Fault.REJECTED):
            raise self._faults.server_error(of_write=False)
        async with aclosing(self._watch_chunks(_resource(path), query, idle_timeout)) as chunks:
            yield chunks

    async def _watch_chunks(
        self, resource: Resource, query: dict[str, str], idle_timeout: float
    ) -> AsyncGenerator[bytes, None]:
        """The chunks of a watch, with faults, until it ends."""
        faults, ends = self._faults, asyncio.get_running_loop().time() + float(query["timeoutSeconds"])
        restarts = self._outages.restarts
        async for line in self._lines(resource, query, ends):
            await self._outages.delay_event()
            self._outages.check_connection(restarts)
            if faults.occurs(Fault.DELAY):
                await asyncio.sleep(faults.random.expovariate(1.0))
            if faults.occurs(Fault.BREAKS) and faults.random.random() < 0.2:
                self._marks.reach(Mark.EVENT_CUT)
                yield line[: faults.random.randrange(len(line))]
                if faults.random.random() < 0.5:
                    return
                raise Unreachable(self.server, "injected break")
            if faults.occurs(Fault.MALFORMED) and faults.random.random() < 0.2:
                yield line[: len(line) // 2] + b"\n"
                if faults.random.random() < 0.5:
                    continue
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
                version = int(query["resourceVersion"])
                position = _position(history, version)
                if self._faults.occurs(Fault.EXPIRY):
                    self._objects.expire(resource, version)
                    is_expired = True
                else:
                    is_expired = self._objects.has_expired(resource, version)
                if is_expired:
                    self._marks.reach(Mark.WATCH_EXPIRED)
                    yield _line("ERROR", {"code": 410, "reason": "Expired", "message": "too old resource version"})
                    return
            restarts = self._outages.restarts
            while (left := ends - asyncio.get_running_loop().time()) > 0:
                for change in history[position:]:
                    yield _line(change.type, change.obj)
                    position += 1
                if position == len(history):
                    self._outages.check_connection(restarts)
                    changed.clear()
                    is_idle = not await _wait(changed, min(left, _BOOKMARK_INTERVAL))
                    # Events that occurred while the process was frozen come first: a bookmark is after all of them.
                    if is_idle and position == len(history):
                        yield _bookmark(self._objects.version)
        finally:
            self._objects.watchers[resource].remove(changed)


def _resource(path: str) -> Resource:
    collection = urlsplit(path).path
    return next(resource for resource in SERVED if f"{resource.prefix}/{resource.plural}" == collection)


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
