"""Nodes that fall silent: their state is unknown, their pods are not ready, and they are tainted.

A node is heard of when its lease is renewed or its kubelet reports its status. One that has not been heard of for the
grace period becomes Ready Unknown; what it says when it comes back stands at once. Taints follow from conditions
(:mod:`kubestow.devcluster.node_taints`), and eviction from taints (:mod:`.taint_eviction`).

Real clusters taint the nodes of a failing zone slowly, or not at all; here each node is judged by itself.
"""

from __future__ import annotations

import asyncio

from kubestow.devcluster.apiserver.resources import Object
from kubestow.devcluster.apiserver.resources.pods import set_condition
from kubestow.devcluster.apiserver.storage.store import Event
from kubestow.devcluster.controllers.conditions import condition_of
from kubestow.devcluster.controllers.controller import Controller, Happening, World
from kubestow.devcluster.node_taints import settle_taints

__all__ = ["NodeLifecycleController"]

_LEASES, _LEASE_NAMESPACE = "leases.coordination.k8s.io", "kube-node-lease"
_REPORTED = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
#: The key of the work that looks for silent nodes; no node has it.
_WATCH = ""


class NodeLifecycleController(Controller):
    resource = "nodes"
    component = "node-controller"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._pod_kind = world.registry.catalog["pods"]
        self._grace = world.node_grace_period
        #: When each node was last heard of, in the loop's time; the one that has been silent longest comes first.
        self._heard: dict[str, float] = {}
        #: The heartbeat and state of the Ready condition as last seen.
        self._beats: dict[str, str] = {}
        self._ready: dict[str, str] = {}

    def observe(self, happening: Happening) -> None:
        event = happening.event
        if happening.resource == _LEASES and event.object.namespace == _LEASE_NAMESPACE:
            if event.type != "DELETED" and self.registry.store.collection("nodes").get(event.object.name) is not None:
                self._hear_of(event.object.name)
        elif happening.resource == self.resource:
            self._observe_node(event)

    def _observe_node(self, event: Event) -> None:
        name = event.object.name
        if event.type == "DELETED":
            for memory in (self._heard, self._beats, self._ready):
                memory.pop(name, None)
            return
        if event.type == "ADDED":
            self._hear_of(name)
        self.reconcile_soon(name)

    def _hear_of(self, node: str) -> None:
        if not self._heard:
            self.reconcile_after(_WATCH, self._grace)
        self._heard.pop(node, None)
        self._heard[node] = asyncio.get_running_loop().time()

    def reconcile(self, key: str) -> None:
        if key == _WATCH:
            self._find_silent()
            return
        node = self.find(key)
        if node is None:
            return
        ready = condition_of(node["status"], "Ready") or {}
        beat = ready.get("lastHeartbeatTime") or ""
        if beat != self._beats.get(key, beat):
            self._hear_of(key)
        self._beats[key] = beat
        before, self._ready[key] = self._ready.get(key, ""), ready.get("status", "")
        if settle_taints(node, self.registry.now()):
            self.registry.commit(self.kind, node)
        if before == "True" and self._ready[key] != "True":
            self._tell_not_ready(node)

    def _find_silent(self) -> None:
        """Give up on every node that has been silent for too long, and look again when the next one may have been."""
        now = asyncio.get_running_loop().time()
        for name, heard in list(self._heard.items()):
            if heard + self._grace > now:
                self.reconcile_after(_WATCH, heard + self._grace - now)
                return
            del self._heard[name]
            node = self.find(name)
            if node is not None:
                self._give_up(node)

    def _give_up(self, node: Object) -> None:
        now = self.registry.now()
        conditions: list[Object] = node["status"].get("conditions") or []
        known = {one["type"]: one for one in conditions}
        for type_ in _REPORTED:
            condition = known.get(type_)
            if condition is None:
                conditions.append(_never_reported(type_, node["metadata"]["creationTimestamp"], now))
            elif condition["status"] != "Unknown":
                message = "Kubelet stopped posting node status."
                condition |= {"status": "Unknown", "reason": "NodeStatusUnknown", "message": message}
                condition["lastTransitionTime"] = now
        node["status"]["conditions"] = conditions
        settle_taints(node, now)
        self.registry.commit(self.kind, node)

    def _tell_not_ready(self, node: Object) -> None:
        """A node was ready and is so no longer: neither are its pods."""
        name, now = node["metadata"]["name"], self.registry.now()
        self.tell(node, "NodeNotReady", f"Node {name} status is now: NodeNotReady")
        for pod in self.pods.on_node(name):
            stored = self.registry.store.collection("pods").get(f"{pod.metadata.namespace}/{pod.name}")
            if stored is None or not pod.is_ready:
                continue
            current = self._pod_kind.decode(stored)
            if set_condition(current["status"], {"type": "Ready", "status": "False"}, now):
                self.registry.commit(self._pod_kind, current)
                self.recorder.warning(self.component, self._pod_kind, current, "NodeNotReady", "Node is not ready")


def _never_reported(type_: str, created: str, now: str) -> Object:
    return {
        "type": type_,
        "status": "Unknown",
        "lastHeartbeatTime": created,
        "lastTransitionTime": now,
        "reason": "NodeStatusNeverUpdated",
        "message": "Kubelet never posted node status.",
    }
