"""Placing a gang: anywhere, in the best of its topology placements, or in a simulated cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from random import Random

from kubestow.cluster.pods.shapes import PodInfo
from kubestow.cluster.simulation import Simulation
from kubestow.errors import PluginError
from kubestow.framework.status import Status
from kubestow.scheduling.cycle.scheduling_cycle import SchedulingCycle
from kubestow.scheduling.decision.pipeline import run_synchronously
from kubestow.scheduling.decision.result import Decision
from kubestow.scheduling.decision.scope import WHOLE_CLUSTER, Scope
from kubestow.scheduling.extenders.stages import Extenders
from kubestow.scheduling.gangs.attempt import GangAttempt
from kubestow.scheduling.gangs.member_placement import MemberPlacement
from kubestow.scheduling.gangs.placement_search import Assignments, search_placements
from kubestow.scheduling.queue.scheduling_queue import SchedulerState


class GangPlacer:
    """Places the members of gangs. ``cycle`` decides about each of them."""

    def __init__(self, state: SchedulerState, cycle: SchedulingCycle, extenders: Extenders, random: Random) -> None:
        self._cluster, self._pods, self._queue = state.cluster, state.pods, state.queue
        self._cycle, self._extenders, self._random = cycle, extenders, random

    async def place(self, attempt: GangAttempt) -> MemberPlacement | Status:
        """Place the members: in the best topology placement of the gang, or anywhere. Raises PluginError."""
        pods = [queued.info for queued in attempt.pods]
        placements = attempt.profile.gangs.generate_placements(attempt.gang, pods, self._cluster.all_nodes())
        if placements is None:
            return await self._place_within(attempt, WHOLE_CLUSTER)
        if isinstance(placements, Status):
            return placements
        attempt.placement_count = len(placements)
        if len(placements) == 1:
            return await self._place_within(attempt, Scope(placements[0].nodes.names))
        best = await search_placements(
            attempt,
            placements,
            lambda scope: self._try_within(attempt, scope),
            cluster=self._cluster,
            random=self._random,
        )
        members = self._new_placement(attempt, self._cycle.decide)
        for queued, node_name in best.nodes:
            if queued in attempt.pods:  # it may have been deleted while extenders were awaited
                await members.place([queued], Scope([node_name]))
        members.failures += [failure for failure in best.failures if failure.queued in attempt.pods]
        return self._record(attempt, members)

    async def _try_within(self, attempt: GangAttempt, scope: Scope) -> Assignments:
        """Try the gang in one topology placement, and undo it: in a simulation unless extenders are awaited."""
        if any(self._extenders.take_part(queued.info) for queued in attempt.pods):
            members = await self._place_within(attempt, scope)
            members.undo()
        else:
            with self._cluster.simulate():
                members = run_synchronously(self._place_within(attempt, scope))
                members.undo()
        return Assignments([(context.queued, context.node_name) for context in members.placed], members.failures)

    async def _place_within(self, attempt: GangAttempt, scope: Scope) -> MemberPlacement:
        """Place as many members as possible. If they are too few, those that did not fit are tried again first."""
        members = self._new_placement(attempt, self._cycle.decide)
        await members.place(attempt.pods, scope)
        self._record(attempt, members)
        shapes = {queued.info.shape for queued in attempt.pods}
        if attempt.is_satisfied() or not members.placed or len(shapes) == 1:
            return members
        members.undo()
        failed = [failure.queued for failure in members.failures]
        reordered = [*failed, *(context.queued for context in members.placed)]
        members = self._new_placement(attempt, self._cycle.decide)
        await members.place(reordered, scope)
        return self._record(attempt, members)

    def simulate(
        self, attempt: GangAttempt, scope: Scope, *, preempting_in: Simulation | None = None
    ) -> MemberPlacement:
        """Place the members in a simulated cluster, without extenders and without reports to the observer.

        With the simulation given, members preempt.
        """

        async def decide(info: PodInfo, scope: Scope) -> Decision:
            return self._cycle.simulate(info, scope)

        members = self._new_placement(attempt, decide, simulation=preempting_in)
        run_synchronously(members.place(attempt.pods, scope))
        return members if preempting_in is None else self._record(attempt, members)

    def _new_placement(
        self,
        attempt: GangAttempt,
        decide: Callable[[PodInfo, Scope], Awaitable[Decision]],
        *,
        simulation: Simulation | None = None,
    ) -> MemberPlacement:
        def kind_of(info: PodInfo) -> Hashable:
            """The group of shapes; the whole shape for a pod of which extenders may read any label."""
            if self._extenders.take_part(info):
                return info.shape
            try:
                return attempt.profile.evaluations.group(info)
            except PluginError:  # the decision fails with it, too
                return info.shape

        return MemberPlacement(self._cluster, self._pods, attempt, decide, kind_of=kind_of, simulation=simulation)

    def _record(self, attempt: GangAttempt, members: MemberPlacement) -> MemberPlacement:
        """Record in the attempt what placing its members showed, whether or not that is undone."""
        for queued in members.withdrawn:
            attempt.pods.remove(queued)
            self._queue.in_flight.done(queued.info.uid)
        attempt.failures += members.failures
        attempt.decided = attempt.profile.runtime.now()
        return members
