"""Decoded copies of all objects of a small resource, for components that look them up often."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from kubestow_devcluster.apiserver.schema import Object
from kubestow_devcluster.apiserver.storage.store import Store

__all__ = ["DecodedObjects"]


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
