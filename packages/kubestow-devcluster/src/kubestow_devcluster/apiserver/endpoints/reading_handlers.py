"""The get, list and watch handlers, also of metrics.k8s.io.

A list has the current state or that of an earlier resourceVersion, by selectors and with pagination. Metrics are the
usage of nodes and pods, which is computed when it is read and never stored.

A watcher is a cursor over the shared history. It sleeps until the next write, then reads all new events and writes them
at once; after a write it pauses for a few milliseconds so that a burst of events becomes few writes. Watchers that send
an event in the same form share its encoding. A watcher that falls behind the history gets an ERROR event with code 410
and ends, as with kube-apiserver.
"""

from __future__ import annotations

import asyncio
import base64
from bisect import bisect_left
from collections.abc import AsyncGenerator, Iterable, Iterator
from typing import Any, Protocol

import msgspec

from kubestow.http.messages import HTTPResponse
from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.endpoints.request_scope import RequestScope
from kubestow_devcluster.apiserver.endpoints.requests import Request
from kubestow_devcluster.apiserver.kinds.kind import Kind
from kubestow_devcluster.apiserver.serialization import protobuf
from kubestow_devcluster.apiserver.serialization.media_types import JSON, PROTOBUF
from kubestow_devcluster.apiserver.storage.store import EVERYTHING, Cursor, EventType, Expired, StoredObject, WatchEvent


def get(scope: RequestScope) -> HTTPResponse:
    return scope.encoder.object_response(scope.get())


def parse_resource_version(text: str) -> int | None:
    """A resourceVersion parameter, None when it is empty. Raises a 400 StatusError."""
    if not text:
        return None
    if not (text.isascii() and text.isdigit()):
        problem = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise statuses.bad_request(f"invalid resource version: {problem}")
    # Parsing a long number takes quadratic time.
    if len(text) > 100 or (resource_version := int(text)) >= 2**64:
        problem = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": value out of range'
        raise statuses.bad_request(f"invalid resource version: {problem}")
    return resource_version


def validate_list_options(request: Request) -> None:
    """Validate the options of a list. Raises a 422 StatusError."""
    match, resource_version = request.query.get("resourceVersionMatch", ""), request.query.get("resourceVersion", "")
    error: statuses.FieldError | None = None
    if match and request.query.get("continue"):
        error = _forbidden_match("resourceVersionMatch is forbidden when continue is provided")
    elif match and not resource_version:
        error = _forbidden_match("resourceVersionMatch is forbidden unless resourceVersion is provided")
    elif match not in ("", "Exact", "NotOlderThan"):
        error = statuses.unsupported_value("resourceVersionMatch", match, ("Exact", "NotOlderThan"))
    elif "sendInitialEvents" in request.query:
        error = statuses.forbidden_value("sendInitialEvents", "sendInitialEvents is forbidden for list")
    elif match == "Exact" and resource_version == "0":
        error = _forbidden_match('resourceVersionMatch "Exact" is forbidden for resourceVersion "0"')
    if error is not None:
        raise statuses.invalid("ListOptions", "", [error], group="meta.k8s.io")


def wants_initial_events(request: Request) -> bool | None:
    """Whether a watch starts with the current state and a bookmark (a streaming list); None if it does not say.

    Raises a 422 StatusError.
    """
    match = request.query.get("resourceVersionMatch", "")
    problem = ""
    if "sendInitialEvents" in request.query and match != "NotOlderThan":
        problem = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
    elif "sendInitialEvents" not in request.query and match:
        problem = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
    if problem:
        raise statuses.invalid("ListOptions", "", [_forbidden_match(problem)], group="meta.k8s.io")
    return request.flag("sendInitialEvents") if "sendInitialEvents" in request.query else None


def _forbidden_match(problem: str) -> statuses.FieldError:
    return statuses.forbidden_value("resourceVersionMatch", problem)


_VERSION = "meta.k8s.io/v1"


class ContinueToken(msgspec.Struct):
    """``rv`` is the resourceVersion of the list, -1 for the current state; ``start`` the key to start from."""

    rv: int
    start: str
    v: str = _VERSION

    def encode(self) -> str:
        token = msgspec.json.encode({"v": self.v, "rv": self.rv, "start": self.start})
        return base64.urlsafe_b64encode(token).rstrip(b"=").decode()

    @classmethod
    def decode(cls, text: str) -> ContinueToken:
        """Raises a 400 StatusError."""
        try:
            raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
            token = msgspec.json.decode(raw, type=cls)
        except (ValueError, msgspec.DecodeError) as error:
            raise statuses.bad_request(f"invalid continue token: continue key is not valid: {error}") from None
        if token.v != _VERSION:
            raise statuses.bad_request("continue key is not valid: server does not recognize this encoded version")
        return token


#: Seconds that a list at a future resourceVersion waits for it.
_FUTURE_VERSION_TIMEOUT = 3.0

_EXPIRED_LIST = "The resourceVersion for the provided list is too old."
_EXPIRED_CONTINUE = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without"
    " the continue parameter, or use the continue token in this response to retrieve the remainder of the results."
    " Continuing with the provided token results in an inconsistent list - objects that were created, modified, or"
    " deleted between the time the first chunk was returned and now may show up in the list."
)


async def list_objects(scope: RequestScope) -> HTTPResponse:
    request, store = scope.request, scope.registry.store
    validate_list_options(request)
    request.number("timeoutSeconds")
    predicate, encoder = scope.predicate(), scope.encoder
    limit = max(request.number("limit") or 0, 0)
    token = request.query.get("continue", "")
    if token:
        if request.query.get("resourceVersion", "0") not in ("", "0"):
            raise statuses.bad_request("specifying resource version is not allowed when using continue")
        objects, resource_version = _continued_snapshot(scope, ContinueToken.decode(token))
    else:
        objects, resource_version = await _snapshot(scope)
    selected = predicate.select(objects) if predicate != EVERYTHING else objects
    metadata: dict[str, Any] = {"resourceVersion": str(resource_version)}
    if limit and len(selected) > limit:
        page = selected[:limit]
        last = page[-1].key[len(scope.key_prefix) :]
        metadata["continue"] = ContinueToken(rv=resource_version, start=f"/{last}\0").encode()
        if predicate == EVERYTHING:
            metadata["remainingItemCount"] = len(selected) - limit
        selected = page
    if resource_version < 0:
        metadata["resourceVersion"] = str(store.resource_version)
    return encoder.list_response(selected, metadata)


async def _snapshot(scope: RequestScope) -> tuple[list[StoredObject], int]:
    """The objects of a list without a continue token, and their resourceVersion."""
    store, request = scope.registry.store, scope.request
    resource_version = parse_resource_version(request.query.get("resourceVersion", ""))
    if resource_version is not None and resource_version > store.resource_version:
        # Wait until the store has reached ``resource_version``. Raises a 504 StatusError after the timeout.
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _FUTURE_VERSION_TIMEOUT
        while store.resource_version < resource_version:
            remaining = deadline - loop.time()
            if remaining <= 0:
                raise statuses.resource_version_too_large(resource_version, store.resource_version)
            await asyncio.sleep(min(remaining, 0.05))
    is_limited = bool(request.number("limit"))
    match = request.query.get("resourceVersionMatch", "")
    if resource_version and (match == "Exact" or (is_limited and not match)):
        return _snapshot_at(scope, resource_version, _EXPIRED_LIST), resource_version
    return scope.collection.snapshot(scope.key_prefix), store.resource_version


def _continued_snapshot(scope: RequestScope, token: ContinueToken) -> tuple[list[StoredObject], int]:
    """The objects from the start of a continue token on, and the resourceVersion of the token."""
    start = scope.key_prefix + token.start.lstrip("/")
    if token.rv < 0:
        objects = scope.collection.snapshot(scope.key_prefix)
        resource_version = scope.registry.store.resource_version
    else:
        current = ContinueToken(rv=-1, start=token.start.lstrip("/")).encode()
        objects = _snapshot_at(scope, token.rv, _EXPIRED_CONTINUE, continue_=current)
        resource_version = token.rv
    return objects[bisect_left(objects, start, key=lambda stored: stored.key) :], resource_version


def _snapshot_at(
    scope: RequestScope, resource_version: int, expired_message: str, *, continue_: str = ""
) -> list[StoredObject]:
    try:
        return scope.collection.snapshot_at(resource_version, scope.key_prefix)
    except Expired:
        raise statuses.expired(expired_message, continue_=continue_) from None


class ResourceMetrics(Protocol):
    """Where usage comes from. Both return NodeMetrics or PodMetrics by the key of their node or pod, sorted by key."""

    def nodes(self) -> dict[str, StoredObject]: ...

    def pods(self) -> dict[str, StoredObject]: ...


def get_metrics(scope: RequestScope, metrics: ResourceMetrics) -> HTTPResponse:
    """Raises a 404 StatusError for an object without metrics, as one that does not run."""
    found = _all(scope, metrics).get(scope.key_prefix + scope.info.name)
    if found is None:
        raise statuses.not_found(scope.kind.group_resource, scope.info.name)
    return scope.encoder.object_response(found)


def list_metrics(scope: RequestScope, metrics: ResourceMetrics) -> HTTPResponse:
    """All metrics of a namespace or of the cluster that the selectors match, without pagination, as metrics-server."""
    prefix = scope.key_prefix
    objects = [stored for key, stored in _all(scope, metrics).items() if key.startswith(prefix)]
    return scope.encoder.list_response(scope.predicate().select(objects), {})


def _all(scope: RequestScope, metrics: ResourceMetrics) -> dict[str, StoredObject]:
    return metrics.nodes() if scope.kind.names.plural == "nodes" else metrics.pods()


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
        key = (kind.group, kind.names.plural, stored.resource_version, type_, media_type)
        found = self._events.get(key)
        if found is None:
            found = encode_event(type_, kind.encode(stored), media_type)
            self._events[key] = found
            self._bytes += len(found)
            while len(self._events) > _MAX_EVENTS or self._bytes > _MAX_BYTES:
                self._bytes -= len(self._events.pop(next(iter(self._events))))
        return found
