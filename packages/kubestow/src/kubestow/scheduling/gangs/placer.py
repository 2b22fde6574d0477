"""Placing a gang: anywhere, in the best of its topology placements, or in a simulated cluster (semantics 4.10).

A gang with a topology constraint gets the best of its placements. It is tried in one placement after the other; each
try is undone before the next begins, and other tasks run in between. Where capacity can be counted, placements without
enough of it are skipped, and those that take the most pods with the least capacity to spare come first. No other pod is
scheduled meanwhile, so with very many placements the search ends once many have been tried and some of them fit. Where
the pods are copies of each other, and each changes the results of its own node only, nothing is tried: all of them are
assigned to the nodes of each placement at once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.cluster.pods.table import offsets_of
from kubestow.cluster.simulation import Simulation
from kubestow.errors import PluginError
from kubestow.framework.evaluation.evaluation import Evaluation
from kubestow.framework.gang import Placement, Proposal
from kubestow.framework.interface import PostFilterResult
from kubestow.framework.profile import Profile
from kubestow.framework.status import SUCCESS, Code, Status
from kubestow.scheduling.cycle.binding_context import BindingContext
from kubestow.scheduling.cycle.scheduling_cycle import SchedulingCycle
from kubestow.scheduling.decision.copies import Copies
from kubestow.scheduling.decision.node_selection import WHOLE_CLUSTER, Scope
from kubestow.scheduling.decision.pipeline import run_synchronously
from kubestow.scheduling.decision.result import Decision, Scheduled, Unschedulable
from kubestow.scheduling.events.pod_store import PodStore
from kubestow.scheduling.extenders.stages import Extenders
from kubestow.scheduling.gangs.attempt import GangAttempt, MemberFailure
from kubestow.scheduling.queued_pod import QueuedPod
from kubestow.scheduling.scheduler_state import SchedulerState


class MemberPlacement:
    """The placements of some members of a gang, which can be undone. ``decide`` finds the node of one pod.

    Members are placed one after the other, each decision seeing those before it, as in the scheduling cycle of a single
    pod: decide, assume, Reserve. In a dry run a member that fits only after preemption is placed as well, and its
    victims are removed for the members that follow, to find out whether the gang fits after all its preemptions.

    ``kind_of`` returns equal values for pods whose shapes lead to the same decision while the cluster does not change.
    With a ``simulation`` members preempt; all calls must then be within its block.
    """

    def __init__(
        self,
        cluster: Cluster,
        pods: PodStore,
        attempt: GangAttempt,
        decide: Callable[[PodInfo, Scope], Awaitable[Decision]],
        *,
        kind_of: Callable[[PodInfo], Hashable],
        simulation: Simulation | None = None,
    ) -> None:
        self._cluster, self._pods, self._simulation = cluster, pods, simulation
        self._decide, self._kind_of = decide, kind_of
        self._profile, self._members = attempt.profile, attempt.gang.members.pods
        post_filters = attempt.profile.runtime.plugins.post_filter
        self._post_filter_holds_for_copies = all(plugin.applies_to_identical_pods for plugin in post_filters)
        self._undo_steps: list[Callable[[], None]] = []
        #: The failures since the last placement, by the kind of the pod: others of the kind would fail alike.
        self._failed_kinds: dict[Hashable, MemberFailure] = {}
        self.placed: list[BindingContext] = []
        #: The nodes that the placed members were nominated to before, by uid; None for members without a nomination.
        self.former_nominations: dict[str, str | None] = {}
        #: Members that would preempt, with the results that say where and whom.
        self.preemptors: list[tuple[QueuedPod, PostFilterResult]] = []
        self.failures: list[MemberFailure] = []
        #: Members that were deleted or assigned before it was their turn.
        self.withdrawn: list[QueuedPod] = []

    async def place(self, members: Sequence[QueuedPod], scope: Scope = WHOLE_CLUSTER, *, needed: int = 0) -> None:
        """Place as many of the members as possible. Suspends only while extenders are awaited.

        With ``needed`` it stops at an error, and as soon as fewer of them can be placed.
        """
        self._failed_kinds.clear()
        placeable = len(members)
        for queued in members:
            placed = len(self.placed)
            await self._place(queued, scope)
            if len(self.placed) > placed:
                continue
            placeable -= 1
            if placeable < needed or (needed and self.has_error):
                break

    def undo(self) -> None:
        """Undo every placement, the last one first."""
        for step in reversed(self._undo_steps):
            step()
        self._undo_steps.clear()

    def mark(self) -> tuple[int, int, int]:
        """The state of now, for :meth:`undo_to`."""
        return len(self._undo_steps), len(self.placed), len(self.failures)

    def undo_to(self, mark: tuple[int, int, int], *, keeps_failures: bool = True) -> None:
        """Undo every placement since a mark, the last one first; the failures since then may be kept."""
        steps, placed, failures = mark
        for step in reversed(self._undo_steps[steps:]):
            step()
        del self._undo_steps[steps:], self.placed[placed:]
        if not keeps_failures:
            del self.failures[failures:]

    @property
    def has_error(self) -> bool:
        """Whether the decision about the last member that was not placed was an error."""
        return bool(self.failures) and self.failures[-1].status.code is Code.ERROR

    async def _place(self, queued: QueuedPod, scope: Scope) -> None:
        if self._withdraw_if_gone(queued):
            return
        kind = self._kind_of(queued.info)
        known = self._failed_kinds.get(kind)
        holds_for_copies = self._post_filter_holds_for_copies or not scope.preempts
        if known is not None and holds_for_copies and self._depends_on_shape_alone(queued.info):
            self.failures.append(replace(known, queued=queued))
            return
        decision = await self._decide(queued.info, scope)
        if self._withdraw_if_gone(queued):
            return
        if isinstance(decision, Scheduled):
            self._reserve(queued, decision)
            return
        if self._simulation is not None and isinstance(decision, Unschedulable):
            result = decision.post_filter.nominating_result
            if result is not None and self._preempt(queued, result, self._simulation):
                return
        is_nominated = self._cluster.nomination(queued.info.uid) is not None
        failure = MemberFailure.of_decision(queued, decision, is_nominated=is_nominated)
        self.failures.append(failure)
        if failure.status.code is not Code.ERROR:
            self._failed_kinds[kind] = failure

    def _withdraw_if_gone(self, queued: QueuedPod) -> bool:
        """Leave out a member that was deleted or assigned meanwhile; whether it is one."""
        if self._pods.wants_node(queued.info.uid):
            return False
        self.withdrawn.append(queued)
        return True

    def _depends_on_shape_alone(self, info: PodInfo) -> bool:
        """Whether an identical pod gets the same decision: claims and nominations are a pod's own."""
        return not (info.shape.spec.volumes or info.spec.resource_claims or self._cluster.nomination(info.uid))

    def _reserve(self, queued: QueuedPod, decision: Scheduled) -> None:
        info, state, node_name = queued.info, decision.state, decision.node_name
        runtime = self._profile.binding.for_attempt(info)
        self._assume(info, node_name)
        self._undo_steps.append(lambda: runtime.run_unreserve_plugins(state, info, node_name))
        status = runtime.run_reserve_plugins(state, info, node_name)
        if not status.ok:
            for _ in range(2):
                self._undo_steps.pop()()
            self.failures.append(MemberFailure.of_status(queued, status))
            return
        self.placed.append(BindingContext(queued, info, node_name, state, runtime))
        self._failed_kinds.clear()

    def _preempt(self, queued: QueuedPod, result: PostFilterResult, simulation: Simulation) -> bool:
        """Simulate a preemption; False without one, or if it evicts members of the gang itself."""
        if not result.status.ok or not result.nominated_node_name:
            return False
        if any(victim.uid in self._members for victim in result.victims):
            return False
        for victim in result.victims:
            simulation.remove_pod(victim.uid)
        self._assume(queued.info, result.nominated_node_name)
        self.preemptors.append((queued, result))
        self._failed_kinds.clear()
        return True

    def _assume(self, info: PodInfo, node_name: str) -> None:
        nomination = self.former_nominations[info.uid] = self._cluster.nomination(info.uid)
        self._cluster.assume(info, node_name)
        self._undo_steps.append(lambda: self._forget(info, nomination))

    def _forget(self, info: PodInfo, nomination: str | None) -> None:
        self._cluster.forget(info.uid)
        if nomination is not None and self._pods.wants_node(info.uid):
            self._cluster.nominate(info, nomination)


#: After this many decisions about one pod after the other the search ends if any placement fits: a few seconds in a
#: large cluster.
_MAX_DECISIONS = 5_000
#: After this many decisions that are made at once other tasks run: a few hundredths of a second.
_DECISIONS_BETWEEN_PAUSES = 5_000


@dataclass(frozen=True, slots=True)
class Assignments:
    """The outcome of trying a gang in one placement: the members with their nodes, and those without one."""

    nodes: Sequence[tuple[QueuedPod, str]]
    failures: Sequence[MemberFailure]


class CandidatePlacements:
    """The placements to try, whose nodes are kept by name while other tasks run and rows of the node table move.

    They are to be kept before the first await after the placements were generated.
    """

    def __init__(self, placements: Sequence[Placement], cluster: Cluster) -> None:
        self._placements, self._cluster = placements, cluster
        self._structure = cluster.nodes.structure
        self._names: list[list[str]] = []

    def __len__(self) -> int:
        return len(self._placements)

    def keep(self) -> None:
        """Keep the names of the nodes; to be called before other tasks run."""
        if not self._names:
            self._names = [placement.nodes.names for placement in self._placements]

    def at(self, number: int) -> Placement:
        """A placement with the nodes of it that exist now."""
        placement, table = self._placements[number], self._cluster.nodes
        if table.structure == self._structure:
            return placement
        rows = [row for row in map(table.rows.get, self._names[number]) if row is not None]
        return Placement(placement.name, Nodes(table, np.array(rows, np.intp)))

    def proposal(self, number: int, nodes: Iterable[tuple[QueuedPod, str]]) -> Proposal:
        """Pods on nodes of a placement, for the PlacementScore plugins."""
        return Proposal(self.at(number), [(queued.info, node_name) for queued, node_name in nodes])


async def search_placements(
    attempt: GangAttempt,
    placements: Sequence[Placement],
    try_in: Callable[[Scope], Awaitable[Assignments]],
    *,
    at_once: MembersAtOnce,
    cluster: Cluster,
    random: Random,
    pause: Callable[[], Awaitable[None]] = lambda: asyncio.sleep(0),
) -> Assignments:
    """The assignments in the best placement; if the gang fits in none, those in the first that was tried.

    ``try_in`` tries the gang in one placement and leaves no trace of it, where the members cannot be assigned
    ``at_once``; ``pause`` is awaited after each such try, and after many assignments. Raises PluginError when the
    placements cannot be scored.
    """
    count, needed = len(attempt.pods), attempt.needed
    pods = [queued.info for queued in attempt.pods]
    found = _by_capacity(placements, pods, attempt.profile, needed=needed, cluster=cluster, copies=at_once.copies)
    candidates = CandidatePlacements(found or placements[:1], cluster)
    first: Assignments | None = None
    fitting: list[tuple[int, Assignments]] = []
    decisions = since_pause = 0
    for number in range(len(candidates)):
        if fitting and decisions >= _MAX_DECISIONS:
            break
        placement = candidates.at(number)
        assignments = at_once.assign(placement.nodes)
        since_pause += count
        if assignments is None:
            candidates.keep()
            assignments = await try_in(Scope(placement.nodes.names))
            decisions += count
            since_pause = _DECISIONS_BETWEEN_PAUSES
        if since_pause >= _DECISIONS_BETWEEN_PAUSES:
            candidates.keep()
            await pause()
            at_once.check()
            since_pause = 0
        first = first or assignments
        if len(assignments.nodes) >= needed:
            fitting.append((number, assignments))
    assert first is not None
    if not fitting:
        return first
    if len(fitting) == 1:
        return fitting[0][1]
    proposals = [candidates.proposal(number, assignments.nodes) for number, assignments in fitting]
    return fitting[attempt.profile.gangs.choose_placement(attempt.gang, proposals, random)][1]


def _by_capacity(
    placements: Sequence[Placement],
    pods: Sequence[PodInfo],
    profile: Profile,
    *,
    needed: int,
    cluster: Cluster,
    copies: Copies,
) -> Sequence[Placement]:
    """The placements with capacity for as many pods as needed, the likeliest first.

    All placements in their own order where capacity cannot be counted. ``copies`` are the same pods.
    """
    if len(placements) == 1 or any(cluster.nomination(pod.uid) for pod in pods):
        return placements  # a pod's nomination counts as used capacity for the other members
    capacity, spare = np.zeros(len(placements), np.int64), np.zeros(len(placements), np.int64)
    rows = [placement.nodes.row_numbers for placement in placements]
    all_rows, starts = np.concatenate(rows), offsets_of(np.fromiter(map(len, rows), np.intp, len(rows)))[:-1]
    samples: dict[Shape, PodInfo] = {pod.shape: pod for pod in pods}
    #: By evaluation, which pods share that no plugin can tell apart, and the number of pods.
    known: dict[tuple[Evaluation, int], NDArray[np.int64] | None] = {}
    for shape, count in Counter(pod.shape for pod in pods).items():
        evaluation = profile.evaluations.of(samples[shape])
        if (evaluation, count) not in known:
            per_node = copies.capacity() if len(samples) == 1 else None
            if per_node is None and (counted := evaluation.capacity(samples[shape], count)) is not None:
                per_node = counted.on(cluster.all_nodes())
            known[evaluation, count] = per_node
        per_node = known[evaluation, count]
        if per_node is None:
            return placements
        sums = np.add.reduceat(per_node[all_rows], starts)
        capacity += np.minimum(sums, count)
        spare += sums
    order = np.lexsort((spare, -capacity))
    return [placements[position] for position in order.tolist() if capacity[position] >= needed]


class MembersAtOnce:
    """The members of a gang, all to be assigned at once to nodes of one placement or another."""

    def __init__(self, attempt: GangAttempt, pods: PodStore, copies: Copies) -> None:
        self._attempt, self._pods, self.copies = attempt, pods, copies
        self._members = [(queued, queued.info) for queued in attempt.pods]
        self._are_all_placeable = False
        self.check()

    def check(self) -> None:
        """Find out whether they are still the members to place, and enough for the gang, after other tasks have run."""
        are_same = len(self._attempt.pods) == len(self._members) and all(
            queued.info is info and self._pods.wants_node(info.uid) for queued, info in self._members
        )
        uids = frozenset(info.uid for _, info in self._members)
        self._are_all_placeable = are_same and self._attempt.gang.is_satisfied(uids)

    def assign(self, nodes: Nodes) -> Assignments | None:
        """The assignments to some nodes that placing the members there would lead to; None if that has to be tried."""
        if not self._are_all_placeable:
            return None
        names = self.copies.nodes_among(nodes)
        if names is None:
            return None
        return Assignments([(queued, name) for (queued, _), name in zip(self._members, names, strict=True)], ())


class GangPlacer:
    """Places the members of gangs. ``cycle`` decides about each of them."""

    def __init__(self, state: SchedulerState, cycle: SchedulingCycle, extenders: Extenders, random: Random) -> None:
        self._cluster, self._pods, self._queue = state.cluster, state.pods, state.queue
        self._cycle, self._extenders, self._random = cycle, extenders, random

    async def place(self, attempt: GangAttempt) -> MemberPlacement | Status:
        """Place the members: in the best topology placement of the gang, or anywhere. Raises PluginError."""
        pods = [queued.info for queued in attempt.pods]
        placements = attempt.profile.gangs.generate_placements(attempt.gang, pods, self._cluster)
        if placements is None:
            return await self._place_within(attempt, WHOLE_CLUSTER)
        if isinstance(placements, Status):
            return placements
        attempt.placement_count = len(placements)
        if len(placements) == 1:
            return await self._place_within(attempt, Scope(placements[0].nodes.names))
        best = await self._search(attempt, placements)
        members = self._new_placement(attempt, self._cycle.decide)
        for queued, node_name in best.nodes:
            if queued in attempt.pods:  # it may have been deleted while extenders were awaited
                await members.place([queued], Scope([node_name]))
        members.failures += [failure for failure in best.failures if failure.queued in attempt.pods]
        return self._record(attempt, members)

    async def _search(self, attempt: GangAttempt, placements: Sequence[Placement]) -> Assignments:
        """The assignments in the best of several placements."""
        return await search_placements(
            attempt,
            placements,
            lambda scope: self._try_within(attempt, scope),
            at_once=self._at_once(attempt),
            cluster=self._cluster,
            random=self._random,
        )

    def _at_once(self, attempt: GangAttempt) -> MembersAtOnce:
        return MembersAtOnce(attempt, self._pods, self._cycle.copies([queued.info for queued in attempt.pods]))

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

    async def place_as_found(self, attempt: GangAttempt) -> MemberPlacement | Status:
        """Place the members where a plugin finds nodes for them; its answer if it finds none. Raises PluginError."""
        gangs = attempt.profile.gangs
        if any(failure.status.code is Code.ERROR for failure in attempt.failures):
            return SUCCESS
        for _ in range(2):
            waiting = {queued.info.uid: queued for queued in attempt.pods}
            found = gangs.place_gang(attempt.gang, [queued.info for queued in waiting.values()])
            if isinstance(found, Status):
                return found
            nodes = {pod.uid: node_name for pod, node_name in found if pod.uid in waiting}
            members = self._new_placement(attempt, self._cycle.decide)
            if gangs.respects_terms(attempt.gang, nodes, self._cluster):
                for uid, node_name in nodes.items():
                    await members.place([waiting[uid]], Scope([node_name], preempts=False))
                    if members.failures:
                        break
            if not members.failures and members.placed and attempt.gang.is_satisfied():
                return self._with_failures_of_others(attempt, members)
            members.undo()
            self._drop_withdrawn(attempt, members)
        return Status.unschedulable("the placements that were found do not fit any more")

    def _with_failures_of_others(self, attempt: GangAttempt, members: MemberPlacement) -> MemberPlacement:
        """The placement of enough members, with the reasons why the others had no node before it was found."""
        self._drop_withdrawn(attempt, members)
        before = {failure.queued.info.uid: failure for failure in reversed(attempt.failures)}
        placed = {context.info.uid for context in members.placed}
        text = "no node is left for it in the placement that was found for its pod group"
        for queued in attempt.pods:
            uid = queued.info.uid
            if uid not in placed:
                refused = MemberFailure(queued, Status.unschedulable(text), text, attempt.gang_plugins)
                members.failures.append(before.get(uid, refused))
        attempt.failures = list(members.failures)
        if attempt.gang.children:  # all that are placed are bound together
            attempt.gang = replace(attempt.gang, min_count=len(attempt.gang.members.placed))
        return members

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
        self._drop_withdrawn(attempt, members)
        attempt.failures += members.failures
        attempt.decided = attempt.profile.runtime.now()
        return members

    def _drop_withdrawn(self, attempt: GangAttempt, members: MemberPlacement) -> None:
        """Leave the members out that were deleted or assigned before it was their turn."""
        for queued in members.withdrawn:
            attempt.pods.remove(queued)
            self._queue.in_flight.done(queued.info.uid)
