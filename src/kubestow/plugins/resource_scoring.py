"""How full nodes are scored: least allocated, most allocated, or any shape in between (reference 8.8).

All arithmetic is the reference's: 64-bit integers, division truncating towards zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kubestow.config.plugin_args import ScoringStrategy, UtilizationShapePoint
from kubestow.framework.plugin import MAX_SCORE

__all__ = ["Strategy", "Usage", "UtilizationShape", "strategy"]

Int64s = NDArray[np.int64]

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


#: Scores nodes by the usage of several resources: int64 per node, 0 to 100.
Strategy = Callable[[Usage], Int64s]


def strategy(configured: ScoringStrategy) -> Strategy:
    """The strategy that the plugin's args ask for."""
    match configured.type:
        case "MostAllocated":
            return _most_allocated
        case "RequestedToCapacityRatio":
            ratio = configured.requested_to_capacity_ratio
            return _RequestedToCapacityRatio(ratio.shape if ratio else ())
        case _:
            return _least_allocated


def _least_allocated(usage: Usage) -> Int64s:
    return _weighted_mean(usage, _share(usage, np.maximum(usage.capacity - usage.used, 0)))


def _most_allocated(usage: Usage) -> Int64s:
    return _weighted_mean(usage, _share(usage, np.minimum(usage.used, usage.capacity)))


def _share(usage: Usage, amounts: Int64s) -> Int64s:
    """Amounts as percent of the capacity, in place; 0 of 0 is 0."""
    amounts *= MAX_SCORE
    amounts //= np.maximum(usage.capacity, 1)
    return amounts


def _weighted_mean(usage: Usage, scores: Int64s) -> Int64s:
    """Over the resources that a node has at all (the others score 0); 0 where it has none of them."""
    there = usage.capacity > 0
    total: Int64s = np.add.reduce(scores * usage.weights)
    if there.all():
        return np.floor_divide(total, int(usage.weights.sum()))
    return np.floor_divide(total, np.maximum(np.add.reduce(there * usage.weights), 1))


class _RequestedToCapacityRatio:
    """The shape's score of how much is used, averaged over resources."""

    def __init__(self, shape: Sequence[UtilizationShapePoint]) -> None:
        self._shape = UtilizationShape(shape)

    def __call__(self, usage: Usage) -> Int64s:
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
