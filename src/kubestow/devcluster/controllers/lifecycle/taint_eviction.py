"""Taint-based eviction: NoExecute taints drive off the pods that do not tolerate them, or not for ever.

A pod that tolerates all of them for a time goes when the shortest of these times is over, counted from when its node
was seen to be tainted; if the taints go first, it stays.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import msgspec

from kubestow.api.core import Taint, Toleration
from kubestow.cluster.nodes.taints import NO_EXECUTE, tolerates
from kubestow.devcluster.apiserver.registry.deletion import Deletion
from kubestow.devcluster.apiserver.resources import Object
from kubestow.devcluster.apiserver.resources.pods import set_condition
from kubestow.devcluster.apiserver.storage.store import Event
from kubestow.devcluster.controllers.controller import Controller, Happening, World
from kubestow.devcluster.controllers.owners import uid_of

__all__ = ["TaintEvictionController"]


class _Toleration(Toleration, frozen=True, rename="camel"):
    toleration_seconds: int | None = None


class _Spec(msgspec.Struct, frozen=True):
    taints: tuple[Taint, ...] = ()
    tolerations: tuple[_Toleration, ...] = ()


class _Concerned(msgspec.Struct, frozen=True):
    """A node or a pod, as far as taints go."""

    spec: _Spec = _Spec()


class _Waiting(NamedTuple):
    """A pod that will have to go: which one, and since when (in the loop's time) it has been on a tainted node."""

    uid: str
    since: float


class TaintEvictionController(Controller):
    resource = "pods"
    component = "taint-eviction-controller"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        #: The NoExecute taints of nodes that have any.
        self._taints: dict[str, tuple[Taint, ...]] = {}
        self._waiting: dict[str, _Waiting] = {}

    def observe(self, happening: Happening) -> None:
        stored = happening.event.object
        if happening.resource == "nodes":
            self._observe_node(happening.event)
        elif happening.resource == self.resource and (
            stored.fields[0] in self._taints or happening.key in self._waiting
        ):
            self.reconcile_soon(happening.key)

    def _observe_node(self, event: Event) -> None:
        name = event.object.name
        taints: tuple[Taint, ...] = ()
        if event.type != "DELETED" and b'"NoExecute"' in event.object.data:
            spec = msgspec.json.decode(event.object.data, type=_Concerned).spec
            taints = tuple(taint for taint in spec.taints if taint.effect == NO_EXECUTE)
        if self._taints.get(name, ()) == taints:
            return
        self._taints[name] = taints
        if not taints:
            del self._taints[name]
        for pod in self.pods.on_node(name):
            self.reconcile_soon(f"{pod.metadata.namespace}/{pod.name}")

    def reconcile(self, key: str) -> None:
        stored = self.registry.store.collection(self.resource).get(key)
        waiting = self._waiting.get(key)
        if stored is None or b'"deletionTimestamp":' in stored.data:
            self._waiting.pop(key, None)
            return
        uid, now = uid_of(stored), asyncio.get_running_loop().time()
        if waiting is not None and waiting.uid != uid:
            waiting = None
        tolerated = _tolerated_for(self._taints.get(stored.fields[0], ()), stored.data)
        if tolerated is None:
            if self._waiting.pop(key, None) is not None:
                self.tell(self.kind.decode(stored), "TaintManagerEviction", f"Cancelling deletion of Pod {key}")
            return
        since = now if waiting is None else waiting.since
        self._waiting[key] = _Waiting(uid, since)
        if since + tolerated > now:
            self.reconcile_after(key, since + tolerated - now)
        else:
            self._evict(key, self.kind.decode(stored))

    def _evict(self, key: str, pod: Object) -> None:
        identity = pod["metadata"]
        self.tell(pod, "TaintManagerEviction", f"Marking for deletion Pod {key}")
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByTaintManager",
            "message": "Taint manager: deleting due to NoExecute taint",
        }
        if set_condition(pod["status"], condition, self.registry.now()):
            self.registry.commit(self.kind, pod)
        self.registry.delete(self.kind, identity["namespace"], identity["name"], Deletion(uid=identity["uid"]))
        self._waiting.pop(key, None)


def _tolerated_for(taints: tuple[Taint, ...], pod: bytes) -> float | None:
    """Seconds for which a pod may stay with these taints; None: for ever."""
    if not taints:
        return None
    tolerations = msgspec.json.decode(pod, type=_Concerned).spec.tolerations
    used = [[one for one in tolerations if tolerates(one, taint)] for taint in taints]
    if not all(used):
        return 0.0
    seconds = [one.toleration_seconds for some in used for one in some if one.toleration_seconds is not None]
    return max(float(min(seconds)), 0.0) if seconds else None
