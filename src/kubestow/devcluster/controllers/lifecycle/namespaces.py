"""Namespaces that are being deleted: what lives in them is deleted, and when nothing is left they are gone."""

from __future__ import annotations

from typing import Any

from kubestow.devcluster.apiserver.registry.deletion import Deletion
from kubestow.devcluster.apiserver.resources import Object
from kubestow.devcluster.controllers.controller import Controller, Happening

__all__ = ["NamespaceController"]


class NamespaceController(Controller):
    resource = "namespaces"
    component = "namespace-controller"

    def observe(self, happening: Happening) -> None:
        if happening.resource == "namespaces":
            self.reconcile_soon(happening.key)
        elif happening.event.type == "DELETED" and happening.event.object.namespace:
            self.reconcile_soon(happening.event.object.namespace)

    def reconcile(self, key: str) -> None:
        stored = self.registry.store.collection(self.resource).get(key)
        if stored is None or b'"deletionTimestamp":' not in stored.data:
            return
        if self._empty(key):
            self.registry.update(self.kind, "", key, _finalized)

    def _empty(self, namespace: str) -> bool:
        """Begin to delete everything in the namespace; whether nothing is left."""
        left = False
        kinds = {kind.storage: kind for kind in self.registry.catalog if kind.namespaced and "delete" in kind.verbs}
        for kind in kinds.values():
            for stored in self.registry.store.collection(kind.storage).snapshot(f"{namespace}/"):
                gone = (
                    b'"deletionTimestamp":' not in stored.data
                    and (self.registry.delete(kind, namespace, stored.name, Deletion())[1])
                )
                left = left or not gone
        return not left


def _finalized(old: Object) -> Object:
    spec: dict[str, Any] = {**old["spec"]}
    remaining = [one for one in spec.pop("finalizers", None) or () if one != "kubernetes"]
    if remaining:
        spec["finalizers"] = remaining
    return {**old, "metadata": dict(old["metadata"]), "spec": spec}
