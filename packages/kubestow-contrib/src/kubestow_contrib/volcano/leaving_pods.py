"""Pods that leave their nodes: those that are terminating, and the victims of others that are not yet.

Volcano counts what they use as idle in the future (its status Releasing), and pods that wait for it as Pipelined.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.nodes.views import HypotheticalNodes, Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.cluster.pods.table import PodChanges
from kubestow.framework.diagnosis import Rejection
from kubestow.framework.interface import FilterRunner, Handle
from kubestow_contrib.node_checks import FiltersOfCycle


class LeavingPods:
    """The pods that leave nodes."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._terminating: dict[str, PodInfo] = {}
        #: The victims of pods whose preemption may be in progress, by the uid of the preemptor.
        self._victims: dict[str, tuple[PodInfo, ...]] = {}
        handle.cluster.listen_to_placements(self)

    def pod_added(self, row: int, info: PodInfo) -> None:
        """A pod is on a node."""
        if info.terminating:
            self._terminating[info.uid] = info

    def pod_removed(self, row: int, info: PodInfo) -> None:
        """A pod is not on its node any more."""
        self._terminating.pop(info.uid, None)

    def put_victims(self, preemptor: PodInfo, victims: tuple[PodInfo, ...]) -> None:
        """Count pods as leaving while they are being evicted for another."""
        self._victims = dict(self._in_progress())
        self._victims[preemptor.uid] = victims

    def victims(self) -> set[str]:
        """The uids of the pods that are being evicted."""
        return {victim.uid for _, victims in self._in_progress() for victim in victims}

    def _in_progress(self) -> Iterator[tuple[str, tuple[PodInfo, ...]]]:
        """The victims of each preemptor whose preemption is in progress."""
        return ((uid, victims) for uid, victims in self._victims.items() if self._handle.is_preempting(uid))

    def by_row(self) -> dict[int, list[PodInfo]]:
        """The pods that leave each row of the node table."""
        found: dict[int, list[PodInfo]] = {}
        cluster = self._handle.cluster
        for uid in sorted(self._terminating.keys() | self.victims()):
            placed = cluster.placed_pod(uid)
            row = None if placed is None else cluster.nodes.rows.get(placed.node_name)
            if placed is not None and row is not None:
                found.setdefault(row, []).append(placed.info)
        return found


class FiltersWithoutLeavingPods(FiltersOfCycle):
    """The filters of a cycle, as if some pods had left their nodes (by row of the node table).

    Implements :class:`kubestow.framework.interface.FilterRunner` on another one, for hypothetical nodes.
    """

    def __init__(self, filters: FilterRunner, leaving: dict[int, list[PodInfo]]) -> None:
        super().__init__(filters)
        self._leaving = leaving

    def rejections(self, nodes: Nodes) -> list[Rejection]:
        """The rejections of some nodes."""
        return self._filters.rejections(self._without_leaving(nodes))

    def still_pass(self, nodes: Nodes) -> NDArray[np.bool_]:
        """Which nodes pass (bool, one per node)."""
        return self._filters.still_pass(self._without_leaving(nodes))

    def _without_leaving(self, nodes: Nodes) -> Nodes:
        if not isinstance(nodes, HypotheticalNodes):
            return nodes
        leaving = [self._leaving.get(row, ()) for row in nodes.row_numbers.tolist()]
        return nodes.with_pod_changes(PodChanges.of(leaving, -1)) if any(leaving) else nodes
