"""Counters: per node, how many of its pods are of some kind.

What depends on other pods (topology spread, inter-pod affinity, volumes in use) asks for a counter once and then reads
a column; every pod that comes or goes updates the counters that count it. Which those are depends only on the pod's
shape, so it is worked out once per shape and the cost of an event does not grow with the number of pods. A new counter
is filled from the cluster's census, shape by shape.
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

#: Shapes of placed pods, with those of their pods that are on nodes and the rows of those.
PlacedShapes = Iterable[tuple[Shape, Iterable[tuple[int, PodInfo]]]]


class CounterListener(Protocol):
    """Who wants to hear of every change of a counter."""

    def add(self, row: int, amount: int) -> None:
        """The sum of a row has changed by an amount."""


class PodCounter:
    """Sums a weight over the pods of each node. Held by whoever reads it; it stops counting when nobody does.

    ``weight_of`` gives a shape's weight (0: not counted); where ``index_keys`` are given it is asked only about shapes in one
    of them. Pods that are being deleted are left out unless ``terminating`` says otherwise. ``listeners`` are told of
    changes for as long as somebody holds them.
    """

    __slots__ = ("__weakref__", "_column", "_groups", "_weigh", "listeners", "terminating")

    def __init__(
        self,
        columns: Columns,
        weight_of: Callable[[Shape], int],
        *,
        index_keys: IndexKeys | None = None,
        terminating: bool = False,
    ) -> None:
        self._column = columns.new(np.int64)
        self._weigh = weight_of
        self._groups = index_keys
        self.terminating = terminating
        self.listeners: WeakValueDictionary[Hashable, CounterListener] = WeakValueDictionary()

    @property
    def by_row(self) -> NDArray[np.int64]:
        """The sum per row of the node table, int64."""
        return self._column.readonly

    def weight(self, shape: Shape) -> int:
        """What a pod of a shape counts for."""
        return self._weigh(shape) if self._groups is None or not self._groups.isdisjoint(shape.index_keys) else 0

    def add(self, row: int, amount: int) -> None:
        """Change the sum of a row."""
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
        #: For shapes of placed pods, the counters that count them.
        self._weights: dict[Shape, _Weights] = {}

    def get(
        self,
        key: Hashable,
        weight_of: Callable[[Shape], int],
        population: PlacedShapes,
        *,
        index_keys: IndexKeys | None = None,
        terminating: bool = False,
    ) -> PodCounter:
        """The counter of a key, made and filled when nobody holds one yet from the population of its groups."""
        counter = self._by_key.get(key)
        if counter is None:
            counter = PodCounter(self._columns, weight_of, index_keys=index_keys, terminating=terminating)
            for shape, pods in population:
                weight = weight_of(shape)
                if weight:
                    self._begin(counter, shape, pods, weight)
            self._by_key[key] = counter
        return counter

    def _begin(self, counter: PodCounter, shape: Shape, pods: Iterable[tuple[int, PodInfo]], weight: int) -> None:
        sums = counter._column.values
        for row, info in pods:
            if counter.terminating or not info.terminating:
                sums[row] += weight
        known = self._weights.get(shape)
        if known is not None:
            self._weights[shape] = (*known, (ref(counter), weight))

    def count(self, row: int, info: PodInfo, sign: int) -> None:
        """Note that a pod came to (+1) or left (-1) a row."""
        abandoned = False
        for reference, weight in self._weights_of(info.shape):
            counter = reference()
            if counter is None:
                abandoned = True
            elif counter.terminating or not info.terminating:
                counter.add(row, sign * weight)
        if abandoned:
            self._weights[info.shape] = tuple(known for known in self._weights[info.shape] if known[0]() is not None)

    def forget(self, shape: Shape) -> None:
        """No pod of a shape is placed any more."""
        self._weights.pop(shape, None)

    def _weights_of(self, shape: Shape) -> _Weights:
        known = self._weights.get(shape)
        if known is None:
            weights = ((ref(counter), counter.weight(shape)) for counter in self._by_key.values())
            known = self._weights[shape] = tuple((counter, weight) for counter, weight in weights if weight)
        return known
