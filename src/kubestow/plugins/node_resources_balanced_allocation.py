"""NodeResourcesBalancedAllocation prefers nodes whose resources would be used evenly (reference 8.9)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.events import Action, EventResource
from kubestow.cluster.pods import PodInfo
from kubestow.cluster.requests import CPU, EPHEMERAL_STORAGE, MEMORY
from kubestow.cluster.views import Nodes
from kubestow.config.plugin_args import NodeResourcesBalancedAllocationArgs
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interest import on
from kubestow.framework.plugin import MAX_SCORE, Handle, PreScorePlugin, ScorePlugin
from kubestow.framework.status import Status

__all__ = ["NodeResourcesBalancedAllocation"]

Floats = NDArray[np.float64]

_NATIVE = (CPU, MEMORY, EPHEMERAL_STORAGE)


class NodeResourcesBalancedAllocation(PreScorePlugin, ScorePlugin):
    """Scores how much placing the pod evens out, or unbalances, the use of a node."""

    name = "NodeResourcesBalancedAllocation"
    interests = (
        on(EventResource.POD, Action.ALL | Action.UPDATE_POD_SCALE_UP, wakes=False),
        on(EventResource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE, wakes=False),
    )

    def __init__(self, args: NodeResourcesBalancedAllocationArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._resources = [spec.name for spec in args.resources]

    def signature(self, pod: PodInfo) -> Hashable:
        """What the pod requests of the resources that count."""
        return tuple(pod.shape.requests.get(name, 0) for name in self._resources)

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        """A pod that requests nothing cannot unbalance anything."""
        return None if any(self._requests(pod)) else Status.skip()

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        """50 and half of what the balance gains over 50, so that keeping it scores 75."""
        before: list[Floats] = []
        after: list[Floats] = []
        present: list[NDArray[np.bool_]] = []
        for name, request in zip(self._resources, self._requests(pod), strict=True):
            if not request and name not in _NATIVE:
                continue
            capacity = nodes.allocatable(name)
            used = nodes.requested(name)
            divisor = np.maximum(capacity, 1).astype(np.float64)
            before.append(np.minimum(used / divisor, 1.0))
            after.append(np.minimum((used + request) / divisor, 1.0))
            present.append(capacity > 0)
        gain = MAX_SCORE // 2 + _balance(after, present, len(nodes)) - _balance(before, present, len(nodes))
        return MAX_SCORE // 2 + gain // 2

    def _requests(self, pod: PodInfo) -> list[int]:
        return [pod.shape.requests.get(name, 0) for name in self._resources]


def _balance(fractions: Sequence[Floats], present: Sequence[NDArray[np.bool_]], nodes: int) -> NDArray[np.int64]:
    """(1 - standard deviation) x 100, truncated, over the resources that each node has."""
    if not fractions:
        return np.full(nodes, MAX_SCORE, np.int64)
    if len(fractions) == 2 and all(there.all() for there in present):
        deviation = np.abs((fractions[0] - fractions[1]) / 2)
    else:
        deviation = _deviation(np.array(fractions), np.array(present))
    return ((1.0 - deviation) * MAX_SCORE).astype(np.int64)


def _deviation(fractions: Floats, present: NDArray[np.bool_]) -> Floats:
    """Population standard deviation down the columns, in the reference's order of operations."""
    count = present.sum(axis=0)
    total = np.zeros(fractions.shape[1])
    for fraction, there in zip(fractions, present, strict=True):
        total += np.where(there, fraction, 0.0)
    mean = total / np.maximum(count, 1)
    squares = np.zeros(fractions.shape[1])
    for fraction, there in zip(fractions, present, strict=True):
        squares += np.where(there, (fraction - mean) * (fraction - mean), 0.0)
    deviation = np.sqrt(squares / np.maximum(count, 1))
    pair = _pair_deviation(fractions, present)
    several = np.where(count > 2, deviation, 0.0)
    return np.where(count == 2, pair, several)


def _pair_deviation(fractions: Floats, present: NDArray[np.bool_]) -> Floats:
    """Half the distance of the first and the last fraction that are there."""
    columns = np.arange(fractions.shape[1])
    first: Floats = fractions[present.argmax(axis=0), columns]
    last: Floats = fractions[len(present) - 1 - present[::-1].argmax(axis=0), columns]
    return np.abs((first - last) / 2)
