"""Objects that scheduling looks things up in: volumes, claims, classes, services, budgets, …

A catalog holds the objects of one kind by namespace and name and notes every change in the journal. On top of what the
API server said lie *assumptions*: objects as they will be once a write that was decided on has been done. What is
derived from several kinds together (volumes in use, device pools) is kept in modules of its own, which follow a
catalog's ``version`` or have themselves told of every change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from kubestow.api.meta import ObjectMeta
from kubestow.cluster.events import Action, ClusterEvent
from kubestow.cluster.journal import EVERY_ROW, Journal
from kubestow.errors import KubestowError

__all__ = ["Catalog", "NamedObject"]


class NamedObject(Protocol):
    """Any API object."""

    @property
    def metadata(self) -> ObjectMeta:
        """Its metadata."""


T = TypeVar("T", bound=NamedObject)


class Catalog(Generic[T]):
    """The objects of one kind; cluster-scoped ones have the namespace ``""``."""

    def __init__(self, journal: Journal, resource: str | None) -> None:
        self._journal = journal
        #: What a change of these objects is called among cluster events, None when nobody waits for them.
        self.resource = resource
        self._bits = ClusterEvent(resource, Action.UPDATE).bits if resource is not None else 0
        self._objects: dict[tuple[str, str], T] = {}
        #: The names in each namespace, in order where they have been put in order since the last came or went.
        self._names: dict[str, dict[str, None]] = {}
        self._ordered: dict[str, list[str]] = {}
        self._assumed: dict[tuple[str, str], T] = {}
        self._followers: list[Callable[[T | None, T | None], None]] = []
        #: Grows with every change.
        self.version = 0

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[T]:
        """All objects in the order of namespace and name, as they are assumed to be."""
        return iter([obj for namespace in sorted(self._names) for obj in self.in_namespace(namespace)])

    def get(self, namespace: str, name: str) -> T | None:
        """One object as it is assumed to be, None when there is none of that name."""
        key = (namespace, name)
        return self._assumed.get(key) or self._objects.get(key)

    def as_observed(self, namespace: str, name: str) -> T | None:
        """One object as the API server last said it was."""
        return self._objects.get((namespace, name))

    def in_namespace(self, namespace: str) -> Iterator[T]:
        """The objects of a namespace in the order of their names."""
        names = self._ordered.get(namespace)
        if names is None:
            if namespace not in self._names:
                return iter(())
            names = self._ordered[namespace] = sorted(self._names[namespace])
        keys = ((namespace, name) for name in names)
        return iter([self._assumed.get(key) or self._objects[key] for key in keys])

    def follow(self, follower: Callable[[T | None, T | None], None]) -> None:
        """Have a function told of every change, as (before, after); it begins with the objects there are."""
        for obj in self:
            follower(None, obj)
        self._followers.append(follower)

    def put(self, obj: T) -> T | None:
        """An object is there, new or changed; its former state is returned. News end what was assumed of it."""
        key = _key(obj)
        old = self._objects.get(key)
        before = self._assumed.get(key) or old
        self._objects[key] = obj
        if old is None:
            self._names.setdefault(key[0], {})[key[1]] = None
            self._ordered.pop(key[0], None)
        if old is None or old.metadata.resource_version != obj.metadata.resource_version or before is old:
            self._assumed.pop(key, None)
            self._changed(before, obj)
        return old

    def remove(self, namespace: str, name: str) -> T | None:
        """An object is gone; its last state is returned."""
        key = (namespace, name)
        old = self._objects.pop(key, None)
        if old is not None:
            del self._names[namespace][name]
            if not self._names[namespace]:
                del self._names[namespace]
            self._ordered.pop(namespace, None)
            self._changed(self._assumed.pop(key, None) or old, None)
        return old

    # -- assumptions ---------------------------------------------------------------------------------------------

    def assume(self, obj: T) -> None:
        """Take an object to be as it will be once it has been written. Raises KubestowError when it is based on an old
        state of the object, or on one that is gone."""
        key = _key(obj)
        observed = self._objects.get(key)
        if observed is None:
            raise KubestowError(f"{type(obj).__name__} {'/'.join(filter(None, key))} is gone, so can't be assumed")
        if observed.metadata.resource_version != obj.metadata.resource_version:
            raise KubestowError(f"{type(obj).__name__} {'/'.join(filter(None, key))} has changed, so can't be assumed")
        before = self._assumed.get(key) or observed
        self._assumed[key] = obj
        self._changed(before, obj)

    def restore(self, namespace: str, name: str) -> None:
        """Take back what was assumed of an object, if anything was."""
        key = (namespace, name)
        assumed = self._assumed.pop(key, None)
        if assumed is not None:
            self._changed(assumed, self._objects[key])

    def assumed(self) -> list[T]:
        """The objects of which something is assumed, as they are assumed to be."""
        return [self._assumed[key] for key in sorted(self._assumed)]

    def _changed(self, before: T | None, after: T | None) -> None:
        self.version += 1
        for follower in self._followers:
            follower(before, after)
        if self._bits:
            self._journal.write(EVERY_ROW, self._bits)


def _key(obj: NamedObject) -> tuple[str, str]:
    return obj.metadata.namespace, obj.metadata.name
