"""PowerAware: the node whose power rises least with the pod, and on it the GPU that costs least.

This is the policy PWR of Lettich et al., "Power- and Fragmentation-aware Online Scheduling for GPU Datacenters" (CCGrid
2025). Enabled for Score alone, beside FragmentationGradientDescent, the weights of both say how much each counts, and
the other plugin chooses the GPUs. Enabled at all its extension points, it chooses them itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.nodes.views import NodeRow, Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import Handle, Scores
from kubestow_contrib.energy.power_models import PowerArgs, PowerModels
from kubestow_contrib.fragmentation.devices import WHOLE
from kubestow_contrib.fragmentation.gpu_sharing import GpuSharingPlugin
from kubestow_contrib.range_normalization import normalized_range

#: Raw scores are whole milliwatts.
_SCALE = 1000


class PowerAware(GpuSharingPlugin):
    """Prefers the nodes that draw least more with the pod."""

    name = "PowerAware"
    Args: ClassVar[type[Any]] = PowerArgs

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self.models = PowerModels(args, handle.cluster)

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
        """What the node draws more, in milliwatts, negative."""
        scores: Scores = -np.rint(self.rise(pod, nodes) * _SCALE).astype(np.int64)
        return scores

    def score_row(self, state: CycleState, pod: PodInfo, node: NodeRow) -> int:
        """The same for a single node."""
        return int(self.score(state, pod, node.as_nodes())[0])

    def normalize(self, state: CycleState, pod: PodInfo, scores: Scores, nodes: Nodes) -> Scores:
        """100 for the least, 0 for the most."""
        return normalized_range(scores)

    def rise(self, pod: PodInfo, nodes: Nodes) -> NDArray[np.float64]:
        """By how many watts each node draws more with the pod."""
        return self.models.rise(nodes, self.devices, pod.shape.requests.get("cpu", 0), self.request(pod))

    def choose_device(self, pod: PodInfo, node_name: str, idle: Sequence[int]) -> int | None:
        """The first GPU with room that is in use already, or else the first one."""
        milli = self.request(pod).milli
        fitting = (device for device, amount in enumerate(idle) if amount >= milli)
        return min(fitting, key=lambda device: idle[device] == WHOLE, default=None)
