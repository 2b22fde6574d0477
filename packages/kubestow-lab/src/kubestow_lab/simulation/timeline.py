"""The state of a simulated cluster over time, sampled, and how fragmented its free capacity is.

Fragmentation is measured as by Weng et al. (USENIX ATC 2023), for any resource. Take a pod of the workload at random,
among those that request the resource. The free amount on a node is unusable for it if it does not fit on that node, by
all its requests and the number of pods. Fragmentation is the expected share of the free amount that is unusable.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kubestow.api.formats.int64 import ORDINARY, exact_sum
from kubestow.cluster.cache import Cluster as ClusterCache
from kubestow.cluster.nodes.views import Nodes

#: The share of the pods that the typical shapes cover, and their maximum number.
_COVERAGE, _MAX_SHAPES = 0.95, 64

Requests = Mapping[str, int]


class TypicalPods:
    """The most frequent requests of a workload, with their shares of its pods."""

    def __init__(self, requests: Iterable[Requests]) -> None:
        # Copies of a pod share their requests, so each object is looked at once.
        distinct: dict[int, Requests] = {}
        copies = Counter(id(distinct.setdefault(id(each), each)) for each in requests)
        counts = Counter[tuple[tuple[str, int], ...]]()
        for identity, each in distinct.items():
            positive = ((name, amount) for name, amount in each.items() if amount > 0)
            counts[tuple(sorted(positive))] += copies[identity]
        total, covered = sum(counts.values()), 0
        self._shapes: list[tuple[dict[str, int], float]] = []
        for shape, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
            if covered >= _COVERAGE * total or len(self._shapes) == _MAX_SHAPES:
                break
            covered += count
            self._shapes.append((dict(shape), count / total))

    def fragmentation(self, nodes: Nodes, resources: Sequence[str]) -> NDArray[np.float64]:
        """The fragmentation of each resource, from 0 to 1; 0 if nothing of it is free or no pod requests it."""
        free = np.array([np.maximum(nodes.allocatable(name) - nodes.requested(name), 0) for name in resources])
        free = free.reshape(len(resources), len(nodes))
        has_slot = nodes.pod_count < nodes.allowed_pods
        wanted = np.array([[shape.get(name, 0) for shape, _ in self._shapes] for name in resources], np.int64)
        wanted = wanted.reshape(len(resources), len(self._shapes))
        is_offered = np.array([shape.keys() <= set(resources) for shape, _ in self._shapes], np.bool_)
        fits = has_slot & is_offered[:, np.newaxis]
        for of_resource, amounts in zip(free, wanted, strict=True):
            fits &= of_resource >= amounts[:, np.newaxis]
        unusable, weights = Counter[str](), Counter[str]()
        totals = {name: exact_sum(amounts) for name, amounts in zip(resources, free, strict=True)}
        # Sums of floats are exact up to 2**53, and a product of matrices of them takes a tenth of the time.
        kind = np.float64 if max(totals.values(), default=0) <= ORDINARY else np.int64
        unusable_free = ((~fits).astype(kind) @ free.T.astype(kind)).tolist()
        for amounts, (shape, share) in zip(unusable_free, self._shapes, strict=True):
            for name in shape:
                if totals.get(name):
                    unusable[name] += share * float(amounts[resources.index(name)]) / totals[name]  # type: ignore[assignment]
                    weights[name] += share  # type: ignore[assignment]
        return np.array([unusable[name] / weights[name] if weights[name] else 0.0 for name in resources])


@dataclass(frozen=True, slots=True)
class ClusterSample:
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

    def share(self, index: int) -> float:
        """The requested share of the resource with an index; 0 if nothing is allocatable."""
        return self.requested[index] / self.allocatable[index] if self.allocatable[index] else 0.0


@dataclass(frozen=True, slots=True)
class RequestedAmounts:
    """What each node has at ``time``: its number of pods, and requested amounts by resource.

    The arrays (int64) have one entry per row of the node table.
    """

    time: float
    pods: NDArray[np.int64]
    requested: Mapping[str, NDArray[np.int64]]


class PlacedRequests:
    """What the pods request that were placed and left since the start: the integral over time, without samples.

    An amount that is added at a time counts from then to the end, so a sum of amounts and one of their products with
    the times suffice.
    """

    def __init__(self) -> None:
        self._amounts: defaultdict[str, float] = defaultdict(float)
        self._moments: defaultdict[str, float] = defaultdict(float)

    def add(self, time: float, requests: Requests, sign: int = 1) -> None:
        """A pod was placed at a time in seconds, or left, with the sign -1."""
        for name, amount in requests.items():
            self._amounts[name] += sign * amount
            self._moments[name] += sign * amount * time

    def mean(self, name: str, end: float) -> float:
        """The mean from the start to ``end``, in seconds, of the amount of a resource."""
        return self._amounts[name] - (self._moments[name] / end if end else 0.0)


def mean_over_time(samples: Sequence[ClusterSample], values: Sequence[float]) -> float:
    """The mean over time of a value of each sample; a sample is valid until the next one."""
    seconds = samples[-1].time - samples[0].time
    if not seconds:
        return float(values[-1])
    spans = zip(values, itertools.pairwise(samples), strict=False)
    return sum(value * (following.time - sample.time) for value, (sample, following) in spans) / seconds


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
        self.samples: list[ClusterSample] = []
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
            names = self._cluster.nodes.allocatable
            self.resources = sorted(names, key=lambda name: (name != "cpu", name != "memory", name))
        nodes = self._cluster.all_nodes()
        sample = ClusterSample(
            time=time,
            pods=int(nodes.pod_count.sum()),
            pending=self._pending(),
            nodes_used=int((nodes.pod_count > 0).sum()),
            requested=tuple(exact_sum(nodes.requested(name)) for name in self.resources),
            allocatable=tuple(exact_sum(nodes.allocatable(name)) for name in self.resources),
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
