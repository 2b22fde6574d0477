"""The in-memory object store: objects by key, one resourceVersion counter, and a watch history per resource.

A write replaces one immutable :class:`StoredObject` and appends one :class:`WatchEvent` to the history of its resource.
A list is a snapshot of references. A watch is a :class:`Cursor` over the shared history: it needs no queue and
reads every event in order exactly once. History is bounded; a cursor that falls behind raises :class:`Expired`. A
list at an earlier resourceVersion is the current state with the later events undone.

This module does not depend on HTTP, JSON or Kubernetes kinds: an object is bytes plus the values that selectors match.
It does no I/O: :attr:`Store.on_write` is called for every write, and :mod:`database` persists it. The
watch history is also dropped by its age, as kube-apiserver compacts etcd.

The selectors of list and watch requests are parsed once and matched against stored objects; error messages are
kube-apiserver's. Field selectors support ``=``, ``==`` and ``!=`` on the name, the namespace and the selectable fields
of a kind. :func:`matches_label_selector` is for LabelSelector objects in specs.
"""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import msgspec

from kubestow.api import selectors
from kubestow.api.selector_text import parse_selector
from kubestow.api.selectors import Selector
from kubestow.errors import InvalidSelector
from kubestow_devcluster.apiserver.schema.types import Object

EventType = Literal["ADDED", "MODIFIED", "DELETED"]

#: Keys of deleted objects that a collection keeps at most, beside as many as it has objects.
_MAX_DELETED_KEYS = 1024


class Expired(Exception):
    """The watch history does not reach back to the requested resourceVersion."""

    def __init__(self, requested: int, oldest: int) -> None:
        self.requested, self.oldest = requested, oldest
        super().__init__(f"resource version {requested} is older than the watch history, which starts after {oldest}")


class StoredObject(msgspec.Struct, frozen=True, gc=False):
    """One object at one resourceVersion.

    ``key`` is ``namespace/name`` (``name`` alone for cluster-scoped kinds), ``data`` the encoded object, ``labels`` and
    ``fields`` the values that label and field selectors match. ``fields`` are in the order of the kind's selectable
    fields.
    """

    key: str
    resource_version: int
    data: bytes
    labels: dict[str, str]
    fields: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.key[self.key.rfind("/") + 1 :]

    @property
    def namespace(self) -> str:
        return self.key[: max(self.key.rfind("/"), 0)]


class WatchEvent(msgspec.Struct, frozen=True, gc=False):
    """One write: ``object`` is the new state (for DELETED the last state, at the resourceVersion of the deletion)."""

    type: EventType
    object: StoredObject
    previous: StoredObject | None

    @property
    def resource_version(self) -> int:
        return self.object.resource_version


class Collection:
    """The objects of one resource and their watch history.

    ``history_events`` events are kept. When twice as many have accumulated, or when their objects exceed
    ``history_bytes`` bytes, the older half is dropped in one step.
    """

    def __init__(self, *, history_events: int, history_bytes: int, resource_version: int) -> None:
        self._objects: dict[str, StoredObject] = {}
        self._keys: list[str] = []
        self._unsorted = self._removed = False
        self._events: list[WatchEvent] = []
        self._dropped = 0
        self._history_events, self._history_bytes = history_events, history_bytes
        self._bytes = self._oldest_listed = 0
        self._listeners: dict[Callable[[], None], None] = {}
        #: The newest resourceVersion whose event has been dropped; the history is complete after it.
        self.compacted_version = resource_version
        #: The resourceVersion of the last write to this resource, or the one the store started at.
        self.resource_version = resource_version

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, key: str) -> StoredObject | None:
        return self._objects.get(key)

    def snapshot(self, prefix: str = "") -> list[StoredObject]:
        """All objects whose key starts with ``prefix``, ordered by key."""
        keys = self._sorted_keys()
        if prefix:
            keys = keys[bisect_left(keys, prefix) : bisect_right(keys, prefix + "\U0010ffff")]
        objects = self._objects
        return [objects[key] for key in keys]

    def snapshot_at(self, resource_version: int, prefix: str = "") -> list[StoredObject]:
        """The objects as of ``resource_version``, ordered by key. Raises Expired when it has been compacted."""
        oldest = max(self.compacted_version, self._oldest_listed)
        if resource_version < oldest:
            raise Expired(resource_version, oldest)
        undone: dict[str, StoredObject | None] = {}
        for event in reversed(self._events[self._index_after(resource_version) :]):
            if event.object.key.startswith(prefix):
                undone[event.object.key] = event.previous
        if not undone:
            return self.snapshot(prefix)
        objects = [stored for stored in self.snapshot(prefix) if stored.key not in undone]
        objects.extend(stored for stored in undone.values() if stored is not None)
        objects.sort(key=lambda stored: stored.key)
        return objects

    def cursor(self, resource_version: int) -> Cursor:
        """A cursor over every event after ``resource_version``. Raises Expired when it has been compacted."""
        if resource_version < self.compacted_version:
            raise Expired(resource_version, self.compacted_version)
        return Cursor(self, self._dropped + self._index_after(resource_version), resource_version)

    def notify_once(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` at the next write, once. A listener that is already registered is not added again."""
        self._listeners[listener] = None

    def load(self, stored: StoredObject) -> None:
        """Add or replace an object that was persisted by an earlier process. Emits no event."""
        if stored.key not in self._objects:
            self._keys.append(stored.key)
            self._unsorted = True
        self._objects[stored.key] = stored

    def _sorted_keys(self) -> list[str]:
        if self._removed:
            self._keys = [key for key in self._keys if key in self._objects]
        if self._unsorted:
            self._keys = sorted(set(self._keys)) if self._removed else sorted(self._keys)
        self._unsorted = self._removed = False
        return self._keys

    def _index_after(self, resource_version: int) -> int:
        return bisect_right(self._events, resource_version, key=lambda event: event.resource_version)

    def _apply(self, event: WatchEvent) -> None:
        key = event.object.key
        if event.type == "DELETED":
            del self._objects[key]
            self._removed = True
        else:
            self._objects[key] = event.object
            if event.type == "ADDED":
                # A key that is deleted and created again between two lists is in the list of keys twice.
                self._keys.append(key)
                self._unsorted = True
                if self._removed and len(self._keys) > 2 * len(self._objects) + _MAX_DELETED_KEYS:
                    self._sorted_keys()
        self._events.append(event)
        self._bytes += len(event.object.data)
        self.resource_version = event.resource_version
        if len(self._events) >= 2 * self._history_events or self._bytes > self._history_bytes:
            self._compact()
        if self._listeners:
            listeners, self._listeners = self._listeners, {}
            for listener in listeners:
                listener()

    def _compact(self) -> None:
        """Drop the older half of the history, by count or by bytes. The newest event always stays."""
        kept = size = 0
        for event in reversed(self._events):
            if kept and (kept >= self._history_events or size + len(event.object.data) > self._history_bytes // 2):
                break
            kept, size = kept + 1, size + len(event.object.data)
        self._drop(len(self._events) - kept)

    def compact(self, resource_version: int) -> None:
        """Drop the events up to ``resource_version``, and the states before it, whether they differ or not."""
        self._oldest_listed = max(self._oldest_listed, resource_version)
        self._drop(self._index_after(resource_version))

    def _drop(self, count: int) -> None:
        """Drop the oldest events."""
        if not count:
            return
        dropped = self._events[:count]
        self.compacted_version = dropped[-1].resource_version
        del self._events[:count]
        self._dropped += count
        self._bytes -= sum(len(event.object.data) for event in dropped)


class Cursor:
    """A position in the watch history of one resource. It advances only when it is read."""

    def __init__(self, collection: Collection, position: int, resource_version: int) -> None:
        self._collection = collection
        self._position = position
        #: The resourceVersion of the last event read.
        self.resource_version = resource_version

    @property
    def has_more(self) -> bool:
        """Whether :meth:`take` returns events or raises Expired."""
        collection = self._collection
        return self._position < collection._dropped + len(collection._events)

    def take(self, limit: int | None = None) -> list[WatchEvent]:
        """The events since the last call, at most ``limit``. Raises Expired when unread events were dropped."""
        collection = self._collection
        start = self._position - collection._dropped
        if start < 0:
            raise Expired(self.resource_version, collection.compacted_version)
        events = collection._events[start:] if limit is None else collection._events[start : start + limit]
        if events:
            self._position += len(events)
            self.resource_version = events[-1].resource_version
        return events


class Store:
    """The collections of all resources and the resourceVersion counter they share.

    A store that is loaded from disk starts at the persisted ``resource_version``, without earlier history.
    """

    #: Events kept per resource.
    HISTORY_EVENTS: ClassVar = 16_384
    #: Bytes of encoded objects kept in the history of one resource.
    HISTORY_BYTES: ClassVar = 256 * 1024 * 1024

    def __init__(self, *, resource_version: int = 0) -> None:
        self._initial_version = resource_version
        self._collections: dict[str, Collection] = {}
        #: Called with the resource and the event of every write, before any watcher is notified.
        self.on_write: Callable[[str, WatchEvent], None] | None = None
        #: The resourceVersion of the last write to any resource.
        self.resource_version = resource_version

    @property
    def next_resource_version(self) -> int:
        """The resourceVersion of the next write; the stored object must carry it."""
        return self.resource_version + 1

    def collection(self, resource: str) -> Collection:
        found = self._collections.get(resource)
        if found is None:
            found = self._collections[resource] = Collection(
                history_events=self.HISTORY_EVENTS,
                history_bytes=self.HISTORY_BYTES,
                resource_version=self._initial_version,
            )
        return found

    def compact(self, resource_version: int) -> None:
        """Drop the history up to ``resource_version`` of every resource."""
        for collection in self._collections.values():
            collection.compact(resource_version)

    def counts(self) -> dict[str, int]:
        """The number of objects of each resource."""
        return {resource: len(collection) for resource, collection in self._collections.items()}

    def put(self, resource: str, stored: StoredObject) -> WatchEvent:
        """Create or replace an object at :attr:`next_resource_version`. Raises ValueError for another version."""
        collection = self.collection(resource)
        previous = collection.get(stored.key)
        return self._write(resource, collection, WatchEvent("MODIFIED" if previous else "ADDED", stored, previous))

    def delete(self, resource: str, final: StoredObject) -> WatchEvent:
        """Remove the object with the key of ``final``, its last state at :attr:`next_resource_version`.

        Raises ValueError for another version.
        """
        collection = self.collection(resource)
        return self._write(resource, collection, WatchEvent("DELETED", final, collection._objects[final.key]))

    def _write(self, resource: str, collection: Collection, event: WatchEvent) -> WatchEvent:
        if event.resource_version != self.next_resource_version:
            raise ValueError(
                f"write at resource version {event.resource_version}, expected {self.next_resource_version}"
            )
        self.resource_version = event.resource_version
        if self.on_write is not None:
            self.on_write(resource, event)
        collection._apply(event)
        return event


#: Seconds between two compactions, kube-apiserver's default.
COMPACTION_INTERVAL = 300.0


async def compact_periodically(store: Store) -> None:
    """Every :data:`COMPACTION_INTERVAL`, drop the history that is older than that; never returns."""
    while True:
        resource_version = store.resource_version
        await asyncio.sleep(COMPACTION_INTERVAL)
        store.compact(resource_version)


class SelectionPredicate(NamedTuple):
    """What a list or watch selects: a conjunction of label and field requirements.

    ``fields`` are (index into ``StoredObject.fields``, value, whether it must be equal), ``metadata`` the same for
    ``name`` and ``namespace`` by attribute.
    """

    labels: Selector = selectors.EVERYTHING
    fields: tuple[tuple[int, str, bool], ...] = ()
    metadata: tuple[tuple[str, str, bool], ...] = ()

    def matches(self, stored: StoredObject) -> bool:
        for index, value, equal in self.fields:
            if (stored.fields[index] == value) is not equal:
                return False
        for attribute, value, equal in self.metadata:
            if (getattr(stored, attribute) == value) is not equal:
                return False
        return self.labels.matches(stored.labels)

    def select(self, objects: Sequence[StoredObject]) -> list[StoredObject]:
        if self == EVERYTHING:
            return list(objects)
        return [stored for stored in objects if self.matches(stored)]


EVERYTHING = SelectionPredicate()


def parse_selectors(labels: str, fields: str, selectable: Sequence[str]) -> SelectionPredicate:
    """Parse ``labelSelector`` and ``fieldSelector``. Raises InvalidSelector.

    ``selectable`` are the paths of the values in ``StoredObject.fields``.
    """
    if not labels and not fields:
        return EVERYTHING
    by_field: list[tuple[int, str, bool]] = []
    by_metadata: list[tuple[str, str, bool]] = []
    # A backslash escapes a comma, an equals sign or a backslash.
    for term in filter(None, re.split(r"(?<!\\),", fields)):
        path, value, equal = _field_requirement(term, fields)
        if path in ("metadata.name", "metadata.namespace"):
            by_metadata.append((path[len("metadata.") :], value, equal))
        elif path in selectable:
            by_field.append((selectable.index(path), value, equal))
        else:
            raise InvalidSelector(f"field label not supported: {path}")
    return SelectionPredicate(parse_selector(labels), tuple(by_field), tuple(by_metadata))


def _field_requirement(term: str, selector: str) -> tuple[str, str, bool]:
    for operator, equal in (("!=", False), ("==", True), ("=", True)):
        path, found, value = term.partition(operator)
        if found:
            return path, re.sub(r"\\(.)", r"\1", value), equal
    raise InvalidSelector(f"invalid selector: '{selector}'; can't understand '{term}'")


def matches_label_selector(selector: dict[str, Any] | None, labels: dict[str, str]) -> bool:
    """Whether a LabelSelector matches ``labels``. A missing selector matches nothing, an empty one everything."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_matches_expression(expression, labels) for expression in selector.get("matchExpressions") or ())


def _matches_expression(expression: dict[str, Any], labels: dict[str, str]) -> bool:
    value, values = labels.get(expression["key"]), expression.get("values") or ()
    match expression["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
    return value is None


class DecodedObjects:
    """The decoded objects of a small resource, cached until one of them changes."""

    def __init__(self, store: Store, resource: str) -> None:
        self._collection = store.collection(resource)
        self._resource_version = -1
        self._by_key: dict[str, Object] = {}
        self._by_namespace: dict[str, list[Object]] = {}

    def by_key(self) -> dict[str, Object]:
        """The objects by key: the name, or namespace and name."""
        self._refresh()
        return self._by_key

    def in_namespace(self, namespace: str) -> list[Object]:
        """The objects of a namespace, sorted by name."""
        self._refresh()
        return self._by_namespace.get(namespace, [])

    def _refresh(self) -> None:
        if self._resource_version == self._collection.resource_version:
            return
        self._resource_version = self._collection.resource_version
        self._by_key, self._by_namespace = dict(self._decoded()), {}
        for _, decoded in sorted(self._by_key.items()):
            self._by_namespace.setdefault(decoded["metadata"].get("namespace", ""), []).append(decoded)

    def _decoded(self) -> Iterator[tuple[str, Object]]:
        for stored in self._collection.snapshot():
            yield stored.key, msgspec.json.decode(stored.data)
