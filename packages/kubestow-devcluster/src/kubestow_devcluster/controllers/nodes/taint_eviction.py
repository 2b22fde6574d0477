"""The taint eviction controller: evicts pods from nodes with NoExecute taints that they do not tolerate.

A pod that tolerates all of them for a limited time is evicted after the shortest of its tolerationSeconds, counted from
when this controller first saw the pod on the tainted node. If the taints are removed before, the eviction is cancelled.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import msgspec

from kubestow.api.core import Taint, Toleration
from kubestow.rules.matching import NO_EXECUTE, tolerates
from kubestow_devcluster.apiserver.kinds.conditions import update_pod_condition
from kubestow_devcluster.apiserver.registry.deletion import DeleteOptions
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.storage.store import WatchEvent
from kubestow_devcluster.component_base.stored_objects import is_terminating, node_name_of, uid_of
from kubestow_devcluster.controllers.controller import Controller, ControllerContext, ObjectChange

__all__ = ["TaintEvictionController"]


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
            self._evict(key, self.kind.decode(stored))

    def _evict(self, key: str, pod: Object) -> None:
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
