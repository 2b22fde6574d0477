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

__all__ = ["Strategy", "Usage", "strategy"]

Int64s = NDArray[np.int64]

#: Shape points score 0 to 10.
_SHAPE_SCALE = MAX_SCORE // 10


@dataclass(frozen=True, slots=True)
class Usage:
    """One resource over many nodes: what there is, what would be used, and the resource's weight."""

    capacity: Int64s
    used: Int64s
    weight: int


#: Scores nodes by the usage of several resources: (usages, number of nodes) -> int64 per node, 0 to 100.
Strategy = Callable[[Sequence[Usage], int], Int64s]


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


def _least_allocated(usages: Sequence[Usage], nodes: int) -> Int64s:
    return _weighted_mean([(usage, _free_share(usage)) for usage in usages], nodes)


def _free_share(usage: Usage) -> Int64s:
    free: Int64s = np.maximum(usage.capacity - usage.used, 0)
    return free * MAX_SCORE // np.maximum(usage.capacity, 1)


def _most_allocated(usages: Sequence[Usage], nodes: int) -> Int64s:
    return _weighted_mean([(usage, _used_share(usage)) for usage in usages], nodes)


def _used_share(usage: Usage) -> Int64s:
    return np.minimum(usage.used, usage.capacity) * MAX_SCORE // np.maximum(usage.capacity, 1)


def _weighted_mean(scored: Sequence[tuple[Usage, Int64s]], nodes: int) -> Int64s:
    """Over the resources that a node has at all (the others score 0); 0 where it has none of them."""
    total = np.zeros(nodes, np.int64)
    everywhere = 0
    partly: list[Int64s] = []
    for usage, scores in scored:
        total += scores if usage.weight == 1 else scores * usage.weight
        there = usage.capacity > 0
        if there.all():
            everywhere += usage.weight
        else:
            partly.append(there * np.int64(usage.weight))
    if not partly:
        return total // max(everywhere, 1)
    weights: Int64s = np.maximum(sum(partly, start=np.int64(everywhere)), 1)
    return total // weights


class _RequestedToCapacityRatio:
    """A piecewise linear function of utilisation."""

    def __init__(self, shape: Sequence[UtilizationShapePoint]) -> None:
        self._points = [(point.utilization, point.score * _SHAPE_SCALE) for point in shape]

    def __call__(self, usages: Sequence[Usage], nodes: int) -> Int64s:
        total = np.zeros(nodes, np.int64)
        weights = np.zeros(nodes, np.int64)
        for usage in usages:
            scores = np.where(usage.capacity > 0, self._score(_utilization(usage)), 0)
            total += scores * usage.weight
            weights += (scores > 0) * np.int64(usage.weight)
        mean = total / np.maximum(weights, 1)
        return np.floor(mean + 0.5).astype(np.int64)  # rounds half away from zero: scores are not negative

    def _score(self, utilization: Int64s) -> Int64s:
        points = self._points
        scores = np.full(len(utilization), points[-1][1], np.int64)
        for (low, low_score), (high, high_score) in zip(points[-2::-1], points[:0:-1], strict=True):
            rise = (high_score - low_score) * (utilization - low)
            span = high - low
            slope = np.sign(rise) * (np.abs(rise) // span)
            np.copyto(scores, low_score + slope, where=utilization <= high)
        np.copyto(scores, points[0][1], where=utilization <= points[0][0])
        return scores


def _utilization(usage: Usage) -> Int64s:
    share = usage.used * MAX_SCORE // np.maximum(usage.capacity, 1)
    return np.where(usage.used > usage.capacity, MAX_SCORE, share)
