"""The scheduling cycle of a gang: all its pods are decided about in one go (semantics 4.10).

When the first pod of a gang comes to the head of the queue, its siblings are taken out of the queue too and placed one
after the other on the cluster as it is, each seeing those before it. With enough of them placed, all go on to be bound,
and whoever is left over is scheduled by itself, or waits where the gang has to stay together. Otherwise every placement
is taken back before anything else happens: one cycle is at its end before the next begins, so no other pod is ever
decided about with half a gang in place. That is why two gangs cannot wait for each other, and why none holds anything
while it waits.

How the pods are placed is in :mod:`.trials`, whom they may have evicted in :mod:`.preemption`, and who waits for the
rest of its gang in :mod:`.incomplete`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from random import Random

from kubestow.cluster.cache import Cluster
from kubestow.errors import PluginError
from kubestow.framework.gang import Gang, GangOutcome
from kubestow.framework.profile import Profile
from kubestow.framework.status import Code, Status
from kubestow.scheduling.binding_cycle import BindingContext
from kubestow.scheduling.failure_handler import Unscheduled, UnscheduledPods
from kubestow.scheduling.gangs.attempt import UNSCHEDULABLE, Attempt, Steps
from kubestow.scheduling.gangs.barrier import GangBarrier
from kubestow.scheduling.gangs.incomplete import IncompleteGangs
from kubestow.scheduling.gangs.preemption import GangPreemption
from kubestow.scheduling.gangs.trial import Failure, Trial
from kubestow.scheduling.gangs.trials import GangTrials
from kubestow.scheduling.preemption.evictions import Evictions
from kubestow.scheduling.queue.queued_pod import QueuedPod
from kubestow.scheduling.queue.scheduling_queue import SchedulingQueue

__all__ = ["Gangs"]


class Gangs:
    """Schedules gangs, and keeps what has to be known of them until the last of their pods is bound."""

    def __init__(
        self,
        cluster: Cluster,
        queue: SchedulingQueue,
        *,
        unscheduled: UnscheduledPods,
        evictions: Evictions,
        steps: Steps,
        random: Random,
    ) -> None:
        self._cluster, self._queue, self._unscheduled, self._steps = cluster, queue, unscheduled, steps
        self._trials = GangTrials(cluster, queue, steps, random)
        self._preemption = GangPreemption(
            cluster, self._trials, unscheduled=unscheduled, evictions=evictions, steps=steps
        )
        self._meetings: dict[Hashable, GangBarrier] = {}
        self.incomplete = IncompleteGangs(queue, unscheduled)

    def close(self) -> None:
        """Let nobody wait any longer, and tell nobody to: the scheduler is shutting down."""
        self.incomplete.close()
        for barrier in list(self._meetings.values()):
            barrier.fail("the scheduler is shutting down")

    def leave(self, uid: str, why: str) -> None:
        """A pod that may be on its way to be bound never will be."""
        for barrier in list(self._meetings.values()):
            barrier.leave(uid, why)

    # -- the cycle -------------------------------------------------------------------------------------------------

    async def schedule(self, gang: Gang, first: QueuedPod, profile: Profile) -> None:
        """Decide about a gang of which one pod has come to the head of the queue."""
        attempt = Attempt(gang, profile, self._gathered(gang, first), profile.runtime.now())
        if self._is_hindered(attempt):
            return
        try:
            trial = await self._trials.placed(attempt)
        except PluginError as error:
            trial = Status.error(str(error))
        if isinstance(trial, Status):
            self._turn_away(attempt, trial)
        elif self._is_done(attempt, trial):
            await self._carry_out(attempt, trial)
        else:
            could = len(gang.members.placed)
            trial.undo()
            if not await self._preemption.makes_room(attempt):
                self._refuse(attempt, could)

    def _is_done(self, attempt: Attempt, trial: Trial) -> bool:
        """Whether enough pods have nodes: as many as the gang needs, and one of them at least if all act as one."""
        return attempt.is_enough() and (bool(trial.placed) or not attempt.acts_as_one or not attempt.pods)

    def _gathered(self, gang: Gang, first: QueuedPod) -> list[QueuedPod]:
        """The gang's pods that wait for a node, the most important first; without those that have to wait longer."""
        pods, placed = [first], gang.members.placed
        for uid in list(gang.members.ready):
            sibling = self._queue.take(uid) if uid not in placed else None
            if sibling is not None:
                pods.append(sibling)
        return sorted(pods, key=lambda queued: (-queued.info.priority, queued.initial_attempt or queued.timestamp))

    def _is_hindered(self, attempt: Attempt) -> bool:
        """Whether there is no point in trying; then the pods have been given back."""
        gang, pods = attempt.gang, attempt.pods
        names = sorted({pod.spec.scheduler_name for pod in gang.members.pods.values()})
        barrier = self._meetings.get(gang.name)
        could = len(gang.members.placed) + len(pods)
        if len(names) > 1:
            message = (
                "all pods in a single pod group should have the same .spec.schedulerName set, "
                f'got: "{names[0]}" and "{names[1]}"'
            )
            self._give_back(pods, Unscheduled("SchedulerError", message))
            attempt.conclude(GangOutcome.ERROR, message)
        elif barrier is not None and barrier.failure is not None:  # and not everybody has gone yet
            self._give_back(pods, Unscheduled("Unschedulable", barrier.failure))
        elif could < gang.min_count:
            if not self._postponed(attempt, could):
                self._refuse(attempt, could)
        else:
            return False
        return True

    def _postponed(self, attempt: Attempt, could: int) -> bool:
        """Let the pods wait for siblings that back off after an error, if these make up the number; whether they do."""
        ends = [self._queue.error_backoff_end(uid) for uid in attempt.gang.members.ready]
        backing_off = sorted(end for end in ends if end is not None)
        if could + len(backing_off) < attempt.gang.min_count:
            return False
        for queued in attempt.pods:
            self._queue.postpone(queued, backing_off[attempt.gang.min_count - could - 1])
        return True

    # -- enough pods have nodes ------------------------------------------------------------------------------------

    async def _carry_out(self, attempt: Attempt, trial: Trial) -> None:
        """Ask for permission, and send the pods on their way; who is left over is scheduled like any other pod."""
        permitted, refused = self._permitted([reserved for reserved in trial.placed if self._is_there(reserved)])
        if not attempt.is_enough():
            could = len(attempt.gang.members.placed)
            for reserved in reversed(permitted):
                self._steps.undo(reserved)
            attempt.failures = [*refused, *trial.failures]
            self._refuse(attempt, could)
            return
        left_over = [] if attempt.acts_as_one else [failure.queued for failure in trial.failures]
        barrier = self._meeting(attempt.gang, permitted, left_over)
        for reserved in permitted:
            self._steps.begin(replace(reserved, barrier=barrier))
        for failure in refused:
            self._unscheduled.give_back(failure.queued, attempt.refusal_of(failure))
        if permitted:
            attempt.conclude(GangOutcome.SCHEDULED, "")
        elif attempt.failures and attempt.pods:
            self._conclude_left_over(attempt)
        for queued in left_over:
            await self._schedule_left_over(queued, barrier)
        if attempt.acts_as_one and trial.failures:
            await self._keep_waiting(attempt, trial.failures)

    async def _keep_waiting(self, attempt: Attempt, failures: list[Failure]) -> None:
        """Make room for those that a gang can do without, or let them wait for it."""
        pods = [failure.queued for failure in failures]
        further = replace(attempt, pods=pods, failures=failures, began=attempt.profile.runtime.now(), decided=None)
        if not await self._preemption.makes_room(further):
            for failure in failures:
                self._unscheduled.give_back(failure.queued, further.refusal_of(failure))

    def _conclude_left_over(self, attempt: Attempt) -> None:
        """Nobody was placed of those that a gang can do without."""
        outcome = GangOutcome.UNSCHEDULABLE
        if any(failure.status.code is Code.ERROR for failure in attempt.failures):
            outcome = GangOutcome.ERROR
        elif any(failure.has_room for failure in attempt.failures):
            outcome = GangOutcome.WAITING_ON_PREEMPTION
        first = attempt.failures[0]
        attempt.conclude(outcome, f"{UNSCHEDULABLE}: {first.queued.info.key}: {first.message}")

    async def _schedule_left_over(self, queued: QueuedPod, barrier: GangBarrier | None) -> None:
        """Schedule by itself who is not needed; the meeting that expects it goes on for as long as that takes."""
        await self._steps.schedule_alone(queued, barrier)
        info = queued.info
        if barrier is not None and not self._cluster.is_assumed(info.uid):
            barrier.leave(info.uid, f"{info.key}: found no node")

    def _is_there(self, reserved: BindingContext) -> bool:
        """Whether a pod still is what it was when it was placed; extenders may have taken their time since."""
        uid = reserved.info.uid
        if self._steps.is_wanted(reserved.info) and self._cluster.is_assumed(uid):
            return True
        self._steps.undo(reserved)
        self._queue.done(uid)
        return False

    def _permitted(self, placed: Iterable[BindingContext]) -> tuple[list[BindingContext], list[Failure]]:
        permitted, refused = [], []
        for reserved in placed:
            runtime = reserved.profile.runtime
            status, waits = runtime.run_permit_plugins(reserved.state, reserved.info, reserved.node_name)
            if status.ok:
                permitted.append(replace(reserved, waits=waits))
            else:
                self._steps.undo(reserved)
                refused.append(Failure.of_status(reserved.queued, status))
        return permitted, refused

    def _meeting(
        self, gang: Gang, coming: Sequence[BindingContext], left_over: Sequence[QueuedPod]
    ) -> GangBarrier | None:
        """Where pods meet before they are bound: with those on their way already, if that is not over.

        Who is left over may come too; deciding about it may take longer than the others need to be bound.
        """
        bound = gang.members.placed.difference(reserved.info.uid for reserved in coming)
        barrier = self._meetings.get(gang.name)
        if barrier is None and len(bound) < gang.min_count:
            barrier = self._meetings[gang.name] = GangBarrier(
                str(gang.name),
                min_count=gang.min_count,
                bound=bound,
                timeout=gang.timeout,
                holding=lambda: self._holding(gang),
                on_end=lambda: self._meetings.__delitem__(gang.name),
            )
        if barrier is not None:
            for queued in (*(reserved.queued for reserved in coming), *left_over):
                barrier.expect(queued.info.uid)
        return barrier

    def _holding(self, gang: Gang) -> Iterable[str]:
        """The members that have a node, or have been promised one that is still there."""
        members, nodes = gang.members, self._cluster.nodes.rows
        return members.placed.union(uid for uid in members.ready if self._cluster.nomination(uid) in nodes)

    # -- too few have ----------------------------------------------------------------------------------------------

    def _refuse(self, attempt: Attempt, could: int) -> None:
        """Give all pods back, those that had found a node too: what may help one of them may help them all."""
        summary = f"{UNSCHEDULABLE}: {attempt.summary(could)}"
        first = next(iter(attempt.failures), None)
        reason = f"{summary}; {first.queued.info.key}: {first.message}" if first is not None else summary
        refusal = attempt.refusal(reason)
        own = {failure.queued.info.uid: failure for failure in reversed(attempt.failures)}
        for queued in attempt.pods:
            failure = own.get(queued.info.uid)
            message = reason if failure is None else f"{failure.message} {summary}"
            self._unscheduled.give_back(queued, replace(refusal, message=message))
        attempt.conclude(GangOutcome.ERROR if refusal.reason == "SchedulerError" else GangOutcome.UNSCHEDULABLE, reason)

    def _turn_away(self, attempt: Attempt, status: Status) -> None:
        """Give all pods back because of what a plugin said of the gang as a whole."""
        is_error = status.code is Code.ERROR
        message = status.message if is_error else f"{UNSCHEDULABLE}: {status.message}"
        refusal = attempt.refusal(message)
        if is_error:
            refusal = replace(refusal, reason="SchedulerError", rejectors=frozenset())
        elif status.plugin:
            refusal = replace(refusal, rejectors=refusal.rejectors | {status.plugin})
        self._give_back(attempt.pods, refusal)
        attempt.conclude(GangOutcome.ERROR if is_error else GangOutcome.UNSCHEDULABLE, message)

    def _give_back(self, pods: Iterable[QueuedPod], why: Unscheduled) -> None:
        for queued in pods:
            self._unscheduled.give_back(queued, why)
