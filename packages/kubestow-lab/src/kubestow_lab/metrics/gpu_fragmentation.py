"""The fragmentation of single GPUs, as by Weng et al. ("Beware of Fragmentation", USENIX ATC 2023, section 3.2).

Take a pod of the workload at random. The idle thousandths of a node's GPUs are all fragments for it if it asks for no
GPU, may not use the model, or does not fit; otherwise those of the GPUs with less idle than it needs of one are. The
fragmentation of a node is the expected amount. :mod:`kubestow_lab.simulation.timeline` measures any resource as a sum
per node, without devices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kubestow_lab.workloads.gpu import PodShape

_WHOLE = 1000


@dataclass(frozen=True, slots=True)
class TypicalGpuPods:
    """The most frequent pods of a workload, by CPU, GPUs, thousandths of each and models, with their numbers."""

    counts: tuple[tuple[PodShape, int], ...]

    @classmethod
    def of(cls, pods: Iterable[PodShape], *, coverage: float = 0.95) -> TypicalGpuPods:
        """The most frequent shapes until they cover a share of all pods; memory and quality of service do not count."""
        counts = Counter(PodShape(pod.cpu_milli, 0, pod.gpus, pod.gpu_milli, "BE", pod.models) for pod in pods)
        most_first = sorted(counts.items(), key=lambda item: (-item[1], item[0].cpu_milli, item[0].gpu_milli))
        kept, covered = [], 0
        for shape, count in most_first:
            if covered >= coverage * counts.total():
                break
            covered += count
            kept.append((shape, count))
        return cls(tuple(kept))

    @property
    def shapes(self) -> tuple[tuple[PodShape, float], ...]:
        """The pods with their shares of them all."""
        total = sum(count for _, count in self.counts)
        return tuple((shape, count / total) for shape, count in self.counts)

    def fragments(
        self, idle: NDArray[np.int64], free_cpu: NDArray[np.int64], models: Sequence[str]
    ) -> NDArray[np.float64]:
        """The expected unusable thousandths of each node, float64 of shape (nodes,).

        ``idle`` are the idle thousandths of each GPU, int64 of shape (nodes, GPUs of the largest node), 0 for GPUs that
        a node lacks; ``free_cpu`` millicores, int64 of shape (nodes,); ``models`` the GPU model of each node.
        """
        total = idle.sum(axis=1)
        expected = np.zeros(len(idle))
        for shape, share in self.shapes:
            unusable = total
            if shape.gpus:
                enough = idle >= shape.gpu_milli
                fits = (free_cpu >= shape.cpu_milli) & (enough.sum(axis=1) >= shape.gpus)
                if shape.models:
                    fits &= np.isin(models, shape.models)
                unusable = np.where(fits, np.where(enough, 0, idle).sum(axis=1), total)
            expected += share * unusable
        return expected


def idle_gpus(gpus: Sequence[int], assignments: Iterable[tuple[int, Sequence[int], int]]) -> NDArray[np.int64]:
    """What is idle of each GPU, int64 of shape (nodes, GPUs of the largest node).

    ``gpus`` are the numbers of GPUs of the nodes. Each assignment is the row of a node, the numbers of GPUs, and the
    thousandths that a pod has of each of them.
    """
    counts = np.asarray(gpus, dtype=np.int64)
    idle = np.where(np.arange(max(gpus, default=0)) < counts[:, None], _WHOLE, 0).astype(np.int64)
    for row, devices, milli in assignments:
        idle[row, list(devices)] -= milli
    return idle
