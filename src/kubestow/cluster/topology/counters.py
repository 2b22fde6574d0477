"""Counters: a weighted number of pods per node.

A plugin whose results depend on other pods (topology spread, inter-pod affinity) obtains a counter once and then reads
a column. Every pod that is added or removed updates the counters that count it. Which ones depends only on the pod's
shape and is computed once per shape, so the cost of a pod event does not grow with the number of pods. A new counter is
filled from the index of placed pods, shape by shape.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Protocol
from weakref import ReferenceType, WeakValueDictionary, ref

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.nodes.columns import Columns
from kubestow.cluster.pods.index_keys import IndexKeys
from kubestow.cluster.pods.shapes import PodInfo, Shape

__all__ = ["Counters", "PlacedShapes", "PodCounter"]

#: Shapes of placed pods, each with its pods on known nodes and their rows.
PlacedShapes = Iterable[tuple[Shape, Iterable[tuple[int, PodInfo]]]]


class CounterListener(Protocol):
    """Is called with every change of a counter."""

    def add(self, row: int, amount: int) -> None:
        """The counter's sum of a row has changed by an amount."""


class PodCounter:
    """The sum of a weight over the pods of each node. It is updated as long as a reference to it is held.

    ``weight_of`` returns the weight of a shape, 0 for one that does not count; with ``index_keys`` it is called only
    for shapes that have one of them. Terminating pods do not count unless ``terminating`` is set. ``listeners`` are
    called with every change as long as references to them are held.
    """

    __slots__ = ("__weakref__", "_column", "_index_keys", "_weight_of", "listeners", "terminating")

    def __init__(
        self,
        columns: Columns,
        weight_of: Callable[[Shape], int],
        *,
        index_keys: IndexKeys | None = None,
        terminating: bool = False,
    ) -> None:
        self._column = columns.new(np.int64)
        self._weight_of = weight_of
        self._index_keys = index_keys
        self.terminating = terminating
        self.listeners: WeakValueDictionary[Hashable, CounterListener] = WeakValueDictionary()

    @property
    def by_row(self) -> NDArray[np.int64]:
        """The sum per row of the node table, int64."""
        return self._column.readonly

    def weight(self, shape: Shape) -> int:
        """The weight of a pod of a shape."""
        if self._index_keys is not None and self._index_keys.isdisjoint(shape.index_keys):
            return 0
        return self._weight_of(shape)

    def add(self, row: int, amount: int) -> None:
        """Add an amount to the sum of a row."""
        self._column.values[row] += amount
        for reference in self.listeners.valuerefs():
            follower = reference()
            if follower is not None:
                follower.add(row, amount)


_Weights = tuple[tuple[ReferenceType[PodCounter], int], ...]


class Counters:
    """The counters of a cluster, by key."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._by_key: WeakValueDictionary[Hashable, PodCounter] = WeakValueDictionary()
        #: The counters that count the pods of a shape, with their weights, for shapes of placed pods.
        self._weights: dict[Shape, _Weights] = {}

    def get(
        self,
        key: Hashable,
        weight_of: Callable[[Shape], int],
        placed: PlacedShapes,
        *,
        index_keys: IndexKeys | None = None,
        terminating: bool = False,
    ) -> PodCounter:
        """The counter with a key; a new one is filled from ``placed``, the shapes with one of its index keys."""
        counter = self._by_key.get(key)
        if counter is None:
            counter = PodCounter(self._columns, weight_of, index_keys=index_keys, terminating=terminating)
            for shape, pods in placed:
                weight = weight_of(shape)
                if weight:
                    self._fill(counter, shape, pods, weight)
            self._by_key[key] = counter
        return counter

    def _fill(self, counter: PodCounter, shape: Shape, pods: Iterable[tuple[int, PodInfo]], weight: int) -> None:
        sums = counter._column.values
        for row, info in pods:
            if counter.terminating or not info.terminating:
                sums[row] += weight
        known = self._weights.get(shape)
        if known is not None:
            self._weights[shape] = (*known, (ref(counter), weight))

    def count(self, row: int, info: PodInfo, sign: int) -> None:
        """Add (+1) or remove (-1) a pod on a row."""
        dropped = False
        for reference, weight in self._weights_of(info.shape):
            counter = reference()
            if counter is None:
                dropped = True
            elif counter.terminating or not info.terminating:
                counter.add(row, sign * weight)
        if dropped:
            self._weights[info.shape] = tuple(known for known in self._weights[info.shape] if known[0]() is not None)

    def drop_shape(self, shape: Shape) -> None:
        """Drop what is cached for a shape without placed pods."""
        self._weights.pop(shape, None)

    def _weights_of(self, shape: Shape) -> _Weights:
        known = self._weights.get(shape)
        if known is None:
            weights = ((ref(counter), counter.weight(shape)) for counter in self._by_key.values())
            known = self._weights[shape] = tuple((counter, weight) for counter, weight in weights if weight)
        return known
