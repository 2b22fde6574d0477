"""Workload-aware preemption: as few as possible are evicted so that a gang fits, wherever they are (semantics 9.7).

A plugin says whom one may evict at all, in units, and whom to spare first. Here it is found out who of them has to go:
with everybody gone the gang must fit; then unit after unit is given back if it still fits beside them. That is what
comes out, but not what is done. In a large cluster the units are many and the victims few, so the search begins with
the least important, takes twice as many until the gang fits, and gives them back in ever smaller parts. It trusts that
a gang which fits somewhere also fits where more pods are gone.

Whether the gang fits is a matter of counting where all its pods are copies of each other and nothing but the pods of a
node decides about the node. Otherwise it is tried, in the cluster itself with the units taken away. Each trial is over
within one instant; between two of them everybody is back, and others get their turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.views import HypotheticalNodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.cluster.pods.table import Deltas, offsets_of
from kubestow.framework.gang import Evictable
from kubestow.framework.pod_capacity import PodCapacity
from kubestow.framework.profile import Profile
from kubestow.scheduling.gangs.absence import Absence
from kubestow.scheduling.gangs.trial import Failure, Trial
from kubestow.scheduling.queue.queued_pod import QueuedPod

__all__ = ["Clearing", "fewest", "make_room_for_all"]

Mask = NDArray[np.bool_]


@dataclass(slots=True)
class Clearing:
    """How to make room for a gang: whom to evict, and who is promised which node then.

    ``failures`` are the members that find no node even so; ``lower_priority_nominated`` are pods that lose their promise of a node.
    """

    promises: list[tuple[QueuedPod, str]]
    failures: list[Failure]
    victims: list[PodInfo]
    lower_priority_nominated: list[PodInfo] = field(default_factory=list)


async def make_room_for_all(
    evictable_units: Evictable,
    pods: Sequence[QueuedPod],
    *,
    cluster: Cluster,
    profile: Profile,
    needed: int,
    within: Mask | None,
    run: Callable[[], Awaitable[Trial]],
    is_wanted: Callable[[PodInfo], bool],
) -> Clearing | None:
    """Find out who has to go so that as many of the ``pods`` fit as ``needed``; None when not even everybody suffices.

    The pods may go to the nodes ``within`` (bool, one per row), to all where it is None; ``run`` makes a trial of all
    of them, ``is_wanted`` says whether one still wants a node. Nothing is changed. Raises PluginError.
    """
    infos = [queued.info for queued in pods]
    absence = Absence(cluster, infos, is_wanted)
    try:
        absence.only(())  # what has been promised to one would count as taken for its siblings
        counted = _Counted.of(evictable_units, infos, cluster=cluster, profile=profile, needed=needed, within=within)
        tried = _Tried(evictable_units, absence, run, needed)
        gone = await fewest(len(evictable_units.units.lengths), tried.fits if counted is None else counted.fits)
        if gone is None or not gone.any():
            return None
        clearing = await tried.clearing(gone)
        if clearing is not None:
            clearing.lower_priority_nominated = _outranked(clearing.promises, cluster)
        return clearing
    finally:
        absence.end()


def _outranked(promises: Sequence[tuple[QueuedPod, str]], cluster: Cluster) -> list[PodInfo]:
    """The pods that have been promised nodes which pods of higher priority are promised now."""
    return list(
        {
            pod.uid: pod
            for queued, node_name in promises
            for pod in cluster.nominated_to(node_name)
            if pod.priority < queued.info.priority
        }.values()
    )


async def fewest(count: int, fits: Callable[[Mask], Awaitable[bool]]) -> Mask | None:
    """Which of ``count`` units have to go, bool; None when not even all suffice. The first units are spared first.

    ``fits`` is asked whether it suffices that some units (bool) are gone.
    """
    gone = np.zeros(count, np.bool_)
    tail = min(1, count)
    while tail and not await _fits_without(gone, slice(count - tail, count), fits):
        tail = min(2 * tail, count) if tail < count else 0
    if not tail:
        return None
    returning = [(count - tail, count)]
    while returning:
        start, stop = returning.pop()
        gone[start:stop] = False
        if not await fits(gone):
            gone[start:stop] = True
            if stop - start > 1:
                middle = (start + stop) // 2
                returning += [(middle, stop), (start, middle)]
    return gone


async def _fits_without(gone: Mask, units: slice, fits: Callable[[Mask], Awaitable[bool]]) -> bool:
    gone[units] = True
    return await fits(gone)


class _Counted:
    """Counts the room for copies of one pod; ``as_is`` (int64 per row) is how many fit with nobody gone."""

    def __init__(self, evictable_units: Evictable, room: PodCapacity, *, cluster: Cluster, needed: int) -> None:
        self._units, self._rows = evictable_units.units, evictable_units.rows
        self._unit_of = evictable_units.units.row_of
        self._room, self._table, self._needed = room, cluster.nodes, needed
        self._as_is = room.on(cluster.all_nodes())
        self._total = int(self._as_is.sum())

    @classmethod
    def of(
        cls,
        evictable_units: Evictable,
        pods: Sequence[PodInfo],
        *,
        cluster: Cluster,
        profile: Profile,
        needed: int,
        within: Mask | None,
    ) -> _Counted | None:
        """None when only trying tells."""
        if len({pod.shape for pod in pods}) != 1:
            return None
        room = PodCapacity.of(cluster, profile, pods[0], needed, within)
        return None if room is None else cls(evictable_units, room, cluster=cluster, needed=needed)

    async def fits(self, gone: Mask) -> bool:
        """Whether enough copies fit when some units (bool) are gone."""
        leaving = np.flatnonzero(gone[self._unit_of])
        leaving = leaving[np.argsort(self._rows[leaving], kind="stable")]
        rows, lengths = np.unique(self._rows[leaving], return_counts=True)
        without = Deltas(self._units.table, self._units.slots[leaving], offsets_of(lengths), -1)
        freed = self._room.on(HypotheticalNodes(self._table, rows, deltas=(without,)))
        return self._total - int(self._as_is[rows].sum()) + int(freed.sum()) >= self._needed


class _Tried:
    """Tries the pods in the cluster with units taken away."""

    def __init__(
        self, evictable_units: Evictable, absence: Absence, run: Callable[[], Awaitable[Trial]], needed: int
    ) -> None:
        self._absence, self._run, self._needed = absence, run, needed
        # By now: as soon as anybody is away the slots of the pod table are others.
        self._pods, self._unit_of = evictable_units.units.infos, evictable_units.units.row_of

    async def fits(self, gone: Mask) -> bool:
        """Whether enough pods find nodes when some units (bool) are gone."""
        trial = await self._without(gone)
        trial.undo()
        self._absence.end()
        await asyncio.sleep(0)
        return len(trial.placed) >= self._needed

    async def clearing(self, gone: Mask) -> Clearing | None:
        """What to do so that they are gone; None when the pods do not fit after all."""
        trial = await self._without(gone)
        trial.undo()
        if len(trial.placed) < self._needed:
            return None
        promises = [(reserved.queued, reserved.node_name) for reserved in trial.placed]
        return Clearing(promises, trial.failures, self._leaving(gone))

    async def _without(self, gone: Mask) -> Trial:
        self._absence.only(self._leaving(gone))
        return await self._run()

    def _leaving(self, gone: Mask) -> list[PodInfo]:
        return [self._pods[position] for position in np.flatnonzero(gone[self._unit_of])]
