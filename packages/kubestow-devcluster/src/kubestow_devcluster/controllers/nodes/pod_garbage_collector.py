"""The pod garbage collector: removes pods that no kubelet will remove.

These are pods bound to nodes that no longer exist, after a quarantine because a node may be created again under the
same name, and terminating pods on nodes that are not ready and tainted ``node.kubernetes.io/out-of-service``.
"""

from __future__ import annotations

from kubestow_devcluster.apiserver.registry.deletion import DeleteOptions
from kubestow_devcluster.apiserver.resources.pod_conditions import update_pod_condition
from kubestow_devcluster.apiserver.storage.store import StoredObject
from kubestow_devcluster.controllers.controller import Controller, ControllerContext, ObjectChange
from kubestow_devcluster.controllers.pods import PodView
from kubestow_devcluster.stored_objects import is_terminating, node_name_of

__all__ = ["PodGarbageCollector"]

#: Seconds from a node's deletion until its pods are removed.
QUARANTINE = 40.0

_OUT_OF_SERVICE = b'"node.kubernetes.io/out-of-service"'


class PodGarbageCollector(Controller):
    """Reconciles nodes by name, including deleted ones."""

    resource = "nodes"
    watched = frozenset({"pods"})
    component = "pod-garbage-collector"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._pod_kind = context.registry.scheme["pods"]
        self._nodes = context.registry.store.collection("nodes")

    def handle_change(self, change: ObjectChange) -> None:
        stored = change.event.object
        if change.resource == self.resource:
            if change.is_deletion:
                self.enqueue_after(stored.name, QUARANTINE)
            elif _OUT_OF_SERVICE in stored.data:
                self.enqueue(stored.name)
        elif change.resource == "pods" and not change.is_deletion and (name := node_name_of(stored)):
            node = self._nodes.get(name)
            if node is None:
                self.enqueue_after(name, QUARANTINE)
            elif is_terminating(stored) and _OUT_OF_SERVICE in node.data:
                self.enqueue(name)

    def reconcile(self, key: str) -> None:
        node = self._nodes.get(key)
        for pod in self.pods.on_node(key):
            if node is None:
                self._delete(pod, disruption="PodGC: node no longer exists")
            elif pod.is_terminating and _is_out_of_service(node):
                self._delete(pod)

    def _delete(self, pod: PodView, *, disruption: str = "") -> None:
        """Fail the pod unless it has finished, then remove it; ``disruption`` is its DisruptionTarget's message."""
        stored = self.registry.store.collection("pods").get(pod.key)
        if stored is None:
            return
        current = self._pod_kind.decode(stored)
        if not pod.is_finished:
            current["status"]["phase"] = "Failed"
            if disruption:
                condition = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}
                update_pod_condition(current["status"], condition | {"message": disruption}, self.registry.now())
            self.registry.commit(self._pod_kind, current)
        deletion = DeleteOptions(grace_period_seconds=0, uid=pod.metadata.uid)
        self.registry.delete(self._pod_kind, pod.metadata.namespace, pod.name, deletion)


def _is_out_of_service(node: StoredObject) -> bool:
    return _OUT_OF_SERVICE in node.data and b'"type":"Ready","status":"True"' not in node.data
