"""How many copies of a pod fit on each node, found by counting instead of placing them one after another.

The pods of a gang are mostly copies of each other, so the number of them that fit into a part of the cluster is the sum
of the capacities of its nodes. To count, copies are added to hypothetical rows and the filters run on those. That is
right for filters that look at one node and its pods; affinity, spread constraints, volumes and devices need a
simulation.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.cluster.pods.table import PodChanges, PodTable, offsets_of
from kubestow.framework.evaluation.evaluation_cache import EvaluationCache
from kubestow.framework.evaluation.feasibility import CycleFilterRunner

Counts = NDArray[np.int64]


class PodCapacity:
    """The capacity of nodes for copies of a ``pod``, counted up to ``most`` copies per node.

    ``candidates`` (bool, one per row of the node table) are the nodes that PreFilter has left.
    """

    def __init__(self, pod: PodInfo, filters: CycleFilterRunner, candidates: NDArray[np.bool_], most: int) -> None:
        self._filters, self._candidates = filters, candidates
        self._most = 1 if pod.shape.host_ports else most
        self._copies = PodTable()
        self._slots = np.array([self._copies.add(pod, None) for _ in range(self._most)], np.intp)

    @classmethod
    def of(
        cls,
        evaluations: EvaluationCache,
        pod: PodInfo,
        most: int,
        within: NDArray[np.bool_] | None = None,
    ) -> PodCapacity | None:
        """The capacity for a pod on the nodes ``within`` (bool, one per row; None for all).

        None when it cannot be counted, or when PreFilter rejects the pod. Raises PluginError.
        """
        if pod.shape.spec.volumes or pod.spec.resource_claims:
            return None
        pre_filtered = evaluations.of(pod).run_pre_filter(pod)
        if pre_filtered is None or not pre_filtered[0].is_node_local:
            return None
        filters, candidates = pre_filtered
        return cls(pod, filters, candidates if within is None else candidates & within, most)

    def on(self, nodes: Nodes) -> Counts:
        """How many copies fit on each of some nodes, real or hypothetical, int64. Raises PluginError."""
        fits = self._candidates[nodes.row_numbers]
        for rejection in self._filters.rejections(nodes.select(fits)):
            fits &= ~rejection.where[nodes.row_numbers]
        counts = fits.astype(np.int64)
        positions = np.flatnonzero(fits)
        counts[positions] = self._count(nodes.select(positions))
        return counts

    def _count(self, nodes: Nodes) -> Counts:
        """The counts for nodes on which at least one copy fits, by binary search on all of them at once."""
        low = np.ones(len(nodes), np.int64)
        high = np.full(len(nodes), self._most, np.int64)
        while len(open_ := np.flatnonzero(low < high)):
            middle = (low[open_] + high[open_] + 1) // 2
            passes = self._filters.still_pass(nodes.select(open_).with_pod_changes(self._added(middle - 1)))
            low[open_] = np.where(passes, middle, low[open_])
            high[open_] = np.where(passes, high[open_], middle - 1)
        return low

    def _added(self, counts: Counts) -> PodChanges:
        """As many copies as ``counts`` says, added to each node."""
        offsets = offsets_of(counts.astype(np.intp))
        numbers = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
        return PodChanges(self._copies, self._slots[numbers], offsets, +1)
