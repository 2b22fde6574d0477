"""Daemon sets: one pod on every node that they fit.

A pod is made for its node, which a required affinity names, and the scheduler puts it there. A rolling update takes old
pods away, no more at a time than may be unavailable, or, with ``maxSurge``, makes the new pod beside the old one first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from kubestow.devcluster.apiserver import statuses
from kubestow.devcluster.apiserver.resources import Object
from kubestow.devcluster.apiserver.resources.int_or_percent import scaled
from kubestow.devcluster.apiserver.resources.workloads.daemon_sets import TEMPLATE_GENERATION
from kubestow.devcluster.controllers.controller import Happening, World, key_of
from kubestow.devcluster.controllers.owners import uid_of
from kubestow.devcluster.controllers.pods import Pod
from kubestow.devcluster.controllers.workloads.adoption import AdoptingController
from kubestow.devcluster.controllers.workloads.daemon_nodes import DaemonNodes, Eligible, with_tolerations
from kubestow.devcluster.controllers.workloads.revisions import POD_LABEL, Revisions

__all__ = ["DaemonSetController"]

#: Pods made or deleted in one go; the rest follow in the next.
BATCH = 250
#: Seconds until a pod that failed is replaced once more, doubled with each failure on that node.
FIRST_BACKOFF, LAST_BACKOFF = 1.0, 900.0

_GENERATION_LABEL = "pod-template-generation"


@dataclass(frozen=True, slots=True)
class _Parts:
    """A daemon set, its pods by node (the oldest first), the nodes it fits, and the hash of its present template."""

    whole: Object
    by_node: dict[str, list[Pod]]
    eligible: Eligible
    hash: str

    def is_updated(self, pod: Pod) -> bool:
        return pod.metadata.labels.get(POD_LABEL) == self.hash

    @property
    def allowances(self) -> tuple[int, int]:
        """How many pods may be made beside old ones, and how many may be unavailable."""
        rolling = self.whole["spec"]["updateStrategy"].get("rollingUpdate") or {}
        nodes = len(self.eligible.should_run)
        surge = scaled(rolling.get("maxSurge", 0), nodes, up=True)
        unavailable = scaled(rolling.get("maxUnavailable", 1), nodes, up=True)
        # With neither, nothing could ever move.
        return surge, unavailable if surge or unavailable else 1


@dataclass(slots=True)
class _Plan:
    """Nodes to make a pod for, and pods to delete."""

    make: list[str] = field(default_factory=list)
    drop: list[Pod] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.make or self.drop)


class DaemonSetController(AdoptingController):
    resource = "daemonsets.apps"
    component = "daemonset-controller"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._nodes = DaemonNodes()
        self._revisions = Revisions(self, label=POD_LABEL)
        #: By daemon set's uid and node: how long a failed pod had to wait for its replacement, and since when.
        self._waits: dict[tuple[str, str], tuple[float, datetime]] = {}

    def observe(self, happening: Happening) -> None:
        super().observe(happening)
        if happening.resource == "nodes" and self._nodes.observe(happening.event):
            for stored in self.registry.store.collection(self.resource).snapshot():
                self.reconcile_soon(stored.key)
        elif happening.resource == self.resource and happening.event.type == "DELETED":
            uid = uid_of(happening.event.object)
            self._nodes.forget(uid)
            self._waits = {place: wait for place, wait in self._waits.items() if place[0] != uid}

    def reconcile(self, key: str) -> None:
        daemon_set = self.find(key)
        if daemon_set is None:
            return
        pods = self.claimed(daemon_set)
        revisions = self._revisions.settled(daemon_set)
        hash_ = self._revisions.hash_of(revisions[-1])
        eligible = self._nodes.eligible(daemon_set["metadata"]["uid"], daemon_set["spec"]["template"]["spec"])
        parts = _Parts(daemon_set, _by_node(pods), eligible, hash_)
        refused: statuses.Failure | None = None
        if "deletionTimestamp" not in daemon_set["metadata"]:
            try:
                self._carry_out(parts, self._managed(parts) or self._rolled(parts))
            except statuses.Failure as failure:
                refused = failure
        self._report(parts)
        hashes = {pod.metadata.labels.get(POD_LABEL, "") for pod in pods} | {hash_}
        live = {one["metadata"]["name"] for one in revisions if self._revisions.hash_of(one) in hashes}
        self._revisions.forget_old(daemon_set, revisions, live)
        if refused is not None:
            raise refused

    def _carry_out(self, parts: _Parts, plan: _Plan) -> None:
        nodes = plan.make[:BATCH]
        for pod in plan.drop[:BATCH]:
            self.delete_pod(parts.whole, pod)
        self.create_pods(
            parts.whole, len(nodes), finish=lambda pod, number: _prepare(parts.whole, pod, nodes[number], parts.hash)
        )

    # A pod on every node

    def _managed(self, parts: _Parts) -> _Plan:
        """What has to come and go for each node to have its pod, whatever its revision."""
        plan = _Plan(make=sorted(parts.eligible.should_run - parts.by_node.keys()))
        for node, pods in parts.by_node.items():
            if len(pods) == 1 and node in parts.eligible.may_stay and not pods[0].is_finished:
                continue
            staying = [pod for pod in pods if not pod.is_deleted]
            if node in parts.eligible.may_stay:
                plan.drop += self._surplus(parts, node, staying)
            elif node in self._nodes:
                plan.drop += staying
            else:
                # Pods that ran on a node that is gone are not ours to judge; those on their way to it are.
                plan.drop += [pod for pod in staying if not pod.spec.node_name]
        return plan

    def _surplus(self, parts: _Parts, node: str, pods: list[Pod]) -> list[Pod]:
        """The pods of a node that should go: those that have ended, and all but the one that it should have."""
        ended = [pod for pod in pods if pod.is_finished and self._may_replace(parts, node, pod)]
        alive = [pod for pod in pods if not pod.is_finished]
        surge, _ = parts.allowances
        if not surge:
            return ended + alive[1:]
        old = [pod for pod in alive if not parts.is_updated(pod)]
        new = [pod for pod in alive if parts.is_updated(pod)]
        relieved = bool(old and new) and (not old[0].is_ready or self.is_available(parts.whole, new[0]))
        return ended + new[1:] + old[0 if relieved else 1 :]

    def _may_replace(self, parts: _Parts, node: str, pod: Pod) -> bool:
        """Whether a pod that ended may be deleted now, to be made anew. A pod that keeps failing waits ever longer."""
        if pod.status.phase == "Succeeded":
            message = f"Found succeeded daemon pod {key_of(parts.whole).partition('/')[0]}/{pod.name} on node {node},"
            self.tell(parts.whole, "SucceededDaemonPod", f"{message} will try to delete it")
            return True
        now, place = self.registry.moment(), (parts.whole["metadata"]["uid"], node)
        wait, since = self._waits.get(place, (0.0, now))
        passed = (now - since).total_seconds()
        if passed < wait:
            self.reconcile_after(key_of(parts.whole), wait - passed)
            return False
        longer = FIRST_BACKOFF if passed > 2 * LAST_BACKOFF else min(max(2 * wait, FIRST_BACKOFF), LAST_BACKOFF)
        self._waits[place] = (longer, now)
        message = f"Found failed daemon pod {pod.metadata.namespace}/{pod.name} on node {node}, will try to kill it"
        self.warn(parts.whole, "FailedDaemonPod", message)
        return True

    # Moving to a new template

    def _rolled(self, parts: _Parts) -> _Plan:
        """One step of a rolling update."""
        is_through = all(parts.is_updated(pod) for pods in parts.by_node.values() for pod in pods)
        if is_through or parts.whole["spec"]["updateStrategy"]["type"] != "RollingUpdate":
            return _Plan()
        surge, unavailable = parts.allowances
        return self._surged(parts, surge) if surge else self._thinned(parts, unavailable)

    def _thinned(self, parts: _Parts, spare: int) -> _Plan:
        """Old pods that serve nobody go at once, others while ``spare`` lasts."""
        plan, serving = _Plan(), list[Pod]()
        for node in _nodes_of(parts):
            old, new = self._halves(parts, node)
            if old is not None and new is None:
                (serving if self.is_available(parts.whole, old) else plan.drop).append(old)
            elif new is None or old is not None or not self.is_available(parts.whole, new):
                spare -= 1
        spare -= len(plan.drop)
        plan.drop += serving[: max(0, spare)]
        return plan

    def _surged(self, parts: _Parts, spare: int) -> _Plan:
        """New pods are made beside old ones while ``spare`` lasts; beside those that serve nobody, at once."""
        plan, serving = _Plan(), list[str]()
        for node in _nodes_of(parts):
            old, new = self._halves(parts, node)
            if old is not None and new is None:
                (serving if self.is_available(parts.whole, old) else plan.make).append(node)
            elif old is not None and new is not None and not self.is_available(parts.whole, new):
                spare -= 1
        plan.make += serving[: max(0, spare)]
        return plan

    def _halves(self, parts: _Parts, node: str) -> tuple[Pod | None, Pod | None]:
        """The pod of an old template and the pod of the present one on a node."""
        pods = [pod for pod in parts.by_node.get(node, ()) if not pod.is_deleted]
        old = next((pod for pod in pods if not parts.is_updated(pod)), None)
        return old, next((pod for pod in pods if parts.is_updated(pod)), None)

    # Status

    def _report(self, parts: _Parts) -> None:
        wanted = parts.eligible.should_run
        first = {node: pods[0] for node, pods in parts.by_node.items()}
        placed = [pod for node, pod in first.items() if node in wanted]
        available = sum(self.is_available(parts.whole, pod) for pod in placed)
        status: Object = {
            "currentNumberScheduled": len(placed),
            "numberMisscheduled": sum(node in self._nodes and node not in wanted for node in first),
            "desiredNumberScheduled": len(wanted),
            "numberReady": sum(pod.is_ready for pod in placed),
            "observedGeneration": parts.whole["metadata"]["generation"],
        }
        counts = {
            "updatedNumberScheduled": sum(parts.is_updated(pod) for pod in placed),
            "numberAvailable": available,
            "numberUnavailable": len(wanted) - available,
        }
        self.set_status(parts.whole, status | {name: count for name, count in counts.items() if count})


def _by_node(pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    """Pods by the node they are on or made for; of each node those that have got there first, then the oldest."""
    found: dict[str, list[Pod]] = {}
    for pod in sorted(pods, key=lambda pod: not pod.spec.node_name):
        if pod.target:
            found.setdefault(pod.target, []).append(pod)
    return found


def _nodes_of(parts: _Parts) -> list[str]:
    return sorted(parts.eligible.should_run | (parts.by_node.keys() & parts.eligible.may_stay))


def _prepare(daemon_set: Object, pod: Object, node: str, hash_: str) -> None:
    """What a daemon set adds to a pod of its template: its revision, what it tolerates, and the node it is for."""
    labels = pod["metadata"].setdefault("labels", {})
    labels[POD_LABEL] = hash_
    labels[_GENERATION_LABEL] = (daemon_set["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION, "1")
    spec = pod["spec"] = with_tolerations(pod["spec"])
    only = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": [only]}
