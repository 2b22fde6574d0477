"""The scheduling cycle of a gang: all its pods are decided about in one go (semantics 4.10).

When the first pod of a gang is popped, the other pending members are popped too, and placed one after the other, each
decision seeing those before it. With enough members placed, all of them start their binding cycles, and members beyond
the minimum count are scheduled by themselves, or wait where the gang has to stay together. Otherwise every placement is
undone before the cycle ends, so no other pod is ever decided about with part of a gang in place. That is why two gangs
cannot block each other, and why a gang holds nothing while it waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from kubestow.api.reports import REASON_SCHEDULER_ERROR, REASON_UNSCHEDULABLE
from kubestow.errors import PluginError
from kubestow.framework.gang import Gang, GangOutcome
from kubestow.framework.profile import Profile
from kubestow.framework.status import Code, Status
from kubestow.scheduling.cycle.binding_context import BindingContext
from kubestow.scheduling.cycle.binding_cycle import BindingCycles
from kubestow.scheduling.cycle.failure_handler import FailureHandler, SchedulingFailure
from kubestow.scheduling.cycle.scheduling_cycle import SchedulingCycle
from kubestow.scheduling.gangs.attempt import UNSCHEDULABLE, GangAttempt, MemberFailure
from kubestow.scheduling.gangs.barrier import GangBarrier, GangBarriers, GangBindingCycles, MemberBindingContext
from kubestow.scheduling.gangs.placer import GangPlacer, MemberPlacement
from kubestow.scheduling.gangs.preemption import GangPreemption
from kubestow.scheduling.queued_pod import QueuedPod
from kubestow.scheduling.scheduler_state import SchedulerState


class GangSchedulingCycle:
    """Schedules gangs. ``cycle`` schedules their members where these are scheduled by themselves."""

    def __init__(
        self,
        state: SchedulerState,
        *,
        placer: GangPlacer,
        preemption: GangPreemption,
        cycle: SchedulingCycle,
        binding_cycles: BindingCycles[BindingContext],
        gang_binding_cycles: GangBindingCycles,
        barriers: GangBarriers,
        failure_handler: FailureHandler,
    ) -> None:
        self._cluster, self._pods, self._queue = state.cluster, state.pods, state.queue
        self._placer, self._preemption, self._cycle = placer, preemption, cycle
        self._binding_cycles, self._gang_binding_cycles = binding_cycles, gang_binding_cycles
        self._barriers, self._failure_handler = barriers, failure_handler

    async def schedule(self, gang: Gang, first: QueuedPod, profile: Profile) -> GangOutcome | None:
        """Schedule a gang of which one pod has been popped. Returns the outcome, None if the gang was not tried."""
        attempt = self._new_attempt(gang, profile, self._pop_members(gang, first))
        if self._requeue_if_hopeless(attempt):
            return attempt.outcome
        try:
            members = await self._place(attempt)
        except PluginError as error:
            members = Status.error(str(error))
        if isinstance(members, Status):
            self._reject(attempt, members)
        elif self._has_enough(attempt, members):
            await self._start_binding(attempt, members)
        else:
            placeable = len(gang.members.placed)
            members.undo()
            await self._fall_back(attempt, placeable)
        return attempt.outcome

    async def _place(self, attempt: GangAttempt) -> MemberPlacement | Status:
        """Place the members by the best of the gang's preferences by which it fits, or else as it requires.

        A plugin that finds nodes for gangs knows that better than a try pod after pod. Raises PluginError.
        """
        gang, gangs = attempt.gang, attempt.profile.gangs
        if not gang.has_preferences:
            return await self._placer.place(attempt)
        found = await self._placer.place_as_found(attempt)
        if not isinstance(found, Status):
            return found
        if found.code is Code.PENDING:
            attempt.search = found
            return found
        *preferred, required = gang.levels()
        for level in preferred:
            attempt.gang = level
            members = await self._placer.place(attempt)
            if not isinstance(members, Status):
                if self._has_enough(attempt, members):
                    # The members beyond the minimum count are not bound to a preference.
                    placements = gangs.generate_placements(required, [q.info for q in attempt.pods], self._cluster)
                    attempt.placement_count = None if placements is None else attempt.placement_count
                    attempt.gang = replace(gang, min_count=attempt.gang.min_count)
                    return members
                members.undo()
            attempt.failures, attempt.placement_count = [], None
        attempt.gang = gang
        return await self._placer.place(attempt)

    async def _fall_back(self, attempt: GangAttempt, placeable: int) -> None:
        """Have a plugin find nodes where the gang does not fit pod after pod, or else preempt."""
        try:
            found = await self._placer.place_as_found(attempt)
        except PluginError as error:
            found = Status.error(str(error))
        if not isinstance(found, Status):
            await self._start_binding(attempt, found)
        elif found.code is Code.ERROR:
            self._reject(attempt, found)
        else:
            attempt.search = found
            has_no_preemption = found.code is Code.PENDING or attempt.gang.has_segments
            if has_no_preemption or not await self._preemption.preempt(attempt):
                self._fail(attempt, placeable)

    def _new_attempt(self, gang: Gang, profile: Profile, pods: list[QueuedPod]) -> GangAttempt:
        return GangAttempt(gang, profile, pods, profile.runtime.now())

    def _pop_members(self, gang: Gang, first: QueuedPod) -> list[QueuedPod]:
        """The pending members that can be popped, in the order of their placement."""
        placed = gang.members.placed
        return self._queue.pop_members(first, [uid for uid in gang.members.ready if uid not in placed])

    def _requeue_if_hopeless(self, attempt: GangAttempt) -> bool:
        """Requeue the pods of a gang that cannot be scheduled now, whatever the cluster; whether it is one."""
        gang, members = attempt.gang, attempt.pods
        barrier = self._barriers.get(gang.name)
        placeable = len(gang.members.placed) + len(members)
        message = self._inconsistency(gang)
        if message:
            self._requeue(members, SchedulingFailure(REASON_SCHEDULER_ERROR, message))
            attempt.end(GangOutcome.ERROR, message)
        elif barrier is not None and barrier.failure is not None:  # and members of that attempt have not left yet
            self._requeue(members, SchedulingFailure(REASON_UNSCHEDULABLE, barrier.failure))
        elif placeable < gang.min_count:
            if not self._postpone(attempt, placeable):
                self._fail(attempt, placeable)
        else:
            return False
        return True

    def _inconsistency(self, gang: Gang) -> str:
        """Why the pods of a gang cannot be scheduled together; empty if they can."""
        names = sorted({pod.spec.scheduler_name for pod in gang.members.pods.values()})
        if len(names) == 1:
            return ""
        return (
            "all pods in a single pod group should have the same .spec.schedulerName set, "
            f'got: "{names[0]}" and "{names[1]}"'
        )

    def _postpone(self, attempt: GangAttempt, placeable: int) -> bool:
        """Wait for members that back off after an error, if the gang is large enough with them; whether it is."""
        ends = [self._queue.error_backoff_end(uid) for uid in attempt.gang.members.ready]
        backing_off = sorted(end for end in ends if end is not None)
        if placeable + len(backing_off) < attempt.gang.min_count:
            return False
        for queued in attempt.pods:
            self._queue.postpone(queued, backing_off[attempt.gang.min_count - placeable - 1])
        return True

    # -- enough members are placed -------------------------------------------------------------------------------

    def _has_enough(self, attempt: GangAttempt, members: MemberPlacement) -> bool:
        """Whether the gang has what it needs, and one pod placed at least if it schedules as a whole."""
        makes_progress = bool(members.placed) or not attempt.schedules_as_a_whole or not attempt.pods
        if not (attempt.is_satisfied() and makes_progress):
            return False
        if not attempt.gang.has_segments:
            return True
        nodes = {context.info.uid: context.node_name for context in members.placed}
        return attempt.profile.gangs.respects_terms(attempt.gang, nodes, self._cluster)

    async def _start_binding(self, attempt: GangAttempt, members: MemberPlacement) -> None:
        """Run Permit, start the binding cycles, and schedule the remaining members by themselves."""
        permitted, rejected = self._run_permit(self._drop_gone(members.placed))
        if not attempt.is_satisfied():
            placeable = len(attempt.gang.members.placed)
            for context in reversed(permitted):
                context.unreserve_and_forget(self._cluster)
            attempt.failures = [*rejected, *members.failures]
            self._fail(attempt, placeable)
            return
        remaining = [] if attempt.schedules_as_a_whole else [failure.queued for failure in members.failures]
        barrier = self._expect_at_barrier(attempt.gang, permitted, remaining)
        for context in permitted:
            nominated = members.former_nominations[context.info.uid]
            if nominated != context.node_name:  # only now, because a placement that is undone restores the nomination
                self._queue.requeue_for_freed_nomination(context.info, nominated)
            self._start_binding_cycle(context, barrier)
        for failure in rejected:
            self._failure_handler.attempt_failed(failure.queued, attempt.failure_of(failure))
        if permitted:
            attempt.end(GangOutcome.SCHEDULED, "")
        elif attempt.failures and attempt.pods:
            self._end_without_placement(attempt)
        for queued in remaining:
            await self._cycle.schedule(queued, lambda context: self._start_binding_cycle(context, barrier))
            info = queued.info
            if barrier is not None and not self._cluster.is_assumed(info.uid):
                barrier.leave(info.uid, f"{info.key}: found no node")
        if attempt.schedules_as_a_whole and members.failures:
            await self._preempt_for_remaining(attempt, members.failures)

    def _start_binding_cycle(self, context: BindingContext, barrier: GangBarrier | None) -> None:
        if barrier is None:
            self._binding_cycles.start(context)
        else:
            self._gang_binding_cycles.start(MemberBindingContext.of(context, barrier))

    async def _preempt_for_remaining(self, attempt: GangAttempt, failures: list[MemberFailure]) -> None:
        """Preempt for the members beyond the minimum count, or requeue them."""
        pods = [failure.queued for failure in failures]
        began = attempt.profile.runtime.now()
        remaining = replace(attempt, pods=pods, failures=failures, began=began, decided=None)
        if not await self._preemption.preempt(remaining):
            for failure in failures:
                self._failure_handler.attempt_failed(failure.queued, remaining.failure_of(failure))

    def _end_without_placement(self, attempt: GangAttempt) -> None:
        """End an attempt in which none of the members beyond the minimum count was placed."""
        outcome = GangOutcome.UNSCHEDULABLE
        if any(failure.status.code is Code.ERROR for failure in attempt.failures):
            outcome = GangOutcome.ERROR
        elif any(failure.can_preempt for failure in attempt.failures):
            outcome = GangOutcome.WAITING_ON_PREEMPTION
        first = attempt.failures[0]
        attempt.end(outcome, f"{UNSCHEDULABLE}: {first.queued.info.key}: {first.message}")

    def _drop_gone(self, placed: Iterable[BindingContext]) -> list[BindingContext]:
        """Undo the placements of members that were deleted while extenders were awaited; the others are returned."""
        remaining = []
        for context in placed:
            uid = context.info.uid
            if self._pods.wants_node(uid) and self._cluster.is_assumed(uid):
                remaining.append(context)
            else:
                context.unreserve_and_forget(self._cluster)
                self._queue.in_flight.done(uid)
        return remaining

    def _run_permit(self, placed: Iterable[BindingContext]) -> tuple[list[BindingContext], list[MemberFailure]]:
        permitted, rejected = [], []
        for context in placed:
            status, timeouts = context.runtime.run_permit_plugins(context.state, context.info, context.node_name)
            if status.ok:
                permitted.append(replace(context, permit_timeouts=timeouts))
            else:
                context.unreserve_and_forget(self._cluster)
                rejected.append(MemberFailure.of_status(context.queued, status))
        return permitted, rejected

    def _expect_at_barrier(
        self, gang: Gang, placed: Sequence[BindingContext], remaining: Sequence[QueuedPod]
    ) -> GangBarrier | None:
        """Have the barrier of the gang expect placed members; None when enough members are bound already.

        Members that are on their way already share it. The ``remaining`` members are expected as well: deciding about
        them may take longer than the others need to be bound.
        """
        bound = gang.members.placed.difference(context.info.uid for context in placed)
        barrier = self._barriers.get(gang.name)
        if barrier is None and len(bound) < gang.min_count:
            barrier = self._barriers.create(
                gang.name,
                min_count=gang.min_count,
                bound=bound,
                timeout=gang.timeout,
                placed_members=lambda: self._placed_or_nominated(gang),
            )
        if barrier is not None:
            for queued in (*(context.queued for context in placed), *remaining):
                barrier.expect(queued.info.uid)
        return barrier

    def _placed_or_nominated(self, gang: Gang) -> Iterable[str]:
        """The members that are placed, or nominated to a node that exists."""
        members, nodes = gang.members, self._cluster.nodes.rows
        return members.placed.union(uid for uid in members.ready if self._cluster.nomination(uid) in nodes)

    # -- too few members are placed ------------------------------------------------------------------------------

    def _fail(self, attempt: GangAttempt, placeable: int) -> None:
        """Requeue all pods, those that fit by themselves included: what helps one member may help the gang."""
        message = attempt.refusal(placeable)
        failure = attempt.failure(message)
        for queued, text in attempt.refusals(placeable, message):
            self._failure_handler.attempt_failed(queued, replace(failure, message=text))
        is_error = failure.reason == REASON_SCHEDULER_ERROR
        attempt.end(GangOutcome.ERROR if is_error else GangOutcome.UNSCHEDULABLE, message)

    def _reject(self, attempt: GangAttempt, status: Status) -> None:
        """Requeue all pods because a plugin rejected the gang, or failed."""
        is_error = status.code is Code.ERROR
        message = status.message if is_error else f"{UNSCHEDULABLE}: {status.message}"
        failure = attempt.failure(message)
        if is_error:
            failure = replace(failure, reason=REASON_SCHEDULER_ERROR, rejectors=frozenset())
        elif status.plugin:
            failure = replace(failure, rejectors=failure.rejectors | {status.plugin})
        self._requeue(attempt.pods, failure)
        attempt.end(GangOutcome.ERROR if is_error else GangOutcome.UNSCHEDULABLE, message)

    def _requeue(self, pods: Iterable[QueuedPod], failure: SchedulingFailure) -> None:
        for queued in pods:
            self._failure_handler.attempt_failed(queued, failure)
