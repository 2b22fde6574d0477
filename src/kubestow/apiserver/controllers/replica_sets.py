"""Replica sets: as many pods of one template as are wanted.

Pods that match the selector and have no controller are adopted, pods that no longer match are released. Of too many,
those go first that serve least: without a node, not running, not ready, youngest.
"""

from __future__ import annotations

from kubestow.apiserver import statuses
from kubestow.apiserver.controllers.conditions import condition_of
from kubestow.apiserver.controllers.controller import Happening, PodController
from kubestow.apiserver.controllers.owners import owner_reference
from kubestow.apiserver.controllers.pods import Pod
from kubestow.apiserver.resources import Object
from kubestow.apiserver.selectors import selects

__all__ = ["ReplicaSetController"]

#: Pods made or deleted in one go; the rest follow in the next.
BATCH = 500


class ReplicaSetController(PodController):
    resource = "replicasets.apps"
    component = "replicaset-controller"

    def observe(self, happening: Happening) -> None:
        super().observe(happening)
        event = happening.event
        if happening.resource != "pods" or event.type == "DELETED" or happening.owners or not event.object.labels:
            return
        if event.previous is None or happening.previous_owners or event.previous.labels != event.object.labels:
            self._find_adopters(event.object.namespace, event.object.labels)

    def _find_adopters(self, namespace: str, labels: dict[str, str]) -> None:
        """A pod that nobody controls has come or changed its labels."""
        for stored in self.registry.store.collection(self.resource).snapshot(f"{namespace}/"):
            if selects(self.kind.decode(stored)["spec"]["selector"], labels):
                self.reconcile_soon(stored.key)

    def reconcile(self, key: str) -> None:
        replica_set = self.find(key)
        if replica_set is None:
            return
        refused: statuses.Failure | None = None
        pods = self.pods.controlled("ReplicaSet", key, replica_set["metadata"]["uid"])
        if "deletionTimestamp" not in replica_set["metadata"]:
            pods = self._claim(replica_set, pods)
            try:
                self._manage(replica_set, [pod for pod in pods if pod.is_active])
            except statuses.Failure as failure:
                refused = failure
        self._report(replica_set, [pod for pod in pods if pod.is_active], refused)
        if refused is not None:
            raise refused

    def _claim(self, replica_set: Object, pods: list[Pod]) -> list[Pod]:
        """Adopt and release. The pods that stay."""
        selector = replica_set["spec"]["selector"]
        reference = owner_reference(self.kind, replica_set)
        kept = []
        for pod in pods:
            if pod.is_deleted or selects(selector, pod.metadata.labels):
                kept.append(pod)
            else:
                self.change_pod(pod, lambda metadata: _disown(metadata, reference["uid"]))
        for pod in list(self.pods.free(replica_set["metadata"]["namespace"])):
            if pod.is_active and selects(selector, pod.metadata.labels):
                self.change_pod(pod, lambda metadata: _own(metadata, reference))
                kept.append(pod)
        return kept

    def _manage(self, replica_set: Object, active: list[Pod]) -> None:
        missing = replica_set["spec"]["replicas"] - len(active)
        if missing > 0:
            self.create_pods(replica_set, min(missing, BATCH))
        elif missing < 0:
            ranked = sorted(enumerate(active), key=lambda numbered: (_rank(numbered[1]), -numbered[0]))
            for _, pod in ranked[: min(-missing, BATCH)]:
                self.delete_pod(replica_set, pod)
        if abs(missing) > BATCH:
            self.reconcile_soon(f"{replica_set['metadata']['namespace']}/{replica_set['metadata']['name']}")

    def _report(self, replica_set: Object, active: list[Pod], refused: statuses.Failure | None) -> None:
        status: Object = {"replicas": len(active)}
        template = replica_set["spec"]["template"].get("metadata", {}).get("labels") or {}
        labelled = sum(template.items() <= pod.metadata.labels.items() for pod in active)
        ready = [pod for pod in active if pod.is_ready]
        counts = {
            "fullyLabeledReplicas": labelled,
            "readyReplicas": len(ready),
            "availableReplicas": self._available(replica_set, ready),
        }
        status |= {field: count for field, count in counts.items() if count}
        status["observedGeneration"] = replica_set["metadata"]["generation"]
        if refused is not None:
            status["conditions"] = [self._failure(replica_set, refused)]
        self.set_status(replica_set, status)

    def _available(self, replica_set: Object, ready: list[Pod]) -> int:
        """How many have been ready for long enough; the others are looked at again when they will have."""
        least = replica_set["spec"].get("minReadySeconds", 0)
        if not least:
            return len(ready)
        waits = [least - pod.ready_for(self.registry.moment()) for pod in ready]
        ahead = [wait for wait in waits if wait > 0]
        if ahead:
            identity = replica_set["metadata"]
            self.reconcile_after(f"{identity['namespace']}/{identity['name']}", min(ahead))
        return len(ready) - len(ahead)

    def _failure(self, replica_set: Object, refused: statuses.Failure) -> Object:
        """The condition that says so. Each attempt fails in slightly other words, which is no news."""
        old = condition_of(replica_set.get("status") or {}, "ReplicaFailure")
        return old or {
            "type": "ReplicaFailure",
            "status": "True",
            "lastTransitionTime": self.registry.now(),
            "reason": "FailedCreate",
            "message": refused.message,
        }


def _rank(pod: Pod) -> tuple[bool, bool, bool]:
    """Smaller for pods that serve less."""
    return bool(pod.spec.node_name), pod.status.phase == "Running", pod.is_ready


def _own(metadata: Object, reference: Object) -> None:
    metadata["ownerReferences"] = [*(metadata.get("ownerReferences") or ()), reference]


def _disown(metadata: Object, uid: str) -> None:
    left = [one for one in metadata["ownerReferences"] if one["uid"] != uid]
    metadata["ownerReferences"] = left
    if not left:
        del metadata["ownerReferences"]
