"""Fragmentation: how much of the free capacity the pods of a workload cannot use.

The measure is that of Weng et al. (USENIX ATC 2023), for any resource. Take a pod of the workload at random, among
those that request the resource. The free amount on a node is unusable for it if it does not fit on that node, by all
its requests and the number of pods. Fragmentation is the expected share of the free amount that is unusable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.nodes.views import Nodes

__all__ = ["TypicalPods"]

#: The share of the pods that the typical shapes cover, and their maximum number.
_COVERAGE, _MAX_SHAPES = 0.95, 64

Requests = Mapping[str, int]


class TypicalPods:
    """The most frequent requests of a workload, with their shares of its pods."""

    def __init__(self, requests: Iterable[Requests]) -> None:
        counts = Counter[tuple[tuple[str, int], ...]]()
        for each, copies in _copies(requests):
            counts[tuple(sorted((name, amount) for name, amount in each.items() if amount > 0))] += copies
        total, covered = sum(counts.values()), 0
        self._shapes: list[tuple[dict[str, int], float]] = []
        for shape, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
            if covered >= _COVERAGE * total or len(self._shapes) == _MAX_SHAPES:
                break
            covered += count
            self._shapes.append((dict(shape), count / total))

    def fragmentation(self, nodes: Nodes, resources: Sequence[str]) -> NDArray[np.float64]:
        """The fragmentation of each resource, from 0 to 1; 0 if nothing of it is free or no pod requests it."""
        free = {name: np.maximum(nodes.allocatable(name) - nodes.requested(name), 0) for name in resources}
        has_slot = nodes.pod_count < nodes.allowed_pods
        unusable, weights = Counter[str](), Counter[str]()
        totals = {name: int(amounts.sum()) for name, amounts in free.items()}
        for shape, share in self._shapes:
            fits = has_slot.copy()
            for name, amount in shape.items():
                if name in free:
                    fits &= free[name] >= amount
                else:
                    fits[:] = False
            for name in shape:
                if totals.get(name):
                    unusable[name] += share * float(free[name][~fits].sum()) / totals[name]  # type: ignore[assignment]
                    weights[name] += share  # type: ignore[assignment]
        return np.array([unusable[name] / weights[name] if weights[name] else 0.0 for name in resources])


def _copies(requests: Iterable[Requests]) -> Iterable[tuple[Requests, int]]:
    """Each distinct object among the requests, and how often it occurs; copies of a pod share their requests."""
    distinct: dict[int, tuple[Requests, int]] = {}
    for each in requests:
        _, count = distinct.get(id(each), (each, 0))
        distinct[id(each)] = each, count + 1
    return distinct.values()
