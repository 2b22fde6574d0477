"""How full nodes are scored: least allocated, most allocated, or any shape in between (semantics 8.8).

All arithmetic is the reference's: 64-bit integers, division truncating towards zero. Every pod that is placed has one
node scored again, and on one number at a time Python is several times quicker than NumPy is on arrays of one; so a
strategy knows both ways, and a property test holds them to each other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kubestow.config.plugin_args import ScoringStrategy, UtilizationShapePoint
from kubestow.framework.interface import MAX_SCORE

__all__ = ["Strategy", "UtilizationShape", "strategy"]

Int64s = NDArray[np.int64]

_TOO_LARGE = 2**63
#: Shape points score 0 to 10.
_SHAPE_SCALE = MAX_SCORE // 10


#: What there is of a resource, what would be used of it, and its weight: on each of many nodes, or on one.
Usages = Sequence[tuple[Int64s, Int64s, int]]
UsagesOfOne = Sequence[tuple[int, int, int]]


class Strategy(ABC):
    """Scores nodes, 0 to 100, by the usage of several resources, at least one."""

    @abstractmethod
    def scores(self, usages: Usages) -> Int64s:
        """The scores of many nodes, int64."""

    @abstractmethod
    def score(self, usages: UsagesOfOne) -> int:
        """The score of one node."""


def strategy(configured: ScoringStrategy) -> Strategy:
    """The strategy that the plugin's args ask for."""
    match configured.type:
        case "MostAllocated":
            return _MostAllocated()
        case "RequestedToCapacityRatio":
            ratio = configured.requested_to_capacity_ratio
            return _RequestedToCapacityRatio(ratio.shape if ratio else ())
        case _:
            return _LeastAllocated()


class _Allocated(Strategy):
    """The weighted mean of some share of each resource that a node has at all; 0 where it has none of them."""

    @abstractmethod
    def _valued(self, capacity: Int64s, used: Int64s) -> Int64s:
        """The amounts of a resource that speak for each node, as an array of their own."""

    @abstractmethod
    def _valued_of_one(self, capacity: int, used: int) -> int:
        """The same on one node."""

    def scores(self, usages: Usages) -> Int64s:
        total: Any = 0
        weights: Any = 0
        for capacity, used, weight in usages:
            percent = self._valued(capacity, used)
            percent *= MAX_SCORE
            percent //= np.maximum(capacity, 1)
            there = capacity > 0
            total += percent * weight
            weights += weight if there.all() else there * weight
        mean: Int64s = total // np.maximum(weights, 1)
        return mean

    def score(self, usages: UsagesOfOne) -> int:
        total = weights = 0
        for capacity, used, weight in usages:
            if capacity > 0:
                total += _in_64_bits(self._valued_of_one(capacity, used) * MAX_SCORE) // capacity * weight
                weights += weight
        return total // max(weights, 1)


class _LeastAllocated(_Allocated):
    """What is free speaks for a node."""

    def _valued(self, capacity: Int64s, used: Int64s) -> Int64s:
        free: Int64s = capacity - used
        return np.maximum(free, 0, out=free)

    def _valued_of_one(self, capacity: int, used: int) -> int:
        return max(capacity - used, 0)


class _MostAllocated(_Allocated):
    """What is used speaks for a node."""

    def _valued(self, capacity: Int64s, used: Int64s) -> Int64s:
        return np.minimum(used, capacity)

    def _valued_of_one(self, capacity: int, used: int) -> int:
        return min(used, capacity)


def _in_64_bits(number: int) -> int:
    """A product as 64 bits hold it: beyond 2**63 (100 times 80 PiB) it wraps around."""
    return number if number < _TOO_LARGE else (number + _TOO_LARGE) % (2 * _TOO_LARGE) - _TOO_LARGE


class _RequestedToCapacityRatio(Strategy):
    """The shape's score of how much is used, averaged over resources."""

    def __init__(self, shape: Sequence[UtilizationShapePoint]) -> None:
        self._shape = UtilizationShape(shape)

    def score(self, usages: UsagesOfOne) -> int:
        alone = [(np.array([capacity]), np.array([used]), weight) for capacity, used, weight in usages]
        return int(self.scores(alone)[0])

    def scores(self, usages: Usages) -> Int64s:
        total: Any = 0
        weights: Any = 0
        for capacity, used, weight in usages:
            scores = np.where(capacity > 0, self._shape.scores(used, capacity), 0)
            total += scores * weight
            weights += (scores > 0) * weight
        mean = total / np.maximum(weights, 1)
        rounded: Int64s = np.floor(mean + 0.5).astype(np.int64)  # half away from zero: scores are not negative
        return rounded


class UtilizationShape:
    """A piecewise linear function from utilisation to a score of 0 to 100, flat beyond its ends."""

    def __init__(self, shape: Sequence[UtilizationShapePoint]) -> None:
        self._points = [(point.utilization, point.score * _SHAPE_SCALE) for point in shape]

    def scores(self, used: Int64s, capacity: Int64s) -> Int64s:
        """The score of each pair of amounts, int64; without any capacity all of it is taken to be used."""
        share = used * MAX_SCORE // np.maximum(capacity, 1)
        utilization = np.where((used > capacity) | (capacity == 0), MAX_SCORE, share)
        points = self._points
        scores = np.full(utilization.shape, points[-1][1], np.int64)
        for (low, low_score), (high, high_score) in zip(points[-2::-1], points[:0:-1], strict=True):
            rise = (high_score - low_score) * (utilization - low)
            slope = np.sign(rise) * (np.abs(rise) // (high - low))  # truncates towards zero
            np.copyto(scores, low_score + slope, where=utilization <= high)
        np.copyto(scores, points[0][1], where=utilization <= points[0][0])
        return scores
