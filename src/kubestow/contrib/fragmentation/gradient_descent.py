"""FragmentationGradientDescent: the node, and on it the GPU, where the pod adds least to fragmentation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.contrib.fragmentation.devices import WHOLE, GpuRequest, IdleDevices
from kubestow.contrib.fragmentation.gpu_sharing import GpuSharingArgs, GpuSharingPlugin
from kubestow.contrib.fragmentation.typical_pods import TypicalPod, UsableGpus
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import MAX_SCORE, Handle, Scores

__all__ = ["FragmentationArgs", "FragmentationGradientDescent"]

Array = NDArray[np.int64]


class FragmentationArgs(GpuSharingArgs, rename="camel", frozen=True, kw_only=True):
    """``typical_pods`` are the pods that idle GPUs should stay usable for; see :func:`.typical_pods.typical_pods`.

    ``model_label`` is the node label with the GPU model.
    """

    typical_pods: tuple[TypicalPod, ...]
    model_label: str = "nvidia.com/gpu.product"

    def __post_init__(self) -> None:
        if not self.typical_pods:
            raise ValueError("typicalPods must not be empty")


class _Free(NamedTuple):
    """The nodes of a score: the class of their GPU model, free CPU (millicores), int64, and what is idle of GPUs."""

    model_class: Array
    cpu: Array
    idle: IdleDevices


class FragmentationGradientDescent(GpuSharingPlugin):
    """Prefers the node whose fragmentation the pod increases least or decreases most."""

    name = "FragmentationGradientDescent"
    Args = FragmentationArgs

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._usable = UsableGpus(args.typical_pods)
        #: The class of the GPU model of each row, and the revision of the node table that it is of.
        self._model_classes: tuple[int, Array] = (-1, np.zeros(0, np.int64))

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
        """The decrease of fragmentation by the best choice of GPUs, through a sigmoid; 50 if it stays the same."""
        cpu, request = pod.shape.requests.get("cpu", 0), self.request(pod)
        free_cpu = nodes.allocatable("cpu") - nodes.requested("cpu")
        free = _Free(self._classes_of(nodes), free_cpu, self.devices.idle(nodes))
        if request.is_share:
            best: Scores = self._scores_of_devices(free, cpu, request.milli).max(axis=1, initial=0)
            return best
        return self._score(self._decrease(free, cpu, request))

    def choose_device(self, pod: PodInfo, node_name: str, idle: Sequence[int]) -> int | None:
        """The GPU with the highest score; of several, the first."""
        table, cpu, milli = self.handle.cluster.nodes, pod.shape.requests.get("cpu", 0), self.request(pod).milli
        row = table.rows[node_name]
        nodes = Nodes(table, slice(row, row + 1))
        free_cpu = nodes.allocatable("cpu") - nodes.requested("cpu")
        if pod.uid in table.pods[row]:
            free_cpu = free_cpu + pod.requests.get("cpu", 0)
        free = _Free(self._classes_of(nodes), free_cpu, IdleDevices.of(np.array([idle], np.int64)))
        scores = self._scores_of_devices(free, cpu, milli)[0]
        device = int(scores.argmax()) if len(scores) else 0
        return device if len(scores) and scores[device] >= 0 else None

    def _classes_of(self, nodes: Nodes) -> Array:
        """The class of the GPU model of each node, int64."""
        cluster = self.handle.cluster
        revision, classes = self._model_classes
        if revision != cluster.nodes.revision:
            classes = cluster.all_nodes().by_label(self.args.model_label, self._usable.model_class)
            self._model_classes = cluster.nodes.revision, classes
        return classes[nodes.rows]

    # -- the gradient, in thousandths of a GPU times typical pods ----------------------------------------------------

    def _scores_of_devices(self, free: _Free, cpu: int, milli: int) -> Array:
        """The scores of a share for each GPU, shape (nodes, GPUs); -1 where it does not fit."""
        usable, model_class, idle = self._usable, free.model_class, free.idle.each
        step = usable.cpu_step(free.cpu - cpu)
        of_each = usable.of_each(model_class, step, idle)
        left = usable.of_each(model_class, step, np.maximum(idle - milli, 0))
        whole_left = usable.of_whole(model_class, step, free.idle.whole[:, None] - (idle == WHOLE))
        after = of_each.sum(axis=1, keepdims=True) - of_each + left + whole_left
        decrease = usable.total * milli + after - self._usable_amount(free)[:, None]
        return np.where(idle >= milli, self._score(decrease), -1)

    def _decrease(self, free: _Free, cpu: int, request: GpuRequest) -> Array:
        """The decrease of fragmentation by a pod with whole GPUs or none, shape (nodes,)."""
        usable, model_class = self._usable, free.model_class
        step = usable.cpu_step(free.cpu - cpu)
        after = usable.of_each(model_class, step, free.idle.each).sum(axis=1)
        if request.gpus:
            after -= request.gpus * usable.of_each(model_class, step, np.full((len(step), 1), WHOLE))[:, 0]
        whole_left = np.maximum(free.idle.whole - request.gpus, 0)
        after += usable.of_whole(model_class, step, whole_left[:, None])[:, 0]
        decrease: Array = usable.total * request.total + after - self._usable_amount(free)
        return decrease

    def _usable_amount(self, free: _Free) -> Array:
        """The usable amount of each node as it is, shape (nodes,)."""
        usable, step = self._usable, self._usable.cpu_step(free.cpu)
        of_each = usable.of_each(free.model_class, step, free.idle.each)
        amount: Array = of_each.sum(axis=1) + usable.of_whole(free.model_class, step, free.idle.whole[:, None])[:, 0]
        return amount

    def _score(self, decrease: Array) -> Array:
        sigmoid = 1.0 / (1.0 + np.exp(decrease / (-WHOLE * self._usable.total)))
        score: Array = (sigmoid * MAX_SCORE).astype(np.int64)
        return score
