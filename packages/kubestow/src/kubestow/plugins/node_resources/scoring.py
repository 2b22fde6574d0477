"""Scores a node by the utilization of its resources: LeastAllocated, MostAllocated and RequestedToCapacityRatio.

The arithmetic is kube-scheduler's (semantics 8.8): 64-bit integers, division truncating toward zero. Each scorer has a
form for arrays of nodes and one for a single node: after a pod is placed only one node is scored again, and Python
integers are several times faster there than arrays of length one. A property test checks that both forms agree.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kubestow.api.formats.int64 import as_int64
from kubestow.config.plugin_args import ScoringStrategy, UtilizationShapePoint
from kubestow.framework.interface import MAX_SCORE
from kubestow.rules.requests import CPU, EPHEMERAL_STORAGE, MEMORY

__all__ = ["NATIVE_RESOURCES", "ResourceScorer", "UtilizationShape", "is_unrequested_scalar", "resource_scorer"]

Int64s = NDArray[np.int64]

#: The resources that are not scalar resources, in the order in which kube-scheduler checks them.
NATIVE_RESOURCES = (CPU, MEMORY, EPHEMERAL_STORAGE)

#: One resource of many nodes: its capacity and the amount that would be used (int64 per node; millicores, bytes or
#: count), and its weight. The array of used amounts is the scorer's to overwrite.
ResourceUsage = tuple[Int64s, Int64s, int]
#: The same of a single node.
NodeResourceUsage = tuple[int, int, int]

#: Shape points have scores from 0 to 10.
_SHAPE_SCALE = MAX_SCORE // 10


def is_unrequested_scalar(requests: Mapping[str, int], resource: str) -> bool:
    """Whether a resource is left out of the scores of a pod: a scalar resource that it does not request."""
    return resource not in NATIVE_RESOURCES and not requests.get(resource, 0)


def resource_scorer(strategy: ScoringStrategy) -> ResourceScorer:
    """The scorer of a ``scoringStrategy``."""
    match strategy.type:
        case "MostAllocated":
            return _MostAllocated()
        case "RequestedToCapacityRatio":
            ratio = strategy.requested_to_capacity_ratio
            return _RequestedToCapacityRatio(ratio.shape if ratio else ())
        case _:
            return _LeastAllocated()


class ResourceScorer(ABC):
    """Scores nodes from 0 to MAX_SCORE by the usage of one or more resources."""

    @abstractmethod
    def score_nodes(self, usages: Sequence[ResourceUsage]) -> Int64s:
        """The scores of many nodes, int64 per node."""

    @abstractmethod
    def score_node(self, usages: Sequence[NodeResourceUsage]) -> int:
        """The score of a single node."""


class _AllocationScorer(ResourceScorer):
    """The weighted mean of one fraction per resource, in percent, over the resources with capacity; 0 without any."""

    @abstractmethod
    def _scored_amount(self, capacity: Int64s, used: Int64s) -> Int64s:
        """The amount of a resource whose fraction of the capacity is the score, in the array of used amounts."""

    @abstractmethod
    def _scored_amount_of_node(self, capacity: int, used: int) -> int:
        """The same for a single node."""

    def score_nodes(self, usages: Sequence[ResourceUsage]) -> Int64s:
        total: Int64s | None = None
        weights: Any = 0
        for capacity, used, weight in usages:
            percent = self._scored_amount(capacity, used)
            percent *= MAX_SCORE
            everywhere = capacity[0 if capacity.strides == (0,) else capacity.argmin()] > 0
            percent //= capacity if everywhere else np.maximum(capacity, 1)
            if weight != 1:
                percent *= weight
            total = percent if total is None else np.add(total, percent, out=percent)
            weights += weight if everywhere else (capacity > 0) * weight
        assert total is not None
        if isinstance(weights, int) and weights == 2:
            total >>= 1  # rounds as // does, in a third of the time
        else:
            total //= np.maximum(weights, 1)
        return total

    def score_node(self, usages: Sequence[NodeResourceUsage]) -> int:
        total = weights = 0
        for capacity, used, weight in usages:
            if capacity > 0:
                total += as_int64(self._scored_amount_of_node(capacity, used) * MAX_SCORE) // capacity * weight
                weights += weight
        return total // max(weights, 1)


class _LeastAllocated(_AllocationScorer):
    """Scores free capacity."""

    def _scored_amount(self, capacity: Int64s, used: Int64s) -> Int64s:
        free: Int64s = np.subtract(capacity, used, out=used)
        return np.maximum(free, 0, out=free) if free[free.argmin()] < 0 else free

    def _scored_amount_of_node(self, capacity: int, used: int) -> int:
        return max(capacity - used, 0)


class _MostAllocated(_AllocationScorer):
    """Scores used capacity."""

    def _scored_amount(self, capacity: Int64s, used: Int64s) -> Int64s:
        return np.minimum(used, capacity, out=used)

    def _scored_amount_of_node(self, capacity: int, used: int) -> int:
        return min(used, capacity)


class _RequestedToCapacityRatio(ResourceScorer):
    """The shape's score of each resource's utilization, averaged over the resources with a score above 0."""

    def __init__(self, shape: Sequence[UtilizationShapePoint]) -> None:
        self._shape = UtilizationShape(shape)

    def score_nodes(self, usages: Sequence[ResourceUsage]) -> Int64s:
        total: Any = 0
        weights: Any = 0
        for capacity, used, weight in usages:
            scores = np.where(capacity > 0, self._shape.scores(used, capacity), 0)
            total += scores * weight
            weights += (scores > 0) * weight
        mean = total / np.maximum(weights, 1)
        rounded: Int64s = np.floor(mean + 0.5).astype(np.int64)  # half away from zero, as no score is negative
        return rounded

    def score_node(self, usages: Sequence[NodeResourceUsage]) -> int:
        arrays = [(np.array([capacity]), np.array([used]), weight) for capacity, used, weight in usages]
        return int(self.score_nodes(arrays)[0])


class UtilizationShape:
    """A piecewise linear function from utilization (0 to 100) to a score (0 to MAX_SCORE), constant beyond its ends."""

    def __init__(self, shape: Sequence[UtilizationShapePoint]) -> None:
        self._points = [(point.utilization, point.score * _SHAPE_SCALE) for point in shape]

    def scores(self, used: Int64s, capacity: Int64s) -> Int64s:
        """The score of each pair of amounts, int64; utilization is 100 without capacity and above it."""
        share = used * MAX_SCORE // np.maximum(capacity, 1)
        utilization = np.where((used > capacity) | (capacity == 0), MAX_SCORE, share)
        points = self._points
        scores = np.full(utilization.shape, points[-1][1], np.int64)
        for (low, low_score), (high, high_score) in zip(points[-2::-1], points[:0:-1], strict=True):
            rise = (high_score - low_score) * (utilization - low)
            slope = np.sign(rise) * (np.abs(rise) // (high - low))  # truncates toward zero
            np.copyto(scores, low_score + slope, where=utilization <= high)
        np.copyto(scores, points[0][1], where=utilization <= points[0][0])
        return scores
