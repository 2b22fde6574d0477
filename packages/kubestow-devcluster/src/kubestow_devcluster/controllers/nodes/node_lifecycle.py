"""The node lifecycle controller: marks nodes without heartbeats as Unknown, their pods as not ready, and taints nodes.

A heartbeat is a renewed lease or a status report. A node without one for the grace period gets the Ready condition
Unknown; the kubelet's next status report restores it. Taints follow from conditions
(:mod:`kubestow_devcluster.node_taints`), evictions from taints (:mod:`.taint_eviction`).

kube-controller-manager taints the nodes of a failing zone slowly or not at all; here zones are not considered.
"""

from __future__ import annotations

import asyncio

from kubestow_devcluster.apiserver.resources import Object
from kubestow_devcluster.apiserver.resources.pod_conditions import update_pod_condition
from kubestow_devcluster.apiserver.storage.store import WatchEvent
from kubestow_devcluster.controllers.conditions import get_condition
from kubestow_devcluster.controllers.controller import Controller, ControllerContext, ObjectChange
from kubestow_devcluster.node_heartbeats import LEASE_NAMESPACE
from kubestow_devcluster.node_taints import reconcile_taints

__all__ = ["NodeLifecycleController"]

_LEASES = "leases.coordination.k8s.io"
#: The conditions that a kubelet reports.
_KUBELET_CONDITIONS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
#: The key of the reconciliation that checks all heartbeats; it is not a valid node name.
_MONITOR_HEARTBEATS = ""


class NodeLifecycleController(Controller):
    resource = "nodes"
    watched = frozenset({_LEASES})
    component = "node-controller"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._pod_kind = context.registry.scheme["pods"]
        self._grace_period = context.node_monitor_grace_period
        #: When each node had its last heartbeat, in the loop's time, oldest first. Unknown nodes have no entry.
        self._last_heartbeat: dict[str, float] = {}
        #: The Ready condition's lastHeartbeatTime and status at the last reconciliation.
        self._reported_at: dict[str, str] = {}
        self._ready_status: dict[str, str] = {}

    def handle_change(self, change: ObjectChange) -> None:
        event = change.event
        if change.resource == _LEASES and event.object.namespace == LEASE_NAMESPACE:
            name = event.object.name
            if not change.is_deletion and self.registry.store.collection("nodes").get(name) is not None:
                self._record_heartbeat(name)
        elif change.resource == self.resource:
            self._handle_node(event)

    def _handle_node(self, event: WatchEvent) -> None:
        name = event.object.name
        if event.type == "DELETED":
            for state in (self._last_heartbeat, self._reported_at, self._ready_status):
                state.pop(name, None)
            return
        if event.type == "ADDED":
            self._record_heartbeat(name)
        self.enqueue(name)

    def _record_heartbeat(self, node: str) -> None:
        if not self._last_heartbeat:
            self.enqueue_after(_MONITOR_HEARTBEATS, self._grace_period)
        self._last_heartbeat.pop(node, None)
        self._last_heartbeat[node] = asyncio.get_running_loop().time()

    def reconcile(self, key: str) -> None:
        if key == _MONITOR_HEARTBEATS:
            self._monitor_heartbeats()
            return
        node = self.get(key)
        if node is None:
            return
        ready = get_condition(node["status"], "Ready") or {}
        reported_at = ready.get("lastHeartbeatTime") or ""
        if reported_at != self._reported_at.get(key, reported_at):
            self._record_heartbeat(key)
        self._reported_at[key] = reported_at
        before, self._ready_status[key] = self._ready_status.get(key, ""), ready.get("status", "")
        if reconcile_taints(node, self.registry.now()):
            self.registry.commit(self.kind, node)
        if before == "True" and self._ready_status[key] != "True":
            self._mark_pods_not_ready(node)

    def _monitor_heartbeats(self) -> None:
        """Mark every node whose grace period has expired, and run again when the next one expires."""
        now = asyncio.get_running_loop().time()
        for name, last_heartbeat in list(self._last_heartbeat.items()):
            if last_heartbeat + self._grace_period > now:
                self.enqueue_after(_MONITOR_HEARTBEATS, last_heartbeat + self._grace_period - now)
                return
            del self._last_heartbeat[name]
            node = self.get(name)
            if node is not None:
                self._mark_unknown(node)

    def _mark_unknown(self, node: Object) -> None:
        now = self.registry.now()
        conditions: list[Object] = node["status"].get("conditions") or []
        by_type = {condition["type"]: condition for condition in conditions}
        for type_ in _KUBELET_CONDITIONS:
            condition = by_type.get(type_)
            if condition is None:
                conditions.append(_never_updated(type_, node["metadata"]["creationTimestamp"], now))
            elif condition["status"] != "Unknown":
                message = "Kubelet stopped posting node status."
                condition |= {"status": "Unknown", "reason": "NodeStatusUnknown", "message": message}
                condition["lastTransitionTime"] = now
        node["status"]["conditions"] = conditions
        reconcile_taints(node, now)
        self.registry.commit(self.kind, node)

    def _mark_pods_not_ready(self, node: Object) -> None:
        """Set Ready to False on the ready pods of a node that is no longer ready."""
        name, now = node["metadata"]["name"], self.registry.now()
        self.record_event(node, "NodeNotReady", f"Node {name} status is now: NodeNotReady")
        for pod in self.pods.on_node(name):
            stored = self.registry.store.collection("pods").get(pod.key)
            if stored is None or not pod.is_ready:
                continue
            current = self._pod_kind.decode(stored)
            if update_pod_condition(current["status"], {"type": "Ready", "status": "False"}, now):
                self.registry.commit(self._pod_kind, current)
                self.recorder.warning(self.component, self._pod_kind, current, "NodeNotReady", "Node is not ready")


def _never_updated(type_: str, created: str, now: str) -> Object:
    return {
        "type": type_,
        "status": "Unknown",
        "lastHeartbeatTime": created,
        "lastTransitionTime": now,
        "reason": "NodeStatusNeverUpdated",
        "message": "Kubelet never posted node status.",
    }
