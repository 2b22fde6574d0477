"""Controllers of nodes and the pods on them: node lifecycle, taint eviction, pod garbage collector.

The node lifecycle controller marks nodes without heartbeats as Unknown, their pods as not ready, and taints nodes.
A heartbeat is a renewed lease or a status report. A node without one for the grace period gets the Ready condition
Unknown; the kubelet's next status report restores it. Taints follow from conditions
(:mod:`kubestow_devcluster.component_base.stored_objects`), evictions from taints.

kube-controller-manager taints the nodes of a failing zone slowly or not at all; here zones are not considered.

The taint eviction controller evicts pods from nodes with NoExecute taints that they do not tolerate. The pod garbage
collector removes pods that no kubelet will remove.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import msgspec

from kubestow.api.core import Taint, Toleration
from kubestow.rules.matching import NO_EXECUTE, tolerates
from kubestow_devcluster.apiserver.kinds.object_fields import get_condition, update_pod_condition
from kubestow_devcluster.apiserver.registry.registry import DeleteOptions
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.storage.store import WatchEvent
from kubestow_devcluster.component_base.node_health import LEASE_NAMESPACE, reconcile_taints
from kubestow_devcluster.component_base.stored_objects import is_terminating, node_name_of, uid_of
from kubestow_devcluster.controllers.controller import Controller, ControllerContext, ObjectChange
from kubestow_devcluster.controllers.pod_index import PodView

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
            # Set Ready to False on the ready pods of a node that is no longer ready.
            name, now = node["metadata"]["name"], self.registry.now()
            self.record_event(node, "NodeNotReady", f"Node {name} status is now: NodeNotReady")
            for pod in self.pods.on_node(name):
                stored = self.registry.store.collection("pods").get(pod.key)
                if stored is None or not pod.is_ready:
                    continue
                current = self.pod_kind.decode(stored)
                if update_pod_condition(current["status"], {"type": "Ready", "status": "False"}, now):
                    self.registry.commit(self.pod_kind, current)
                    self.recorder.warning(self.component, self.pod_kind, current, "NodeNotReady", "Node is not ready")

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
                conditions.append(
                    {
                        "type": type_,
                        "status": "Unknown",
                        "lastHeartbeatTime": node["metadata"]["creationTimestamp"],
                        "lastTransitionTime": now,
                        "reason": "NodeStatusNeverUpdated",
                        "message": "Kubelet never posted node status.",
                    }
                )
            elif condition["status"] != "Unknown":
                message = "Kubelet stopped posting node status."
                condition |= {"status": "Unknown", "reason": "NodeStatusUnknown", "message": message}
                condition["lastTransitionTime"] = now
        node["status"]["conditions"] = conditions
        reconcile_taints(node, now)
        self.registry.commit(self.kind, node)


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
            elif (
                pod.is_terminating
                and _OUT_OF_SERVICE in node.data
                and b'"type":"Ready","status":"True"' not in node.data
            ):
                self._delete(pod)

    def _delete(self, pod: PodView, *, disruption: str = "") -> None:
        """Fail the pod unless it has finished, then remove it; ``disruption`` is its DisruptionTarget's message."""
        stored = self.registry.store.collection("pods").get(pod.key)
        if stored is None:
            return
        current = self.pod_kind.decode(stored)
        if not pod.is_finished:
            current["status"]["phase"] = "Failed"
            if disruption:
                condition = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}
                update_pod_condition(current["status"], condition | {"message": disruption}, self.registry.now())
            self.registry.commit(self.pod_kind, current)
        deletion = DeleteOptions(grace_period_seconds=0, uid=pod.metadata.uid)
        self.registry.delete(self.pod_kind, pod.metadata.namespace, pod.name, deletion)


class _TimedToleration(Toleration, frozen=True, rename="camel"):
    """A toleration with its tolerationSeconds, which scheduling does not read."""

    toleration_seconds: int | None = None


class _NodeOrPodSpec(msgspec.Struct, frozen=True):
    taints: tuple[Taint, ...] = ()
    tolerations: tuple[_TimedToleration, ...] = ()


class _NodeOrPod(msgspec.Struct, frozen=True):
    spec: _NodeOrPodSpec = _NodeOrPodSpec()


class _ScheduledEviction(NamedTuple):
    """A pod to be evicted, and since when it has been on a tainted node, in the loop's time."""

    uid: str
    since: float


class TaintEvictionController(Controller):
    resource = "pods"
    watched = frozenset({"nodes"})
    component = "taint-eviction-controller"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        #: The NoExecute taints of each node that has any.
        self._taints: dict[str, tuple[Taint, ...]] = {}
        #: By the pod's key.
        self._evictions: dict[str, _ScheduledEviction] = {}

    def handle_change(self, change: ObjectChange) -> None:
        if change.resource == "nodes":
            self._handle_node(change.event)
        elif change.resource == self.resource and (
            node_name_of(change.event.object) in self._taints or change.key in self._evictions
        ):
            self.enqueue(change.key)

    def _handle_node(self, event: WatchEvent) -> None:
        name = event.object.name
        taints: tuple[Taint, ...] = ()
        if event.type != "DELETED" and b'"NoExecute"' in event.object.data:
            spec = msgspec.json.decode(event.object.data, type=_NodeOrPod).spec
            taints = tuple(taint for taint in spec.taints if taint.effect == NO_EXECUTE)
        if self._taints.get(name, ()) == taints:
            return
        self._taints[name] = taints
        if not taints:
            del self._taints[name]
        for pod in self.pods.on_node(name):
            self.enqueue(pod.key)

    def reconcile(self, key: str) -> None:
        stored = self.registry.store.collection(self.resource).get(key)
        scheduled = self._evictions.get(key)
        if stored is None or is_terminating(stored):
            self._evictions.pop(key, None)
            return
        uid, now = uid_of(stored), asyncio.get_running_loop().time()
        if scheduled is not None and scheduled.uid != uid:
            scheduled = None
        toleration_seconds = _min_toleration_seconds(self._taints.get(node_name_of(stored), ()), stored.data)
        if toleration_seconds is None:
            if self._evictions.pop(key, None) is not None:
                message = f"Cancelling deletion of Pod {key}"
                self.record_event(self.kind.decode(stored), "TaintManagerEviction", message)
            return
        since = now if scheduled is None else scheduled.since
        self._evictions[key] = _ScheduledEviction(uid, since)
        if since + toleration_seconds > now:
            self.enqueue_after(key, since + toleration_seconds - now)
        else:
            pod = self.kind.decode(stored)
            metadata = pod["metadata"]
            self.record_event(pod, "TaintManagerEviction", f"Marking for deletion Pod {key}")
            condition = {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "DeletionByTaintManager",
                "message": "Taint manager: deleting due to NoExecute taint",
            }
            if update_pod_condition(pod["status"], condition, self.registry.now()):
                self.registry.commit(self.kind, pod)
            self.registry.delete(self.kind, metadata["namespace"], metadata["name"], DeleteOptions(uid=metadata["uid"]))
            self._evictions.pop(key, None)


def _min_toleration_seconds(taints: tuple[Taint, ...], pod: bytes) -> float | None:
    """Seconds until a pod with these taints on its node is evicted; None if it is not evicted."""
    if not taints:
        return None
    tolerations = msgspec.json.decode(pod, type=_NodeOrPod).spec.tolerations
    matching = [[toleration for toleration in tolerations if tolerates(toleration, taint)] for taint in taints]
    if not all(matching):
        return 0.0
    limits = [
        toleration.toleration_seconds
        for per_taint in matching
        for toleration in per_taint
        if toleration.toleration_seconds is not None
    ]
    return max(float(min(limits)), 0.0) if limits else None
