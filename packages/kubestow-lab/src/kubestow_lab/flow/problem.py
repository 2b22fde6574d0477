"""A placement problem as arrays: classes of equivalent pods, nodes, what fits where, and what it costs.

A solution has shape ``(classes, nodes)``, int64: how many pods of a class are placed on a node. The pods of a class are
interchangeable. A node takes pods up to its free amount of each resource, its free pod slots, and one per host port.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from kubestow.rules.pods import HostPort

Amounts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PodClass:
    """Pods that no constraint of the problem tells apart: ``count`` of them, with positive ``requests`` per pod.

    Requests are in millicores, bytes or counts by resource. A pod that waits costs ``unscheduled``.
    """

    count: int
    priority: int
    requests: Mapping[str, int]
    host_ports: tuple[HostPort, ...] = ()
    unscheduled: int = 0


@dataclass(frozen=True, slots=True)
class NodeCosts:
    """What a further pod costs on a node, whichever it is: ``first`` (int64 per node), and ``step`` more each time."""

    first: Amounts
    step: int = 0

    def total(self, pods: Amounts) -> int:
        """The cost of so many further pods on each node."""
        return int((self.first * pods + self.step * (pods * (pods - 1) // 2)).sum())


@dataclass(frozen=True)
class FlowProblem:
    """Classes, nodes, and what they allow.

    ``feasible`` is bool of shape (classes, nodes); ``free`` has the free amounts by resource and ``slots`` the free pod
    slots, int64 per node, none negative; ``costs`` is int64 of shape (classes, nodes), none negative.
    """

    classes: Sequence[PodClass]
    nodes: Sequence[str]
    feasible: NDArray[np.bool_]
    free: Mapping[str, Amounts]
    slots: Amounts
    costs: Amounts
    node_costs: NodeCosts

    @property
    def counts(self) -> Amounts:
        """The number of pods of each class, int64."""
        return np.array([each.count for each in self.classes], np.int64)

    @property
    def priorities(self) -> list[int]:
        """The distinct priorities, highest first."""
        return sorted({each.priority for each in self.classes}, reverse=True)

    @cached_property
    def capacity(self) -> Amounts:
        """How many pods of a class fit on a node without any others of the problem, int64 (classes, nodes)."""
        capacity = np.where(self.feasible, self.slots, 0)
        for row, each in enumerate(self.classes):
            for resource, amount in each.requests.items():
                capacity[row] = np.minimum(capacity[row], self.free[resource] // amount)
        limits = np.array([min(each.count, 1) if each.host_ports else each.count for each in self.classes], np.int64)
        return np.minimum(capacity, limits.reshape(-1, 1))

    def port_conflicts(self) -> Iterator[tuple[int, ...]]:
        """Groups of classes of which a node takes one pod at most, because of a host port."""
        users: dict[tuple[str, int], list[int]] = {}
        for row, each in enumerate(self.classes):
            for key in dict.fromkeys((port.protocol, port.port) for port in each.host_ports):
                users.setdefault(key, []).append(row)
        for rows in users.values():
            pairs = list(combinations(rows, 2))
            conflicting = [
                (one, other)
                for one, other in pairs
                if any(
                    port.conflicts_with(taken)
                    for port in self.classes[one].host_ports
                    for taken in self.classes[other].host_ports
                )
            ]
            if len(conflicting) == len(pairs):
                yield tuple(rows)
            else:
                yield from ((row,) for row in rows)
                yield from conflicting

    def placed(self, solution: Amounts, priority: int) -> int:
        """How many pods of a priority a solution places."""
        return int(sum(solution[row].sum() for row, each in enumerate(self.classes) if each.priority == priority))

    def rank(self, solution: Amounts) -> tuple[int, ...]:
        """How good a solution is: the pods placed of each priority, highest first, then the negative cost."""
        return (*(self.placed(solution, priority) for priority in self.priorities), -self.cost(solution))

    def cost(self, solution: Amounts) -> int:
        """The cost of the placements of a solution, and of the pods that wait."""
        waiting = self.counts - solution.sum(axis=1)
        unscheduled = sum(each.unscheduled * int(count) for each, count in zip(self.classes, waiting, strict=True))
        return int((self.costs * solution).sum()) + self.node_costs.total(solution.sum(axis=0)) + unscheduled

    def allows(self, solution: Amounts) -> bool:
        """Whether a solution respects every constraint."""
        if (solution < 0).any() or (solution.sum(axis=1) > self.counts).any() or solution[~self.feasible].any():
            return False
        if (solution.sum(axis=0) > self.slots).any():
            return False
        for resource, free in self.free.items():
            requests = np.array([each.requests.get(resource, 0) for each in self.classes], np.int64)
            used = requests @ solution
            if (used[used > 0] > free[used > 0]).any():
                return False
        return all((solution[list(rows)].sum(axis=0) <= 1).all() for rows in self.port_conflicts())
