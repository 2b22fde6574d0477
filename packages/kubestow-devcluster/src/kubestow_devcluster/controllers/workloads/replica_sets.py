"""The controllers of ReplicaSets and ReplicationControllers: as many pods of one template as ``spec.replicas`` says.

When there are too many pods, unassigned ones are deleted first, then those that are not running, then those that are
not ready; within each group the youngest.
"""

from __future__ import annotations

import heapq

from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.kinds.object_fields import get_condition
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.controllers.controller import LONGEST_THROTTLE, AdoptingController, key_of
from kubestow_devcluster.controllers.pod_index import ControlledPods, PodView

#: Pods created or deleted per reconciliation.
BURST_REPLICAS = 500


class ReplicaSetController(AdoptingController):
    resource = "replicasets.apps"
    component = "replicaset-controller"

    def sync(self, key: str, replica_set: Object) -> None:
        if self.adopt_and_release(replica_set):
            return
        failure: statuses.StatusError | None = None
        pods = self.pods.of_controller(self.kind.name, key, replica_set["metadata"]["uid"])
        self.throttle(key, len(pods), longest=LONGEST_THROTTLE)
        if "deletionTimestamp" not in replica_set["metadata"]:
            try:
                missing = replica_set["spec"]["replicas"] - pods.active
                if missing > 0:
                    self.create_pods(replica_set, min(missing, BURST_REPLICAS))
                elif missing < 0:
                    active = [pod for pod in pods if pod.is_active]
                    active.sort(key=lambda pod: (pod.metadata.creation_timestamp, pod.name), reverse=True)
                    for pod in heapq.nsmallest(min(-missing, BURST_REPLICAS), active, _deletion_rank):
                        self.delete_pod(replica_set, pod)
                if abs(missing) > BURST_REPLICAS:
                    self.enqueue(key_of(replica_set))
            except statuses.StatusError as error:
                failure = error
        # Write the counts of the pods that exist; those that this reconciliation has created follow.
        status: Object = {"replicas": pods.active}
        template_labels = replica_set["spec"]["template"].get("metadata", {}).get("labels") or {}
        counts = {
            "fullyLabeledReplicas": sum(
                active for labels, active in pods.label_sets() if template_labels.items() <= labels.items()
            ),
            "readyReplicas": pods.ready,
            "availableReplicas": self._available(replica_set, pods),
        }
        status |= {field: count for field, count in counts.items() if count}
        status["observedGeneration"] = replica_set["metadata"]["generation"]
        if failure is not None:
            status["conditions"] = [self._replica_failure(replica_set, failure)]
        self.update_status(replica_set, status)
        if failure is not None:
            raise failure

    def _available(self, replica_set: Object, pods: ControlledPods) -> int:
        if not replica_set["spec"].get("minReadySeconds"):
            return pods.ready
        return sum(self.check_availability(replica_set, pod) for pod in pods if pod.is_active)

    def _replica_failure(self, replica_set: Object, failure: statuses.StatusError) -> Object:
        """The ReplicaFailure condition. It keeps its first message: the pod name in it differs with each attempt."""
        old = get_condition(replica_set.get("status") or {}, "ReplicaFailure")
        return old or {
            "type": "ReplicaFailure",
            "status": "True",
            "lastTransitionTime": self.registry.now(),
            "reason": "FailedCreate",
            "message": failure.message,
        }


class ReplicationControllerController(ReplicaSetController):
    """Differs from the ReplicaSet controller only in the selector, which is a map of labels."""

    resource = "replicationcontrollers"
    component = "replication-controller"

    def selector(self, owner: Object) -> Object:
        return {"matchLabels": owner["spec"]["selector"]}


def _deletion_rank(pod: PodView) -> tuple[bool, bool, bool]:
    """Pods with a smaller rank are deleted first."""
    return bool(pod.spec.node_name), pod.status.phase == "Running", pod.is_ready
