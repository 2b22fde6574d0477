"""The state of a simulated cluster over time, sampled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.cache import Cluster as ClusterCache
from kubestow_lab.simulation.results.fragmentation import TypicalPods

__all__ = ["RequestedAmounts", "Sample", "Timeline"]


@dataclass(frozen=True, slots=True)
class Sample:
    """The cluster at ``time``, in seconds since the start.

    ``pods`` are placed, ``pending`` are not, ``nodes_used`` have pods. ``requested``, ``allocatable`` and
    ``fragmentation`` have one entry per resource of the timeline: millicores, bytes or counts, and shares.
    """

    time: float
    pods: int
    pending: int
    nodes_used: int
    requested: tuple[int, ...]
    allocatable: tuple[int, ...]
    fragmentation: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class RequestedAmounts:
    """What each node has at ``time``: its number of pods, and requested amounts by resource.

    The arrays (int64) have one entry per row of the node table.
    """

    time: float
    pods: NDArray[np.int64]
    requested: Mapping[str, NDArray[np.int64]]


class Timeline:
    """Samples of a cluster, one after every ``stride`` changes and one at the end.

    ``busiest`` is about the nodes at the first of the samples with most pods.
    """

    def __init__(
        self, cluster: ClusterCache, typical_pods: TypicalPods, *, stride: int, pending: Callable[[], int]
    ) -> None:
        self._cluster, self._typical_pods, self._pending = cluster, typical_pods, pending
        self._stride = max(1, stride)
        self._changes = 0
        self.resources: Sequence[str] = ()
        self.samples: list[Sample] = []
        self.busiest: RequestedAmounts | None = None
        self._most_pods = -1

    def changed(self, time: float) -> None:
        """A pod arrived, was bound, or left, at a time in seconds."""
        self._changes += 1
        if self._changes % self._stride == 0:
            self.sample(time)

    def sample(self, time: float) -> None:
        """Add a sample; of two at the same time the later one stays."""
        if not self.resources:
            self.resources = sorted(self._cluster.nodes.allocatable.names(), key=_order)
        nodes = self._cluster.all_nodes()
        sample = Sample(
            time=time,
            pods=int(nodes.pod_count.sum()),
            pending=self._pending(),
            nodes_used=int((nodes.pod_count > 0).sum()),
            requested=tuple(int(nodes.requested(name).sum()) for name in self.resources),
            allocatable=tuple(int(nodes.allocatable(name).sum()) for name in self.resources),
            fragmentation=tuple(self._typical_pods.fragmentation(nodes, self.resources).tolist()),
        )
        if self.samples and self.samples[-1].time == time:
            self.samples.pop()
        self.samples.append(sample)
        if sample.pods > self._most_pods:
            self._most_pods = sample.pods
            self.busiest = self.amounts(time)

    def amounts(self, time: float) -> RequestedAmounts:
        """What the nodes have now, at a time in seconds."""
        nodes = self._cluster.all_nodes()
        requested = {name: nodes.requested(name).copy() for name in self.resources}
        return RequestedAmounts(time, nodes.pod_count.copy(), requested)


def _order(resource: str) -> tuple[int, str]:
    """CPU and memory first, then by name."""
    first = ("cpu", "memory")
    return (first.index(resource) if resource in first else len(first), resource)
