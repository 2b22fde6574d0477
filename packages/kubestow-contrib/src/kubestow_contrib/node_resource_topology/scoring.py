"""Scores by what is available in single NUMA zones: of all zones that fit at all, the lowest score counts.

CPU is counted in whole cores, rounded up, as upstream counts it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from kubestow.framework.interface import MAX_SCORE
from kubestow_contrib.node_resource_topology.args import ScoringStrategy
from kubestow_contrib.node_resource_topology.pod_requests import Amounts, PodRequests
from kubestow_contrib.node_resource_topology.zones import Available

__all__ = ["score_containers", "score_pods"]

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]


def score_pods(pod: PodRequests, available: Available, strategy: ScoringStrategy) -> Int64s:
    """The score of the pod as a whole, int64 per node."""
    return _lowest(pod.together, available, strategy)


def score_containers(pod: PodRequests, available: Available, strategy: ScoringStrategy) -> Int64s:
    """The mean score of the containers, init containers included, int64 per node."""
    scores = [_lowest(container.amounts, available, strategy) for container in pod.containers]
    mean: Floats = np.sum(scores, axis=0) / len(scores)
    return mean.astype(np.int64)


def _lowest(requests: Amounts, available: Available, strategy: ScoringStrategy) -> Int64s:
    """The lowest score of a zone other than 0; 0 if there is none."""
    of_zones = _STRATEGIES[strategy.type](requests, available, strategy)
    lowest: Int64s = np.where(of_zones > 0, of_zones, MAX_SCORE + 1).min(axis=0)
    return np.where(lowest > MAX_SCORE, 0, lowest)


def _least_allocated(requests: Amounts, available: Available, strategy: ScoringStrategy) -> Int64s:
    return _weighted(requests, available, strategy, lambda capacity, request: capacity - request)


def _most_allocated(requests: Amounts, available: Available, strategy: ScoringStrategy) -> Int64s:
    return _weighted(requests, available, strategy, lambda capacity, request: np.full_like(capacity, request))


def _weighted(
    requests: Amounts, available: Available, strategy: ScoringStrategy, share: Callable[[Int64s, int], Int64s]
) -> Int64s:
    """The weighted mean over the resources of a share of the zone's capacity, in percent; 0 where it does not fit."""
    total, weights = np.zeros(available.shape, np.int64), 0
    for name, request in requests.items():
        there = available.of(name)
        fits = (there > 0) & (there >= request)
        capacity, requested = _values(name, there), int(_values(name, np.array(request)))
        score = share(capacity, requested) * MAX_SCORE // np.where(fits, capacity, 1)
        weight = strategy.weight(name)
        total += np.where(fits, score, 0) * weight
        weights += weight
    return total // max(weights, 1)


def _balanced(requests: Amounts, available: Available, strategy: ScoringStrategy) -> Int64s:
    """100 less the variance of the used shares; 0 where a resource does not fit."""
    shares = []
    for name, request in requests.items():
        capacity = _values(name, np.maximum(available.of(name), 0)).astype(np.float64)
        share = np.ones(available.shape)
        np.divide(float(_values(name, np.array(request))), capacity, out=share, where=capacity > 0)
        shares.append(share)
    variance: Floats = np.var(shares, axis=0, ddof=1) if len(shares) > 1 else np.zeros(available.shape)
    fits = np.all(np.array(shares) <= 1, axis=0)
    return np.where(fits, ((1 - variance) * MAX_SCORE).astype(np.int64), 0)


def _values(name: str, amounts: Int64s) -> Int64s:
    """Amounts in cores, bytes or counts."""
    return -(-amounts // 1000) if name == "cpu" else amounts


_STRATEGIES: dict[str, Callable[[Amounts, Available, ScoringStrategy], Int64s]] = {
    "LeastAllocated": _least_allocated,
    "MostAllocated": _most_allocated,
    "BalancedAllocation": _balanced,
}
