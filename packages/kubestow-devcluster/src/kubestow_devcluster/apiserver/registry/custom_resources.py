"""Custom resources: updates the served kinds from the stored CustomResourceDefinitions.

The registry reports every write of a definition and every deletion of an instance. Deleting a definition deletes its
instances first; while some have finalizers, the definition stays, with the condition Terminating.
"""

from __future__ import annotations

from collections.abc import Callable

from kubestow_devcluster.apiserver.registry.object_storage import ObjectStorage
from kubestow_devcluster.apiserver.resources.custom_resources.kinds import kinds_of
from kubestow_devcluster.apiserver.resources.custom_resources.naming import (
    CLEANUP_FINALIZER,
    accept_names,
    is_terminating,
    set_terminating,
)
from kubestow_devcluster.apiserver.resources.kind import Kind
from kubestow_devcluster.apiserver.resources.scheme import Scheme
from kubestow_devcluster.apiserver.schema import Object
from kubestow_devcluster.apiserver.storage.store import StoredObject

__all__ = ["DEFINITIONS", "CustomResources"]

DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"


class CustomResources:
    """The definitions in one store. Those that it already contains are served from the start.

    ``delete`` deletes an instance by kind, namespace and name.
    """

    def __init__(self, storage: ObjectStorage, scheme: Scheme, *, delete: Callable[[Kind, str, str], None]) -> None:
        self._storage, self._store, self._scheme = storage, storage.store, scheme
        self._delete = delete
        self._kind = scheme[DEFINITIONS]
        for stored in self._store.collection(DEFINITIONS).snapshot():
            scheme.set_custom_resource(stored.name, kinds_of(self._kind.decode(stored)))

    def put_definition(self, new: Object, now: str) -> StoredObject:
        """Store a definition with its conditions and serve its kinds; delete its instances if it is terminating."""
        group, name = new["spec"]["group"], new["metadata"]["name"]
        accept_names(new, [kind for kind in self._scheme if kind.group == group and kind.resource != name], now)
        if is_terminating(new):
            set_terminating(new, now)
        stored = self._storage.put(self._kind, new)
        self._scheme.set_custom_resource(name, kinds_of(new))
        if is_terminating(new):
            self._delete_instances(name, now)
        return stored

    def definition_deleted(self, name: str) -> None:
        self._scheme.set_custom_resource(name, [])

    def instance_deleted(self, kind: Kind, now: str) -> None:
        """Remove a terminating definition once its last instance is deleted."""
        stored = self._store.collection(DEFINITIONS).get(kind.resource)
        if stored is not None and is_terminating(self._kind.decode(stored)):
            self._remove_if_empty(kind.resource, now)

    def _delete_instances(self, name: str, now: str) -> None:
        kind = next((kind for kind in self._scheme if kind.resource == name), None)
        if kind is not None:
            for stored in self._store.collection(name).snapshot():
                if b'"deletionTimestamp"' not in stored.data:
                    self._delete(kind, stored.namespace, stored.name)
        self._remove_if_empty(name, now)

    def _remove_if_empty(self, name: str, now: str) -> None:
        """Remove the cleanup finalizer of a definition without instances, and the definition if it has no other."""
        stored = self._store.collection(DEFINITIONS).get(name)
        if stored is None or len(self._store.collection(name)):
            return
        definition = self._kind.decode(stored)
        finalizers = [one for one in definition["metadata"].get("finalizers") or () if one != CLEANUP_FINALIZER]
        definition["metadata"]["finalizers"] = finalizers
        if finalizers:
            if CLEANUP_FINALIZER.encode() in stored.data:
                self.put_definition(definition, now)
            return
        del definition["metadata"]["finalizers"]
        self._storage.delete(self._kind, definition)
        self.definition_deleted(name)
