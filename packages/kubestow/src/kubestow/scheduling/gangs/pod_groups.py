"""The scheduling cycle of Kubernetes' pod groups since 1.37 (Behaviour.POD_GROUPS_ARE_UNITS, semantics 4.10).

A group is a unit: all its pods are decided about in one cycle, in a fixed order, and no longer than its minCount can be
reached. Pods beyond the minCount that find no node wait with reasons of their own. A group that does not fit runs
PodGroupPostFilter, which may preempt for all of it in one attempt (:func:`.preemption.plan_in_one_attempt`).

It follows the published sources of v1.37; it has not been compared with the binary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np

from kubestow.api.reports import REASON_UNSCHEDULABLE
from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.views import Nodes
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
from kubestow.scheduling.gangs.placer import (
    Assignments,
    CandidatePlacements,
    GangPlacer,
    MemberPlacement,
    search_placements,
)
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
    #: Why each group of a tree did not fit, by its name.
    reasons: dict[Hashable, str] = field(default_factory=dict)
    #: The groups of a tree from the top to that of each pod, by uid; None until they are asked for.
    _paths: dict[str, tuple[Gang, ...]] | None = None

    @property
    def schedules_as_a_whole(self) -> bool:
        """Always: members are never scheduled by themselves."""
        return True

    def refusal(self, placeable: int) -> str:
        """What kube-scheduler says of the group: how far it came, and what PodGroupPostFilter added."""
        reasons = UNSCHEDULABLE, self._reason(), self.search.message, self.preemption_message
        return ", ".join(filter(None, reasons))

    def _reason(self) -> str:
        gang = self.gang
        if gang.children:
            return self.reasons.get(gang.name, "")
        if self.placement_count is not None:
            of = f"0/{self.placement_count} placements are available"
            return f"{of}, reported placement status: {UNSCHEDULABLE}"
        scheduled, remaining = self.progress or (len(gang.members.placed), len(self.pods))
        if scheduled >= gang.min_count > 0:
            return ""  # enough pods have had nodes before, and no other one fits
        return _too_few(max(1, gang.min_count), scheduled, remaining)

    def reason_of(self, uid: str) -> str:
        """The message of a pod of a tree that fits by itself: that of the lowest group above it that did not fit."""
        if self._paths is None:
            self._paths = {uid: path for path in _paths_below((self.gang,)) for uid in path[-1].members.pods}
        path = self._paths.get(uid, (self.gang,))  # a pod that was deleted meanwhile is in no group
        reason = next((self.reasons[each.name] for each in reversed(path) if each.name in self.reasons), "")
        return ", ".join(filter(None, (UNSCHEDULABLE, reason, self.preemption_message)))

    def refusals(self, placeable: int, message: str) -> Iterator[tuple[QueuedPod, str]]:
        """The pods that fit by themselves have the group's message, as have those that were not tried."""
        own = {failure.queued.info.uid: failure.message for failure in reversed(self.failures)}
        for queued in self.pods:
            uid = queued.info.uid
            text = own.get(uid) or (self.reason_of(uid) if self.gang.children else message)
            yield queued, text if self.search.message in text else f"{text} {UNSCHEDULABLE}, {self.search.message}"


def _paths_below(path: tuple[Gang, ...]) -> Iterator[tuple[Gang, ...]]:
    """The paths of a tree that continue one from its top, each to a group without children."""
    if not path[-1].children:
        yield path
    for child in path[-1].children:
        yield from _paths_below((*path, child))


class PodGroupPlacer(GangPlacer):
    """Places the pods of groups, in one round."""

    async def _search(self, attempt: GangAttempt, placements: Sequence[Placement]) -> Assignments:
        """The assignments in the placement with most of the pods' nominations if the group fits there, or the best."""
        nominated = self._nominated_placement(attempt, placements)
        if nominated is None:
            return await super()._search(attempt, placements)
        candidates = CandidatePlacements(placements, self._cluster)
        candidates.keep()
        assignments = await self._try_within(attempt, Scope(candidates.at(nominated).nodes.names))
        others = [candidates.at(number) for number in range(len(candidates)) if number != nominated]
        others = [placement for placement in others if len(placement.nodes)]
        if len(assignments.nodes) >= attempt.needed or not others or not attempt.pods:
            return assignments
        best = await super()._search(attempt, others)
        return best if len(best.nodes) >= attempt.needed else assignments

    def _nominated_placement(self, attempt: GangAttempt, placements: Sequence[Placement]) -> int | None:
        """The number of the placement with most of the pods' nominations; None without any."""
        nominations = (self._cluster.nomination(queued.info.uid) for queued in attempt.pods)
        counts = Counter(name for name in nominations if name)
        by_count = [sum(counts[name] for name in placement.nodes.names) for placement in placements] if counts else []
        best = max(by_count, default=0)
        return by_count.index(best) if best else None

    async def _place_within(self, attempt: GangAttempt, scope: Scope) -> MemberPlacement:
        """Place the members in their order, no longer than enough of them can be placed."""
        scope = scope.without_post_filter()
        members = self._new_placement(attempt, self._cycle.decide)
        await members.place(attempt.pods, scope, needed=attempt.needed)
        if isinstance(attempt, PodGroupAttempt):
            remaining = len(attempt.pods) - len(members.placed) - len(members.failures) - len(members.withdrawn)
            attempt.progress = len(attempt.gang.members.placed), remaining
        return self._record(attempt, members)

    # -- trees of groups -----------------------------------------------------------------------------------------

    async def place(self, attempt: GangAttempt) -> MemberPlacement | Status:
        """Place the members of a group, or of a tree of groups. Raises PluginError."""
        if not attempt.gang.children or not isinstance(attempt, PodGroupAttempt):
            return await super().place(attempt)
        attempt.placement_count = 0  # the events of the generator of placements may help, too
        members = self._new_placement(attempt, self._cycle.decide)
        tree = _TreePlacer(attempt, members, self._cluster, self._random, attempt.reasons)
        if await tree.place(attempt.gang, None):
            missing = {queued.info.uid for queued in attempt.pods}
            missing -= {context.info.uid for context in members.placed} | {q.info.uid for q in members.withdrawn}
            missing -= {failure.queued.info.uid for failure in members.failures}
            for queued in attempt.pods:
                if queued.info.uid in missing:  # of a group that did not fit
                    text = attempt.reason_of(queued.info.uid)
                    refused = Status.unschedulable(text)
                    members.failures.append(MemberFailure(queued, refused, text, attempt.gang_plugins))
            # All that are placed are bound together.
            attempt.gang = replace(attempt.gang, min_count=len(attempt.gang.members.placed))
        return self._record(attempt, members)

    # -- in a simulated cluster ----------------------------------------------------------------------------------

    def assign(self, attempt: GangAttempt) -> Assignments | Status:
        """Nodes for the members in a simulated cluster: in the best placement, or anywhere. Raises PluginError."""
        if attempt.gang.children:
            members = self._new_placement(attempt, self._simulated_decision)
            tree = _TreePlacer(attempt, members, self._cluster, self._random, {}, is_simulated=True)
            run_synchronously(tree.place(attempt.gang, None))
            members.undo()
            return Assignments([(each.queued, each.node_name) for each in members.placed], members.failures)
        pods = [queued.info for queued in attempt.pods]
        placements = attempt.profile.gangs.generate_placements(attempt.gang, pods, self._cluster)
        if isinstance(placements, Status):
            return placements
        if placements is None:
            return self._assign_within(attempt, None)

        async def try_in(scope: Scope) -> Assignments:
            return self._assign_within(attempt, scope)

        search = search_placements(
            attempt,
            placements,
            try_in,
            at_once=self._at_once(attempt),
            cluster=self._cluster,
            random=self._random,
            pause=_no_pause,
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


class _TreePlacer:
    """Places a tree of groups: child after child, each with what it needs of its own children or pods.

    ``reasons`` gets why each group does not fit.
    """

    def __init__(
        self,
        attempt: GangAttempt,
        members: MemberPlacement,
        cluster: Cluster,
        random: Random,
        reasons: dict[Hashable, str],
        *,
        is_simulated: bool = False,
    ) -> None:
        self._attempt, self._members, self._cluster, self._random = attempt, members, cluster, random
        self._reasons, self._is_simulated = reasons, is_simulated
        #: The pods of the attempt by uid, with their positions in it.
        self._pods = {queued.info.uid: (position, queued) for position, queued in enumerate(attempt.pods)}

    async def place(self, gang: Gang, names: frozenset[str] | None) -> bool:
        """Place a group on some nodes (None: all), in its best placement; if it does not fit, nothing is placed."""
        self._reasons.pop(gang.name, None)
        gangs, pods = self._attempt.profile.gangs, [queued.info for queued in self._pods_of(gang)]
        placements = gangs.generate_placements(gang, pods, self._cluster, self._nodes(names))
        if placements is None:
            return await self._place_within(gang, names)
        if isinstance(placements, Status):
            self._reasons[gang.name] = placements.message
            return False
        candidates = CandidatePlacements(placements, self._cluster)
        candidates.keep()
        fitting: list[tuple[int, list[tuple[QueuedPod, str]]]] = []
        for number in range(len(candidates)):
            mark = self._members.mark()
            if await self._place_within(gang, frozenset(candidates.at(number).nodes.names)):
                fitting.append((number, [(each.queued, each.node_name) for each in self._members.placed[mark[1] :]]))
            if self._members.has_error:
                return False
            self._members.undo_to(mark, keeps_failures=number == 0)
        if not fitting:
            of = f"0/{len(placements)} placements are available"
            self._reasons[gang.name] = f"{of}, reported placement status: {UNSCHEDULABLE}"
            return False
        best = 0
        if len(fitting) > 1:
            proposals = [candidates.proposal(*each) for each in fitting]
            best = gangs.choose_placement(gang, proposals, self._random)
        mark, nodes = self._members.mark(), fitting[best][1]
        for queued, node_name in nodes:
            await self._members.place([queued], self._scope(frozenset([node_name])))
        if len(self._members.placed) == mark[1] + len(nodes):
            return True
        self._reasons[gang.name] = "the placement that was found does not fit any more"  # extenders were awaited
        self._members.undo_to(mark)
        return False

    async def _place_within(self, gang: Gang, names: frozenset[str] | None) -> bool:
        """Place a group on some nodes; undone if it does not fit."""
        mark = self._members.mark()
        if gang.children or gang.min_groups:
            needed, done, remaining = gang.min_groups, 0, len(gang.children)
            for child in gang.children:
                if done + remaining < needed or self._members.has_error:
                    break
                remaining -= 1
                done += await self.place(child, names)
        else:
            pods, before = self._pods_of(gang), len(gang.members.placed)
            needed = max(1, gang.min_count)
            tried = len(self._members.failures) + len(self._members.placed)
            await self._members.place(pods, self._scope(names), needed=max(1, needed - before))
            done = len(gang.members.placed)
            remaining = len(pods) - (len(self._members.failures) + len(self._members.placed) - tried)
        if done >= needed and not self._members.has_error:
            self._reasons.pop(gang.name, None)
            return True
        self._reasons[gang.name] = _too_few(needed, done, remaining)
        self._members.undo_to(mark)
        return False

    def _pods_of(self, gang: Gang) -> list[QueuedPod]:
        pods = sorted(self._pods[uid] for uid in gang.members.pods if uid in self._pods)
        return [queued for _, queued in pods]

    def _nodes(self, names: frozenset[str] | None) -> Nodes:
        if names is None:
            return self._cluster.all_nodes()
        rows = sorted(row for row in map(self._cluster.nodes.rows.get, names) if row is not None)
        return Nodes(self._cluster.nodes, np.array(rows, np.intp))

    def _scope(self, names: frozenset[str] | None) -> Scope:
        excluded = self._attempt.vetoed if self._is_simulated else ()
        return Scope(names, excluded=excluded, preempts=False, calls_extenders=not self._is_simulated)


def _too_few(needed: int, scheduled: int, remaining: int) -> str:
    return f"minCount ({needed}) cannot be satisfied: {scheduled} scheduled, {remaining} remaining"


async def _no_pause() -> None:
    """Go on at once, as in a simulation, which cannot be suspended."""


class PodGroupPreemption(GangPreemption):
    """Runs PodGroupPostFilter: plans and starts preemption for a group in one attempt, also with placements."""

    _placer: PodGroupPlacer

    async def preempt(self, attempt: GangAttempt) -> bool:
        """Start a preemption with which the group fits; False if there is none, with the reason in the attempt."""
        has_error = any(failure.status.code is Code.ERROR for failure in attempt.failures)
        if has_error or not attempt.preempts_as_a_whole:  # or there is no plugin
            return False
        attempt.keeps_nominations = False
        infos = [queued.info for queued in attempt.pods]
        runtime, began = attempt.profile.runtime, None
        try:
            evictable = attempt.profile.gangs.evictable_units(attempt.gang, infos)
            if isinstance(evictable, Status):
                attempt.keeps_nominations = evictable.code is Code.PENDING
                plan: PreemptionPlan | Status = evictable
            else:
                began = runtime.now()
                plan = await plan_in_one_attempt(
                    evictable,
                    attempt,
                    cluster=self._cluster,
                    assign=lambda: self._placer.assign(attempt),
                    place_on=lambda nodes: self._placer.place_on(attempt, nodes),
                )
        except PluginError as error:
            plan = Status.error(str(error))
        evaluating = None if began is None else runtime.now() - began
        code = plan.code if isinstance(plan, Status) else Code.SUCCESS
        attempt.profile.gangs.gang_preemption_ended(code, evaluating=evaluating)
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
            violations=plan.violations,
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

    async def schedule(self, gang: Gang, first: QueuedPod, profile: Profile) -> GangOutcome | None:
        """Schedule a group of which one pod has been popped, unless another pod of it is gated now."""
        if not gang.members.gated:
            return await super().schedule(gang, first, profile)
        self._queue.return_unattempted(first)
        return None

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
        # An error ends the round, although the group fits: what was not tried is tried again.
        for queued in attempt.pods:
            if queued.info.uid in self._queue.in_flight and not self._cluster.is_assumed(queued.info.uid):
                self._queue.return_unattempted(queued)

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
