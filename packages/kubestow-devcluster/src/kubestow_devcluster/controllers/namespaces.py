"""The namespace controller, and the resource quota controller: what a namespace has when it ends, and its usage."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from kubestow.rules.resource_lists import ResourceList, added
from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.kinds.kind import Kind
from kubestow_devcluster.apiserver.kinds.object_fields import with_condition
from kubestow_devcluster.apiserver.registry.registry import DeleteOptions
from kubestow_devcluster.apiserver.registry.resource_quotas import counted_resources, is_in_scope, usage_of
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.component_base.stored_objects import has_deadline, is_pod_finished, is_terminating
from kubestow_devcluster.controllers.controller import LONGEST_THROTTLE, Controller, ControllerContext, ObjectChange

_FINALIZER = "kubernetes"
_PODS = "pods"
#: Reason and message of each condition while nothing is wrong.
_FINE = {
    "NamespaceDeletionDiscoveryFailure": ("ResourcesDiscovered", "All resources successfully discovered"),
    "NamespaceDeletionGroupVersionParsingFailure": ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
    "NamespaceDeletionContentFailure": (
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    "NamespaceContentRemaining": ("ContentRemoved", "All content successfully removed"),
    "NamespaceFinalizersRemaining": ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
}


class _Metadata(msgspec.Struct, frozen=True):
    finalizers: tuple[str, ...] = ()


class _Finalized(msgspec.Struct, frozen=True):
    metadata: _Metadata


class _Remaining:
    """What remains in a namespace: the number of objects by resource and by finalizer, and failures to delete."""

    def __init__(self) -> None:
        self.resources: Counter[str] = Counter()
        self.finalizers: Counter[str] = Counter()
        self.failures: list[str] = []

    def conditions(self) -> list[Object]:
        return [self._condition(type_) for type_ in _FINE]

    def _condition(self, type_: str) -> Object:
        problem = ("", "")
        if type_ == "NamespaceDeletionContentFailure" and self.failures:
            failures = ", ".join(sorted(self.failures))
            text = f"Failed to delete all resource types, {len(self.failures)} remaining: {failures}"
            problem = ("ContentDeletionFailed", text)
        elif type_ == "NamespaceContentRemaining" and self.resources:
            counts = ", ".join(f"{name} has {count} resource instances" for name, count in _sorted(self.resources))
            problem = ("SomeResourcesRemain", f"Some resources are remaining: {counts}")
        elif type_ == "NamespaceFinalizersRemaining" and self.finalizers:
            counts = ", ".join(f"{name} in {count} resource instances" for name, count in _sorted(self.finalizers))
            text = f"Some content in the namespace has finalizers remaining: {counts}"
            problem = ("SomeFinalizersRemain", text)
        reason, message = problem if problem[0] else _FINE[type_]
        return {"type": type_, "status": "True" if problem[0] else "False", "reason": reason, "message": message}


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
        # Delete every object that is not terminating yet: pods, and once there are none, all others.
        remaining = _Remaining()
        kinds = {kind.storage: kind for kind in self.registry.scheme if kind.namespaced and "delete" in kind.rest.verbs}
        self._delete_all(kinds.pop(_PODS), key, remaining)
        if not remaining.resources:
            for kind in kinds.values():
                self._delete_all(kind, key, remaining)
        self.throttle(key, remaining.resources.total(), longest=LONGEST_THROTTLE)
        self._update_conditions(key, remaining)
        if not remaining.resources:
            self.registry.update(self.kind, "", key, _finalized)
        elif remaining.failures:
            self.enqueue_after(key, 1.0)

    def _delete_all(self, kind: Kind, namespace: str, remaining: _Remaining) -> None:
        collection = self.registry.store.collection(kind.storage)
        for stored in collection.snapshot(f"{namespace}/"):
            if not is_terminating(stored):
                try:
                    self.registry.delete(kind, namespace, stored.name, DeleteOptions())
                except statuses.StatusError as failure:
                    remaining.failures.append(failure.message)
            left = collection.get(stored.key)
            if left is not None:
                remaining.resources[f"{kind.names.plural}.{kind.group}"] += 1
                if b'"finalizers"' in left.data:
                    remaining.finalizers.update(msgspec.json.decode(left.data, type=_Finalized).metadata.finalizers)

    def _update_conditions(self, name: str, remaining: _Remaining) -> None:
        def with_conditions(old: Object) -> Object:
            status = dict(old.get("status") or {})
            for condition in remaining.conditions():
                status["conditions"] = with_condition(status, condition, self.registry.now())
            return {**old, "metadata": dict(old["metadata"]), "status": status}

        self.registry.update(self.kind, "", name, with_conditions, subresource="status")


def _sorted(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items())


def _finalized(old: Object) -> Object:
    spec: dict[str, Any] = {**old["spec"]}
    remaining = [finalizer for finalizer in spec.pop("finalizers", None) or () if finalizer != _FINALIZER]
    if remaining:
        spec["finalizers"] = remaining
    return {**old, "metadata": dict(old["metadata"]), "spec": spec}


class ResourceQuotaController(Controller):
    resource = "resourcequotas"
    watched = None
    component = "resourcequota-controller"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._quotas = context.registry.store.collection(self.resource)

    def handle_change(self, change: ObjectChange) -> None:
        super().handle_change(change)
        if not len(self._quotas) or not change.event.object.namespace or not _changes_usage(change):
            return
        for quota in self._quotas.snapshot(f"{change.event.object.namespace}/"):
            self.enqueue(quota.key)

    def sync(self, key: str, quota: Object) -> None:
        hard: ResourceList = (quota.get("spec") or {}).get("hard") or {}
        namespace, used, count = quota["metadata"]["namespace"], [dict.fromkeys(sorted(hard), "0")], 0
        for kind in counted_resources(self.registry.scheme, hard):
            for stored in self.registry.store.collection(kind.storage).snapshot(f"{namespace}/"):
                decoded, count = kind.decode(stored), count + 1
                if is_in_scope(quota, kind, decoded):
                    used.append({name: amount for name, amount in usage_of(kind, decoded).items() if name in hard})
        self.throttle(key, count)
        self.update_status(quota, {"hard": dict(hard), "used": added(*used)})


def _changes_usage(change: ObjectChange) -> bool:
    """Whether a change can change usage in another way than admission has accounted for."""
    event = change.event
    if change.resource == "pods":
        if change.is_deletion or event.previous is None:
            return change.is_deletion
        is_finished = is_pod_finished(event.object) > is_pod_finished(event.previous)
        # A deadline takes the pod out of the scope of some quotas.
        return is_finished or has_deadline(event.object) != has_deadline(event.previous)
    return change.resource not in ("events", ResourceQuotaController.resource) and event.type != "ADDED"
