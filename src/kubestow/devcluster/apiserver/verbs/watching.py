"""Watch: the history of a resource as an endless answer, filtered by scope and selectors.

A watcher is a cursor over the shared history, woken by the next change and then reading all there is; what it reads is
joined into one write, and a busy watcher waits a few milliseconds between writes so that events pile up into
few. The line of an event is encoded once for all watchers that see it alike. A watcher that falls
behind the history gets an ERROR event of code 410 and is dropped, as it would be by a real server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator

import msgspec

from kubestow.devcluster.apiserver import field_errors, statuses
from kubestow.devcluster.apiserver.requests import Stream
from kubestow.devcluster.apiserver.resources import Kind
from kubestow.devcluster.apiserver.selectors import EVERYTHING, Selector
from kubestow.devcluster.apiserver.serialization.views import View
from kubestow.devcluster.apiserver.storage.store import (
    Collection,
    Cursor,
    EventType,
    Expired,
    Store,
    StoredObject,
    WatchEvent,
)
from kubestow.devcluster.apiserver.verbs.call import Call
from kubestow.devcluster.apiserver.verbs.reading import parse_version

__all__ = ["LineCache", "watch"]

#: Least time between two writes to one watcher, in seconds.
COALESCE = 0.005
#: How often a quiet watcher that asked for bookmarks gets one, in seconds.
BOOKMARK_INTERVAL = 60.0
#: How long before the end of a watch with a timeout its last bookmark is sent, in seconds; short watches get none.
BOOKMARK_BEFORE_END = 2.0
SHORT = 5.0
#: Most events joined into one write.
BATCH = 1000
#: Bytes after which a write is not joined any longer, however few events it has.
PART = 1024 * 1024

_INITIAL_EVENTS_END = {"k8s.io/initial-events-end": "true"}


class LineCache:
    """The encoded lines of recent events, shared by all watchers; at most so many, and so many bytes."""

    def __init__(self, size: int = 4096, size_bytes: int = 64 * PART) -> None:
        self._size, self._size_bytes = size, size_bytes
        self._bytes = 0
        self._lines: dict[tuple[str, str, int, EventType], bytes] = {}

    def line(self, kind: Kind, change: EventType, stored: StoredObject) -> bytes:
        key = (kind.group, kind.plural, stored.resource_version, change)
        found = self._lines.get(key)
        if found is None:
            found = _line(change, kind.encode(stored))
            self._lines[key] = found
            self._bytes += len(found)
            while len(self._lines) > self._size or self._bytes > self._size_bytes:
                self._bytes -= len(self._lines.pop(next(iter(self._lines))))
        return found


def watch(call: Call, lines: LineCache) -> Stream:
    """Raises a Failure for parameters that make no sense; everything later comes as events."""
    request = call.request
    start = parse_version(request.query.get("resourceVersion", ""))
    initial = _wants_initial_events(call, start)
    watcher = _Watcher(call, lines, call.selector())
    bookmarks = request.flag("allowWatchBookmarks")
    return Stream(
        watcher.events(start, initial=initial, bookmarks=bookmarks, lasts=request.number("timeoutSeconds")),
        call.view.content_type,
    )


def _wants_initial_events(call: Call, start: int | None) -> bool:
    """Whether the watch begins with the whole state and a bookmark that ends it. Raises a 422 Failure."""
    query = call.request.query
    asked, match = query.get("sendInitialEvents"), query.get("resourceVersionMatch", "")
    problem = ""
    if asked is not None and match != "NotOlderThan":
        problem = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
    elif asked is None and match:
        problem = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
    if problem:
        cause = field_errors.forbidden_value("resourceVersionMatch", problem)
        raise statuses.invalid("ListOptions", "", [cause], group="meta.k8s.io")
    return call.request.flag("sendInitialEvents")


class _Watcher:
    """One watch: what it lets through, and how it is written."""

    def __init__(self, call: Call, lines: LineCache, selector: Selector) -> None:
        self._kind: Kind = call.kind
        self._view: View = call.view
        self._collection: Collection = call.collection
        self._store: Store = call.registry.store
        self._prefix = call.prefix
        self._selector = selector
        self._lines = lines
        self._sees_all = selector == EVERYTHING and not self._prefix
        self._first_row = True

    async def events(
        self, start: int | None, *, initial: bool, bookmarks: bool, lasts: int | None
    ) -> AsyncIterator[bytes]:
        """The parts of the answer, each one or more whole lines. The watch ``lasts`` so many seconds, or for ever."""
        loop = asyncio.get_running_loop()
        end = None if lasts is None else loop.time() + lasts
        synthetic = initial or not start
        version = self._store.resource_version if synthetic else start or 0
        try:
            cursor = self._collection.cursor(version)
        except Expired as gone:
            yield self._error(statuses.expired(f"too old resource version: {gone.requested} ({gone.oldest + 1})"))
            return
        if synthetic:
            for part in self._state():
                yield part
            # A watch from version 0 that takes bookmarks is told where its beginning ends, too.
            if bookmarks and (initial or start == 0):
                yield self._bookmark(version, _INITIAL_EVENTS_END)
            else:
                yield b""
        async for part in self._changes(cursor, version, bookmarks=bookmarks, end=end):
            yield part

    async def _changes(self, cursor: Cursor, told: int, *, bookmarks: bool, end: float | None) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        last_bookmark = loop.time()
        before_end = None if end is None or end - last_bookmark < SHORT else end - BOOKMARK_BEFORE_END
        while True:
            try:
                batch = cursor.take(BATCH)
            except Expired as gone:
                yield self._error(statuses.expired(f"too old resource version: {gone.requested} ({gone.oldest + 1})"))
                return
            written = False
            for part in _joined(self._encoded(batch)):
                told, written = cursor.resource_version, True
                yield part
            now = loop.time()
            if end is not None and now >= end:
                return
            due = now - last_bookmark >= BOOKMARK_INTERVAL or (before_end is not None and now >= before_end)
            if bookmarks and due and not batch:
                last_bookmark, before_end = now, None
                # Versions of other resources count too: nothing of this one happened up to here.
                told = max(told, self._store.resource_version)
                yield self._bookmark(told, {})
            if len(batch) < BATCH:
                if written:
                    await asyncio.sleep(COALESCE)
                stops = [end, before_end, last_bookmark + BOOKMARK_INTERVAL] if bookmarks else [end]
                next_stop = min((moment for moment in stops if moment is not None), default=None)
                await self._next_change(cursor, next_stop)

    async def _next_change(self, cursor: Cursor, deadline: float | None) -> None:
        """Return when the resource has changed since the cursor was read, or at the deadline if there is one."""
        if cursor.has_more:
            return
        loop = asyncio.get_running_loop()
        changed = loop.create_future()

        def wake() -> None:
            if not changed.done():
                changed.set_result(None)

        self._collection.notify_once(wake)
        timer = None if deadline is None else loop.call_at(deadline, wake)
        try:
            await changed
        finally:
            if timer is not None:
                timer.cancel()
            changed.cancel()

    def _state(self) -> Iterator[bytes]:
        state = self._selector.select(self._collection.snapshot(self._prefix))
        # Not through the cache: the state is long, and only this watcher reads it now.
        return _joined(_line("ADDED", self._body(stored)) for stored in state)

    def _encoded(self, batch: list[WatchEvent]) -> Iterator[bytes]:
        if self._sees_all and self._view.is_plain:
            line, kind = self._lines.line, self._kind
            return (line(kind, event.type, event.object) for event in batch)
        return (written for event in batch if (written := self._filtered(event)))

    def _filtered(self, event: WatchEvent) -> bytes:
        """The event as this watcher sees it: objects enter and leave as they begin and cease to match."""
        if not event.object.key.startswith(self._prefix):
            return b""
        matches = self._selector.matches
        seen = event.previous is not None and matches(event.previous)
        if event.type == "DELETED":
            return self._written("DELETED", event.object) if seen else b""
        if matches(event.object):
            return self._written("MODIFIED" if seen else "ADDED", event.object)
        if seen and event.previous is not None:
            return self._written("DELETED", _at_version(event.previous, event.resource_version))
        return b""

    def _written(self, change: EventType, stored: StoredObject) -> bytes:
        if self._view.is_plain:
            return self._lines.line(self._kind, change, stored)
        return _line(change, self._body(stored))

    def _body(self, stored: StoredObject) -> bytes:
        body = self._view.object(stored, first=self._first_row)
        self._first_row = False
        return body

    def _bookmark(self, version: int, annotations: dict[str, str]) -> bytes:
        return _line("BOOKMARK", self._view.bookmark(version, annotations))

    def _error(self, failure: statuses.StatusError) -> bytes:
        return _line("ERROR", failure.encode().rstrip(b"\n"))


def _joined(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The lines in as few parts as their number and size allow."""
    part: list[bytes] = []
    size = 0
    for line in lines:
        part.append(line)
        size += len(line)
        if size >= PART or len(part) >= BATCH:
            yield b"".join(part)
            part, size = [], 0
    if part:
        yield b"".join(part)


def _line(change: str, body: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (change.encode(), body)


def _at_version(stored: StoredObject, version: int) -> StoredObject:
    """The state an object was last seen in, at the version at which it left a watcher's view."""
    body = msgspec.json.decode(stored.data)
    body["metadata"]["resourceVersion"] = str(version)
    return StoredObject(stored.key, -version, msgspec.json.encode(body), stored.labels, stored.fields)
