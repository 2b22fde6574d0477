"""The scores: by what is available in single zones, or by the number of zones that are needed and their distance."""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kubestow.framework.interface import MAX_SCORE
from kubestow_contrib.node_resource_topology.alignment import Amounts, PodRequests
from kubestow_contrib.node_resource_topology.args import ScoringStrategy
from kubestow_contrib.node_resource_topology.zones import ABSENT, Available, Layout

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
    if strategy.type == "BalancedAllocation":
        of_zones = _balanced(requests, available)
    else:
        of_zones = _weighted(requests, available, strategy)
    lowest: Int64s = np.where(of_zones > 0, of_zones, MAX_SCORE + 1).min(axis=0)
    return np.where(lowest > MAX_SCORE, 0, lowest)


def _weighted(requests: Amounts, available: Available, strategy: ScoringStrategy) -> Int64s:
    """The weighted mean over the resources of what is left of a zone, in percent, or taken; 0 where it does not fit."""
    total, weights = np.zeros(available.shape, np.int64), 0
    for name, request in requests.items():
        there = available.of(name)
        fits = (there > 0) & (there >= request)
        capacity, requested = _values(name, there), int(_values(name, np.array(request)))
        share = capacity - requested if strategy.type == "LeastAllocated" else requested
        score = share * MAX_SCORE // np.where(fits, capacity, 1)
        weight = strategy.weight(name)
        total += np.where(fits, score, 0) * weight
        weights += weight
    return total // max(weights, 1)


def _balanced(requests: Amounts, available: Available) -> Int64s:
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


#: Nodes with more zones score 0; the number of combinations doubles with each. Kubelets support 8 by default.
MOST_SEARCHED = 10

Mask = NDArray[np.bool_]


class _Needed(NamedTuple):
    """The zones that a request needs.

    ``zones`` is bool (zones, nodes), none for a node that has not enough; ``are_closest`` is bool per node.
    """

    zones: Mask
    are_closest: Mask


def score_zones_needed(pod: PodRequests, available: Available, layout: Layout) -> NDArray[np.int64]:
    """The scores of nodes of one layout, int64 per node. Changes what is available."""
    nodes = available.shape[1]
    if len(layout.zones) > MOST_SEARCHED:
        return np.zeros(nodes, np.int64)
    parts = [pod.together] if layout.aligns_pods else [container.amounts for container in pod.containers]
    most, closest, fits = np.zeros(nodes, np.int64), np.ones(nodes, np.bool_), np.ones(nodes, np.bool_)
    for requests in parts:
        concerned = np.zeros(nodes, np.bool_)
        for name in requests:
            concerned |= (available.of(name) != ABSENT).any(axis=0)
        needed = _needed(requests, available, layout)
        fits &= needed.zones.any(axis=0) | ~concerned
        most = np.maximum(most, np.where(concerned, needed.zones.sum(axis=0), 0))
        closest &= needed.are_closest | ~concerned
        _subtract(requests, available, needed.zones & concerned)
    step = MAX_SCORE // layout.max_zones
    scores = np.maximum(MAX_SCORE - most * step, 0) + np.where(closest, step // 2, 0)
    return np.where(fits, np.where(most > 0, scores, MAX_SCORE), 0)


def _needed(requests: Amounts, available: Available, layout: Layout) -> _Needed:
    """The fewest zones that have enough together, of these the closest, of these the first ones."""
    found = _Needed(np.zeros(available.shape, np.bool_), np.zeros(available.shape[1], np.bool_))
    missing = np.ones(available.shape[1], np.bool_)
    for count in range(1, len(layout.zones) + 1):
        sets = sorted(combinations(range(len(layout.zones)), count), key=lambda chosen: _distance(layout, chosen))
        least = _distance(layout, sets[0])
        for chosen in sets:
            zones = np.array([layout.zones[position] for position in chosen])
            fitting = missing & _fit_together(requests, available, zones)
            if fitting.any():
                found.zones[np.ix_(zones, np.flatnonzero(fitting))] = True
                found.are_closest[fitting] = _distance(layout, chosen) == least
                missing &= ~fitting
        if not missing.any():
            break
    return found


def _distance(layout: Layout, positions: tuple[int, ...]) -> int:
    """The sum of the distances between some zones, to themselves included."""
    return sum(layout.distances[a][b] for a in positions for b in positions)


def _fit_together(requests: Amounts, available: Available, zones: NDArray[np.intp]) -> Mask:
    """Where zones have enough together, and each of them lists all resources, bool per node."""
    fit = np.ones(available.shape[1], np.bool_)
    for name, request in requests.items():
        there = available.of(name)[zones]
        fit &= (there != ABSENT).all(axis=0) & (there.sum(axis=0) >= request)
    return fit


def _subtract(requests: Amounts, available: Available, zones: Mask) -> None:
    """Subtract requests from zones (bool, zones by nodes), from those with low numbers first."""
    for name, request in requests.items():
        there = available.of(name)
        left = np.full(available.shape[1], request, np.int64)
        for number in np.flatnonzero(zones.any(axis=1)).tolist():
            taken = np.where(zones[number], np.clip(left, 0, np.maximum(there[number], 0)), 0)
            there[number] -= taken
            left -= taken
