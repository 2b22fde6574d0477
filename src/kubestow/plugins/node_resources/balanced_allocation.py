"""NodeResourcesBalancedAllocation prefers nodes whose resources stay evenly used (semantics 8.9).

The balance of a node is 100 × (1 − standard deviation of the used fractions of its resources). A pod scores by the
difference between the balance with it and without it. The order of the floating-point operations is kube-scheduler's.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from kubestow.api.formats.int64 import as_int64
from kubestow.cluster.events import Action, EventResource
from kubestow.cluster.nodes.views import NodeRow, Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.config.plugin_args import NodeResourcesBalancedAllocationArgs
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import on
from kubestow.framework.interface import MAX_SCORE, Handle, PreScorePlugin, ScorePlugin
from kubestow.framework.status import Status
from kubestow.plugins.dynamic_resources.device_counts import DeviceCounts
from kubestow.plugins.dynamic_resources.extended_resources import is_dra_extended_resource_name
from kubestow.plugins.node_resources.scoring import is_unrequested_scalar

__all__ = ["NodeResourcesBalancedAllocation"]

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _BalancedAllocationPreScoreState:
    """The resources to score: name and the pod's request (millicores, bytes or count)."""

    requests: Sequence[tuple[str, int]]


class NodeResourcesBalancedAllocation(PreScorePlugin, ScorePlugin):
    """Scores how much the pod improves or worsens the balance of a node."""

    name = "NodeResourcesBalancedAllocation"
    label_keys = ()
    events_to_register = (
        on(EventResource.POD, Action.ALL | Action.UPDATE_POD_SCALE_UP, requeues=False),
        on(EventResource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE, requeues=False),
    )

    def __init__(self, args: NodeResourcesBalancedAllocationArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._resources = [spec.name for spec in args.resources]
        self._devices = DeviceCounts(handle)

    def signature(self, pod: PodInfo) -> Hashable | None:
        """The requests of the configured resources. None if devices may be scored: any claim changes their usage."""
        if any(pod.shape.requests.get(name, 0) and is_dra_extended_resource_name(name) for name in self._resources):
            return None
        return tuple(pod.shape.requests.get(name, 0) for name in self._resources)

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        """Skips a pod that requests none of the configured resources."""
        if not self._requests_any(pod):
            return Status.skip()
        state.put(self._pre_score_state(pod))
        return None

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        """50 + (50 + balance with the pod − balance without it) / 2, so that an unchanged balance scores 75.

        Where PreScore is disabled, a pod that it would have skipped scores 0.
        """
        pre_score = state.get(_BalancedAllocationPreScoreState)
        if pre_score is None:
            if not self._requests_any(pod):
                return np.zeros(len(nodes), np.int64)
            pre_score = self._pre_score_state(pod)
        usages = [(*self._devices.usage(name, nodes), request) for name, request in pre_score.requests]
        return _scores(usages)

    def score_row(self, state: CycleState, pod: PodInfo, node: NodeRow) -> int:
        """The same for a single node."""
        pre_score = state.get(_BalancedAllocationPreScoreState)
        if pre_score is None:
            if not self._requests_any(pod):
                return 0
            pre_score = self._pre_score_state(pod)
        return _node_score([(*self._devices.usage_of_row(name, node), request) for name, request in pre_score.requests])

    def _requests_any(self, pod: PodInfo) -> bool:
        return any(pod.shape.requests.get(name, 0) for name in self._resources)

    def _pre_score_state(self, pod: PodInfo) -> _BalancedAllocationPreScoreState:
        names = [name for name in self._resources if not is_unrequested_scalar(pod.shape.requests, name)]
        return _BalancedAllocationPreScoreState([(name, pod.shape.requests.get(name, 0)) for name in names])


# -- scores of many nodes --------------------------------------------------------------------------------------------


def _scores(usages: Sequence[tuple[Int64s, Int64s, int]]) -> Int64s:
    """The scores of nodes (int64) by capacity, used amount (int64 per node) and the pod's request of each resource."""
    before, after = [], []
    everywhere = all(capacity.min(initial=1) > 0 for capacity, _, _ in usages)
    for capacity, used, request in usages:
        divisor = (capacity if everywhere else np.maximum(capacity, 1)).astype(np.float64)
        before.append(_fractions(used, divisor))
        after.append(_fractions(used + request, divisor))
    present = None if everywhere else [capacity > 0 for capacity, _, _ in usages]
    score = _balance(after, present)
    score -= _balance(before, present)
    score += MAX_SCORE // 2
    score >>= 1  # rounds down, as // does
    score += MAX_SCORE // 2
    return score


def _fractions(used: Int64s, capacity: Floats) -> Floats:
    """Used amount / capacity, at most 1."""
    fractions = used.astype(np.float64)
    fractions /= capacity
    return np.minimum(fractions, 1.0, out=fractions)


def _balance(fractions: Sequence[Floats], present: Sequence[Mask] | None) -> Int64s:
    """int((1 − deviation) × 100) over the resources that each node has (``present``; None: all of them)."""
    if present is None and len(fractions) == 2:
        deviation: Floats = fractions[0] - fractions[1]
        np.abs(deviation, out=deviation)
        deviation *= 0.5
    else:
        whole = np.array(fractions)
        deviation = _deviation(whole, np.ones(whole.shape, np.bool_) if present is None else np.array(present))
    np.subtract(1.0, deviation, out=deviation)
    deviation *= MAX_SCORE
    return deviation.astype(np.int64)


def _deviation(fractions: Floats, present: Mask) -> Floats:
    """The standard deviation of each node's fractions; both arrays have shape (resources, nodes)."""
    nodes = fractions.shape[1]
    count = present.sum(axis=0)
    total = np.zeros(nodes)
    for fraction, where in zip(fractions, present, strict=True):
        total += np.where(where, fraction, 0.0)
    mean = total / np.maximum(count, 1)
    squares = np.zeros(nodes)
    for fraction, where in zip(fractions, present, strict=True):
        squares += np.where(where, (fraction - mean) * (fraction - mean), 0.0)
    deviation = np.where(count > 2, np.sqrt(squares / np.maximum(count, 1)), 0.0)
    return np.where(count == 2, _pair_deviation(fractions, present), deviation)


def _pair_deviation(fractions: Floats, present: Mask) -> Floats:
    """Half the distance between the first and the last present fraction of each node."""
    columns = np.arange(fractions.shape[1])
    first: Floats = fractions[present.argmax(axis=0), columns]
    last: Floats = fractions[len(present) - 1 - present[::-1].argmax(axis=0), columns]
    return np.abs(first - last) / 2


# -- the score of a single node, without arrays of length one --------------------------------------------------------


def _node_score(usages: Sequence[tuple[int, int, int]]) -> int:
    """The score of a node by capacity, used amount and the pod's request of each resource."""
    present = [(float(capacity), used, request) for capacity, used, request in usages if capacity > 0]
    before = _node_balance([min(used / capacity, 1.0) for capacity, used, _ in present])
    after = _node_balance([min(as_int64(used + request) / capacity, 1.0) for capacity, used, request in present])
    return (after - before + MAX_SCORE // 2) // 2 + MAX_SCORE // 2


def _node_balance(fractions: Sequence[float]) -> int:
    if len(fractions) == 2:
        deviation = abs(fractions[0] - fractions[1]) / 2
    else:
        deviation = _node_deviation(fractions)
    return int((1.0 - deviation) * MAX_SCORE)


def _node_deviation(fractions: Sequence[float]) -> float:
    """The population standard deviation, summed up from left to right; 0 of fewer than three fractions."""
    if len(fractions) < 3:
        return 0.0
    total = squares = 0.0
    for fraction in fractions:
        total += fraction
    mean = total / len(fractions)
    for fraction in fractions:
        squares += (fraction - mean) * (fraction - mean)
    return sqrt(squares / len(fractions))
