"""BestFit: the node that has least CPU and GPU left once the pod is there, and on it the fullest GPU with room."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import MAX_SCORE, Scores
from kubestow_contrib.fragmentation.gpu_sharing import GpuSharingArgs, GpuSharingPlugin
from kubestow_contrib.range_normalization import normalized_range


class BestFitArgs(GpuSharingArgs, rename="camel", frozen=True, kw_only=True):
    """``max_cpu`` (millicores) and ``max_gpus``: those of the largest node, by which free amounts are divided."""

    max_cpu: int = 128000
    max_gpus: int = 8

    def __post_init__(self) -> None:
        if self.max_cpu < 1 or self.max_gpus < 1:
            raise ValueError("maxCpu and maxGpus must be at least 1")


class BestFit(GpuSharingPlugin):
    """Prefers the node with the least free CPU and GPU, and the fullest GPU."""

    name = "BestFit"
    Args = BestFitArgs

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
        """100 less the mean share of CPU and GPU that stays free, in percent."""
        cpu = nodes.allocatable("cpu") - nodes.requested("cpu") - pod.shape.requests.get("cpu", 0)
        gpu = self.devices.idle(nodes).total - self.request(pod).total
        free = cpu / self.args.max_cpu * 0.5 + gpu / (1000 * self.args.max_gpus) * 0.5
        scores: Scores = ((1.0 - free) * MAX_SCORE).astype(np.int64)
        return scores

    def normalize(self, state: CycleState, pod: PodInfo, scores: Scores, nodes: Nodes) -> Scores:
        """Stretch the scores to 0 .. 100; all are 0 if they are equal."""
        return normalized_range(scores)

    def choose_device(self, pod: PodInfo, node_name: str, idle: Sequence[int]) -> int | None:
        """The fullest GPU with room."""
        milli = self.request(pod).milli
        return min(
            (device for device, amount in enumerate(idle) if amount >= milli), key=idle.__getitem__, default=None
        )
