"""The namespace controller: deletes everything in a terminating namespace, then removes its finalizer."""

from __future__ import annotations

from typing import Any

from kubestow.devcluster.apiserver.registry.deletion import DeleteOptions
from kubestow.devcluster.apiserver.resources import Object
from kubestow.devcluster.controllers.controller import Controller, ObjectChange
from kubestow.devcluster.stored_objects import is_terminating

__all__ = ["NamespaceController"]

_FINALIZER = "kubernetes"


class NamespaceController(Controller):
    resource = "namespaces"
    watched = None
    component = "namespace-controller"

    def handle_change(self, change: ObjectChange) -> None:
        if change.resource == "namespaces":
            self.enqueue(change.key)
        elif change.is_deletion and change.event.object.namespace:
            self.enqueue(change.event.object.namespace)

    def reconcile(self, key: str) -> None:
        stored = self.registry.store.collection(self.resource).get(key)
        if stored is None or not is_terminating(stored):
            return
        if self._delete_all_content(key):
            self.registry.update(self.kind, "", key, _finalized)

    def _delete_all_content(self, namespace: str) -> bool:
        """Delete every object that is not terminating yet. Returns whether the namespace is empty then."""
        is_empty = True
        kinds = {kind.storage: kind for kind in self.registry.scheme if kind.namespaced and "delete" in kind.verbs}
        for kind in kinds.values():
            for stored in self.registry.store.collection(kind.storage).snapshot(f"{namespace}/"):
                is_removed = (
                    not is_terminating(stored)
                    and self.registry.delete(kind, namespace, stored.name, DeleteOptions())[1]
                )
                is_empty = is_empty and is_removed
        return is_empty


def _finalized(old: Object) -> Object:
    spec: dict[str, Any] = {**old["spec"]}
    remaining = [finalizer for finalizer in spec.pop("finalizers", None) or () if finalizer != _FINALIZER]
    if remaining:
        spec["finalizers"] = remaining
    return {**old, "metadata": dict(old["metadata"]), "spec": spec}
