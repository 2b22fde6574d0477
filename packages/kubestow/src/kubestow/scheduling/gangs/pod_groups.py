"""The scheduling cycle of Kubernetes' pod groups since 1.37 (Behaviour.POD_GROUPS_ARE_UNITS, semantics 4.10).

A group is a unit: all its pods are decided about in one cycle, in a fixed order, and no longer than its minCount can be
reached. Pods beyond the minCount that find no node wait with reasons of their own. A group that does not fit runs
PodGroupPostFilter, which may preempt for all of it in one attempt (:func:`.preemption.plan_in_one_attempt`).

It follows the published sources of v1.37; it has not been compared with the binary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kubestow.api.reports import REASON_UNSCHEDULABLE
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import PluginError
from kubestow.framework.gang import Gang, GangOutcome, Placement
from kubestow.framework.profile import Profile
from kubestow.framework.status import Code, Status
from kubestow.scheduling.cycle.failure_handler import SchedulingFailure
from kubestow.scheduling.decision.node_selection import Scope
from kubestow.scheduling.decision.pipeline import run_synchronously
from kubestow.scheduling.decision.result import Decision
from kubestow.scheduling.gangs.attempt import UNSCHEDULABLE, GangAttempt, MemberFailure
from kubestow.scheduling.gangs.placer import Assignments, GangPlacer, MemberPlacement, search_placements
from kubestow.scheduling.gangs.preemption import GangPreemption, PreemptionPlan, plan_in_one_attempt
from kubestow.scheduling.gangs.scheduling_cycle import GangSchedulingCycle
from kubestow.scheduling.queued_pod import QueuedPod

_DIFFERENT = "all pods in a single pod group should have the same {}, {} and {}"
_PREEMPTS_BY_DEFAULT = "PreemptLowerPriority"


@dataclass
class PodGroupAttempt(GangAttempt):
    """One attempt to schedule a group."""

    #: How many pods had nodes when the attempt ended, and how many had not been tried; None before the first try.
    progress: tuple[int, int] | None = None

    @property
    def schedules_as_a_whole(self) -> bool:
        """Always: members are never scheduled by themselves."""
        return True

    def refusal(self, placeable: int) -> str:
        """What kube-scheduler says of the group: how far it came, and what PodGroupPostFilter added."""
        return ", ".join(filter(None, (UNSCHEDULABLE, self._reason(), self.preemption_message)))

    def _reason(self) -> str:
        gang = self.gang
        if self.placement_count is not None:
            of = f"0/{self.placement_count} placements are available"
            return f"{of}, reported placement status: {UNSCHEDULABLE}"
        scheduled, remaining = self.progress or (len(gang.members.placed), len(self.pods))
        if scheduled >= gang.min_count > 0:
            return ""  # enough pods have had nodes before, and no other one fits
        return f"minCount ({max(1, gang.min_count)}) cannot be satisfied: {scheduled} scheduled, {remaining} remaining"

    def refusals(self, placeable: int, message: str) -> Iterator[tuple[QueuedPod, str]]:
        """The pods that fit by themselves have the group's message, as have those that were not tried."""
        own = {failure.queued.info.uid: failure.message for failure in reversed(self.failures)}
        for queued in self.pods:
            yield queued, own.get(queued.info.uid, message)


class PodGroupPlacer(GangPlacer):
    """Places the pods of groups, in one round."""

    async def _search(self, attempt: GangAttempt, placements: Sequence[Placement]) -> Assignments:
        """The assignments in the placement with most of the pods' nominations if the group fits there, or the best."""
        nominated = self._nominated_placement(attempt, placements)
        if nominated is None:
            return await super()._search(attempt, placements)
        assignments = await self._try_within(attempt, Scope(nominated.nodes.names))
        others = [placement for placement in placements if placement is not nominated]
        if len(assignments.nodes) >= attempt.needed or not others:
            return assignments
        best = await super()._search(attempt, others)
        return best if len(best.nodes) >= attempt.needed else assignments

    def _nominated_placement(self, attempt: GangAttempt, placements: Sequence[Placement]) -> Placement | None:
        nominations = (self._cluster.nomination(queued.info.uid) for queued in attempt.pods)
        counts = Counter(name for name in nominations if name)
        by_count = [sum(counts[name] for name in placement.nodes.names) for placement in placements] if counts else []
        best = max(by_count, default=0)
        return placements[by_count.index(best)] if best else None

    async def _place_within(self, attempt: GangAttempt, scope: Scope) -> MemberPlacement:
        """Place the members in their order, no longer than enough of them can be placed."""
        scope = scope.without_post_filter()
        members = self._new_placement(attempt, self._cycle.decide)
        await members.place(attempt.pods, scope, needed=attempt.needed)
        if isinstance(attempt, PodGroupAttempt):
            remaining = len(attempt.pods) - len(members.placed) - len(members.failures) - len(members.withdrawn)
            attempt.progress = len(attempt.gang.members.placed), remaining
        return self._record(attempt, members)

    # -- in a simulated cluster ----------------------------------------------------------------------------------

    def assign(self, attempt: GangAttempt) -> Assignments | Status:
        """Nodes for the members in a simulated cluster: in the best placement, or anywhere. Raises PluginError."""
        pods = [queued.info for queued in attempt.pods]
        placements = attempt.profile.gangs.generate_placements(attempt.gang, pods, self._cluster.all_nodes())
        if isinstance(placements, Status):
            return placements
        if placements is None:
            return self._assign_within(attempt, None)

        async def try_in(scope: Scope) -> Assignments:
            return self._assign_within(attempt, scope)

        search = search_placements(
            attempt, placements, try_in, cluster=self._cluster, random=self._random, pause=_no_pause
        )
        return run_synchronously(search)

    def _assign_within(self, attempt: GangAttempt, scope: Scope | None) -> Assignments:
        names = None if scope is None else scope.names
        within = Scope(names, excluded=attempt.vetoed, preempts=False, calls_extenders=False)
        members = self._new_placement(attempt, self._simulated_decision)
        run_synchronously(members.place(attempt.pods, within, needed=attempt.needed))
        members.undo()
        return Assignments([(context.queued, context.node_name) for context in members.placed], members.failures)

    def place_on(self, attempt: GangAttempt, nodes: Sequence[tuple[QueuedPod, str]]) -> MemberPlacement:
        """Place members on their nodes in a simulated cluster, until one of them does not fit."""
        members = self._new_placement(attempt, self._simulated_decision)
        for queued, node_name in nodes:
            scope = Scope([node_name], preempts=False, calls_extenders=False)
            run_synchronously(members.place([queued], scope))
            if members.failures or members.withdrawn:
                break
        return members

    async def _simulated_decision(self, info: PodInfo, scope: Scope) -> Decision:
        return self._cycle.simulate(info, scope)


async def _no_pause() -> None:
    """Go on at once, as in a simulation, which cannot be suspended."""


class PodGroupPreemption(GangPreemption):
    """Runs PodGroupPostFilter: plans and starts preemption for a group in one attempt, also with placements."""

    _placer: PodGroupPlacer

    async def preempt(self, attempt: GangAttempt) -> bool:
        """Start a preemption with which the group fits; False if there is none, with the reason in the attempt."""
        if not attempt.preempts_as_a_whole:  # no plugin
            return False
        attempt.keeps_nominations = False
        infos = [queued.info for queued in attempt.pods]
        try:
            evictable = attempt.profile.gangs.evictable_units(attempt.gang, infos)
            if isinstance(evictable, Status):
                attempt.keeps_nominations = evictable.code is Code.PENDING
                plan: PreemptionPlan | Status = evictable
            else:
                plan = await plan_in_one_attempt(
                    evictable,
                    attempt,
                    cluster=self._cluster,
                    assign=lambda: self._placer.assign(attempt),
                    place_on=lambda nodes: self._placer.place_on(attempt, nodes),
                )
        except PluginError as error:
            plan = Status.error(str(error))
        if isinstance(plan, Status):
            attempt.preemption_message = f"pod group preemption: {plan.message}"
            return False
        found = f"found a placement for podgroup, preempting {len(plan.victims)} victims"
        attempt.preemption_message = f"pod group preemption: {found}"
        self._carry_out(attempt, plan)
        return True

    def _carry_out(self, attempt: GangAttempt, plan: PreemptionPlan) -> None:
        """Start the evictions first, so that pods requeued at once are gated; then nominate and requeue each pod."""
        self._evictions.start_for_group(
            [queued.info for queued in attempt.pods],
            attempt.gang.uid,
            victims=plan.victims,
            lower_priority_nominated=plan.lower_priority_nominated,
        )
        message = attempt.refusal(len(plan.nominations))
        waiting = attempt.failure(message)
        if not plan.victims:  # nothing happens that would requeue the pods, and with their nominations they may fit
            waiting = replace(waiting, rejectors=frozenset(), pending_plugins=frozenset())
        nodes = {queued.info.uid: node_name for queued, node_name in plan.nominations}
        for queued, text in attempt.refusals(len(plan.nominations), message):
            nomination = nodes.get(queued.info.uid, "")
            self._failure_handler.attempt_failed(queued, replace(waiting, message=text, nomination=nomination))
        attempt.end(GangOutcome.WAITING_ON_PREEMPTION, message)


class PodGroupSchedulingCycle(GangSchedulingCycle):
    """Schedules groups."""

    async def schedule(self, gang: Gang, first: QueuedPod, profile: Profile) -> None:
        """Schedule a group of which one pod has been popped, unless another pod of it is gated now."""
        if gang.members.gated:
            self._queue.return_unattempted(first)
        else:
            await super().schedule(gang, first, profile)

    def _new_attempt(self, gang: Gang, profile: Profile, pods: list[QueuedPod]) -> GangAttempt:
        return PodGroupAttempt(gang, profile, pods, profile.runtime.now())

    def _inconsistency(self, gang: Gang) -> str:
        """The first pod that does not have the scheduler, the priority or the preemption policy of the others."""
        assert gang.terms is not None
        first, *_ = pods = list(gang.members.pods.values())
        priority, policy = gang.terms.priority, gang.terms.preemption_policy
        of_group = " as the pod group's preemption policy"
        if policy is None:
            policy, of_group = _policy_of(first), ""
        for pod in pods:
            name, expected = pod.spec.scheduler_name, first.spec.scheduler_name
            if name != expected:
                return _DIFFERENT.format(".spec.schedulerName set", f'got: "{name}"', f'"{expected}"')
            if pod.priority != priority:
                return _DIFFERENT.format("priority as the pod group's priority", f"got {pod.priority}", priority)
            if (own := _policy_of(pod)) != policy:
                return _DIFFERENT.format(f"preemption policy{of_group}", f"got {own}", policy)
        return ""

    async def _preempt_for_remaining(self, attempt: GangAttempt, failures: list[MemberFailure]) -> None:
        """Requeue the pods beyond the minCount; a group that fits does not preempt for the rest of it."""
        for failure in failures:
            own = attempt.failure_of(failure)
            self._failure_handler.attempt_failed(failure.queued, replace(own, nomination=""))

    def _reject(self, attempt: GangAttempt, status: Status) -> None:
        """Requeue all pods because a plugin rejected the group, or failed."""
        if status.code is Code.ERROR:
            super()._reject(attempt, status)
            return
        message = f"{UNSCHEDULABLE}, {status.message}"
        rejectors = attempt.gang_plugins | ({status.plugin} if status.plugin else set())
        self._requeue(attempt.pods, SchedulingFailure(REASON_UNSCHEDULABLE, message, rejectors, nomination=""))
        attempt.end(GangOutcome.UNSCHEDULABLE, message)


def _policy_of(pod: PodInfo) -> str:
    return pod.spec.preemption_policy or _PREEMPTS_BY_DEFAULT
