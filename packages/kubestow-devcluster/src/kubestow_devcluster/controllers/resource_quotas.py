"""The resource quota controller: the usage in the status of ResourceQuotas.

Admission adds to the usage what it admits. This controller computes all of it: for new and changed quotas, and when
objects are deleted, pods finish or other objects change.
"""

from __future__ import annotations

from kubestow.rules.resource_lists import ResourceList, added
from kubestow_devcluster.apiserver.registry.admission.quota_usage import counted_resources, is_in_scope, usage_of
from kubestow_devcluster.apiserver.resources import Object
from kubestow_devcluster.controllers.controller import Controller, ControllerContext, ObjectChange
from kubestow_devcluster.stored_objects import has_deadline, is_pod_finished

__all__ = ["ResourceQuotaController"]


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

    def reconcile(self, key: str) -> None:
        quota = self.get(key)
        if quota is None:
            return
        hard: ResourceList = (quota.get("spec") or {}).get("hard") or {}
        self.update_status(quota, {"hard": dict(hard), "used": self._usage(key, quota, hard)})

    def _usage(self, key: str, quota: Object, hard: ResourceList) -> ResourceList:
        namespace, used, count = quota["metadata"]["namespace"], [dict.fromkeys(sorted(hard), "0")], 0
        for kind in counted_resources(self.registry.scheme, hard):
            for stored in self.registry.store.collection(kind.storage).snapshot(f"{namespace}/"):
                decoded, count = kind.decode(stored), count + 1
                if is_in_scope(quota, kind, decoded):
                    used.append({name: amount for name, amount in usage_of(kind, decoded).items() if name in hard})
        self.throttle(key, count)
        return added(*used)


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
