"""What the server holds: objects by key, one version counter, and the recent history of every resource.

A write replaces one immutable :class:`Stored` and appends one :class:`Event` to the history of its resource. Lists are
snapshots of references; a watch is a :class:`Cursor` over the shared history, so a watcher costs no queue, sees every
event in order exactly once, and one that falls behind the bounded history learns so (:class:`Expired`) instead of
holding memory. A list at an earlier version is today's objects with the later events undone.

Nothing here knows HTTP, JSON or Kubernetes kinds: an object is bytes plus the few values that selectors read. Nothing
here touches a disk either: :attr:`Store.recorder` is told every write, and ``durability`` keeps it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Literal

import msgspec

__all__ = ["Change", "Collection", "Cursor", "Event", "Expired", "Store", "Stored"]

Change = Literal["ADDED", "MODIFIED", "DELETED"]

#: Events kept per resource. Past twice this the older half is dropped in one cut.
HISTORY = 16_384
#: Bytes of objects in the events kept per resource; past them, too, the older half is dropped.
HISTORY_BYTES = 256 * 1024 * 1024


class Expired(Exception):
    """The history no longer reaches back to the version asked for."""

    def __init__(self, asked: int, oldest: int) -> None:
        self.asked, self.oldest = asked, oldest
        super().__init__(f"version {asked} is older than the history, which begins at {oldest}")


class Stored(msgspec.Struct, frozen=True, gc=False):
    """One object at one version.

    ``key`` is ``namespace/name`` (``name`` alone in cluster scope), ``data`` the encoded object, ``labels`` and
    ``fields`` what label and field selectors match against (``fields`` in the order of the kind's selectable fields).
    """

    key: str
    version: int
    data: bytes
    labels: dict[str, str]
    fields: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.key[self.key.rfind("/") + 1 :]

    @property
    def namespace(self) -> str:
        return self.key[: max(self.key.rfind("/"), 0)]


class Event(msgspec.Struct, frozen=True, gc=False):
    """One change: ``object`` is the state it led to (for a deletion: the last state, at the deletion's version)."""

    type: Change
    object: Stored
    previous: Stored | None

    @property
    def version(self) -> int:
        return self.object.version


class Collection:
    """The objects of one resource and their history."""

    def __init__(self, *, history: int = HISTORY, history_bytes: int = HISTORY_BYTES, version: int = 0) -> None:
        self._objects: dict[str, Stored] = {}
        self._keys: list[str] = []
        self._unsorted = self._removed = False
        self._events: list[Event] = []
        self._dropped = 0
        self._capacity, self._bytes_capacity = history, history_bytes
        self._bytes = 0
        self._wakers: dict[Callable[[], None], None] = {}
        #: The newest version that the history has forgotten; it is complete for every later one.
        self.floor = version
        #: The version of the last change to this resource, or the one the store began at.
        self.version = version

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, key: str) -> Stored | None:
        return self._objects.get(key)

    def snapshot(self, prefix: str = "") -> list[Stored]:
        """All objects whose key begins with ``prefix``, by key."""
        keys = self._sorted_keys()
        if prefix:
            keys = keys[bisect_left(keys, prefix) : bisect_right(keys, prefix + "\U0010ffff")]
        objects = self._objects
        return [objects[key] for key in keys]

    def snapshot_at(self, version: int, prefix: str = "") -> list[Stored]:
        """The objects as they were at ``version``. Raises Expired when the history does not reach back that far."""
        if version < self.floor:
            raise Expired(version, self.floor)
        undone: dict[str, Stored | None] = {}
        for event in reversed(self._events[self._index_after(version) :]):
            if event.object.key.startswith(prefix):
                undone[event.object.key] = event.previous
        if not undone:
            return self.snapshot(prefix)
        kept = [stored for stored in self.snapshot(prefix) if stored.key not in undone]
        kept.extend(stored for stored in undone.values() if stored is not None)
        kept.sort(key=lambda stored: stored.key)
        return kept

    def cursor(self, version: int) -> Cursor:
        """A cursor that delivers every event after ``version``. Raises Expired when some of them are gone."""
        if version < self.floor:
            raise Expired(version, self.floor)
        return Cursor(self, self._dropped + self._index_after(version), version)

    def wake(self, waker: Callable[[], None]) -> None:
        """Call ``waker`` once, at the next change; asking again before that changes nothing."""
        self._wakers[waker] = None

    def restore(self, stored: Stored) -> None:
        """Take in an object from before the store began, or replace it. No event tells of it."""
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

    def _index_after(self, version: int) -> int:
        return bisect_right(self._events, version, key=lambda event: event.version)

    def _apply(self, event: Event) -> None:
        key = event.object.key
        if event.type == "DELETED":
            del self._objects[key]
            self._removed = True
        else:
            if event.type == "ADDED":
                # A key deleted and created again between two lists may stand in the list twice.
                self._keys.append(key)
                self._unsorted = True
            self._objects[key] = event.object
        self._events.append(event)
        self._bytes += len(event.object.data)
        self.version = event.version
        if len(self._events) >= 2 * self._capacity or self._bytes > self._bytes_capacity:
            self._forget()
        if self._wakers:
            wakers, self._wakers = self._wakers, {}
            for waker in wakers:
                waker()

    def _forget(self) -> None:
        """Drop the older half, by number or by bytes."""
        kept = held = 0
        for event in reversed(self._events):
            if kept and (kept >= self._capacity or held + len(event.object.data) > self._bytes_capacity // 2):
                break
            kept, held = kept + 1, held + len(event.object.data)
        gone = len(self._events) - kept
        if not gone:
            return
        self.floor = self._events[gone - 1].version
        del self._events[:gone]
        self._dropped += gone
        self._bytes = held


class Cursor:
    """A place in the history of one resource; it moves only forward, and only when it is read."""

    def __init__(self, collection: Collection, position: int, version: int) -> None:
        self._collection = collection
        self._position = position
        #: The version of the last event taken.
        self.version = version

    @property
    def has_more(self) -> bool:
        """Whether there is anything to take: events, or the news that some were lost."""
        collection = self._collection
        return self._position < collection._dropped + len(collection._events)

    def take(self, limit: int | None = None) -> list[Event]:
        """The events since the last call, at most ``limit``. Raises Expired when some were dropped unread."""
        collection = self._collection
        start = self._position - collection._dropped
        if start < 0:
            raise Expired(self.version, collection.floor)
        events = collection._events[start:] if limit is None else collection._events[start : start + limit]
        if events:
            self._position += len(events)
            self.version = events[-1].version
        return events


class Store:
    """Every collection, and the one version counter they share.

    A store that goes on where another ended begins at that one's ``version``: what was before has no history here.
    """

    def __init__(self, *, history: int = HISTORY, history_bytes: int = HISTORY_BYTES, version: int = 0) -> None:
        self._history, self._history_bytes = history, history_bytes
        self._began = version
        self._collections: dict[str, Collection] = {}
        #: Told of every write, as it happens: the resource and the event.
        self.recorder: Callable[[str, Event], None] | None = None
        #: The version of the last write anywhere.
        self.version = version

    @property
    def upcoming(self) -> int:
        """The version the next write will have; the object it stores carries it."""
        return self.version + 1

    def collection(self, resource: str) -> Collection:
        found = self._collections.get(resource)
        if found is None:
            found = self._collections[resource] = Collection(
                history=self._history, history_bytes=self._history_bytes, version=self._began
            )
        return found

    def counts(self) -> dict[str, int]:
        """The number of objects of each resource."""
        return {resource: len(collection) for resource, collection in self._collections.items()}

    def put(self, resource: str, stored: Stored) -> Event:
        """Create or replace an object. ``stored.version`` must be :attr:`upcoming`."""
        collection = self.collection(resource)
        previous = collection.get(stored.key)
        return self._commit(resource, collection, Event("MODIFIED" if previous else "ADDED", stored, previous))

    def delete(self, resource: str, final: Stored) -> Event:
        """Remove the object with ``final``'s key; ``final`` is its last state, at version :attr:`upcoming`."""
        collection = self.collection(resource)
        return self._commit(resource, collection, Event("DELETED", final, collection._objects[final.key]))

    def _commit(self, resource: str, collection: Collection, event: Event) -> Event:
        if event.version != self.upcoming:
            raise ValueError(f"write at version {event.version}, expected {self.upcoming}")
        self.version = event.version
        if self.recorder is not None:
            self.recorder(resource, event)
        collection._apply(event)
        return event
