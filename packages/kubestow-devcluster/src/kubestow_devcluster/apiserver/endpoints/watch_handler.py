"""The watch handler: the history of a resource as a stream of events, filtered by namespace and selectors.

A watcher is a cursor over the shared history. It sleeps until the next write, then reads all new events and writes them
at once; after a write it pauses for a few milliseconds so that a burst of events becomes few writes. Watchers that send
an event in the same form share its encoding. A watcher that falls behind the history gets an ERROR event with code
410 and ends, as with kube-apiserver.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator

import msgspec

from kubestow.http.messages import HTTPResponse
from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.endpoints.reading_handlers import parse_resource_version, wants_initial_events
from kubestow_devcluster.apiserver.endpoints.request_scope import RequestScope
from kubestow_devcluster.apiserver.kinds.kind import Kind
from kubestow_devcluster.apiserver.serialization import protobuf
from kubestow_devcluster.apiserver.serialization.negotiation import JSON, PROTOBUF
from kubestow_devcluster.apiserver.storage.selectors import EVERYTHING
from kubestow_devcluster.apiserver.storage.store import Cursor, EventType, Expired, StoredObject, WatchEvent

#: Seconds between two writes to one watcher, at least.
_COALESCE_INTERVAL = 0.005
#: Seconds between the bookmarks of a watch without events.
_BOOKMARK_INTERVAL = 60.0
#: Seconds before its timeout at which a watch gets its last bookmark.
_LAST_BOOKMARK = 2.0
#: Watches with a shorter timeout, in seconds, get no last bookmark.
_SHORT_WATCH = 5.0
#: Events in one write, at most.
_MAX_BATCH = 1000
#: Bytes from which on a write takes no further events.
_MAX_CHUNK = 1024 * 1024

_INITIAL_EVENTS_END = {"k8s.io/initial-events-end": "true"}


def watch(scope: RequestScope, cache: EventCache) -> HTTPResponse:
    """Raises a StatusError for invalid options; later errors are events of the stream."""
    request = scope.request
    start = parse_resource_version(request.query.get("resourceVersion", ""))
    initial_events = wants_initial_events(request)
    watcher = _Watcher(scope, cache, bookmarks=request.flag("allowWatchBookmarks"))
    events = watcher.events(start, initial_events=initial_events, timeout_seconds=request.number("timeoutSeconds"))
    content_type = scope.encoder.content_type
    content_type = content_type if content_type == JSON else f"{content_type};stream=watch"
    return HTTPResponse(200, content_type=content_type, stream=events)


class _Watcher:
    """One watch: the events that match it, and their encoding."""

    def __init__(self, scope: RequestScope, cache: EventCache, *, bookmarks: bool) -> None:
        self._key_prefix, self._predicate = scope.key_prefix, scope.predicate()
        self._kind, self._encoder, self._cache = scope.kind, scope.encoder, cache
        self._media_type = self._encoder.content_type
        self._collection, self._store = scope.collection, scope.registry.store
        self._bookmarks = bookmarks
        self._sees_all = self._predicate == EVERYTHING and not self._key_prefix
        self._with_columns = True

    async def events(
        self, start: int | None, *, initial_events: bool | None, timeout_seconds: int | None
    ) -> AsyncGenerator[bytes, None]:
        """Chunks of one or more encoded events, until the timeout or until the client disconnects.

        A watch without a resourceVersion, or from 0, starts with the current state as ADDED events, unless it requests
        no ``initial_events``.
        """
        end = asyncio.get_running_loop().time() + timeout_seconds if timeout_seconds else None
        from_state = initial_events or (initial_events is None and not start)
        resource_version = self._store.resource_version if from_state or not start else start
        try:
            cursor = self._collection.cursor(resource_version)
        except Expired as expired:
            yield self._expired_event(expired)
            return
        if from_state:
            # The current state as ADDED events. They bypass the cache, which they would flush.
            state = self._predicate.select(self._collection.snapshot(self._key_prefix))
            added = (encode_event("ADDED", self._encode_object(stored), self._media_type) for stored in state)
            for chunk in _chunks(added):
                yield chunk
            # kube-apiserver also marks the end of the state when a watch from version 0 allows bookmarks.
            if self._bookmarks and (initial_events or start == 0):
                yield self._bookmark(resource_version, _INITIAL_EVENTS_END)
            else:
                yield b""
        async for chunk in self._changes(cursor, resource_version, end):
            yield chunk

    async def _changes(self, cursor: Cursor, sent_version: int, end: float | None) -> AsyncGenerator[bytes, None]:
        """The events after the cursor, and bookmarks. ``sent_version`` is the last that the client has seen."""
        loop = asyncio.get_running_loop()
        last_bookmark = loop.time()
        final_bookmark = None if end is None or end - last_bookmark < _SHORT_WATCH else end - _LAST_BOOKMARK
        while True:
            try:
                batch = cursor.take(_MAX_BATCH)
            except Expired as expired:
                yield self._expired_event(expired)
                return
            has_sent = False
            for chunk in _chunks(self._encode(batch)):
                sent_version, has_sent = cursor.resource_version, True
                yield chunk
            now = loop.time()
            if end is not None and now >= end:
                return
            is_due = now - last_bookmark >= _BOOKMARK_INTERVAL or (final_bookmark is not None and now >= final_bookmark)
            if self._bookmarks and is_due and not batch:
                last_bookmark, final_bookmark = now, None
                # This resource has no events up to the last write of any resource.
                sent_version = max(sent_version, self._store.resource_version)
                yield self._bookmark(sent_version, {})
            if len(batch) < _MAX_BATCH:
                if has_sent:
                    await asyncio.sleep(_COALESCE_INTERVAL)
                timers = [end, final_bookmark, last_bookmark + _BOOKMARK_INTERVAL] if self._bookmarks else [end]
                await self._wait(cursor, min((time for time in timers if time is not None), default=None))

    async def _wait(self, cursor: Cursor, deadline: float | None) -> None:
        """Wait until the cursor has events, or until the deadline in loop time."""
        if cursor.has_more:
            return
        loop = asyncio.get_running_loop()
        changed = loop.create_future()

        def notify() -> None:
            if not changed.done():
                changed.set_result(None)

        self._collection.notify_once(notify)
        timer = None if deadline is None else loop.call_at(deadline, notify)
        try:
            await changed
        finally:
            if timer is not None:
                timer.cancel()
            changed.cancel()

    def _encode(self, batch: list[WatchEvent]) -> Iterator[bytes]:
        if self._sees_all and self._encoder.is_whole:
            encode, kind, media_type = self._cache.encoded, self._kind, self._media_type
            return (encode(kind, event.type, event.object, media_type) for event in batch)
        return (encoded for event in batch if (encoded := self._filter(event)))

    def _filter(self, event: WatchEvent) -> bytes:
        """The event for this watcher; nothing if the object does not match.

        An object that starts to match is ADDED, one that ceases to match DELETED.
        """
        if not event.object.key.startswith(self._key_prefix):
            return b""
        matches = self._predicate.matches
        matched = event.previous is not None and matches(event.previous)
        if event.type == "DELETED":
            return self._encode_event("DELETED", event.object) if matched else b""
        if matches(event.object):
            return self._encode_event("MODIFIED" if matched else "ADDED", event.object)
        if matched and event.previous is not None:
            return self._encode_event("DELETED", _at_resource_version(event.previous, event.resource_version))
        return b""

    def _encode_event(self, type_: EventType, stored: StoredObject) -> bytes:
        if self._encoder.is_whole:
            return self._cache.encoded(self._kind, type_, stored, self._media_type)
        return encode_event(type_, self._encode_object(stored), self._media_type)

    def _encode_object(self, stored: StoredObject) -> bytes:
        """The object; if in a Table, the first one with the column definitions."""
        body = self._encoder.encode(stored, with_columns=self._with_columns)
        self._with_columns = False
        return body

    def _bookmark(self, resource_version: int, annotations: dict[str, str]) -> bytes:
        return encode_event("BOOKMARK", self._encoder.encode_bookmark(resource_version, annotations), self._media_type)

    def _expired_event(self, expired: Expired) -> bytes:
        error = statuses.expired(f"too old resource version: {expired.requested} ({expired.oldest + 1})")
        return encode_event("ERROR", error.encode().rstrip(b"\n"), self._media_type)


def _chunks(events: Iterable[bytes]) -> Iterator[bytes]:
    """The encoded events joined into chunks, which are limited in number and size."""
    chunk: list[bytes] = []
    size = 0
    for event in events:
        chunk.append(event)
        size += len(event)
        if size >= _MAX_CHUNK or len(chunk) >= _MAX_BATCH:
            yield b"".join(chunk)
            chunk, size = [], 0
    if chunk:
        yield b"".join(chunk)


def _at_resource_version(stored: StoredObject, resource_version: int) -> StoredObject:
    """The last matching state of an object, at the resourceVersion at which it ceased to match."""
    body = msgspec.json.decode(stored.data)
    body["metadata"]["resourceVersion"] = str(resource_version)
    # The negative version keeps it apart in the event cache from a deletion at this version.
    return StoredObject(stored.key, -resource_version, msgspec.json.encode(body), stored.labels, stored.fields)


#: Events in the cache at most, and bytes of their encodings.
_MAX_EVENTS = 4096
_MAX_BYTES = 64 * 1024 * 1024


def encode_event(type_: str, body: bytes, media_type: str) -> bytes:
    """One event of a watch response; in JSON with a trailing newline. ``body`` is the object in JSON."""
    if media_type == PROTOBUF:
        return protobuf.encode_event(type_, msgspec.json.decode(body))
    return b'{"type":"%s","object":%s}\n' % (type_.encode(), body)


class EventCache:
    """The encodings of the most recent events with whole objects."""

    def __init__(self) -> None:
        self._bytes = 0
        self._events: dict[tuple[str, str, int, EventType, str], bytes] = {}

    def encoded(self, kind: Kind, type_: EventType, stored: StoredObject, media_type: str) -> bytes:
        key = (kind.group, kind.plural, stored.resource_version, type_, media_type)
        found = self._events.get(key)
        if found is None:
            found = encode_event(type_, kind.encode(stored), media_type)
            self._events[key] = found
            self._bytes += len(found)
            while len(self._events) > _MAX_EVENTS or self._bytes > _MAX_BYTES:
                self._bytes -= len(self._events.pop(next(iter(self._events))))
        return found
