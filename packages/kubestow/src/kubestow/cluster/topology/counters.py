"""Counters: a weighted number of pods per node.

A plugin whose results depend on other pods (topology spread, inter-pod affinity) obtains a counter once and then reads
a column. Every pod that is added or removed updates the counters that count it. Which ones depends only on the pod's
shape and is computed once per shape, so the cost of a pod event does not grow with the number of pods. A new counter is
filled from the index of placed pods, shape by shape. Counters are looked up by index key, so the cost of a new shape is
proportional to the number of counters that may count it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Protocol
from weakref import ReferenceType, WeakValueDictionary, ref

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.nodes.columns import Column, Columns
from kubestow.cluster.pods.affinity_terms import IndexKeys
from kubestow.cluster.pods.shapes import PodInfo, Shape

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
    called with every change as long as references to them are held. A counter has no column until it counts a pod: one
    pod can have thousands of affinity terms that select nothing.
    """

    __slots__ = ("__weakref__", "_column", "_columns", "_index_keys", "_listeners", "_weight_of", "terminating")

    def __init__(
        self,
        columns: Columns,
        weight_of: Callable[[Shape], int],
        *,
        index_keys: IndexKeys | None = None,
        terminating: bool = False,
    ) -> None:
        self._columns = columns
        self._column: Column | None = None
        self._weight_of = weight_of
        self._index_keys = index_keys
        self.terminating = terminating
        self._listeners: WeakValueDictionary[Hashable, CounterListener] | None = None

    @property
    def index_keys(self) -> IndexKeys | None:
        """Keys of which every pod that counts has one; None when any pod may count."""
        return self._index_keys

    @property
    def by_row(self) -> NDArray[np.int64]:
        """The sum per row of the node table, int64."""
        return self._columns.zeros(self._columns.size) if self._column is None else self._column.readonly

    @property
    def listeners(self) -> WeakValueDictionary[Hashable, CounterListener]:
        """The listeners by key."""
        if self._listeners is None:
            self._listeners = WeakValueDictionary()
        return self._listeners

    @property
    def has_counted(self) -> bool:
        """Whether a pod has ever been counted. Otherwise all sums are 0."""
        return self._column is not None

    def weight(self, shape: Shape) -> int:
        """The weight of a pod of a shape."""
        if self._index_keys is not None and self._index_keys.isdisjoint(shape.index_keys):
            return 0
        return self._weight_of(shape)

    def add(self, row: int, amount: int) -> None:
        """Add an amount to the sum of a row."""
        self._own_column()[row] += amount
        if self._listeners is None:
            return
        for reference in self._listeners.valuerefs():
            follower = reference()
            if follower is not None:
                follower.add(row, amount)

    def _own_column(self) -> NDArray[np.int64]:
        """The column's values, of a new column if there is none yet."""
        if self._column is None:
            self._column = self._columns.new(np.int64)
        return self._column.values


class _Weights:
    """The counters that count the pods of a shape, with their weights.

    Counters that nothing refers to any more are removed once they may be the majority, so that a new one is added in
    constant time on average.
    """

    __slots__ = ("_counters", "_most")

    def __init__(self, counters: Iterable[tuple[PodCounter, int]]) -> None:
        self._counters = [(ref(counter), weight) for counter, weight in counters]
        self._most = self._next_size()

    def __iter__(self) -> Iterator[tuple[ReferenceType[PodCounter], int]]:
        return iter(self._counters)

    def append(self, counter: PodCounter, weight: int) -> None:
        if len(self._counters) >= self._most:
            self.prune()
        self._counters.append((ref(counter), weight))

    def prune(self) -> None:
        """Remove the counters that nothing refers to."""
        self._counters = [known for known in self._counters if known[0]() is not None]
        self._most = self._next_size()

    def _next_size(self) -> int:
        return max(_FEW_COUNTERS, 2 * len(self._counters))


#: Up to this many counters of a shape are kept even if nothing refers to them.
_FEW_COUNTERS = 16

#: Counters that may count any pod are listed under None.
_ANY_POD: IndexKeys = frozenset((None,))
_NO_COUNTERS: dict[ReferenceType[PodCounter], None] = {}


class Counters:
    """The counters of a cluster, by key."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._by_key: WeakValueDictionary[Hashable, PodCounter] = WeakValueDictionary()
        #: The counters that may count pods with an index key, in the order in which they were made.
        self._by_index_key: dict[Hashable, dict[ReferenceType[PodCounter], None]] = {}
        #: The counters that count the pods of a shape, with their weights, for shapes of placed pods.
        self._weights: dict[Shape, _Weights] = {}

    def __bool__(self) -> bool:
        """Whether there is any counter."""
        return bool(self._by_index_key)

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
            self._list(counter)
        return counter

    def _list(self, counter: PodCounter) -> None:
        """List a counter by its index keys until it is dropped."""
        index_keys = _ANY_POD if counter.index_keys is None else counter.index_keys
        by_index_key = self._by_index_key

        def remove(reference: ReferenceType[PodCounter]) -> None:
            for index_key in index_keys:
                listed = by_index_key[index_key]
                del listed[reference]
                if not listed:
                    del by_index_key[index_key]

        reference = ref(counter, remove)
        for index_key in index_keys:
            by_index_key.setdefault(index_key, {})[reference] = None

    def _fill(self, counter: PodCounter, shape: Shape, pods: Iterable[tuple[int, PodInfo]], weight: int) -> None:
        for row, info in pods:
            if counter.terminating or not info.terminating:
                counter._own_column()[row] += weight
        known = self._weights.get(shape)
        if known is not None:
            known.append(counter, weight)

    def count(self, row: int, info: PodInfo, sign: int) -> None:
        """Add (+1) or remove (-1) a pod on a row."""
        dropped, weights = False, self._weights.get(info.shape)
        if weights is None:
            found = ((counter, counter.weight(info.shape)) for counter in self._candidates(info.shape))
            weights = self._weights[info.shape] = _Weights((counter, weight) for counter, weight in found if weight)
        for reference, weight in weights:
            counter = reference()
            if counter is None:
                dropped = True
            elif counter.terminating or not info.terminating:
                counter.add(row, sign * weight)
        if dropped:
            weights.prune()

    def drop_shape(self, shape: Shape) -> None:
        """Drop what is cached for a shape without placed pods."""
        self._weights.pop(shape, None)

    def _candidates(self, shape: Shape) -> list[PodCounter]:
        """The counters that may count pods of a shape, each once."""
        by_index_key = self._by_index_key
        listed: dict[ReferenceType[PodCounter], None] = {}
        if by_index_key:
            for index_key in (None, *shape.index_keys):
                listed.update(by_index_key.get(index_key, _NO_COUNTERS))
        counters = (reference() for reference in listed)
        return [counter for counter in counters if counter is not None]
