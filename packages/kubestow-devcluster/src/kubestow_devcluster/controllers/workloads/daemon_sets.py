"""The DaemonSet controller: one pod on every eligible node.

A pod is created with a required node affinity to its node, and the scheduler binds it. A rolling update deletes old
pods within maxUnavailable; with maxSurge it creates the new pod of a node before it deletes the old one.

A daemon pod should run on a node that its node name, node selector, required node affinity and tolerations allow. A pod
that is already there continues to run if the only obstacle is an untolerated NoSchedule taint.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

import msgspec

from kubestow.api import meta
from kubestow.api.core import PodSpec, Taint
from kubestow.rules.matching import NO_EXECUTE, NO_SCHEDULE, selects_node, untolerated
from kubestow.rules.workloads import REVISION_LABEL, daemon_pod_labels, require_node, tolerate_node_conditions
from kubestow_devcluster.apiserver.kinds.object_fields import scaled_value
from kubestow_devcluster.apiserver.resources.strategies.workloads import TEMPLATE_GENERATION
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.storage.store import WatchEvent
from kubestow_devcluster.component_base.stored_objects import uid_of
from kubestow_devcluster.controllers.controller import (
    AdoptingController,
    ControllerContext,
    ControllerRevisionHistory,
    ObjectChange,
    key_of,
)
from kubestow_devcluster.controllers.pod_index import PodView


class _Labels(msgspec.Struct, frozen=True):
    labels: dict[str, str] = {}


class _Taints(msgspec.Struct, frozen=True):
    taints: tuple[Taint, ...] = ()


class _Node(msgspec.Struct, frozen=True):
    """What of a node decides whether daemon pods belong there."""

    metadata: _Labels = _Labels()
    spec: _Taints = _Taints()


class EligibleNodes(NamedTuple):
    """Names of nodes: where a daemon pod should run, and where an existing one continues to (the former included)."""

    should_run: Set[str]
    should_continue_running: Set[str]


class _DaemonPods:
    """The eligible nodes of the pods with one spec, kept up to date node by node."""

    def __init__(self, template: Object, nodes: dict[str, _Node]) -> None:
        self.template = template
        spec = dict(template)
        tolerate_node_conditions(spec)
        self._spec = meta.convert(PodSpec, spec)
        self._should_run: set[str] = set()
        self._should_continue: set[str] = set()
        self.eligible = EligibleNodes(self._should_run, self._should_continue)
        for name, node in nodes.items():
            self.update(name, node)

    def update(self, name: str, node: _Node | None) -> None:
        """Judge a new or changed node; None for a deleted one."""
        should_run = should_continue = False
        if node is not None and self._spec.node_name in ("", name):
            taints, tolerations = node.spec.taints, self._spec.tolerations
            is_selected = selects_node(self._spec, name, node.metadata.labels)
            should_continue = is_selected and not untolerated(taints, tolerations, effects=(NO_EXECUTE,))
            should_run = should_continue and not untolerated(taints, tolerations, effects=(NO_SCHEDULE,))
        for names, belongs in ((self._should_run, should_run), (self._should_continue, should_continue)):
            if belongs:
                names.add(name)
            else:
                names.discard(name)


class DaemonSetNodes:
    """The labels and taints of all nodes, and the eligible ones of each DaemonSet."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        #: By the DaemonSet's uid.
        self._daemon_pods: dict[str, _DaemonPods] = {}

    def update(self, event: WatchEvent) -> bool:
        """Apply a change of a node. Returns whether it can change the eligible nodes of a DaemonSet."""
        name = event.object.name
        node = None if event.type == "DELETED" else meta.decode(_Node, event.object.data)
        if self._nodes.get(name) == node:
            return False
        if node is None:
            del self._nodes[name]
        else:
            self._nodes[name] = node
        for pods in self._daemon_pods.values():
            pods.update(name, node)
        return True

    def __contains__(self, name: str) -> bool:
        return name in self._nodes

    def eligible(self, uid: str, template: Object) -> EligibleNodes:
        """The nodes for pods with the template's spec of the DaemonSet ``uid``, valid until the next change."""
        pods = self._daemon_pods.get(uid)
        if pods is None or pods.template != template:
            pods = self._daemon_pods[uid] = _DaemonPods(template, self._nodes)
        return pods.eligible

    def discard(self, uid: str) -> None:
        """Drop the eligible nodes of a deleted DaemonSet."""
        self._daemon_pods.pop(uid, None)


#: Pods created and pods deleted per reconciliation, at most.
BURST_REPLICAS = 250
#: Back-off in seconds before failed pods of a node are replaced again, doubled with each failure.
INITIAL_BACK_OFF, MAX_BACK_OFF = 1.0, 900.0


@dataclass(frozen=True, slots=True)
class _SetState:
    """A DaemonSet with its pods by node (oldest first), its eligible nodes, and the hash of its current template."""

    daemon_set: Object
    pods_by_node: dict[str, list[PodView]]
    eligible: EligibleNodes
    hash: str

    def is_updated(self, pod: PodView) -> bool:
        return pod.metadata.labels.get(REVISION_LABEL) == self.hash

    @property
    def max_surge_and_unavailable(self) -> tuple[int, int]:
        rolling_update = self.daemon_set["spec"]["updateStrategy"].get("rollingUpdate") or {}
        nodes = len(self.eligible.should_run)
        max_surge = scaled_value(rolling_update.get("maxSurge", 0), nodes, round_up=True)
        max_unavailable = scaled_value(rolling_update.get("maxUnavailable", 1), nodes, round_up=True)
        # If both were 0, the update could not proceed.
        return max_surge, max_unavailable if max_surge or max_unavailable else 1

    def old_and_new_pod(self, node: str) -> tuple[PodView | None, PodView | None]:
        """The pod of an earlier template and the pod of the current one on a node, terminating pods excluded."""
        pods = [pod for pod in self.pods_by_node.get(node, ()) if not pod.is_terminating]
        old = next((pod for pod in pods if not self.is_updated(pod)), None)
        return old, next((pod for pod in pods if self.is_updated(pod)), None)

    def nodes(self) -> list[str]:
        """The nodes that a rolling update covers."""
        return sorted(self.eligible.should_run | (self.pods_by_node.keys() & self.eligible.should_continue_running))


@dataclass(slots=True)
class _Plan:
    """The names of nodes to create a pod for, and pods to delete."""

    create_on: list[str] = field(default_factory=list)
    delete: list[PodView] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.create_on or self.delete)


class DaemonSetController(AdoptingController):
    resource = "daemonsets.apps"
    watched = frozenset({"pods", "nodes"})
    component = "daemonset-controller"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._nodes = DaemonSetNodes()
        self._history = ControllerRevisionHistory(self, hash_label=REVISION_LABEL)
        #: By the DaemonSet's uid and the node: the last back-off of failed pods, and when it started.
        self._back_offs: dict[tuple[str, str], tuple[float, datetime]] = {}

    def handle_change(self, change: ObjectChange) -> None:
        super().handle_change(change)
        if change.resource == "nodes" and self._nodes.update(change.event):
            for stored in self.registry.store.collection(self.resource).snapshot():
                self.enqueue(stored.key)
        elif change.resource == self.resource and change.is_deletion:
            uid = uid_of(change.event.object)
            self._nodes.discard(uid)
            self._back_offs = {place: back_off for place, back_off in self._back_offs.items() if place[0] != uid}

    def sync(self, key: str, daemon_set: Object) -> None:
        pods = self.claim_pods(daemon_set)
        revisions = self._history.sync(daemon_set)
        hash_ = self._history.hash_of(revisions[-1])
        eligible = self._nodes.eligible(daemon_set["metadata"]["uid"], daemon_set["spec"]["template"]["spec"])
        # Pods by the node they are bound to or created for; bound pods first, then by age.
        by_node: dict[str, list[PodView]] = {}
        for pod in sorted(pods, key=lambda pod: not pod.spec.node_name):
            if pod.target_node:
                by_node.setdefault(pod.target_node, []).append(pod)
        state = _SetState(daemon_set, by_node, eligible, hash_)
        try:
            if "deletionTimestamp" not in daemon_set["metadata"]:
                self._execute(state, self._manage(state) or self._rolling_update(state))
        finally:
            self._sync_status(state)
            hashes = {pod.metadata.labels.get(REVISION_LABEL, "") for pod in pods} | {hash_}
            live = {revision["metadata"]["name"] for revision in revisions if self._history.hash_of(revision) in hashes}
            self._history.truncate(daemon_set, revisions, live)

    def _execute(self, state: _SetState, plan: _Plan) -> None:
        nodes = plan.create_on[:BURST_REPLICAS]
        for pod in plan.delete[:BURST_REPLICAS]:
            self.delete_pod(state.daemon_set, pod)
        self.create_pods(
            state.daemon_set,
            len(nodes),
            customize=lambda pod, index: _customize(state.daemon_set, pod, nodes[index], state.hash),
        )

    # One pod per node

    def _manage(self, state: _SetState) -> _Plan:
        """The plan to get one pod on each eligible node and none elsewhere, whatever their revision."""
        plan = _Plan(create_on=sorted(state.eligible.should_run - state.pods_by_node.keys()))
        for node, pods in state.pods_by_node.items():
            is_eligible = node in state.eligible.should_continue_running
            if len(pods) == 1 and is_eligible and not pods[0].is_finished:
                continue
            live = [pod for pod in pods if not pod.is_terminating]
            if is_eligible:
                plan.delete += self._surplus_pods(state, node, live)
            elif node in self._nodes:
                plan.delete += live
            else:
                # Pods bound to a deleted node are left to the pod garbage collector.
                plan.delete += [pod for pod in live if not pod.spec.node_name]
        return plan

    def _surplus_pods(self, state: _SetState, node: str, pods: list[PodView]) -> list[PodView]:
        """The pods of a node to delete: finished ones, and all but one of the others.

        With maxSurge one old pod stays as well until the new one is available.
        """
        finished = [pod for pod in pods if pod.is_finished and self._begin_replacing(state, node, pod)]
        running = [pod for pod in pods if not pod.is_finished]
        max_surge, _ = state.max_surge_and_unavailable
        if not max_surge:
            return finished + running[1:]
        old = [pod for pod in running if not state.is_updated(pod)]
        new = [pod for pod in running if state.is_updated(pod)]
        is_replaced = bool(old and new) and (not old[0].is_ready or self.check_availability(state.daemon_set, new[0]))
        return finished + new[1:] + old[0 if is_replaced else 1 :]

    def _begin_replacing(self, state: _SetState, node: str, pod: PodView) -> bool:
        """Report that a finished pod is deleted; whether that is now, since failed pods are subject to back-off."""
        daemon_set = state.daemon_set
        if pod.status.phase == "Succeeded":
            message = f"Found succeeded daemon pod {pod.key} on node {node}, will try to delete it"
            self.record_event(daemon_set, "SucceededDaemonPod", message)
            return True
        now, place = self.registry.clock(), (daemon_set["metadata"]["uid"], node)
        back_off, since = self._back_offs.get(place, (0.0, now))
        elapsed = (now - since).total_seconds()
        if elapsed < back_off:
            self.enqueue_after(key_of(daemon_set), back_off - elapsed)
            return False
        is_reset = elapsed > 2 * MAX_BACK_OFF
        next_back_off = INITIAL_BACK_OFF if is_reset else min(max(2 * back_off, INITIAL_BACK_OFF), MAX_BACK_OFF)
        self._back_offs[place] = (next_back_off, now)
        message = f"Found failed daemon pod {pod.key} on node {node}, will try to kill it"
        self.record_warning(daemon_set, "FailedDaemonPod", message)
        return True

    # Rolling updates

    def _rolling_update(self, state: _SetState) -> _Plan:
        """The plan for one step of a rolling update; empty if there is none."""
        is_complete = all(state.is_updated(pod) for pods in state.pods_by_node.values() for pod in pods)
        if is_complete or state.daemon_set["spec"]["updateStrategy"]["type"] != "RollingUpdate":
            return _Plan()
        max_surge, max_unavailable = state.max_surge_and_unavailable
        if max_surge:
            return self._surge(state, max_surge)
        # Delete old pods: all unavailable ones, and available ones within maxUnavailable.
        plan, available, budget = _Plan(), list[PodView](), max_unavailable
        for node in state.nodes():
            old, new = state.old_and_new_pod(node)
            if old is not None and new is None:
                (available if self.check_availability(state.daemon_set, old) else plan.delete).append(old)
            elif new is None or old is not None or not self.check_availability(state.daemon_set, new):
                budget -= 1
        budget -= len(plan.delete)
        plan.delete += available[: max(0, budget)]
        return plan

    def _surge(self, state: _SetState, max_surge: int) -> _Plan:
        """Create new pods beside old ones: beside all unavailable ones, and beside available ones within maxSurge."""
        plan, available, budget = _Plan(), list[str](), max_surge
        for node in state.nodes():
            old, new = state.old_and_new_pod(node)
            if old is not None and new is None:
                (available if self.check_availability(state.daemon_set, old) else plan.create_on).append(node)
            elif old is not None and new is not None and not self.check_availability(state.daemon_set, new):
                budget -= 1
        plan.create_on += available[: max(0, budget)]
        return plan

    # Status

    def _sync_status(self, state: _SetState) -> None:
        daemon_set, desired = state.daemon_set, state.eligible.should_run
        oldest = {node: pods[0] for node, pods in state.pods_by_node.items()}
        scheduled = [pod for node, pod in oldest.items() if node in desired]
        available = sum(self.check_availability(daemon_set, pod) for pod in scheduled)
        status: Object = {
            "currentNumberScheduled": len(scheduled),
            "numberMisscheduled": sum(node in self._nodes and node not in desired for node in oldest),
            "desiredNumberScheduled": len(desired),
            "numberReady": sum(pod.is_ready for pod in scheduled),
            "observedGeneration": daemon_set["metadata"]["generation"],
        }
        counts = {
            "updatedNumberScheduled": sum(state.is_updated(pod) for pod in scheduled),
            "numberAvailable": available,
            "numberUnavailable": len(desired) - available,
        }
        self.update_status(daemon_set, status | {name: count for name, count in counts.items() if count})


def _customize(daemon_set: Object, pod: Object, node: str, hash_: str) -> None:
    """Add revision labels, tolerations and the affinity to its node to a pod from the template."""
    generation = (daemon_set["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION, "1")
    pod["metadata"].setdefault("labels", {}).update(daemon_pod_labels(hash_, generation=generation))
    tolerate_node_conditions(pod["spec"])
    require_node(pod["spec"], node)
