"""Replica sets and replication controllers: as many pods of one template as are wanted.

Of too many pods those go first that serve least: without a node, not running, not ready, youngest.
"""

from __future__ import annotations

from kubestow.devcluster.apiserver import statuses
from kubestow.devcluster.apiserver.resources import Object
from kubestow.devcluster.controllers.conditions import condition_of
from kubestow.devcluster.controllers.controller import key_of
from kubestow.devcluster.controllers.pods import Pod
from kubestow.devcluster.controllers.workloads.adoption import AdoptingController

__all__ = ["ReplicaSetController", "ReplicationControllerController"]

#: Pods made or deleted in one go; the rest follow in the next.
BATCH = 500


class ReplicaSetController(AdoptingController):
    resource = "replicasets.apps"
    component = "replicaset-controller"

    def reconcile(self, key: str) -> None:
        replica_set = self.find(key)
        if replica_set is None:
            return
        refused: statuses.Failure | None = None
        active = [pod for pod in self.claimed(replica_set) if pod.is_active]
        if "deletionTimestamp" not in replica_set["metadata"]:
            try:
                self._manage(replica_set, active)
            except statuses.Failure as failure:
                refused = failure
        self._report(replica_set, active, refused)
        if refused is not None:
            raise refused

    def _manage(self, replica_set: Object, active: list[Pod]) -> None:
        missing = replica_set["spec"]["replicas"] - len(active)
        if missing > 0:
            self.create_pods(replica_set, min(missing, BATCH))
        elif missing < 0:
            ranked = sorted(enumerate(active), key=lambda numbered: (_rank(numbered[1]), -numbered[0]))
            for _, pod in ranked[: min(-missing, BATCH)]:
                self.delete_pod(replica_set, pod)
        if abs(missing) > BATCH:
            self.reconcile_soon(key_of(replica_set))

    def _report(self, replica_set: Object, active: list[Pod], refused: statuses.Failure | None) -> None:
        status: Object = {"replicas": len(active)}
        template = replica_set["spec"]["template"].get("metadata", {}).get("labels") or {}
        counts = {
            "fullyLabeledReplicas": sum(template.items() <= pod.metadata.labels.items() for pod in active),
            "readyReplicas": sum(pod.is_ready for pod in active),
            "availableReplicas": sum(self.is_available(replica_set, pod) for pod in active),
        }
        status |= {field: count for field, count in counts.items() if count}
        status["observedGeneration"] = replica_set["metadata"]["generation"]
        if refused is not None:
            status["conditions"] = [self._failure(replica_set, refused)]
        self.set_status(replica_set, status)

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


class ReplicationControllerController(ReplicaSetController):
    """The same for the older kind, whose selector is a map of labels."""

    resource = "replicationcontrollers"
    component = "replication-controller"

    def selector(self, owner: Object) -> Object:
        return {"matchLabels": owner["spec"]["selector"]}


def _rank(pod: Pod) -> tuple[bool, bool, bool]:
    """Smaller for pods that serve less."""
    return bool(pod.spec.node_name), pod.status.phase == "Running", pod.is_ready
