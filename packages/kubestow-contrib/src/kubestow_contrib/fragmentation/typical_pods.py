"""The fragmentation of a node: how much of its idle GPUs typical pods cannot use (Weng et al., USENIX ATC 2023).

Take a typical pod at random. All idle thousandths of the node are fragments if the pod asks for no GPU, may not use
the model, or does not fit by CPU or GPUs; otherwise those of GPUs with less idle than the pod needs of one. The
fragmentation is the expected amount.

What is left is usable, and a sum over the GPUs: one with ``x`` idle is usable for the pods that need at most ``x`` of a
GPU and at most the node's free CPU. So a table by model, free CPU and ``x`` gives the usable amount of a GPU, and a
second one that of wholly idle GPUs for pods with several GPUs. Both count typical pods instead of using their shares:
with integers, equal states have exactly equal fragmentation.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow_contrib.fragmentation.devices import WHOLE

Array = NDArray[np.int64]


class TypicalPod(msgspec.Struct, rename="camel", frozen=True, order=True):
    """A kind of pod that the cluster typically gets, and how many of it.

    ``cpu`` in millicores; ``gpus`` GPUs with ``gpu_milli`` thousandths each; ``models`` are the GPU models that it may
    use, none for any.
    """

    cpu: int
    gpu_milli: int = WHOLE
    gpus: int = 0
    models: tuple[str, ...] = ()
    count: int = 1

    def __post_init__(self) -> None:
        if self.cpu < 0 or self.gpus < 0:
            raise ValueError("cpu and gpus must not be negative")
        if self.count < 1:
            raise ValueError("count must be at least 1")
        if not 0 < self.gpu_milli <= WHOLE or (self.gpus > 1 and self.gpu_milli < WHOLE):
            raise ValueError(f"gpuMilli must be 1 to {WHOLE}, and {WHOLE} for several GPUs")


def typical_pods(pods: Iterable[TypicalPod], *, coverage: float = 0.95) -> list[TypicalPod]:
    """The most frequent kinds of some pods, most frequent first, until they cover a share of all pods."""
    counts = Counter[TypicalPod]()
    for pod in pods:
        counts[msgspec.structs.replace(pod, count=1)] += pod.count
    found, covered = [], 0
    for pod, count in sorted(counts.items(), key=lambda item: (item[1], item[0]), reverse=True):
        if covered >= coverage * counts.total():
            break
        covered += count
        found.append(msgspec.structs.replace(pod, count=count))
    return found


class UsableGpus:
    """The usable amount of idle GPUs, in thousandths times typical pods; see the module.

    Nodes are described by an array (int64) of their kinds; see :meth:`node_kind`.
    """

    def __init__(self, pods: Sequence[TypicalPod]) -> None:
        #: The number of typical pods.
        self.total = sum(pod.count for pod in pods)
        self._pods = [pod for pod in pods if pod.gpus]
        self._cpu_step_list = sorted({pod.cpu for pod in self._pods})
        self._cpu_steps = np.array(self._cpu_step_list, np.int64)
        self._most_gpus = max((pod.gpus for pod in self._pods), default=0)
        #: The number of the class of GPU models, by the typical pods that may use them and by model.
        self._classes: dict[tuple[int, ...], int] = {}
        self._class_by_model: dict[str | None, int] = {}
        steps = len(self._cpu_steps) + 1
        self._of_one: Array = np.zeros((0, steps, WHOLE + 1), np.int64)
        self._of_several: Array = np.zeros((0, steps, self._most_gpus + 1), np.int64)

    def model_class(self, model: str | None) -> int:
        """The number of the class of GPU models that the same typical pods may use."""
        number = self._class_by_model.get(model)
        if number is None:
            usable_by = tuple(i for i, pod in enumerate(self._pods) if not pod.models or model in pod.models)
            if usable_by not in self._classes:
                self._classes[usable_by] = len(self._classes)
                self._add_class([self._pods[i] for i in usable_by])
            number = self._class_by_model[model] = self._classes[usable_by]
        return number

    def _add_class(self, pods: Sequence[TypicalPod]) -> None:
        of_one, of_several = np.zeros(self._of_one.shape[1:], np.int64), np.zeros(self._of_several.shape[1:], np.int64)
        for pod in pods:
            step = int(np.searchsorted(self._cpu_steps, pod.cpu)) + 1
            if pod.gpus == 1:
                of_one[step:, pod.gpu_milli :] += pod.count
            else:
                of_several[step:, pod.gpus :] += pod.count
        self._of_one = np.concatenate((self._of_one, (of_one * np.arange(WHOLE + 1))[None]))
        self._of_several = np.concatenate((self._of_several, (of_several * WHOLE)[None]))

    def node_kind(self, model_class: Array, free_cpu: Array) -> Array:
        """The number of the kind of nodes with these models and free CPU (millicores), int64, shape (nodes,).

        GPUs of nodes of one kind are usable for the same pods: for those whose CPU requests fit, and that may use the
        model.
        """
        step = self._cpu_steps.searchsorted(free_cpu, side="right")
        kind: Array = model_class * (len(self._cpu_steps) + 1) + step
        return kind

    def of_each(self, kind: Array, idle: Array) -> Array:
        """The usable amount of each GPU by pods with one GPU; ``idle`` and result have shape (nodes, GPUs)."""
        usable: Array = self._of_one.take((kind * self._of_one.shape[2])[:, None] + idle)
        return usable

    def of_whole(self, kind: Array, count: Array) -> Array:
        """The usable amount of ``count`` wholly idle GPUs of each node by pods with several GPUs, shape (nodes,)."""
        several = np.minimum(count, self._most_gpus)
        usable: Array = count * self._of_several.take(kind * self._of_several.shape[2] + several)
        return usable

    def kind_of_node(self, model_class: int, free_cpu: int) -> int:
        """The same as :meth:`node_kind` for a single node."""
        return model_class * (len(self._cpu_steps) + 1) + bisect_right(self._cpu_step_list, free_cpu)

    def of_node(self, kind: int, idle: Sequence[int], taken: int = 0) -> int:
        """The usable amount of the GPUs of a single node without ``taken`` ones of those that are wholly idle."""
        one, offset = self._of_one, kind * self._of_one.shape[2]
        each = sum([one.item(offset + amount) for amount in idle]) - taken * one.item(offset + WHOLE)
        whole = max(idle.count(WHOLE) - taken, 0)
        several = min(whole, self._most_gpus)
        usable: int = each + whole * self._of_several.item(kind * self._of_several.shape[2] + several)
        return usable
