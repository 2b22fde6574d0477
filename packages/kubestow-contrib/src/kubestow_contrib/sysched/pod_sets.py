"""How many pods with the same profiles are on each node, as columns of the node table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from weakref import WeakKeyDictionary

import numpy as np

from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.columns import Column
from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow_contrib.sysched.profiles import References, references

__all__ = ["PodSets"]


class PodSets:
    """Pods per node by their profiles. A column is dropped when no pod has its profiles any more."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._columns: dict[References, Column] = {}
        self._pods: Counter[References] = Counter()
        self._references: WeakKeyDictionary[Shape, References] = WeakKeyDictionary()
        cluster.listen_to_placements(self)

    @property
    def columns(self) -> Mapping[References, Column]:
        """The number of pods per row of the node table, int64, by their profiles."""
        return self._columns

    def references(self, shape: Shape) -> References:
        """The profiles of a pod."""
        found = self._references.get(shape)
        if found is None:
            found = self._references[shape] = references(shape)
        return found

    def pod_added(self, row: int, info: PodInfo) -> None:
        """Count a pod."""
        found = self.references(info.shape)
        if found not in self._columns:
            self._columns[found] = self._cluster.nodes.columns.new(np.int64)
        self._columns[found].add(row, +1)
        self._pods[found] += 1

    def pod_removed(self, row: int, info: PodInfo) -> None:
        """Do not count a pod any more."""
        found = self.references(info.shape)
        self._columns[found].add(row, -1)
        self._pods[found] -= 1
        if not self._pods[found]:
            del self._pods[found], self._columns[found]
