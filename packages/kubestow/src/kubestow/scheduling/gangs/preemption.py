"""Preemption for a gang: pods are evicted if the whole gang fits then, and none for only a part of it.

Either the members preempt one after the other, each in the cluster as the previous preemptions would leave it, or
victims are found for the gang as a whole (:mod:`.victim_search`), as the profile's plugin decides.
"""

from __future__ import annotations

from dataclasses import replace

from kubestow.errors import PluginError
from kubestow.framework.gang import GangOutcome
from kubestow.framework.interface import Victims
from kubestow.framework.status import Code, Status
from kubestow.scheduling.cycle.failure_handler import FailureHandler
from kubestow.scheduling.decision.scope import Scope
from kubestow.scheduling.extenders.stages import Extenders
from kubestow.scheduling.gangs.attempt import GangAttempt
from kubestow.scheduling.gangs.placer import GangPlacer
from kubestow.scheduling.gangs.victim_search import PreemptionPlan, plan_for_gang
from kubestow.scheduling.preemption.evictions import Evictions
from kubestow.scheduling.queue.scheduling_queue import SchedulerState

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
        return PreemptionPlan(nominations, members.failures, evicted, list(displaced.values()))

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
        )
        message = f"pod group is waiting for preemption to complete: {attempt.gang.name}"
        waiting = attempt.failure(message)
        for queued, node_name in plan.nominations:
            self._failure_handler.handle(queued, replace(waiting, nomination=node_name))
        for failure in plan.failures:
            self._failure_handler.handle(failure.queued, replace(waiting, message=f"{failure.message} {message}"))
        handled = {queued for queued, _ in plan.nominations} | {failure.queued for failure in plan.failures}
        for queued in attempt.pods:
            if queued not in handled:  # it was deleted or assigned meanwhile
                self._failure_handler.handle(queued, waiting)
        attempt.end(GangOutcome.WAITING_ON_PREEMPTION, message)
