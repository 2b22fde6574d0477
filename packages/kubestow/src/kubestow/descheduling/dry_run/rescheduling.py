"""Rescheduling: where the scheduler would put the pods that come back for evicted ones.

An evicted pod leaves the scheduler's cache, its controller creates another, and the decision pipeline decides about it
with the configuration of the cluster's scheduler. What it decides stays in effect for the evictions that follow.
Pending pods of the cluster that are of no lower priority are decided about first: they wait for the room that an
eviction frees.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from kubestow.api.core import Pod
from kubestow.api.formats.timestamps import timestamp
from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.descheduling.eviction import Eviction, EvictionBackend, Refusal, RefusedBy
from kubestow.engine.cluster_api.replacements import ClaimsOfEviction, replacement
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.offline_scheduler import OfflineScheduler, SchedulerOptions, is_attempted
from kubestow.engine.pipeline.pod_placer import bind_assumed_volumes
from kubestow.framework.cycle_state import CycleState
from kubestow.scheduling.decision.node_selection import Scope, TieBreak
from kubestow.scheduling.decision.result import Decision, Scheduled, Unschedulable

_WITHOUT_PREEMPTION = Scope(preempts=False)


class Mode(StrEnum):
    """Which evictions are refused for where the pod would come back."""

    REFUSE = "refuse"
    REFUSE_PENDING = "refuse-pending"
    REPORT = "report"


class PredictedState(StrEnum):
    """What becomes of an evicted pod."""

    MOVED = "Moved"
    SAME_NODE = "SameNode"
    PENDING = "Pending"
    GONE = "Gone"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Prediction:
    """What becomes of an evicted pod: the pod that comes back, as namespace/name, its node, and a message.

    A pod that is gone does not come back, and none is known about a pod that another scheduler places.
    """

    state: PredictedState
    pod: str = ""
    node: str = ""
    message: str = ""

    def problem(self, mode: Mode) -> str | None:
        """Why the eviction should be refused in a mode, None if it should not."""
        if mode is not Mode.REPORT and self.state is PredictedState.PENDING:
            return f"the pod would stay pending: {self.message}"
        if mode is Mode.REFUSE and self.state is PredictedState.SAME_NODE:
            return f"the pod would come back to {self.node}"
        return None


@dataclass(frozen=True, slots=True)
class _Placement:
    """A pod that was put on a node, with what the plugins know about it."""

    info: PodInfo
    state: CycleState
    node: str


class Rescheduler:
    """A scheduler's cache of a cluster, from which pods are evicted, and in which they come back.

    ``now`` is the creation time of replacements. Raises ConfigurationError and PluginError as
    :class:`~kubestow.engine.pipeline.offline_scheduler.OfflineScheduler` does.
    """

    def __init__(
        self, cluster: ClusterObjects, options: SchedulerOptions, *, now: datetime, ties: TieBreak | None = None
    ) -> None:
        #: The minor version of Kubernetes that the scheduler decides as.
        self.minor = options.gates.minor
        self._scheduler = OfflineScheduler(cluster, options, ties=ties)
        self._cache, self._now = self._scheduler.cache, now
        self._placed = {pod.metadata.uid: pod for pod in cluster.pods if pod.spec.node_name}
        pending = (pod for pod in cluster.pods if not pod.spec.node_name and is_attempted(pod))
        infos = (self._cache.shapes.info(pod) for pod in pending if pod.spec.scheduler_name in self._scheduler.profiles)
        #: The pending pods in the order of the queue.
        self._pending = sorted(infos, key=lambda info: (-info.priority, info.metadata.creation_timestamp or ""))
        self._names = {(pod.metadata.namespace, pod.metadata.name) for pod in cluster.pods}
        #: The pods that were pending and have got a node, with their nodes.
        self.admitted: list[tuple[PodInfo, str]] = []

    def evict(self, uid: str) -> PlacementTrial:
        """Evict a pod and have it come back; then :meth:`commit` or :meth:`undo` the trial, before the next."""
        pod = self._placed.get(uid)
        placed = self._cache.placed_pod(uid)
        if pod is None or placed is None:
            return PlacementTrial(None, [], Prediction(PredictedState.GONE, message="it has finished"))
        evicted = placed.info
        self._cache.remove_pod(uid)
        claims = ClaimsOfEviction(self._cache, pod)
        admitted = list(self._admit(evicted.priority))
        prediction, placement = self._replace(pod, claims)
        return PlacementTrial(evicted, admitted, prediction, placement, claims)

    def _replace(self, pod: Pod, claims: ClaimsOfEviction) -> tuple[Prediction, _Placement | None]:
        """What becomes of an evicted pod, and where its replacement is put."""
        controller = pod.metadata.controller
        if controller is None:
            return Prediction(PredictedState.GONE, message="it has no controller"), None
        if controller.kind == "Node":
            return Prediction(PredictedState.GONE, message="it is a static pod"), None
        if pod.spec.scheduler_name not in self._scheduler.profiles:
            message = f"no profile has the scheduler name {pod.spec.scheduler_name}"
            return Prediction(PredictedState.UNKNOWN, message=message), None
        created = claims.create_for(replacement(pod, controller, self._names, timestamp(self._now)))
        self._names.add((created.metadata.namespace, created.metadata.name))
        info = self._cache.shapes.info(created)
        decision = self._scheduler.pipeline.decide_by_plugins(info)
        placement = self._place(decision)
        if placement is None:
            return Prediction(PredictedState.PENDING, info.key, message=_why_pending(decision)), None
        state = PredictedState.SAME_NODE if placement.node == pod.spec.node_name else PredictedState.MOVED
        return Prediction(state, info.key, placement.node), placement

    def _admit(self, priority: int) -> Iterator[_Placement]:
        """Place the pending pods of at least a priority that fit now."""
        rejected: set[Shape] = set()
        for info in self._pending:
            if info.priority < priority:
                return
            if info.shape in rejected or self._cache.placed_pod(info.uid) is not None:
                continue
            placement = self._place(self._scheduler.pipeline.decide_by_plugins(info, _WITHOUT_PREEMPTION))
            if placement is None:
                rejected.add(info.shape)
            else:
                yield placement

    def _place(self, decision: Decision) -> _Placement | None:
        if not isinstance(decision, Scheduled):
            return None
        info, node = decision.pod, decision.node_name
        runtime = self._scheduler.profiles[info.spec.scheduler_name].binding
        self._cache.assume(info, node)
        if not runtime.run_reserve_plugins(decision.state, info, node).ok:
            self._remove(_Placement(info, decision.state, node))
            return None
        return _Placement(info, decision.state, node)

    def _remove(self, placement: _Placement) -> None:
        info = placement.info
        runtime = self._scheduler.profiles[info.spec.scheduler_name].binding
        runtime.run_unreserve_plugins(placement.state, info, placement.node)
        self._cache.forget(info.uid)

    def commit(self, trial: PlacementTrial) -> None:
        """Let an eviction stand."""
        self.admitted += [(placement.info, placement.node) for placement in trial.admitted]
        admitted = {placement.info.uid for placement in trial.admitted}
        self._pending = [info for info in self._pending if info.uid not in admitted]
        if any(placement.info.spec.volumes for placement in trial.placements):
            bind_assumed_volumes(self._cache)

    def undo(self, trial: PlacementTrial) -> None:
        """Put an evicted pod back."""
        for placement in reversed(trial.placements):
            self._remove(placement)
        if trial.claims is not None:
            trial.claims.undo()
        if trial.evicted is not None:
            self._cache.put_pod(trial.evicted)


@dataclass(frozen=True, slots=True)
class PlacementTrial:
    """An eviction on trial: the evicted pod, the pending pods that took its room, and what becomes of it."""

    evicted: PodInfo | None
    admitted: list[_Placement]
    prediction: Prediction
    placement: _Placement | None = None
    claims: ClaimsOfEviction | None = None

    @property
    def placements(self) -> list[_Placement]:
        """All pods that were put on a node."""
        return [*self.admitted, *([self.placement] if self.placement is not None else [])]


def _why_pending(decision: Decision) -> str:
    nominating = decision.post_filter.nominating_result if isinstance(decision, Unschedulable) else None
    if nominating is not None and nominating.status.ok:
        return f"it would preempt pods on {nominating.nominated_node_name}"
    return decision.message or "its volumes or devices cannot be reserved"


class ReschedulingBackend:
    """An eviction backend that predicts where a pod comes back, and asks another backend unless that is no use.

    ``predictions`` are those of the evicted and of the refused pods, by uid.
    """

    def __init__(self, backend: EvictionBackend, rescheduler: Rescheduler, mode: Mode) -> None:
        self._backend, self._mode, self.rescheduler = backend, mode, rescheduler
        self.predictions: dict[str, Prediction] = {}

    def evict(self, eviction: Eviction) -> Refusal | None:
        """Evict a pod unless it would come back to its node or stay pending, as far as the mode refuses that."""
        uid = eviction.pod.uid
        trial = self.rescheduler.evict(uid)
        self.predictions[uid] = trial.prediction
        problem = trial.prediction.problem(self._mode)
        refusal = self._backend.evict(eviction) if problem is None else Refusal(RefusedBy.RESCHEDULING, problem)
        if refusal is None:
            self.rescheduler.commit(trial)
        else:
            self.rescheduler.undo(trial)
        return refusal
