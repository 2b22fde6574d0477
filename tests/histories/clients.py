"""Clients that write, read and watch a few config maps, and record what they do and see.

They know a server as a :class:`Transport`, over connections or in process. A request is interrupted if the server dies,
or answers 500 because its disk failed: then it has an unknown outcome. Any answer that the API does not define for a
request is a violation.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from itertools import count
from random import Random
from typing import Any, Protocol

from tests.histories.history import Answer, Data, History, Operation, Version, Violation, WatchSpan, version_of

PATH = "/api/v1/namespaces/default/configmaps"
_KEYS = tuple(f"object-{number}" for number in range(5))
_MERGE_PATCH = "application/merge-patch+json"
_METHODS = {"create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE", "get": "GET"}
#: Verbs by how often they are chosen.
_VERBS = ("create", "create", "create", "update", "update", "update", "patch", "patch", "delete", "get", "get", "list")
#: The answers that a request can have, beside the unknown outcome.
_DEFINED = {
    "create": (201, 409),
    "update": (200, 404, 409),
    "patch": (200, 404),
    "delete": (200, 404, 409),
    "get": (200, 404),
    "list": (200, 410),
}
#: Seconds between two requests of a client, at most.
_PAUSE = 0.02
#: Requests of a client per process whose answer it does not wait for. Each may take effect at any time until the end of
#: the process, so every one multiplies the orders to check.
_MAX_ABANDONED = 2


class Interrupted(Exception):
    """The request has no answer."""


class Transport(Protocol):
    """How clients reach a server."""

    async def request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, content_type: str = "application/json"
    ) -> tuple[int, Any]:
        """The status and the body of the answer. Raises Interrupted."""

    def watch(self, path: str) -> AsyncIterator[Mapping[str, Any]]:
        """The events of a watch until it ends. Raises Interrupted."""


class Clients:
    """All clients of one history; with each process of the server they continue."""

    def __init__(self, random: Random, *, writers: int = 4, watchers: int = 3) -> None:
        self.history = History()
        #: Answers that the API does not define.
        self.violations: list[Violation] = []
        self._random = random
        self._values = count()
        self._known: dict[str, Version] = {}
        self._writers = [f"client-{number}" for number in range(writers)]
        self._watchers: dict[str, WatchSpan | None] = {f"watcher-{number}": None for number in range(watchers)}

    async def run(self, transport: Transport, *, seconds: float) -> None:
        """Run all clients for so many seconds, or until the server ends."""
        tasks = [asyncio.create_task(self._write(name, transport)) for name in self._writers]
        tasks += [asyncio.create_task(self._watch_repeatedly(name, transport)) for name in self._watchers]
        _, running = await asyncio.wait(tasks, timeout=seconds)
        for task in running:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # A client that failed in another way than these is a mistake in this program.
        for task in tasks:
            if not task.cancelled():
                task.result()

    async def catch_up(self, transport: Transport) -> None:
        """Write once more, and read each watch up to that write. Raises Interrupted."""
        marker = Operation("marker", "create", f"marker-{next(self._values)}", self._new_data("created"))
        answer = await self._perform(transport, marker)
        if answer.version is not None:
            watches = [self._watch_until(name, transport, answer.version.resource_version) for name in self._watchers]
            await asyncio.gather(*watches)
            await self._perform(transport, Operation("marker", "delete", marker.key))
        await self._perform(transport, Operation("marker", "list", ""))

    def interrupt(self) -> None:
        """The process has ended."""
        self.history.crash()

    # -- requests ------------------------------------------------------------------------------------------------------

    async def _write(self, client: str, transport: Transport) -> None:
        random = self._random
        abandoned = 0
        while True:
            operation = self._draw(client)
            request = self._perform(transport, operation)
            try:
                if abandoned < _MAX_ABANDONED and random.random() < 0.02:
                    abandoned += 1
                    await self._abandon(request)
                else:
                    await request
            except Interrupted:
                return
            await asyncio.sleep(random.uniform(0, _PAUSE))

    async def _abandon(self, request: Any) -> None:
        """Give up on a request after a moment; the server may carry it out later."""
        task = asyncio.create_task(request)
        try:
            await asyncio.wait([task], timeout=self._random.uniform(0, 0.005))
        finally:
            task.cancel()
            await asyncio.wait([task])
        if not task.cancelled():
            task.result()

    def _draw(self, client: str) -> Operation:
        random = self._random
        verb, key = random.choice(_VERBS), random.choice(_KEYS)
        known = self._known.get(key)
        precondition = known.resource_version if known is not None and random.random() < 0.6 else None
        match verb:
            case "create":
                return Operation(client, "create", key, self._new_data("created"))
            case "update":
                return Operation(client, "update", key, self._new_data("updated"), precondition)
            case "patch":
                return Operation(client, "patch", key, self._new_data(f"patched-by-{client}"))
            case "delete":
                return Operation(client, "delete", key, frozenset(), precondition)
            case "get":
                return Operation(client, "get", key)
        return Operation(client, "list", "")

    def _new_data(self, name: str) -> Data:
        return frozenset({(name, str(next(self._values)))})

    async def _perform(self, transport: Transport, operation: Operation) -> Answer:
        """Send a request, and record it with its answer. Raises Interrupted."""
        self.history.invoke(operation)
        answer = await (self._list(transport) if operation.verb == "list" else self._send(transport, operation))
        if answer.status not in _DEFINED[operation.verb]:
            self.violations.append(Violation("requests get the answers that the API defines", f"{operation}: {answer}"))
        self.history.answer(operation, answer)
        if answer.version is not None and operation.key in _KEYS:
            self._known[operation.key] = answer.version
        return answer

    async def _send(self, transport: Transport, operation: Operation) -> Answer:
        path = PATH if operation.verb == "create" else f"{PATH}/{operation.key}"
        body: dict[str, Any] | None = None
        if operation.verb == "delete" and operation.precondition is not None:
            body = {"preconditions": {"resourceVersion": str(operation.precondition)}}
        elif operation.verb in ("create", "update", "patch"):
            metadata = {"name": operation.key}
            if operation.precondition is not None:
                metadata["resourceVersion"] = str(operation.precondition)
            body = {"metadata": metadata, "data": dict(operation.data)}
        content_type = _MERGE_PATCH if operation.verb == "patch" else "application/json"
        status, answered = await transport.request(_METHODS[operation.verb], path, body, content_type)
        has_object = status in (200, 201) and operation.verb != "delete"
        return Answer(status, version_of(answered) if has_object else None)

    async def _list(self, transport: Transport) -> Answer:
        """A list, sometimes in pages, which are of one resourceVersion together."""
        limit = self._random.choice((0, 0, 2))
        listed: dict[str, Version] = {}
        continue_ = ""
        while True:
            query = f"?limit={limit}&continue={continue_}" if limit else ""
            status, answered = await transport.request("GET", f"{PATH}{query}")
            if status != 200:
                return Answer(status)
            listed |= {item["metadata"]["name"]: version_of(item) for item in answered["items"]}
            continue_ = answered["metadata"].get("continue", "")
            if not continue_:
                return Answer(200, listed=listed, resource_version=int(answered["metadata"]["resourceVersion"]))

    # -- watches -------------------------------------------------------------------------------------------------------

    async def _watch_repeatedly(self, watcher: str, transport: Transport) -> None:
        while True:
            try:
                span = await self._span(watcher, transport)
                await self._watch(watcher, span, transport, events=self._random.choice((3, 30, 300)))
            except Interrupted:
                return
            # Sometimes for long enough that the history does not reach back.
            await asyncio.sleep(self._random.choice((0.0, 0.01, 0.3)))

    async def _watch_until(self, watcher: str, transport: Transport, resource_version: int) -> None:
        while (span := await self._span(watcher, transport)).resource_version < resource_version:
            await self._watch(watcher, span, transport, until=resource_version)

    async def _span(self, watcher: str, transport: Transport) -> WatchSpan:
        """The open span of a watcher, or a new one that begins with a list. Raises Interrupted."""
        span = self._watchers[watcher]
        while span is None:
            start = Operation(watcher, "list", "")
            if (await self._perform(transport, start)).status == 200:
                span = self._watchers[watcher] = self.history.open_span(watcher, start)
        return span

    async def _watch(
        self, watcher: str, span: WatchSpan, transport: Transport, *, events: int = 10**9, until: int = 2**63
    ) -> None:
        """Receive events over one connection. Raises Interrupted."""
        path = f"{PATH}?watch=1&allowWatchBookmarks=1&timeoutSeconds=30&resourceVersion={span.resource_version}"
        async with aclosing(transport.watch(path)) as stream:  # type: ignore[type-var]
            async for event in stream:
                if event["type"] == "ERROR":
                    if event["object"]["code"] != 410:
                        problem = f"{watcher}: {event['object']}"
                        self.violations.append(Violation("watches end with 410 or without an error", problem))
                    self._watchers[watcher] = None
                    return
                if event["type"] == "BOOKMARK":
                    self._receive_bookmark(span, int(event["object"]["metadata"]["resourceVersion"]))
                else:
                    name = event["object"]["metadata"]["name"]
                    self.history.receive(span, event["type"], name, version_of(event["object"]))
                    events -= 1
                if events <= 0 or span.resource_version >= until:
                    return

    def _receive_bookmark(self, span: WatchSpan, resource_version: int) -> None:
        if resource_version < span.resource_version:
            evidence = f"{span.watcher}: {resource_version} after {span.resource_version}"
            self.violations.append(Violation("bookmarks do not go back", evidence))
        span.resource_version = resource_version
