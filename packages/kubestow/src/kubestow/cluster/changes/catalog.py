"""Catalogs: observed and assumed objects of one kind, such as volumes, claims, classes, services and budgets.

A catalog keeps objects by namespace and name and records every change in the journal. Like kube-scheduler's assume
cache it puts *assumed* objects in front of the observed ones: objects as they will be after a write that has been
decided. State derived from several kinds (volumes in use, device pools) is kept elsewhere, by subscribers of catalogs
or by comparing :attr:`Catalog.version`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from kubestow.api.meta import ObjectMeta
from kubestow.cluster.changes.events import Action, ClusterEvent, notify
from kubestow.cluster.changes.journal import EVERY_ROW, Journal
from kubestow.errors import KubestowError


class KubernetesObject(Protocol):
    """An API object."""

    @property
    def metadata(self) -> ObjectMeta:
        """``metadata``."""


T = TypeVar("T", bound=KubernetesObject)


class Catalog(Generic[T]):
    """The objects of one kind; the namespace of cluster-scoped ones is ``""``.

    ``row_of`` returns the row of the node table that an object of a name is about, or EVERY_ROW.
    """

    def __init__(
        self, journal: Journal, resource: str | None, row_of: Callable[[str], int] = lambda name: EVERY_ROW
    ) -> None:
        self._journal, self._row_of = journal, row_of
        #: The event resource of changes, None when no plugin can register for them.
        self.resource = resource
        self._bits = ClusterEvent(resource, Action.UPDATE).bits if resource is not None else 0
        self._objects: dict[tuple[str, str], T] = {}
        #: The names in each namespace; in order where nothing has been added or removed since they were sorted.
        self._names: dict[str, dict[str, None]] = {}
        self._ordered: dict[str, list[str]] = {}
        self._assumed: dict[tuple[str, str], T] = {}
        self._subscribers: list[Callable[[T | None, T | None], None]] = []
        #: Incremented with every change.
        self.version = 0

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[T]:
        """All objects, assumed states first, in the order of namespace and name."""
        return iter([obj for namespace in sorted(self._names) for obj in self.in_namespace(namespace)])

    def get(self, namespace: str, name: str) -> T | None:
        """An object in its assumed state, else as observed; None when there is none of that name."""
        key = (namespace, name)
        return self._assumed.get(key) or self._objects.get(key)

    def as_observed(self, namespace: str, name: str) -> T | None:
        """An object as last observed from the API server, None when there is none of that name."""
        return self._objects.get((namespace, name))

    def in_namespace(self, namespace: str) -> Iterator[T]:
        """The objects of a namespace, assumed states first, in the order of their names."""
        names = self._ordered.get(namespace)
        if names is None:
            if namespace not in self._names:
                return iter(())
            names = self._ordered[namespace] = sorted(self._names[namespace])
        keys = ((namespace, name) for name in names)
        return iter([self._assumed.get(key) or self._objects[key] for key in keys])

    def subscribe(self, handler: Callable[[T | None, T | None], None]) -> None:
        """Call a handler with (before, after) for every existing object and every later change."""
        for obj in self:
            handler(None, obj)
        self._subscribers.append(handler)

    def put(self, obj: T) -> T | None:
        """Add or replace an observed object; its former observed state is returned.

        An object with another resource version ends what was assumed of it.
        """
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
        """Remove an object; its last observed state is returned, None when there was none."""
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
        """Put the state that an object will have after a write in front of the observed one.

        Raises KubestowError when the object has been deleted, or has changed since the observed state that this is
        based on.
        """
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
        """Undo :meth:`assume`: drop the assumed state of an object, if there is one."""
        key = (namespace, name)
        assumed = self._assumed.pop(key, None)
        if assumed is not None:
            self._changed(assumed, self._objects[key])

    def assumed(self) -> list[T]:
        """The assumed states of objects, in the order of namespace and name."""
        return [self._assumed[key] for key in sorted(self._assumed)]

    def _changed(self, before: T | None, after: T | None) -> None:
        self.version += 1
        for handler in self._subscribers:
            notify(handler, before, after)
        changed = after or before
        if self._bits and changed is not None:
            self._journal.write(self._row_of(changed.metadata.name), self._bits)


def _key(obj: KubernetesObject) -> tuple[str, str]:
    return obj.metadata.namespace, obj.metadata.name
