"""A gang preempts: others are evicted for it if the whole gang fits then, and nobody for a part of it.

Either its pods preempt one after the other, each imagined in the room of those before, or the gang does as a whole
(:mod:`.group_preemption`), as the profile's plugin has it.
"""

from __future__ import annotations

from dataclasses import replace

from kubestow.cluster.cache import Cluster
from kubestow.errors import PluginError
from kubestow.framework.gang import GangOutcome
from kubestow.framework.status import Code, Status
from kubestow.scheduling.decision.scope import Scope
from kubestow.scheduling.failure_handler import UnscheduledPods
from kubestow.scheduling.gangs.attempt import Attempt, Steps
from kubestow.scheduling.gangs.group_preemption import Clearing, make_room_for_all
from kubestow.scheduling.gangs.trials import GangTrials
from kubestow.scheduling.preemption.evictions import Evictions

__all__ = ["GangPreemption"]

_NOT_FOR_PLACEMENTS = "workload aware preemption is not supported for pod groups with scheduling constraints"
_NOT_ENOUGH = "it would not fit even if all pods of lower priority were evicted"


class GangPreemption:
    """Makes room for gangs."""

    def __init__(
        self,
        cluster: Cluster,
        trials: GangTrials,
        *,
        unscheduled: UnscheduledPods,
        evictions: Evictions,
        steps: Steps,
    ) -> None:
        self._cluster, self._trials, self._steps = cluster, trials, steps
        self._unscheduled, self._evictions = unscheduled, evictions

    async def makes_room(self, attempt: Attempt) -> bool:
        """Evict others if the whole gang fits then; whether it does."""
        if attempt.placements is not None:  # it would be a preemption for each of them (semantics 9.1)
            attempt.why_no_room = _NOT_FOR_PLACEMENTS if attempt.preempts_as_one else ""
            attempt.keeps_promises = False
            return False
        try:
            if attempt.preempts_as_one:
                clearing = await self._cleared_for_all(attempt)
            else:
                clearing = await self._cleared_one_by_one(attempt)
        except PluginError as error:
            attempt.why_no_room = str(error)
            return False
        if clearing is not None:
            self._carry_out(attempt, clearing)
        return clearing is not None

    async def _cleared_one_by_one(self, attempt: Attempt) -> Clearing | None:
        """Let each pod preempt, the victims of those before it gone. Extenders are asked at the end: while they think,
        nobody may be imagined gone.
        """
        if not any(failure.has_room for failure in attempt.failures):
            return None
        scope = Scope(barred=attempt.vetoed, asks_extenders=False)
        trial = await self._trials.trial(attempt, attempt.pods, scope, evicting=True)
        fits = attempt.is_enough()
        trial.undo()
        if not fits or not trial.promised:
            return None
        for queued, room in trial.promised:
            if not await self._steps.agrees(queued.info, room):
                return None
        if not all(self._steps.is_wanted(queued.info) for queued in attempt.pods):
            return None  # extenders have taken their time; it is another gang by now
        promises = [(reserved.queued, reserved.node_name) for reserved in trial.placed]
        promises += [(queued, room.nominated_node_name or "") for queued, room in trial.promised]
        siblings = {queued.info.uid for queued, _ in promises}
        lower_priority_nominated = {
            pod.uid: pod
            for _, room in trial.promised
            for pod in room.lower_priority_nominated
            if pod.uid not in siblings
        }
        victims = [victim for _, room in trial.promised for victim in room.victims]
        return Clearing(promises, trial.failures, victims, list(lower_priority_nominated.values()))

    async def _cleared_for_all(self, attempt: Attempt) -> Clearing | None:
        """Let the gang preempt as a whole; if it cannot, the attempt knows why."""
        profile, infos = attempt.profile, [queued.info for queued in attempt.pods]
        scope = Scope(barred=attempt.vetoed, makes_room=False, asks_extenders=False)
        found = profile.runtime.evictable_units(attempt.gang, infos)
        if isinstance(found, Status):
            attempt.why_no_room, attempt.keeps_promises = found.message, found.code is Code.PENDING
            return None
        attempt.why_no_room, attempt.keeps_promises = _NOT_ENOUGH, False
        return await make_room_for_all(
            found,
            attempt.pods,
            cluster=self._cluster,
            profile=profile,
            needed=attempt.needed,
            within=scope.rows(self._cluster),
            run=lambda: self._trials.supposed(attempt, scope),
            is_wanted=self._steps.is_wanted,
        )

    def _carry_out(self, attempt: Attempt, clearing: Clearing) -> None:
        """Begin the evictions, so that pods that come back at once are gated, and promise every pod its node."""
        for pod in clearing.lower_priority_nominated:
            self._cluster.drop_nomination(pod.uid)
        preemptors = [queued.info for queued, _ in clearing.promises]
        if attempt.preempts_as_one:
            preemptors += [failure.queued.info for failure in clearing.failures]
        self._evictions.start_for_group(
            preemptors,
            attempt.gang.uid,
            victims=clearing.victims,
            lower_priority_nominated=clearing.lower_priority_nominated,
        )
        message = f"pod group is waiting for preemption to complete: {attempt.gang.name}"
        waiting = attempt.refusal(message)
        for queued, node_name in clearing.promises:
            self._unscheduled.give_back(queued, replace(waiting, nomination=node_name))
        for failure in clearing.failures:
            self._unscheduled.give_back(failure.queued, replace(waiting, message=f"{failure.message} {message}"))
        told = {queued for queued, _ in clearing.promises} | {failure.queued for failure in clearing.failures}
        for queued in attempt.pods:
            if queued not in told:  # it has gone meanwhile
                self._unscheduled.give_back(queued, waiting)
        attempt.conclude(GangOutcome.WAITING_ON_PREEMPTION, message)
