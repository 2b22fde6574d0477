"""NodeResourcesAllocatable prefers small nodes, or large ones: by the weighted sum of what is allocatable."""

from __future__ import annotations

from collections.abc import Hashable

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import on
from kubestow.framework.interface import Handle, ScorePlugin
from kubestow_contrib.range_normalization import normalized_range

_LEAST, _MOST = "Least", "Most"


class ResourceWeight(msgspec.Struct, frozen=True):
    """A resource (millicores of CPU, bytes, counts) and its weight."""

    name: str
    weight: int = 0


class NodeResourcesAllocatableArgs(msgspec.Struct, frozen=True):
    """Which nodes are preferred, and the resources; by default a millicore has the weight of a MiB."""

    resources: list[ResourceWeight] | None = None
    mode: str = _LEAST

    def __post_init__(self) -> None:
        for index, resource in enumerate(self.resources or ()):
            if resource.weight <= 0:
                weight = f"resources[{index}].weight is {resource.weight}"
                raise ValueError(f"{weight}, expected a positive weight of {resource.name}")
        if self.mode not in ("", _LEAST, _MOST):
            raise ValueError(f'mode is "{self.mode}", expected {_LEAST} or {_MOST}')


_DEFAULT = [ResourceWeight("cpu", 1 << 20), ResourceWeight("memory", 1)]


class NodeResourcesAllocatable(ScorePlugin):
    """Scores the size of nodes, whatever the pod requests and whatever is in use."""

    name = "NodeResourcesAllocatable"
    Args = NodeResourcesAllocatableArgs
    label_keys = ()
    events_to_register = (on(EventResource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE, requeues=False),)

    def __init__(self, args: NodeResourcesAllocatableArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._weights = {resource.name: resource.weight for resource in args.resources or _DEFAULT}
        self._sign = 1 if args.mode == _MOST else -1

    def signature(self, pod: PodInfo) -> Hashable:
        """The same for all pods."""
        return ()

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        """The weighted mean of the allocatable amounts, negative if less is better."""
        total = np.zeros(len(nodes), np.int64)
        for name, weight in self._weights.items():
            total += nodes.allocatable(name) * weight
        return self._sign * (total // sum(self._weights.values()))

    def normalize(self, state: CycleState, pod: PodInfo, scores: NDArray[np.int64], nodes: Nodes) -> NDArray[np.int64]:
        """0 for the lowest score, 100 for the highest."""
        return normalized_range(scores)
