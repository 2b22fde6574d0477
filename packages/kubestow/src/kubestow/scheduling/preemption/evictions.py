"""Evictions: preemption carried out in the background, as kube-scheduler's preemption executor does (semantics 9.6).

While its victims are being evicted, a preemptor is gated at PreEnqueue; the deletion of the last victim is the event
that requeues it. All victims but the last are evicted together, and the last only if that succeeded, so that every
victim is gone when the preemptor returns. The gate lasts until the watch has shown that: a preemptor that returns
before would find the victims in the cache, and evict them again, or others. A victim that is not bound yet is not
deleted: its binding is cancelled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubestow.api.core import PodCondition
from kubestow.api.formats.timestamps import timestamp
from kubestow.api.reports import ConditionType, EventType
from kubestow.api.scheduling import CompositePodGroup, PodGroup
from kubestow.cluster.placed_pods import PlacedPod
from kubestow.cluster.pods.hierarchies import count_disrupted_units
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.config import FeatureGates
from kubestow.errors import APIError
from kubestow.log_fields import fields
from kubestow.rules.minors import Behaviour
from kubestow.scheduling.api_calls.dispatcher import Dispatcher
from kubestow.scheduling.api_calls.pod_reports import condition_generation
from kubestow.scheduling.background_work import BackgroundTasks
from kubestow.scheduling.decision.result import PostFilterResults
from kubestow.scheduling.environment import Environment
from kubestow.scheduling.events.pod_store import PodStore
from kubestow.scheduling.interfaces import EventRecord, PodStatusPatch, reference
from kubestow.scheduling.observer import Disruption, Preemptor
from kubestow.scheduling.scheduler_state import SchedulerState
from kubestow.scheduling.waiting_pods import WaitingPods

_log = logging.getLogger(__name__)

_PREEMPTED = EventType(
    "Preempted",
    "Preempting",
    "Preempted by {kind} {uid} on node {node}",
    help="The pod is evicted so that a pod, or a group of pods, of higher priority fits. The note names that by its"
    ' UID; it ends with " (in kube-scheduler memory)." if the pod was not bound yet.',
)
_PREEMPTED_IN_MEMORY = " (in kube-scheduler memory)."
_BY_SCHEDULER = "PreemptionByScheduler"
_DISRUPTION_TARGET = ConditionType(
    "DisruptionTarget", "Pod", {_BY_SCHEDULER: "The pod is about to be evicted for one of higher priority."}
)
#: In place of a node's name for preemption on several nodes (semantics 9.7).
SEVERAL_NODES = "cluster"


@dataclass(slots=True, eq=False)
class _Preemption:
    """One preemption in progress, for a pod or for the pods of a group.

    ``kind`` and ``uid`` are those of the pod or group; ``last`` is the last victim, once it is the only one left.
    ``is_requested``: every eviction has been requested, and the server has responded.
    ``cancelled`` are the placements, by uid, of victims whose binding was cancelled.
    """

    preemptors: Sequence[PodInfo]
    uid: str
    node_name: str
    kind: Preemptor = Preemptor.POD
    last: PodInfo | None = None
    is_requested: bool = False
    cancelled: dict[str, PlacedPod] = field(default_factory=dict)

    def __str__(self) -> str:
        name = self.preemptors[0].key if self.kind is Preemptor.POD else self.uid
        return f"{self.kind} {name} on node {self.node_name}"


class PreemptionsInProgress:
    """The pods whose victims are being evicted."""

    def __init__(self, pods: PodStore) -> None:
        self._pods = pods
        #: The newest preemption of each preemptor, by uid. An older one may still wait for a response.
        self.newest: dict[str, _Preemption] = {}

    def is_preempting(self, uid: str) -> bool:
        """Whether a pod's victims are still being evicted."""
        preemption = self.newest.get(uid)
        if preemption is None:
            return False
        if preemption.last is None:
            return True
        victim = self._pods.get(preemption.last.uid)
        return victim is not None and not victim.terminating


class Evictions:
    """Evicts victims, and clears the nominations of pods that a preemptor displaces."""

    def __init__(
        self,
        state: SchedulerState,
        in_progress: PreemptionsInProgress,
        dispatcher: Dispatcher,
        waiting_pods: WaitingPods,
        environment: Environment,
        gates: FeatureGates | None = None,
    ) -> None:
        gates = gates or FeatureGates()
        self._tracks_generation = gates.enabled("PodObservedGenerationTracking")
        names_memory = gates.minor.has(Behaviour.VICTIMS_ON_PERMIT_ARE_RETRIED)
        self._note_of_stopped = _PREEMPTED.note + _PREEMPTED_IN_MEMORY * names_memory
        self._cluster, self._pods, self._queue = state.cluster, state.pods, state.queue
        self.in_progress, self._dispatcher, self._waiting_pods = in_progress, dispatcher, waiting_pods
        self._api, self._clock, self._observer = environment.api, environment.clock, environment.observer
        self._concurrency = environment.concurrency
        self.tasks = BackgroundTasks(environment.concurrency)
        #: The preemptions whose last victim is being evicted, or the watch has not shown that it was, by its uid.
        self._awaited: dict[str, list[_Preemption]] = {}

    def victim_changed(self, uid: str) -> None:
        """A pod may be terminating or gone: if so, preemptors whose last victim it is may be requeued from now on."""
        for preemption in list(self._awaited.get(uid, ())):
            ends = preemption.is_requested and not self._awaits_watch(preemption)
            if ends:
                self._forget(preemption)
            self._let_go(preemption)
            if ends and self._cluster.placed_pod(uid) is None:
                self._activate(preemption)  # its binding has failed before, so no event follows

    def _let_go(self, preemption: _Preemption) -> None:
        """Have the queue consider again those preemptors whose victims are no longer being evicted."""
        uids = (preemptor.uid for preemptor in preemption.preemptors)
        self._queue.gating.preemption_ended([uid for uid in uids if not self.in_progress.is_preempting(uid)])

    def carry_out(self, preemptor: PodInfo, post_filter: PostFilterResults) -> asyncio.Task[bool] | None:
        """Start what PostFilter plugins decided for a pod: their own actions, and the eviction of the victims.

        The task ends once the API server has answered every eviction, with False if one failed; None without victims.
        """
        for action in post_filter.actions:
            self.tasks.spawn(_run_action(action))
        result = post_filter.nominating_result
        if result is None or not result.status.ok or not result.nominated_node_name:
            return None
        return self.start(
            preemptor,
            result.nominated_node_name,
            victims=result.victims,
            lower_priority_nominated=result.lower_priority_nominated,
            violations=result.violations,
        )

    def start(
        self,
        preemptor: PodInfo,
        node_name: str,
        *,
        victims: Sequence[PodInfo],
        lower_priority_nominated: Sequence[PodInfo],
        violations: int = 0,
    ) -> asyncio.Task[bool] | None:
        """Start evicting victims for a pod on one node; the task is that of :meth:`carry_out`.

        The eviction of ``violations`` of the victims violates a disruption budget.
        """
        preemption = _Preemption([preemptor], preemptor.uid, node_name)
        return self._start(preemption, victims, lower_priority_nominated, violations)

    def start_for_group(
        self,
        preemptors: Sequence[PodInfo],
        group_uid: str,
        *,
        victims: Sequence[PodInfo],
        lower_priority_nominated: Sequence[PodInfo],
        violations: int,
    ) -> None:
        """Start evicting victims for the pods of a group, on whatever nodes the victims are."""
        preemption = _Preemption(preemptors, group_uid, SEVERAL_NODES, Preemptor.POD_GROUP)
        self._start(preemption, victims, lower_priority_nominated, violations)

    def _start(
        self,
        preemption: _Preemption,
        victims: Sequence[PodInfo],
        lower_priority_nominated: Sequence[PodInfo],
        violations: int,
    ) -> asyncio.Task[bool] | None:
        """Clear the nominations in memory, and evict those victims that are not being deleted already."""
        for pod in lower_priority_nominated:
            self._cluster.drop_nomination(pod.uid)
        of_groups = [victim for victim in victims if victim.spec.scheduling_group is not None]
        disruption = Disruption(preemption.kind, violations, self._count_units(of_groups) if of_groups else 0)
        self._observer.preemption_started(preemption.preemptors, preemption.node_name, victims, disruption)
        remaining = [victim for victim in victims if not victim.terminating]
        if not remaining:
            return None
        for preemptor in preemption.preemptors:
            self.in_progress.newest[preemptor.uid] = preemption
        self._queue.gating.preemption_started(preemptor.uid for preemptor in preemption.preemptors)
        return self.tasks.start(self._run(preemption, remaining, lower_priority_nominated))

    def _count_units(self, victims: Sequence[PodInfo]) -> int:
        cluster = self._cluster
        return count_disrupted_units(victims, cluster.catalog(PodGroup), cluster.catalog(CompositePodGroup))

    async def _run(
        self, preemption: _Preemption, victims: Sequence[PodInfo], lower_priority_nominated: Sequence[PodInfo]
    ) -> bool:
        """Evict the victims; False if that failed."""
        began = self._clock.monotonic()
        for pod in lower_priority_nominated:
            self._dispatcher.patch_status(reference(pod), PodStatusPatch(nominated_node_name=""))
        try:
            *others, last = victims
            await self._run_all([self._evict(victim, preemption) for victim in others])
            preemption.last = last
            self._awaited.setdefault(last.uid, []).append(preemption)
            self._let_go(preemption)
            await self._evict(last, preemption)
        except Exception as error:  # whatever it is, the preemptor must not stay gated
            _log.warning(
                "preemption for %s failed: %s",
                preemption,
                error,
                extra=fields(preemptor=str(preemption), err=str(error)),
            )
            self._end(preemption, began, succeeded=False, activate=True)
            return False
        # If every victim has left already, no further event will requeue the preemptor.
        activate = not any(self._is_on_node(victim, preemption) for victim in victims)
        self._end(preemption, began, succeeded=True, activate=activate)
        return True

    def _is_on_node(self, victim: PodInfo, preemption: _Preemption) -> bool:
        """Whether a victim is still placed as it was; one whose binding was cancelled may have been placed anew."""
        placed = self._cluster.placed_pod(victim.uid)
        return placed is not None and placed is preemption.cancelled.get(victim.uid, placed)

    def _end(self, preemption: _Preemption, began: float, *, succeeded: bool, activate: bool) -> None:
        seconds = self._clock.monotonic() - began
        preemptor = preemption.preemptors[0]
        self._observer.evictions_ended(preemptor, kind=preemption.kind, succeeded=succeeded, seconds=seconds)
        preemption.is_requested = True
        if not (succeeded and self._awaits_watch(preemption)):
            self._forget(preemption)
        self._let_go(preemption)
        if activate:
            self._activate(preemption)

    def _activate(self, preemption: _Preemption) -> None:
        self._queue.activate([preemptor.uid for preemptor in preemption.preemptors])

    def _awaits_watch(self, preemption: _Preemption) -> bool:
        """Whether the last victim is still placed as it was, as far as the watch has shown, and not terminating."""
        if preemption.last is None or not self._is_on_node(preemption.last, preemption):
            return False
        victim = self._pods.get(preemption.last.uid)
        return victim is not None and not victim.terminating and victim.uid not in preemption.cancelled

    def _forget(self, preemption: _Preemption) -> None:
        for preemptor in preemption.preemptors:
            if self.in_progress.newest.get(preemptor.uid) is preemption:
                del self.in_progress.newest[preemptor.uid]
        awaiting = self._awaited.get(preemption.last.uid) if preemption.last is not None else None
        if preemption.last is not None and awaiting is not None:
            awaiting.remove(preemption)
            if not awaiting:
                del self._awaited[preemption.last.uid]

    async def _evict(self, victim: PodInfo, preemption: _Preemption) -> None:
        placed = self._cluster.placed_pod(victim.uid)
        if placed is None:
            return  # its binding failed, or it was deleted
        if self._waiting_pods.preempt(victim.uid):
            preemption.cancelled[victim.uid] = placed
            self._record(victim, preemption, self._note_of_stopped)
            return
        try:
            await self._dispatcher.evict(victim, self._disruption_condition(victim, preemption))
        except APIError as error:
            if error.code == 404:
                return  # deleted meanwhile
            raise
        self._record(victim, preemption, _PREEMPTED.note)

    async def _run_all(self, evictions: Sequence[Coroutine[Any, Any, None]]) -> None:
        """Wait for all, even if one fails: none may run on after the preemption has ended. Raises the first failure."""
        for outcome in await self._concurrency.run_all(evictions):
            if outcome is not None:
                raise outcome

    def _disruption_condition(self, victim: PodInfo, preemption: _Preemption) -> PodCondition:
        scheduler_name = preemption.preemptors[0].spec.scheduler_name
        return PodCondition(
            type=_DISRUPTION_TARGET.type,
            status="True",
            reason=_BY_SCHEDULER,
            message=f"{scheduler_name}: preempting to accommodate a higher priority {preemption.kind}",
            observed_generation=condition_generation(victim, _DISRUPTION_TARGET, always=self._tracks_generation),
            last_transition_time=timestamp(self._clock.now()),
        )

    def _record(self, victim: PodInfo, preemption: _Preemption, note: str) -> None:
        preemptor = preemption.preemptors[0]
        self._api.record(
            EventRecord(
                regarding=reference(victim),
                related=reference(preemptor),
                reason=_PREEMPTED.reason,
                action=_PREEMPTED.action,
                note=note.format(kind=preemption.kind, uid=preemption.uid, node=preemption.node_name),
                reporting_controller=preemptor.spec.scheduler_name,
            )
        )


async def _run_action(action: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Call a plugin's action where its failure is logged, even if it fails before its first await."""
    try:
        await action()
    except SystemExit as error:  # not even sys.exit() in a plugin ends the scheduler
        raise RuntimeError(f"SystemExit: {error}") from error
