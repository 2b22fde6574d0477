"""VolcanoBinpack prefers nodes that are full: Volcano's binpack as a score."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.nodes.views import NodeRow, Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import on
from kubestow.framework.interface import MAX_SCORE, Handle, ScorePlugin


class VolcanoBinpackArgs(msgspec.Struct, frozen=True):
    """The weights of resources; by default CPU and memory count alike. A resource without a weight does not count."""

    resources: dict[str, int] | None = None

    def __post_init__(self) -> None:
        for name, weight in (self.resources or {}).items():
            if weight < 0:
                raise ValueError(f"resources.{name} is {weight}, expected a weight of at least 0")


class VolcanoBinpack(ScorePlugin):
    """Scores by the fraction of a node that would be requested, weighted over the resources that the pod requests.

    A node that lacks one of these resources scores less for it; one that has too little left scores 0.
    """

    name = "VolcanoBinpack"
    Args = VolcanoBinpackArgs
    label_keys = ()
    events_to_register = (
        on(EventResource.POD, Action.ALL | Action.UPDATE_POD_SCALE_UP, requeues=False),
        on(EventResource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE, requeues=False),
    )

    def __init__(self, args: VolcanoBinpackArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._weights = {"cpu": 1, "memory": 1} if args.resources is None else args.resources

    def signature(self, pod: PodInfo) -> Hashable:
        """The requests that count."""
        return tuple(self._counted(pod))

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        """100 × the weighted mean of (requested + request) / allocatable, rounded down."""
        counted = self._counted(pod)
        used = [nodes.requested(name) + request for name, request, _ in counted]
        return _scores(counted, used, [nodes.allocatable(name) for name, _, _ in counted], len(nodes))

    def score_row(self, state: CycleState, pod: PodInfo, node: NodeRow) -> int:
        """The same for a single node."""
        counted = self._counted(pod)
        used = [np.array([node.requested(name) + request]) for name, request, _ in counted]
        return int(_scores(counted, used, [np.array([node.allocatable(name)]) for name, _, _ in counted], 1)[0])

    def _counted(self, pod: PodInfo) -> list[tuple[str, int, int]]:
        """The resources that the pod requests and that have a weight: name, request and weight."""
        requests = pod.shape.requests
        return [
            (name, request, weight)
            for name, weight in sorted(self._weights.items())
            if (request := requests.get(name, 0)) > 0
        ]


def _scores(
    counted: Sequence[tuple[str, int, int]], used: Sequence[NDArray[Any]], capacities: Sequence[NDArray[Any]], size: int
) -> NDArray[np.int64]:
    total = np.zeros(size, np.float64)
    fits = np.ones(size, np.bool_)
    for (_, _, weight), amount, capacity in zip(counted, used, capacities, strict=True):
        if weight:
            total += np.where(capacity > 0, amount * weight / np.maximum(capacity, 1), 0.0)
            fits &= (amount <= capacity) | (capacity == 0)
    weights = sum(weight for _, _, weight in counted)
    scores = total * (MAX_SCORE / weights) if weights else total
    return np.where(fits, scores, 0).astype(np.int64)
