"""How many copies of a pod fit on each node, counted and not tried.

The pods of a gang are mostly copies of each other. How many of them a part of the cluster can take is then a matter of
counting: imagine one copy more on every node, and ask the filters. That holds for filters that look at one node at a
time; where affinities, spread constraints, volumes or devices are involved, only trying tells.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.cluster.pods.table import PodChanges, PodTable, offsets_of
from kubestow.framework.filters import Filters
from kubestow.framework.profile import Profile

__all__ = ["PodCapacity"]

Counts = NDArray[np.int64]


class PodCapacity:
    """The room for copies of a ``pod``, of which no more than ``most`` are of interest."""

    def __init__(self, pod: PodInfo, filters: Filters, candidates: NDArray[np.bool_], most: int) -> None:
        self._filters, self._candidates = filters, candidates
        self._most = 1 if pod.shape.host_ports else most
        self._copies = PodTable()
        self._slots = np.array([self._copies.allocate(pod) for _ in range(self._most)], np.intp)

    @classmethod
    def of(
        cls, cluster: Cluster, profile: Profile, pod: PodInfo, most: int, within: NDArray[np.bool_] | None = None
    ) -> PodCapacity | None:
        """What can be counted of a pod on the nodes ``within`` (bool, one per row; None for all), or None when only
        trying tells. Raises PluginError.
        """
        if pod.spec.volumes or pod.spec.resource_claims:
            return None
        asked = profile.evaluations.of(cluster, pod).questions(cluster, pod)
        if asked is None or not asked[0].count_by_node:
            return None
        filters, candidates = asked
        return cls(pod, filters, candidates if within is None else candidates & within, most)

    def on(self, nodes: Nodes) -> Counts:
        """How many copies each of some nodes takes, real or hypothetical ones, ``most`` at most, int64."""
        fits = self._candidates[nodes.row_numbers]
        for refusal in self._filters.refusals(nodes.select(fits)):
            fits &= ~refusal.where[nodes.row_numbers]
        counts = fits.astype(np.int64)
        some = np.flatnonzero(fits)
        counts[some] = self._counted(nodes.select(some))
        return counts

    def _counted(self, nodes: Nodes) -> Counts:
        """The same for nodes that take one copy at least: by halves, on all of them at once."""
        low = np.ones(len(nodes), np.int64)
        high = np.full(len(nodes), self._most, np.int64)
        while len(open_ := np.flatnonzero(low < high)):
            middle = (low[open_] + high[open_] + 1) // 2
            passes = self._filters.still_pass(nodes.select(open_).with_pod_changes(self._beside(middle - 1)))
            low[open_] = np.where(passes, middle, low[open_])
            high[open_] = np.where(passes, high[open_], middle - 1)
        return low

    def _beside(self, counts: Counts) -> PodChanges:
        """So many copies on each node."""
        offsets = offsets_of(counts.astype(np.intp))
        numbers = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
        return PodChanges(self._copies, self._slots[numbers], offsets, +1)
