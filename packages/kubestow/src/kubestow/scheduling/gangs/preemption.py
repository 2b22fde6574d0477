"""Preemption for a gang: pods are evicted if the whole gang fits then, and none for only a part of it.

Either the members preempt one after the other, each in the cluster as the previous preemptions would leave it, or
victims are found for the gang as a whole (:func:`plan_for_gang`), as the profile's plugin decides.

The victim search of workload-aware preemption: as few victims as possible, on whatever nodes (semantics 9.7).

A plugin lists the units (single pods, or groups) that may be evicted, those to be spared first first. By definition the
gang must fit with every unit removed, and each unit is then put back if the gang still fits. That is the result, not
the method: with many units and few victims, the search begins with the least important unit, doubles the number of
removed units until the gang fits, and puts them back in ever smaller parts. It relies on a gang that fits with some
pods removed also fitting with more of them removed.

Whether the gang fits is counted where all its pods are identical and nothing but a node's own pods decides about the
node. Otherwise it is tried, in a simulated cluster without the units; other tasks run between two tries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.views import HypotheticalNodes
from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.cluster.pods.table import PodChanges, offsets_of
from kubestow.cluster.simulation import Simulation
from kubestow.errors import PluginError
from kubestow.framework.evaluation.feasibility import PodCapacity
from kubestow.framework.gang import Evictable, GangOutcome
from kubestow.framework.interface import Victims
from kubestow.framework.status import Code, Status
from kubestow.scheduling.cycle.failure_handler import FailureHandler
from kubestow.scheduling.decision.node_selection import Scope
from kubestow.scheduling.decision.pipeline import run_synchronously
from kubestow.scheduling.extenders.stages import Extenders
from kubestow.scheduling.gangs.attempt import UNSCHEDULABLE, GangAttempt, MemberFailure
from kubestow.scheduling.gangs.placer import Assignments, GangPlacer, MemberPlacement
from kubestow.scheduling.preemption.evictions import Evictions
from kubestow.scheduling.queued_pod import QueuedPod
from kubestow.scheduling.scheduler_state import SchedulerState

Mask = NDArray[np.bool_]


@dataclass(slots=True)
class PreemptionPlan:
    """A preemption for a gang: the node to nominate for each member, and the pods to evict.

    ``failures`` are the members without a node even so; ``lower_priority_nominated`` are pods that lose their
    nomination to a member. The eviction of ``violations`` of the victims violates a disruption budget.
    """

    nominations: list[tuple[QueuedPod, str]]
    failures: list[MemberFailure]
    victims: list[PodInfo]
    lower_priority_nominated: list[PodInfo] = field(default_factory=list)
    violations: int = 0


async def plan_for_gang(
    evictable: Evictable,
    attempt: GangAttempt,
    *,
    cluster: Cluster,
    within: Mask | None,
    place: Callable[[], MemberPlacement],
) -> PreemptionPlan | None:
    """The fewest victims with which as many members fit as the gang needs; None when not even all suffice.

    The members may be placed ``within`` some nodes (bool, one per row; None for all). ``place`` places all of them in
    the cluster as it is at that moment. Raises PluginError.
    """
    search = _Search(evictable, attempt, cluster, place)
    count = len(evictable.units.lengths)
    with search.without_own_nominations():
        counted = _CountedCapacity.of(evictable, attempt, cluster=cluster, within=within)
        removed = None if counted is None else run_synchronously(fewest_removed(count, counted.fits))
    if counted is None:
        removed = await fewest_removed(count, search.fits)
    if removed is None or not removed.any():
        return None
    return search.plan(removed)


async def fewest_removed(count: int, fits: Callable[[Mask], Awaitable[bool]]) -> Mask | None:
    """Which of ``count`` units to remove (bool); None when removing all does not suffice. The first are spared first.

    ``fits`` tells whether it suffices to remove some units (bool).
    """
    removed = np.zeros(count, np.bool_)
    tail = min(1, count)
    while tail:
        removed[count - tail :] = True
        if await fits(removed):
            break
        tail = min(2 * tail, count) if tail < count else 0
    if not tail:
        return None
    parts = [(count - tail, count)]
    while parts:
        start, stop = parts.pop()
        removed[start:stop] = False
        if not await fits(removed):
            removed[start:stop] = True
            if stop - start > 1:
                middle = (start + stop) // 2
                parts += [(middle, stop), (start, middle)]
    return removed


async def plan_in_one_attempt(
    evictable: Evictable,
    attempt: GangAttempt,
    *,
    cluster: Cluster,
    assign: Callable[[], Assignments | Status],
    place_on: Callable[[Sequence[tuple[QueuedPod, str]]], MemberPlacement],
) -> PreemptionPlan | Status:
    """The victims of a group that is placed once, as if all units were gone: those beside which its pods do not fit.

    ``assign`` finds nodes for the pods in the cluster as it is at that moment, in the best placement if there are
    several; ``place_on`` places them on these. A status says why the group does not fit even so. Raises PluginError.
    """
    search = _AssignedSearch(evictable, attempt, cluster, place_on)
    found = search.assign(assign)
    if isinstance(found, Status):
        return found
    if len(found.nodes) < attempt.needed:
        return Status.unschedulable(UNSCHEDULABLE)
    removed = await fewest_removed(len(evictable.units.lengths), search.fits)
    if removed is None:
        return Status.unschedulable(UNSCHEDULABLE)
    return search.plan_on_nodes(removed, list(found.failures))


class _CountedCapacity:
    """Counts the capacity for identical pods."""

    def __init__(self, evictable: Evictable, capacity: PodCapacity, *, cluster: Cluster, needed: int) -> None:
        self._capacity, self._table, self._needed = capacity, cluster.nodes, needed
        order = np.argsort(evictable.rows, kind="stable")
        lengths = np.bincount(evictable.rows, minlength=len(cluster.nodes))
        #: The evictable pods row by row, and the unit of each (intp).
        self._evictable = PodChanges(evictable.units.table, evictable.units.slots[order], offsets_of(lengths), -1)
        self._unit_of = evictable.units.row_of[order]
        #: The capacity of each row with no unit removed, int64.
        self._as_is = self._capacity_without(np.zeros(len(order), np.bool_), np.ones(len(lengths), np.bool_))
        self._total = int(self._as_is.sum())

    @classmethod
    def of(
        cls, evictable: Evictable, attempt: GangAttempt, *, cluster: Cluster, within: Mask | None
    ) -> _CountedCapacity | None:
        """None where the gang has to be tried."""
        pods = [queued.info for queued in attempt.pods]
        if len({pod.shape for pod in pods}) != 1:
            return None
        capacity = attempt.profile.evaluations.of(pods[0]).capacity(pods[0], attempt.needed, within)
        return None if capacity is None else cls(evictable, capacity, cluster=cluster, needed=attempt.needed)

    async def fits(self, removed: Mask) -> bool:
        """Whether enough pods fit with some units (bool) removed. Never suspends."""
        leaving = removed[self._unit_of]
        affected = np.zeros(len(self._as_is), np.bool_)
        affected[self._evictable.row_of[leaving]] = True
        capacity = int(self._capacity_without(leaving, affected).sum())
        return self._total - int(self._as_is[affected].sum()) + capacity >= self._needed

    def _capacity_without(self, leaving: Mask, rows: Mask) -> NDArray[np.int64]:
        """The capacity of some rows (bool) after all evictable pods are removed, and all but some (bool) put back."""
        positions = np.flatnonzero(rows)
        changes = self._evictable.select(positions).without(~leaving[rows[self._evictable.row_of]])
        return self._capacity.on(HypotheticalNodes(self._table, positions, pod_changes=(changes,)))


class _Search:
    """Tries the gang in a simulated cluster without some units."""

    def __init__(
        self, evictable: Evictable, attempt: GangAttempt, cluster: Cluster, place: Callable[[], MemberPlacement]
    ) -> None:
        self._attempt, self._cluster, self._place = attempt, cluster, place
        # Read now: slots of the pod table are reused as soon as pods are removed.
        self._pods, self._unit_of = evictable.units.infos, evictable.units.row_of
        self._violations = evictable.violations
        self._has_host_ports: Mask = evictable.units.values_of(_has_host_ports).astype(np.bool_)

    @contextmanager
    def without_own_nominations(self) -> Iterator[Simulation]:
        """A simulation without the members' nominations, which would count as used capacity for one another."""
        with self._cluster.simulate() as simulation:
            for queued in self._attempt.pods:
                self._cluster.drop_nomination(queued.info.uid)
            yield simulation

    async def fits(self, removed: Mask) -> bool:
        """Whether enough members find nodes with some units (bool) removed."""
        with self.without_own_nominations() as simulation:
            members = self._place_without(removed, simulation)
            members.undo()
        await asyncio.sleep(0)
        return len(members.placed) >= self._attempt.needed

    def plan(self, removed: Mask) -> PreemptionPlan | None:
        """The preemption that removes some units (bool); None when the gang does not fit after all."""
        with self.without_own_nominations() as simulation:
            members = self._place_without(removed, simulation)
            members.undo()
            if len(members.placed) < self._attempt.needed:
                return None
            nominations = [(context.queued, context.node_name) for context in members.placed]
            return self._plan_of(removed, nominations, members.failures)

    def _plan_of(
        self, removed: Mask, nominations: list[tuple[QueuedPod, str]], failures: list[MemberFailure]
    ) -> PreemptionPlan:
        """The preemption that removes some units (bool) for members on these nodes."""
        violations = 0 if self._violations is None else int(self._violations[removed].sum())
        displaced = _displaced(nominations, self._cluster)
        return PreemptionPlan(nominations, failures, self._removed_pods(removed), displaced, violations)

    def _place_without(self, removed: Mask, simulation: Simulation) -> MemberPlacement:
        self._remove(removed, simulation)
        for position in np.flatnonzero(self._has_host_ports & ~removed[self._unit_of]).tolist():
            simulation.take_host_ports(self._pods[position].uid)
        return self._place()

    def _remove(self, removed: Mask, simulation: Simulation) -> None:
        for pod in self._removed_pods(removed):
            simulation.remove_pod(pod.uid)

    def _removed_pods(self, removed: Mask) -> list[PodInfo]:
        return [self._pods[position] for position in np.flatnonzero(removed[self._unit_of])]


class _AssignedSearch(_Search):
    """Tries the gang on the nodes where its pods fit without all units (:attr:`nodes`), without some units."""

    def __init__(
        self,
        evictable: Evictable,
        attempt: GangAttempt,
        cluster: Cluster,
        place_on: Callable[[Sequence[tuple[QueuedPod, str]]], MemberPlacement],
    ) -> None:
        super().__init__(evictable, attempt, cluster, lambda: place_on(self.nodes))
        self.nodes: Sequence[tuple[QueuedPod, str]] = ()
        self._units = len(evictable.units.lengths)

    def assign(self, assign: Callable[[], Assignments | Status]) -> Assignments | Status:
        """What ``assign`` finds in the cluster without any unit."""
        with self.without_own_nominations() as simulation:
            self._remove(np.ones(self._units, np.bool_), simulation)
            found = assign()
        if isinstance(found, Assignments):
            self.nodes = found.nodes
        return found

    async def fits(self, removed: Mask) -> bool:
        """Whether every pod still fits on its node with some units (bool) removed."""
        with self.without_own_nominations() as simulation:
            members = self._place_without(removed, simulation)
            members.undo()
        await asyncio.sleep(0)
        return len(members.placed) == len(self.nodes)

    def plan_on_nodes(self, removed: Mask, failures: list[MemberFailure]) -> PreemptionPlan:
        """The preemption that removes some units (bool)."""
        return self._plan_of(removed, list(self.nodes), failures)


def _has_host_ports(shape: Shape) -> bool:
    return bool(shape.host_ports)


def _displaced(nominations: Sequence[tuple[QueuedPod, str]], cluster: Cluster) -> list[PodInfo]:
    """The pods of lower priority that are nominated to the nodes of some members, each once."""
    displaced = {
        pod.uid: pod
        for queued, node_name in nominations
        for pod in cluster.nominated_pods(node_name)
        if pod.priority < queued.info.priority
    }
    return list(displaced.values())


_NOT_WITH_PLACEMENTS = "workload aware preemption is not supported for pod groups with scheduling constraints"
_NOT_ENOUGH = "it would not fit even if all pods of lower priority were evicted"


class GangPreemption:
    """Plans and starts preemption for gangs."""

    def __init__(
        self,
        state: SchedulerState,
        placer: GangPlacer,
        *,
        extenders: Extenders,
        failure_handler: FailureHandler,
        evictions: Evictions,
    ) -> None:
        self._cluster, self._pods, self._placer = state.cluster, state.pods, placer
        self._extenders, self._failure_handler, self._evictions = extenders, failure_handler, evictions

    async def preempt(self, attempt: GangAttempt) -> bool:
        """Start a preemption with which the whole gang fits; False if there is none, with the reason in the attempt."""
        if attempt.placement_count is not None:  # it would be a preemption for each placement (semantics 9.1)
            attempt.preemption_message = _NOT_WITH_PLACEMENTS if attempt.preempts_as_a_whole else ""
            attempt.keeps_nominations = False
            return False
        try:
            if attempt.preempts_as_a_whole:
                plan = await self._plan_for_all(attempt)
            else:
                plan = await self._plan_one_by_one(attempt)
        except PluginError as error:
            attempt.preemption_message = str(error)
            return False
        if plan is not None:
            self._carry_out(attempt, plan)
        return plan is not None

    async def _plan_one_by_one(self, attempt: GangAttempt) -> PreemptionPlan | None:
        """Let each member preempt; extenders confirm the result afterwards, because a simulation cannot suspend."""
        if not any(failure.can_preempt for failure in attempt.failures):
            return None
        scope = Scope(excluded=attempt.vetoed, calls_extenders=False)
        with self._cluster.simulate() as simulation:
            members = self._placer.simulate(attempt, scope, preempting_in=simulation)
            fits = attempt.is_satisfied()
            members.undo()
        if not fits or not members.preemptors:
            return None
        for queued, result in members.preemptors:
            victims = Victims(result.victims, result.violations)
            if not await self._extenders.confirm(queued.info, result.nominated_node_name or "", victims):
                return None
        if not all(self._pods.wants_node(queued.info.uid) for queued in attempt.pods):
            return None  # the gang has changed while extenders were awaited
        nominations = [(context.queued, context.node_name) for context in members.placed]
        nominations += [(queued, result.nominated_node_name or "") for queued, result in members.preemptors]
        own = {queued.info.uid for queued, _ in nominations}
        displaced = {
            pod.uid: pod
            for _, result in members.preemptors
            for pod in result.lower_priority_nominated
            if pod.uid not in own
        }
        evicted = [victim for _, result in members.preemptors for victim in result.victims]
        violations = sum(result.violations for _, result in members.preemptors)
        return PreemptionPlan(nominations, members.failures, evicted, list(displaced.values()), violations)

    async def _plan_for_all(self, attempt: GangAttempt) -> PreemptionPlan | None:
        """Let the gang preempt as a whole."""
        infos = [queued.info for queued in attempt.pods]
        scope = Scope(excluded=attempt.vetoed, preempts=False, calls_extenders=False)
        evictable = attempt.profile.gangs.evictable_units(attempt.gang, infos)
        if isinstance(evictable, Status):
            attempt.preemption_message = evictable.message
            attempt.keeps_nominations = evictable.code is Code.PENDING
            return None
        attempt.preemption_message, attempt.keeps_nominations = _NOT_ENOUGH, False
        return await plan_for_gang(
            evictable,
            attempt,
            cluster=self._cluster,
            within=scope.rows(self._cluster),
            place=lambda: self._placer.simulate(attempt, scope),
        )

    def _carry_out(self, attempt: GangAttempt, plan: PreemptionPlan) -> None:
        """Start the evictions first, so that pods requeued at once are gated; then nominate and requeue each pod."""
        preemptors = [queued.info for queued, _ in plan.nominations]
        if attempt.preempts_as_a_whole:
            preemptors += [failure.queued.info for failure in plan.failures]
        self._evictions.start_for_group(
            preemptors,
            attempt.gang.uid,
            victims=plan.victims,
            lower_priority_nominated=plan.lower_priority_nominated,
            violations=plan.violations,
        )
        message = f"pod group is waiting for preemption to complete: {attempt.gang.name}"
        waiting = attempt.failure(message)
        for queued, node_name in plan.nominations:
            self._failure_handler.attempt_failed(queued, replace(waiting, nomination=node_name))
        for failure in plan.failures:
            own = replace(waiting, message=f"{failure.message} {message}")
            self._failure_handler.attempt_failed(failure.queued, own)
        handled = {queued for queued, _ in plan.nominations} | {failure.queued for failure in plan.failures}
        for queued in attempt.pods:
            if queued not in handled:  # it was deleted or assigned meanwhile
                self._failure_handler.attempt_failed(queued, waiting)
        attempt.end(GangOutcome.WAITING_ON_PREEMPTION, message)
