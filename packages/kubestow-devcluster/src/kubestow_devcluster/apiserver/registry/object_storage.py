"""Writes of objects to the store: the encoding of an object, its resourceVersion, and dry runs."""

from __future__ import annotations

import sys

import msgspec

from kubestow_devcluster.apiserver.resources import object_meta
from kubestow_devcluster.apiserver.resources.kind import Kind
from kubestow_devcluster.apiserver.resources.scheme import Scheme
from kubestow_devcluster.apiserver.schema import Object
from kubestow_devcluster.apiserver.storage.store import Store, StoredObject

__all__ = ["ObjectStorage"]


class ObjectStorage:
    """Encodes objects and writes them to ``store``."""

    def __init__(self, store: Store, scheme: Scheme) -> None:
        self.store, self._scheme = store, scheme

    def put(self, kind: Kind, new: Object) -> StoredObject:
        """Create or replace an object at the next resourceVersion, which is set in ``new``."""
        resource_version = self.store.next_resource_version
        new["metadata"]["resourceVersion"] = str(resource_version)
        stored = self.encode(kind, new, resource_version)
        self.store.put(kind.storage, stored)
        return stored

    def delete(self, kind: Kind, last: Object) -> StoredObject:
        """Remove an object. ``last`` is the state of the DELETED event, at the next resourceVersion."""
        resource_version = self.store.next_resource_version
        last["metadata"]["resourceVersion"] = str(resource_version)
        final = self.encode(kind, last, resource_version)
        self.store.delete(kind.storage, final)
        return final

    def encode(self, kind: Kind, obj: Object, resource_version: int) -> StoredObject:
        """An object as it is stored, in the storage version of its kind."""
        converted = kind.strategy.to_storage(obj) if kind.strategy.needs_conversion else obj
        storage_kind = self._scheme[kind.rest.stored_in] if kind.rest.stored_in else kind
        metadata = object_meta.ordered(converted["metadata"])
        body = {"metadata": metadata} | {field: value for field, value in converted.items() if field != "metadata"}
        return StoredObject(
            kind.key(metadata.get("namespace", ""), metadata["name"]),
            resource_version,
            msgspec.json.encode(body),
            _interned(metadata.get("labels")),
            storage_kind.selectable_values(converted),
        )


_NO_LABELS: dict[str, str] = {}


def _interned(labels: dict[str, str] | None) -> dict[str, str]:
    """Labels with interned strings: the same keys and values occur in many objects."""
    if not labels:
        return _NO_LABELS
    return {sys.intern(key): sys.intern(value) for key, value in labels.items()}
