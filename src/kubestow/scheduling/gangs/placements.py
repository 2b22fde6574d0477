"""The placement of a gang: it is tried in each part of the cluster that would do, and gets the best (semantics 4.10).

A trial in one placement is taken back before the next begins, and others get their turn in between. Where room is a
matter of counting, parts without enough of it are passed over, and those are tried first that take the most pods and
have the least to spare. No other pod is scheduled meanwhile, so with very many parts the search ends when a good many
have been tried and some of them fit. What is returned is no trial but its outcome, who goes where; it is for the caller
to do it again.
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
from kubestow.framework.gang import Gang
from kubestow.framework.placement import Placement, Proposal
from kubestow.framework.pod_capacity import PodCapacity
from kubestow.framework.profile import Profile
from kubestow.scheduling.decision.scope import Scope
from kubestow.scheduling.gangs.trial import Failure, Trial
from kubestow.scheduling.queue.queued_pod import QueuedPod

__all__ = ["Choice", "choose"]

#: So many decisions about pods are enough, if any placement fits: some seconds' worth in a large cluster.
_ENOUGH = 5_000


@dataclass(frozen=True, slots=True)
class Choice:
    """What came of the trials: who goes where in the best placement, and who found no node there.

    Where the gang fits nowhere, it is what came of the first trial.
    """

    assignments: Sequence[tuple[QueuedPod, str]]
    failures: Sequence[Failure]


async def choose(
    placements: Sequence[Placement],
    run: Callable[[Scope], Awaitable[Trial]],
    *,
    cluster: Cluster,
    profile: Profile,
    gang: Gang,
    pods: Sequence[QueuedPod],
    needed: int,
    random: Random,
) -> Choice:
    """Try the ``pods`` in each placement; enough for the gang are as many as ``needed``. ``run`` makes one trial.

    Raises PluginError when the placements cannot be compared.
    """
    infos = [queued.info for queued in pods]
    plausible = _plausible(placements, infos, cluster=cluster, profile=profile, needed=needed)
    named = [(placed_pod.name, placed_pod.nodes.names) for placed_pod in plausible or placements[:1]]
    first: Choice | None = None
    fitting: list[tuple[Choice, Proposal]] = []
    for tried, (name, nodes) in enumerate(named):
        if fitting and tried * len(pods) >= _ENOUGH:
            break
        trial = await run(Scope(nodes))
        choice = Choice([(r.queued, r.node_name) for r in trial.placed], trial.failures)
        trial.undo()
        await asyncio.sleep(0)
        first = first or choice
        if len(choice.assignments) >= needed:
            fitting.append((choice, _proposal(choice, name, nodes, cluster)))
    assert first is not None
    if not fitting:
        return first
    if len(fitting) == 1:
        return fitting[0][0]
    return fitting[profile.runtime.best_placement(gang, [proposal for _, proposal in fitting], random)][0]


def _proposal(choice: Choice, name: str, nodes: Sequence[str], cluster: Cluster) -> Proposal:
    """As things are now; while extenders were asked, nodes may have gone."""
    rows = [row for row in map(cluster.nodes.rows.get, nodes) if row is not None]
    placed_pod = Placement(name, Nodes(cluster.nodes, np.array(rows, np.intp)))
    return Proposal(placed_pod, [(queued.info, node_name) for queued, node_name in choice.assignments])


def _plausible(
    placements: Sequence[Placement], pods: Sequence[PodInfo], *, cluster: Cluster, profile: Profile, needed: int
) -> Sequence[Placement]:
    """The placements that may have room for as many pods as needed, the most promising first.

    All of them as they are where room cannot be counted.
    """
    if len(placements) == 1 or any(cluster.nomination(pod.uid) for pod in pods):
        return placements  # what a pod was promised counts as taken by its siblings
    rooms, spare = np.zeros(len(placements), np.int64), np.zeros(len(placements), np.int64)
    samples: dict[Shape, PodInfo] = {pod.shape: pod for pod in pods}
    for shape, count in Counter(pod.shape for pod in pods).items():
        room = PodCapacity.of(cluster, profile, samples[shape], count)
        if room is None:
            return placements
        free = room.on(cluster.all_nodes())
        sums = np.array([free[placed_pod.nodes.row_numbers].sum() for placed_pod in placements], np.int64)
        rooms += np.minimum(sums, count)
        spare += sums
    order = np.lexsort((spare, -rooms))
    return [placements[position] for position in order.tolist() if rooms[position] >= needed]
