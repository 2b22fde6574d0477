"""NodeResourcesBalancedAllocation prefers nodes whose resources would be used evenly (semantics 8.9)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.events import Action, EventResource
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.requests import CPU, EPHEMERAL_STORAGE, MEMORY
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.config.plugin_args import NodeResourcesBalancedAllocationArgs
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import on
from kubestow.framework.interface import MAX_SCORE, Handle, PreScorePlugin, ScorePlugin
from kubestow.framework.status import Status
from kubestow.plugins.dynamic_resources.device_counts import DeviceCounts
from kubestow.plugins.dynamic_resources.extended_resources import is_dra_extended_resource_name

__all__ = ["NodeResourcesBalancedAllocation"]

Floats = NDArray[np.float64]

#: What a pod scores that changes nothing.
_KEPT = MAX_SCORE // 2 + MAX_SCORE // 4
_NATIVE = (CPU, MEMORY, EPHEMERAL_STORAGE)


@dataclass(frozen=True, slots=True)
class _Counted:
    """The resources that count for a pod, and its requests of them."""

    requests: Sequence[tuple[str, int]]


class NodeResourcesBalancedAllocation(PreScorePlugin, ScorePlugin):
    """Scores how much placing the pod evens out, or unbalances, the use of a node."""

    name = "NodeResourcesBalancedAllocation"
    events_to_register = (
        on(EventResource.POD, Action.ALL | Action.UPDATE_POD_SCALE_UP, requeues=False),
        on(EventResource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE, requeues=False),
    )

    def __init__(self, args: NodeResourcesBalancedAllocationArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._resources = [spec.name for spec in args.resources]
        self._devices = DeviceCounts(handle)

    def signature(self, pod: PodInfo) -> Hashable | None:
        """What the pod requests of the resources that count; how many devices are taken changes with every claim."""
        if any(pod.shape.requests.get(name, 0) and is_dra_extended_resource_name(name) for name in self._resources):
            return None
        return tuple(pod.shape.requests.get(name, 0) for name in self._resources)

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        """A pod that requests nothing cannot unbalance anything."""
        if not any(self._requests(pod)):
            return Status.skip()
        state.put(self._counted(pod))
        return None

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        """50 and half of what the balance gains over 50, so that keeping it scores 75."""
        counted = state.get(_Counted) or self._counted(pod)
        if not counted.requests:
            return np.full(len(nodes), _KEPT, np.int64)
        usages = [(*self._devices.usage(name, nodes), request) for name, request in counted.requests]
        if len(nodes) == 1:
            of_one = [(capacity.item(), used.item(), request) for capacity, used, request in usages]
            return np.array([_score_of_one(of_one)], np.int64)
        return _scores(usages)

    def _counted(self, pod: PodInfo) -> _Counted:
        requests = zip(self._resources, self._requests(pod), strict=True)
        counted = [(name, request) for name, request in requests if request or name in _NATIVE]
        return _Counted(counted)

    def _requests(self, pod: PodInfo) -> list[int]:
        return [pod.shape.requests.get(name, 0) for name in self._resources]


# -- one node, where numbers are quicker than arrays of one --------------------------------------------------------


def _score_of_one(usages: Sequence[tuple[int, int, int]]) -> int:
    """The score of a node by what it has of each resource, what is used of it and what the pod requests."""
    there = [(float(capacity), used, request) for capacity, used, request in usages if capacity > 0]
    before = _balance_of_one([min(used / capacity, 1.0) for capacity, used, _ in there])
    after = _balance_of_one([min((used + request) / capacity, 1.0) for capacity, used, request in there])
    return (after - before + MAX_SCORE // 2) // 2 + MAX_SCORE // 2


def _balance_of_one(fractions: Sequence[float]) -> int:
    if len(fractions) == 2:
        deviation = abs(fractions[0] - fractions[1]) / 2
    else:
        deviation = _spread(fractions)
    return int((1.0 - deviation) * MAX_SCORE)


def _spread(fractions: Sequence[float]) -> float:
    """Population standard deviation, summed up from left to right like the reference does; 0 of fewer than three."""
    if len(fractions) < 3:
        return 0.0
    total = squares = 0.0
    for fraction in fractions:
        total += fraction
    mean = total / len(fractions)
    for fraction in fractions:
        squares += (fraction - mean) * (fraction - mean)
    return sqrt(squares / len(fractions))


# -- many nodes ----------------------------------------------------------------------------------------------------


def _scores(usages: Sequence[tuple[NDArray[np.int64], NDArray[np.int64], int]]) -> NDArray[np.int64]:
    """The scores of many nodes by what they have of each resource, what is used of it and what the pod requests."""
    present, before, after = [], [], []
    for capacity, used, request in usages:
        present.append(capacity > 0)
        divisor = np.maximum(capacity, 1).astype(np.float64)
        before.append(_fractions(used, divisor))
        after.append(_fractions(used + request, divisor))
    score = _balance(after, present)
    score -= _balance(before, present)
    score += MAX_SCORE // 2
    score //= 2
    score += MAX_SCORE // 2
    return score


def _fractions(used: NDArray[np.int64], capacity: Floats) -> Floats:
    """How much of the capacity is used, 1 at most."""
    fractions: Floats = used / capacity
    return np.minimum(fractions, 1.0, out=fractions)


def _balance(fractions: Sequence[Floats], present: Sequence[NDArray[np.bool_]]) -> NDArray[np.int64]:
    """(1 - standard deviation) x 100, truncated, over the resources that each node has."""
    if len(present) == 2 and present[0].all() and present[1].all():
        deviation: Floats = fractions[0] - fractions[1]
        np.abs(deviation, out=deviation)
        deviation /= 2
    else:
        deviation = _deviation(np.array(fractions), np.array(present))
    np.subtract(1.0, deviation, out=deviation)
    deviation *= MAX_SCORE
    return deviation.astype(np.int64)


def _deviation(fractions: Floats, present: NDArray[np.bool_]) -> Floats:
    """Population standard deviation down the columns, in the reference's order of operations."""
    nodes = fractions.shape[1]
    count = present.sum(axis=0)
    total = np.zeros(nodes)
    for fraction, there in zip(fractions, present, strict=True):
        total += np.where(there, fraction, 0.0)
    mean = total / np.maximum(count, 1)
    squares = np.zeros(nodes)
    for fraction, there in zip(fractions, present, strict=True):
        squares += np.where(there, (fraction - mean) * (fraction - mean), 0.0)
    several = np.where(count > 2, np.sqrt(squares / np.maximum(count, 1)), 0.0)
    return np.where(count == 2, _pair_deviation(fractions, present), several)


def _pair_deviation(fractions: Floats, present: NDArray[np.bool_]) -> Floats:
    """Half the distance of the first and the last fraction that are there."""
    columns = np.arange(fractions.shape[1])
    first: Floats = fractions[present.argmax(axis=0), columns]
    last: Floats = fractions[len(present) - 1 - present[::-1].argmax(axis=0), columns]
    return np.abs(first - last) / 2
