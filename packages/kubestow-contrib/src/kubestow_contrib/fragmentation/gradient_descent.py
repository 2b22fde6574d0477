"""FragmentationGradientDescent: the node, and on it the GPU, where the pod adds least to fragmentation."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.nodes.views import NodeRow, Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import MAX_SCORE, Handle, Scores
from kubestow_contrib.fragmentation.devices import WHOLE, GpuRequest, IdleDevices
from kubestow_contrib.fragmentation.gpu_sharing import GpuSharingArgs, GpuSharingPlugin
from kubestow_contrib.fragmentation.typical_pods import TypicalPod, UsableGpus

Array = NDArray[np.int64]

#: So many GPUs less of fragmentation, or more, have a sigmoid of 1, or 0, in double precision.
_FAR = 40
#: Stands for the decrease of fragmentation where a share does not fit; less than any other.
_UNFIT = -(1 << 60)


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
        self._steps = _score_steps(self._usable.total)
        self._step_list: list[int] = self._steps.tolist()
        #: The class of the GPU model of each row, and the revision of the node table that it is of.
        self._model_classes: tuple[int, Array] = (-1, np.zeros(0, np.int64))

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
        """The decrease of fragmentation by the best choice of GPUs, through a sigmoid; 50 if it stays the same."""
        cpu, request = pod.shape.requests.get("cpu", 0), self.request(pod)
        free_cpu = nodes.allocatable("cpu") - nodes.requested("cpu")
        free = _Free(self._classes_of(nodes), free_cpu, self.devices.idle(nodes))
        if request.is_share:
            decrease = self._decreases_by_device(free, cpu, request.milli).max(axis=1, initial=_UNFIT)
        else:
            decrease = self._decrease(free, cpu, request)
        scores: Scores = self._steps.searchsorted(decrease, side="right")
        return scores

    def score_row(self, state: CycleState, pod: PodInfo, node: NodeRow) -> int:
        """The same for a single node."""
        cpu, request, idle = pod.shape.requests.get("cpu", 0), self.request(pod), self.devices.idle_of(node)
        model_class = int(self._classes_of(node.as_nodes())[0])
        free_cpu = node.allocatable("cpu") - node.requested("cpu")
        if request.is_share:
            return max(self._scores_of_devices(model_class, free_cpu, idle, cpu, request.milli).values(), default=0)
        before = self._usable.of_node(self._usable.kind_of_node(model_class, free_cpu), idle)
        after = self._usable.of_node(self._usable.kind_of_node(model_class, free_cpu - cpu), idle, request.gpus)
        return bisect_right(self._step_list, self._usable.total * request.total + after - before)

    def choose_device(self, pod: PodInfo, node_name: str, idle: Sequence[int]) -> int | None:
        """The GPU with the highest score; of several, the first."""
        table, cpu = self.handle.cluster.nodes, pod.shape.requests.get("cpu", 0)
        node = NodeRow(table, table.rows[node_name])
        free_cpu = node.allocatable("cpu") - node.requested("cpu")
        if pod.uid in table.pods[node.row]:
            free_cpu += pod.requests.get("cpu", 0)
        model_class = int(self._classes_of(node.as_nodes())[0])
        scores = self._scores_of_devices(model_class, free_cpu, idle, cpu, self.request(pod).milli)
        return max(scores, key=scores.__getitem__, default=None)

    def _scores_of_devices(
        self, model_class: int, free_cpu: int, idle: Sequence[int], cpu: int, milli: int
    ) -> dict[int, int]:
        """The score of a share for each GPU of a node on which it fits, by the number of the GPU, in order."""
        usable = self._usable
        lost = usable.total * milli - usable.of_node(usable.kind_of_node(model_class, free_cpu), idle)
        kind, scores = usable.kind_of_node(model_class, free_cpu - cpu), {}
        for device, amount in enumerate(idle):
            if amount >= milli:
                left = [*idle[:device], amount - milli, *idle[device + 1 :]]
                scores[device] = bisect_right(self._step_list, lost + usable.of_node(kind, left))
        return scores

    def _classes_of(self, nodes: Nodes) -> Array:
        """The class of the GPU model of each node, int64."""
        cluster = self.handle.cluster
        revision, classes = self._model_classes
        if revision != cluster.nodes.revision:
            classes = cluster.all_nodes().by_label(self.args.model_label, self._usable.model_class)
            self._model_classes = cluster.nodes.revision, classes
        return classes[nodes.rows]

    # -- the gradient, in thousandths of a GPU times typical pods ----------------------------------------------------

    def _decreases_by_device(self, free: _Free, cpu: int, milli: int) -> Array:
        """The decrease of fragmentation by a share on each GPU, shape (nodes, GPUs); very low where it does not fit."""
        usable, (idle, _, _, whole) = self._usable, free.idle
        kind = usable.node_kind(free.model_class, free.cpu - cpu)
        of_each, of_whole = usable.of_each(kind, idle), usable.of_whole(kind, whole)
        change = usable.of_each(kind, np.maximum(idle - milli, 0)) - of_each
        np.copyto(change, _UNFIT, where=idle < milli)
        one_whole_less = usable.of_whole(kind, np.maximum(whole - 1, 0)) - of_whole
        change += (idle == WHOLE) * one_whole_less[:, None]
        unchanged = np.add.reduce(of_each, axis=1) + of_whole - self._usable_amount(free)
        change += (usable.total * milli + unchanged)[:, None]
        return change

    def _decrease(self, free: _Free, cpu: int, request: GpuRequest) -> Array:
        """The decrease of fragmentation by a pod with whole GPUs or none, shape (nodes,)."""
        usable = self._usable
        kind = usable.node_kind(free.model_class, free.cpu - cpu)
        after = np.add.reduce(usable.of_each(kind, free.idle.each), axis=1)
        if request.gpus:
            after -= request.gpus * usable.of_each(kind, np.array([[WHOLE]]))[:, 0]
        after += usable.of_whole(kind, np.maximum(free.idle.whole - request.gpus, 0))
        decrease: Array = usable.total * request.total + after - self._usable_amount(free)
        return decrease

    def _usable_amount(self, free: _Free) -> Array:
        """The usable amount of each node as it is, shape (nodes,)."""
        usable, kind = self._usable, self._usable.node_kind(free.model_class, free.cpu)
        of_each, of_whole = usable.of_each(kind, free.idle.each), usable.of_whole(kind, free.idle.whole)
        amount: Array = np.add.reduce(of_each, axis=1) + of_whole
        return amount


def _score_steps(total: int) -> Array:
    """The least decrease of fragmentation for each score from 1 to 100, int64, given the number of typical pods.

    The score is the sigmoid of the decrease in GPUs, times 100, rounded down.
    """
    wanted = np.arange(1, MAX_SCORE + 1)
    low, high = np.full(MAX_SCORE, -_FAR * WHOLE * total), np.full(MAX_SCORE, _FAR * WHOLE * total)
    while (high - low).max() > 1:
        middle = (low + high) // 2
        reached = (1.0 / (1.0 + np.exp(middle / (-WHOLE * total))) * MAX_SCORE).astype(np.int64) >= wanted
        low, high = np.where(reached, low, middle), np.where(reached, middle, high)
    return high
