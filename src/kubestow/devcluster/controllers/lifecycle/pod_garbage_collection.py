"""Pods that nobody would ever end: on nodes that no longer exist, or leaving nodes that are out of service.

A node that is gone may come back under its name, so its pods are left alone for a while first. Whoever knows that a
node is down for good taints it ``node.kubernetes.io/out-of-service``; pods being deleted there need no kubelet's word.
"""

from __future__ import annotations

from kubestow.devcluster.apiserver.registry.deletion import Deletion
from kubestow.devcluster.apiserver.resources.pods import set_condition
from kubestow.devcluster.apiserver.storage.store import Stored
from kubestow.devcluster.controllers.controller import Controller, Happening, World
from kubestow.devcluster.controllers.pods import Pod

__all__ = ["PodGarbageCollector"]

#: Seconds for which a node has to be gone.
QUARANTINE = 40.0

_OUT_OF_SERVICE = b'"node.kubernetes.io/out-of-service"'


class PodGarbageCollector(Controller):
    """Reconciles nodes, there or gone, by name."""

    resource = "nodes"
    component = "pod-garbage-collector"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._pod_kind = world.registry.catalog["pods"]
        self._nodes = world.registry.store.collection("nodes")

    def observe(self, happening: Happening) -> None:
        stored = happening.event.object
        if happening.resource == self.resource:
            if happening.event.type == "DELETED":
                self.reconcile_after(stored.name, QUARANTINE)
            elif _OUT_OF_SERVICE in stored.data:
                self.reconcile_soon(stored.name)
        elif happening.resource == "pods" and happening.event.type != "DELETED" and (name := stored.fields[0]):
            node = self._nodes.get(name)
            if node is None:
                self.reconcile_after(name, QUARANTINE)
            elif b'"deletionTimestamp":' in stored.data and _OUT_OF_SERVICE in node.data:
                self.reconcile_soon(name)

    def reconcile(self, key: str) -> None:
        node = self._nodes.get(key)
        for pod in self.pods.on_node(key):
            if node is None:
                self._remove(pod, "PodGC: node no longer exists")
            elif pod.is_deleted and _is_out_of_service(node):
                self._remove(pod, "")

    def _remove(self, pod: Pod, message: str) -> None:
        """Delete a pod at once; ``message`` says why it was disrupted."""
        stored = self.registry.store.collection("pods").get(f"{pod.metadata.namespace}/{pod.name}")
        if stored is None:
            return
        current = self._pod_kind.decode(stored)
        if not pod.is_finished:
            current["status"]["phase"] = "Failed"
            if message:
                condition = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}
                set_condition(current["status"], condition | {"message": message}, self.registry.now())
            self.registry.commit(self._pod_kind, current)
        deletion = Deletion(grace_period=0, uid=pod.metadata.uid)
        self.registry.delete(self._pod_kind, pod.metadata.namespace, pod.name, deletion)


def _is_out_of_service(node: Stored) -> bool:
    return _OUT_OF_SERVICE in node.data and b'"type":"Ready","status":"True"' not in node.data
