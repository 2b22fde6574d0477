"""How full nodes are scored: least allocated, most allocated, or any shape in between (reference 8.8).

All arithmetic is the reference's: 64-bit integers, division truncating towards zero. Every pod that is placed has one
node scored again, and on one number at a time Python is several times quicker than NumPy is on arrays of one; so a
strategy knows both ways, and a property test holds them to each other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kubestow.config.plugin_args import ScoringStrategy, UtilizationShapePoint
from kubestow.framework.plugin import MAX_SCORE

__all__ = ["Amounts", "Strategy", "Usage", "UtilizationShape", "strategy"]

Int64s = NDArray[np.int64]

_TOO_LARGE = 2**63
#: Shape points score 0 to 10.
_SHAPE_SCALE = MAX_SCORE // 10


@dataclass(frozen=True, slots=True)
class Usage:
    """Several resources over many nodes: what there is and what would be used, int64 of shape (resources, nodes).

    ``weights`` are the resources', int64 of shape (resources, 1).
    """

    capacity: Int64s
    used: Int64s
    weights: Int64s


#: Capacity, use and weight of each of several resources, on one node.
Amounts = Sequence[tuple[int, int, int]]


class Strategy(ABC):
    """Scores nodes, 0 to 100, by the usage of several resources."""

    @abstractmethod
    def scores(self, usage: Usage) -> Int64s:
        """The scores of many nodes, int64."""

    @abstractmethod
    def score(self, amounts: Amounts) -> int:
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
    def _valued(self, usage: Usage) -> Int64s:
        """The amounts that speak for each node."""

    @abstractmethod
    def _valued_of_one(self, capacity: int, used: int) -> int:
        """The same for one resource of one node."""

    def scores(self, usage: Usage) -> Int64s:
        percent = self._valued(usage)
        percent *= MAX_SCORE
        percent //= np.maximum(usage.capacity, 1)
        there = usage.capacity > 0
        total = np.add.reduce(percent * usage.weights)
        weights = usage.weights.sum() if there.all() else np.maximum(np.add.reduce(there * usage.weights), 1)
        mean: Int64s = total // weights
        return mean

    def score(self, amounts: Amounts) -> int:
        total = weights = 0
        for capacity, used, weight in amounts:
            if capacity > 0:
                total += _in_64_bits(self._valued_of_one(capacity, used) * MAX_SCORE) // capacity * weight
                weights += weight
        return total // max(weights, 1)


class _LeastAllocated(_Allocated):
    """What is free speaks for a node."""

    def _valued(self, usage: Usage) -> Int64s:
        free: Int64s = np.maximum(usage.capacity - usage.used, 0)
        return free

    def _valued_of_one(self, capacity: int, used: int) -> int:
        return max(capacity - used, 0)


class _MostAllocated(_Allocated):
    """What is used speaks for a node."""

    def _valued(self, usage: Usage) -> Int64s:
        return np.minimum(usage.used, usage.capacity)

    def _valued_of_one(self, capacity: int, used: int) -> int:
        return min(used, capacity)


def _in_64_bits(number: int) -> int:
    """A product as 64 bits hold it: beyond 2**63 (100 times 80 PiB) it wraps around."""
    return number if number < _TOO_LARGE else (number + _TOO_LARGE) % (2 * _TOO_LARGE) - _TOO_LARGE


class _RequestedToCapacityRatio(Strategy):
    """The shape's score of how much is used, averaged over resources."""

    def __init__(self, shape: Sequence[UtilizationShapePoint]) -> None:
        self._shape = UtilizationShape(shape)

    def score(self, amounts: Amounts) -> int:
        capacity, used, weights = np.array(amounts, np.int64).T[:, :, np.newaxis]
        return int(self.scores(Usage(capacity, used, weights))[0])

    def scores(self, usage: Usage) -> Int64s:
        scores: Int64s = np.where(usage.capacity > 0, self._shape.scores(usage.used, usage.capacity), 0)
        total = np.add.reduce(scores * usage.weights)
        mean = total / np.maximum(np.add.reduce((scores > 0) * usage.weights), 1)
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
