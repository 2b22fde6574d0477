"""Counters: per node, how many of its pods are of some kind.

What depends on other pods (topology spread, inter-pod affinity, volumes in use) asks for a counter once and then reads
a column; every pod that comes or goes updates the counters that count it. Which those are depends only on the pod's
shape, so it is worked out once per shape and the cost of an event does not grow with the number of pods.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.columns import Columns
from kubestow.cluster.pods import PodInfo, Shape

__all__ = ["Counters", "PodCounter"]


class PodCounter:
    """Sums a weight over the pods of each node. Held by whoever reads it; it stops counting when nobody does.

    ``weigh`` gives a shape's weight (0: not counted). Pods that are being deleted are left out unless
    ``terminating`` says otherwise.
    """

    __slots__ = ("__weakref__", "_column", "terminating", "weigh")

    def __init__(self, columns: Columns, weigh: Callable[[Shape], int], *, terminating: bool) -> None:
        self._column = columns.new(np.int64)
        self.weigh = weigh
        self.terminating = terminating

    @property
    def by_row(self) -> NDArray[np.int64]:
        """The sum per row of the node table, int64."""
        return self._column.values

    def weight(self, info: PodInfo) -> int:
        """What one pod counts for."""
        return self.weigh(info.shape) if self.terminating or not info.terminating else 0


class Counters:
    """The counters of a cluster, by key."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._by_key: WeakValueDictionary[Hashable, PodCounter] = WeakValueDictionary()
        self._weights: WeakKeyDictionary[Shape, tuple[tuple[PodCounter, int], ...]] = WeakKeyDictionary()

    def get(
        self,
        key: Hashable,
        weigh: Callable[[Shape], int],
        pods_by_row: Iterable[Iterable[PodInfo]],
        *,
        terminating: bool = False,
    ) -> PodCounter:
        """The counter of a key, made and filled from the pods there are when nobody holds one yet."""
        counter = self._by_key.get(key)
        if counter is None:
            counter = PodCounter(self._columns, weigh, terminating=terminating)
            for row, pods in enumerate(pods_by_row):
                counter.by_row[row] = sum(counter.weight(info) for info in pods)
            self._by_key[key] = counter
            self._weights.clear()  # also lets go of counters that nobody else holds
        return counter

    def count(self, row: int, info: PodInfo, sign: int) -> None:
        """Note that a pod came to (+1) or left (-1) a row."""
        if not self._by_key:
            return
        for counter, weight in self._weights_of(info.shape):
            if counter.terminating or not info.terminating:
                counter.by_row[row] += sign * weight

    def _weights_of(self, shape: Shape) -> tuple[tuple[PodCounter, int], ...]:
        known = self._weights.get(shape)
        if known is None:
            weights = ((counter, counter.weigh(shape)) for counter in self._by_key.values())
            known = self._weights[shape] = tuple((counter, weight) for counter, weight in weights if weight)
        return known
