"""Objects that scheduling looks things up in: volumes, claims, classes, services, budgets, …

A catalog holds the objects of one kind by namespace and name and notes every change in the journal. What plugins derive
from several kinds together (volumes in use, device pools) is kept in modules of its own, next to the table they belong
to, and follows a catalog's ``version``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from kubestow.api.meta import ObjectMeta
from kubestow.cluster.events import Action, ClusterEvent, EventResource
from kubestow.cluster.journal import EVERY_ROW, Journal

__all__ = ["Catalog", "Described"]


class Described(Protocol):
    """Any API object."""

    @property
    def metadata(self) -> ObjectMeta:
        """Its metadata."""


T = TypeVar("T", bound=Described)


class Catalog(Generic[T]):
    """The objects of one kind; cluster-scoped ones have the namespace ``""``."""

    def __init__(self, journal: Journal, resource: EventResource | None) -> None:
        self._journal = journal
        #: What a change of these objects is called among cluster events, None when nobody waits for them.
        self.resource = resource
        self._bits = ClusterEvent(resource, Action.UPDATE).bits if resource is not None else 0
        self._objects: dict[tuple[str, str], T] = {}
        #: Grows with every change.
        self.version = 0

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[T]:
        """All objects in the order of namespace and name."""
        return iter([self._objects[key] for key in sorted(self._objects)])

    def get(self, namespace: str, name: str) -> T | None:
        """One object, None when there is none of that name."""
        return self._objects.get((namespace, name))

    def in_namespace(self, namespace: str) -> Iterator[T]:
        """The objects of a namespace in the order of their names."""
        return (obj for obj in self if obj.metadata.namespace == namespace)

    def put(self, obj: T) -> T | None:
        """An object is there, new or changed; its former state is returned."""
        key = (obj.metadata.namespace, obj.metadata.name)
        old = self._objects.get(key)
        self._objects[key] = obj
        self._changed()
        return old

    def remove(self, namespace: str, name: str) -> T | None:
        """An object is gone; its last state is returned."""
        old = self._objects.pop((namespace, name), None)
        if old is not None:
            self._changed()
        return old

    def _changed(self) -> None:
        self.version += 1
        if self._bits:
            self._journal.write(EVERY_ROW, self._bits)
