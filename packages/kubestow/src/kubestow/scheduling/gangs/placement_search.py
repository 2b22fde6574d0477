"""The placement search: a gang with a topology constraint gets the best of its placements (semantics 4.10).

The gang is tried in one placement after the other; each try is undone before the next begins, and other tasks run in
between. Where capacity can be counted, placements without enough of it are skipped, and those that take the most pods
with the least capacity to spare come first. No other pod is scheduled meanwhile, so with very many placements the
search ends once many have been tried and some of them fit.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.framework.gang import Placement, Proposal
from kubestow.framework.profile import Profile
from kubestow.scheduling.decision.scope import Scope
from kubestow.scheduling.gangs.attempt import GangAttempt, MemberFailure
from kubestow.scheduling.queued_pod import QueuedPod

#: After this many decisions about pods the search ends if any placement fits: a few seconds in a large cluster.
_MAX_DECISIONS = 5_000


@dataclass(frozen=True, slots=True)
class Assignments:
    """The outcome of trying a gang in one placement: the members with their nodes, and those without one."""

    nodes: Sequence[tuple[QueuedPod, str]]
    failures: Sequence[MemberFailure]


async def search_placements(
    attempt: GangAttempt,
    placements: Sequence[Placement],
    try_in: Callable[[Scope], Awaitable[Assignments]],
    *,
    cluster: Cluster,
    random: Random,
) -> Assignments:
    """The assignments in the best placement; if the gang fits in none, those in the first that was tried.

    ``try_in`` tries the gang in one placement and leaves no trace of it. Raises PluginError when the placements cannot
    be scored.
    """
    pods = [queued.info for queued in attempt.pods]
    needed = attempt.needed
    candidates = _by_capacity(placements, pods, cluster=cluster, profile=attempt.profile, needed=needed)
    named = [(placement.name, placement.nodes.names) for placement in candidates or placements[:1]]
    first: Assignments | None = None
    fitting: list[tuple[Assignments, Proposal]] = []
    for tried, (name, nodes) in enumerate(named):
        if fitting and tried * len(pods) >= _MAX_DECISIONS:
            break
        assignments = await try_in(Scope(nodes))
        await asyncio.sleep(0)
        first = first or assignments
        if len(assignments.nodes) >= needed:
            fitting.append((assignments, _proposal(assignments, name, nodes, cluster)))
    assert first is not None
    if not fitting:
        return first
    if len(fitting) == 1:
        return fitting[0][0]
    proposals = [proposal for _, proposal in fitting]
    return fitting[attempt.profile.gangs.choose_placement(attempt.gang, proposals, random)][0]


def _proposal(assignments: Assignments, name: str, nodes: Sequence[str], cluster: Cluster) -> Proposal:
    """A proposal for the PlacementScore plugins; nodes that were deleted while extenders were awaited are left out."""
    rows = [row for row in map(cluster.nodes.rows.get, nodes) if row is not None]
    placement = Placement(name, Nodes(cluster.nodes, np.array(rows, np.intp)))
    return Proposal(placement, [(queued.info, node_name) for queued, node_name in assignments.nodes])


def _by_capacity(
    placements: Sequence[Placement], pods: Sequence[PodInfo], *, cluster: Cluster, profile: Profile, needed: int
) -> Sequence[Placement]:
    """The placements with capacity for as many pods as needed, the likeliest first.

    All placements in their own order where capacity cannot be counted.
    """
    if len(placements) == 1 or any(cluster.nomination(pod.uid) for pod in pods):
        return placements  # a pod's nomination counts as used capacity for the other members
    capacity, spare = np.zeros(len(placements), np.int64), np.zeros(len(placements), np.int64)
    samples: dict[Shape, PodInfo] = {pod.shape: pod for pod in pods}
    for shape, count in Counter(pod.shape for pod in pods).items():
        counted = profile.evaluations.of(samples[shape]).capacity(samples[shape], count)
        if counted is None:
            return placements
        per_node = counted.on(cluster.all_nodes())
        sums = np.array([per_node[placement.nodes.row_numbers].sum() for placement in placements], np.int64)
        capacity += np.minimum(sums, count)
        spare += sums
    order = np.lexsort((spare, -capacity))
    return [placements[position] for position in order.tolist() if capacity[position] >= needed]
