"""One min-cost flow over a placement problem: Firmament's network.

    class ──► node ──► sink                 a class sends as many units as it has pods
      └─────► unscheduled aggregator ──► sink

A unit of flow is a pod, whatever it requests, so a flow knows nothing of sums of resources. Two capacities keep every
flow within them all the same. The arc from a class to a node takes the copies that fit on the node alone. The arcs from
a node to the sink take as many pods as fit even if each requests, of every resource, the most that any class on that
node does. That wastes room where large and small pods meet: what is left waits for the next round.

Each further pod on a node costs more than the one before. Every pod has an arc of its own, the cheapest first: few at
first, and twice as many on the nodes that used all of theirs, until none did. That is the cheapest flow of all, because
a limit that does not bind the cheapest one under it does not change it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kubestow.engine.placement import solvers
from kubestow.errors import KubestowError
from kubestow_lab.flow.problem import FlowProblem, NodeCosts

Amounts = NDArray[np.int64]

#: How many arcs to the sink a node has at first, if its further pods cost more each.
_FIRST_ARCS = 8


def solve_flow(problem: FlowProblem, slots: Amounts | None = None) -> Amounts:
    """The cheapest placement of as many pods at a time as are safe, int64 (classes, nodes).

    A pod stays unscheduled where that is cheaper. ``slots`` are the pods that each node takes, by default
    :func:`safe_slots`. Raises InputError without OR-Tools.
    """
    if not problem.classes or not problem.nodes:
        return np.zeros((len(problem.classes), len(problem.nodes)), np.int64)
    if slots is None:
        slots = safe_slots(problem)
    if not problem.node_costs.step:
        return _solve(problem, slots)
    offered = np.minimum(slots, _FIRST_ARCS)
    while True:
        solution = _solve(problem, offered)
        used_up = (solution.sum(axis=0) == offered) & (offered < slots)
        if not used_up.any():
            return solution
        offered = np.where(used_up, np.minimum(slots, 2 * offered), offered)


def _solve(problem: FlowProblem, slots: Amounts) -> Amounts:
    """The cheapest placement with so many pods on each node at most."""
    counts = problem.counts
    capacity = np.minimum(problem.capacity, slots)
    rows, columns = np.nonzero(capacity)
    arcs = _Arcs(nodes=len(problem.classes) * 2 + len(problem.nodes) + 1)
    first_node, first_aggregator = len(problem.classes), len(problem.classes) + len(problem.nodes)
    sink = arcs.nodes - 1
    classes = np.arange(len(problem.classes))
    arcs.add(rows, first_node + columns, capacity[rows, columns], problem.costs[rows, columns])
    for column, width, cost in _steps(problem.node_costs, slots, int(counts.sum())):
        arcs.add(first_node + column, np.full(len(column), sink), width, cost)
    waiting = np.array([each.unscheduled for each in problem.classes], np.int64)
    arcs.add(classes, first_aggregator + classes, counts, waiting)
    arcs.add(first_aggregator + classes, np.full(len(classes), sink), counts, np.zeros(len(classes), np.int64))
    flow = arcs.solve(counts, sink)[: len(rows)]
    solution = np.zeros(capacity.shape, np.int64)
    solution[rows, columns] = flow
    return solution


def safe_slots(problem: FlowProblem) -> Amounts:
    """How many pods fit on each node whichever they are, int64; 1 where any fits at all."""
    slots = problem.slots.copy()
    for resource, free in problem.free.items():
        requests = np.array([each.requests.get(resource, 0) for each in problem.classes], np.int64)
        largest = np.where(problem.capacity > 0, requests.reshape(-1, 1), 0).max(axis=0, initial=0)
        slots = np.where(largest > 0, np.minimum(slots, free // np.maximum(largest, 1)), slots)
    return np.where((problem.capacity > 0).any(axis=0), np.maximum(slots, 1), 0)


def flow_bound(problem: FlowProblem, priority: int) -> int:
    """At least as many pods as any placement has of a priority or higher ones: the maximum flow of a relaxation.

    In it a node takes as many pods as would fit if each requested the least that any class on it does.
    """
    chosen = [row for row, each in enumerate(problem.classes) if each.priority >= priority]
    capacity = problem.capacity[chosen]
    if not capacity.size:
        return 0
    slots = problem.slots.copy()
    for resource, free in problem.free.items():
        requests = np.array([problem.classes[row].requests.get(resource, 0) for row in chosen], np.int64)
        smallest = np.where(capacity > 0, requests.reshape(-1, 1), np.iinfo(np.int64).max).min(axis=0)
        slots = np.where(smallest > 0, np.minimum(slots, free // np.maximum(smallest, 1)), slots)
    rows, columns = np.nonzero(capacity)
    solver = solvers.max_flow()
    source, sink = capacity.shape[0] + capacity.shape[1], capacity.shape[0] + capacity.shape[1] + 1
    classes, nodes = np.arange(capacity.shape[0]), np.arange(capacity.shape[1])
    for tails, heads, amounts in (
        (np.full(len(classes), source), classes, problem.counts[chosen]),
        (rows, capacity.shape[0] + columns, capacity[rows, columns]),
        (capacity.shape[0] + nodes, np.full(len(nodes), sink), slots),
    ):
        solver.add_arcs_with_capacity(tails.astype(np.int32), heads.astype(np.int32), amounts.astype(np.int64))
    if solver.solve(source, sink) != solver.OPTIMAL:
        raise KubestowError("the maximum flow was not found")
    return int(solver.optimal_flow())


def _steps(costs: NodeCosts, slots: Amounts, most: int) -> list[tuple[Amounts, Amounts, Amounts]]:
    """The arcs from nodes to the sink, cheapest first: numbers of the nodes, capacities and costs, int64."""
    if not costs.step:
        nodes = np.flatnonzero(slots)
        return [(nodes, np.minimum(slots[nodes], most), costs.first[nodes])]
    steps: list[tuple[Amounts, Amounts, Amounts]] = []
    for taken in range(min(most, int(slots.max(initial=0)))):
        nodes = np.flatnonzero(slots > taken)
        steps.append((nodes, np.ones(len(nodes), np.int64), costs.first[nodes] + costs.step * taken))
    return steps


@dataclass(slots=True)
class _Arcs:
    """The arcs of a network over so many ``nodes``, collected in arrays."""

    nodes: int
    _parts: list[tuple[NDArray[np.int32], NDArray[np.int32], Amounts, Amounts]] = field(default_factory=list)

    def add(self, tails: NDArray[np.intp], heads: NDArray[np.intp], capacity: Amounts, cost: Amounts) -> None:
        """Add arcs from tails to heads."""
        self._parts.append((tails.astype(np.int32), heads.astype(np.int32), capacity, cost))

    def solve(self, supplies: Amounts, sink: int) -> Amounts:
        """The flow over each arc from the first nodes, which have supplies, to the sink, int64."""
        solver = solvers.min_cost_flow()
        columns: Sequence[NDArray[np.int32] | Amounts] = [
            np.concatenate(parts) for parts in zip(*self._parts, strict=True)
        ]
        arcs = solver.add_arcs_with_capacity_and_unit_cost(*columns)
        balance = np.zeros(self.nodes, np.int64)
        balance[: len(supplies)] = supplies
        balance[sink] = -int(supplies.sum())
        solver.set_nodes_supplies(np.arange(self.nodes, dtype=np.int32), balance)
        if solver.solve() != solver.OPTIMAL:
            raise KubestowError("the minimum-cost flow was not found")
        flow: Amounts = solver.flows(arcs)
        return flow
