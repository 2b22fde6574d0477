"""The optimum of a placement problem with all its resources, or the best solution found and a bound.

CP-SAT has a variable for each class and node: how many pods of the class are placed there. It maximises the pods placed
priority by priority, highest first, and then minimises the cost at these numbers. The search is limited by the solver's
deterministic time, which is about seconds but the same on every machine, so a seed always gives the same solution.

Large problems are first packed a few nodes at a time: that finds room soon, and the search of the whole problem, which
gives the bound, starts from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kubestow.engine.placement import solvers
from kubestow_lab.flow.network import flow_bound
from kubestow_lab.flow.problem import FlowProblem, NodeCosts

Amounts = NDArray[np.int64]

#: A part has so many nodes, and its search this limit; a part counts for a least time, however soon it is packed.
_PART_NODES, _PART_SECONDS, _LEAST_SECONDS = 25, 0.2, 0.02


@dataclass(frozen=True, slots=True)
class PackingOptions:
    """``limit`` is the deterministic time of each search: a few nodes at a time, for the pods, and for the cost.

    The last two search the whole problem, unless it has more than ``most_variables``.
    """

    limit: float = 5.0
    seed: int = 0
    most_variables: int = 20_000


@dataclass(frozen=True)
class Packing:
    """A solution that the problem allows, int64 (classes, nodes), and what is known about better ones.

    ``bounds`` has, by priority, a number of pods of that or a higher priority that no placement exceeds in the order of
    priorities. ``proven`` says that no solution places more, ``cost_proven`` that none as good costs less.
    """

    solution: Amounts
    bounds: dict[int, int]
    proven: bool
    cost_proven: bool


def pack(problem: FlowProblem, start: Amounts, options: PackingOptions | None = None) -> Packing:
    """The best solution found, no worse than ``start``, which the problem must allow.

    Raises InputError without OR-Tools.
    """
    options = options or PackingOptions()
    if not problem.classes or not problem.nodes:
        return Packing(start, dict.fromkeys(problem.priorities, 0), proven=True, cost_proven=True)
    bounds = {priority: _simple_bound(problem, priority) for priority in problem.priorities}
    found = start
    if len(problem.nodes) > _PART_NODES:
        found = _packed_in_parts(problem, start, options, bounds)
    if np.count_nonzero(problem.capacity) > options.most_variables:
        return Packing(found, bounds, _reaches(problem, found, bounds), cost_proven=False)
    model = _Model(problem, options)
    proven, spent, above = True, 0.0, 0
    for priority in problem.priorities:
        bound = bounds[priority]
        if not proven or above + problem.placed(found, priority) < bound:
            found, most, seconds = model.most_pods(found, priority, options.limit - spent)
            spent += seconds
            if proven:
                bound = min(bound, above + most)
        above += problem.placed(found, priority)
        proven = proven and above == bound
        bounds[priority] = bound
        model.keep(found, priority)
    found, cost_proven = model.least_cost(found, options.limit)
    return Packing(found, bounds, proven, cost_proven and proven)


def _reaches(problem: FlowProblem, found: Amounts, bounds: Mapping[int, int]) -> bool:
    """Whether a solution places as many pods as the bounds allow."""
    above = np.cumsum([problem.placed(found, priority) for priority in bounds])
    return bool(above.tolist() == list(bounds.values()))


def _packed_in_parts(
    problem: FlowProblem, start: Amounts, options: PackingOptions, bounds: Mapping[int, int]
) -> Amounts:
    """A solution after a few nodes at a time were packed anew, those with most room for a waiting class.

    It places more pods, or as many; costs are left alone.
    """
    random = np.random.default_rng(options.seed)
    found, spent = start.copy(), 0.0
    placeable = (problem.capacity > 0).any(axis=1)
    while spent < options.limit and not _reaches(problem, found, bounds):
        waiting = np.flatnonzero(placeable & (found.sum(axis=1) < problem.counts))
        columns = _roomiest(problem, found, int(random.choice(waiting)), random)
        part = _part(problem, found, columns)
        model, packed = _Model(part, options), found[:, columns]
        spent += _LEAST_SECONDS
        for priority in problem.priorities:
            packed, _, seconds = model.most_pods(packed, priority, _PART_SECONDS)
            spent += seconds
            model.keep(packed, priority)
        found[:, columns] = packed
    return found


def _roomiest(problem: FlowProblem, found: Amounts, row: int, random: np.random.Generator) -> NDArray[np.intp]:
    """Some nodes on which a class could be: with chance, those that lack the smallest share of its requests."""
    lacking = np.zeros(len(problem.nodes))
    for resource, amount in problem.classes[row].requests.items():
        requests = np.array([each.requests.get(resource, 0) for each in problem.classes], np.int64)
        lacking += np.clip(amount - (problem.free[resource] - requests @ found), 0, amount) / amount
    possible = np.flatnonzero(problem.capacity[row])
    order = np.argsort(lacking[possible] + random.random(len(possible)))
    return np.sort(possible[order[:_PART_NODES]])


def _simple_bound(problem: FlowProblem, priority: int) -> int:
    """A bound for the pods of a priority or higher, without search."""
    chosen = np.array([each.priority >= priority for each in problem.classes])
    possible = np.where(chosen, np.minimum(problem.counts, problem.capacity.sum(axis=1)), 0)
    bounds = [flow_bound(problem, priority)]
    for resource, free in problem.free.items():
        requests = np.array([each.requests.get(resource, 0) for each in problem.classes], np.int64)
        bounds.append(_most_within(int(free.sum()), requests, possible))
    return min(bounds)


def _most_within(amount: int, requests: Amounts, counts: Amounts) -> int:
    """How many pods an amount of one resource suffices for, the smallest first, were all nodes one."""
    most = 0
    for row in np.argsort(requests, kind="stable").tolist():
        request, count = int(requests[row]), int(counts[row])
        fitting = count if not request else min(count, amount // request)
        most, amount = most + fitting, amount - fitting * request
        if fitting < count:
            break
    return most


def _part(problem: FlowProblem, start: Amounts, columns: NDArray[np.intp]) -> FlowProblem:
    """The problem of some nodes, when the pods that ``start`` has on the others stay there."""
    elsewhere = start.sum(axis=1) - start[:, columns].sum(axis=1)
    return replace(
        problem,
        classes=[replace(c, count=c.count - int(n)) for c, n in zip(problem.classes, elsewhere, strict=True)],
        nodes=[problem.nodes[column] for column in columns],
        feasible=problem.feasible[:, columns],
        free={name: amounts[columns] for name, amounts in problem.free.items()},
        slots=problem.slots[columns],
        costs=problem.costs[:, columns],
        node_costs=NodeCosts(problem.node_costs.first[columns], problem.node_costs.step),
    )


class _Model:
    """The CP-SAT model of a problem."""

    def __init__(self, problem: FlowProblem, options: PackingOptions) -> None:
        self._problem, self._seed = problem, options.seed
        self._cp = solvers.cp_model()
        self._model = model = solvers.new_cp_model()
        capacity = problem.capacity
        rows, columns = np.nonzero(capacity)
        self._rows, self._columns = rows, columns
        self._variables = [model.new_int_var(0, int(most), "") for most in capacity[rows, columns]]
        self._by_row: list[list[int]] = [[] for _ in problem.classes]
        self._by_column: list[list[int]] = [[] for _ in problem.nodes]
        for index, (row, column) in enumerate(zip(rows.tolist(), columns.tolist(), strict=True)):
            self._by_row[row].append(index)
            self._by_column[column].append(index)
        self._constrain()

    def _constrain(self) -> None:
        problem = self._problem
        for each, indexes in zip(problem.classes, self._by_row, strict=True):
            if indexes:
                self._model.add(self._sum(indexes) <= each.count)
        conflicts = [frozenset(rows) for rows in problem.port_conflicts()]
        classes = problem.classes
        for column, indexes in enumerate(self._by_column):
            if not indexes:
                continue
            rows = [int(self._rows[index]) for index in indexes]
            self._model.add(self._sum(indexes) <= int(problem.slots[column]))
            for resource, free in problem.free.items():
                using = [(i, classes[row].requests.get(resource, 0)) for i, row in zip(indexes, rows, strict=True)]
                using = [(index, amount) for index, amount in using if amount]
                if using:
                    unit = int(np.gcd.reduce([amount for _, amount in using]))
                    variables = [self._variables[index] for index, _ in using]
                    used = self._cp.LinearExpr.weighted_sum(variables, [amount // unit for _, amount in using])
                    self._model.add(used <= int(free[column]) // unit)
            for conflict in conflicts:
                sharing = [index for index, row in zip(indexes, rows, strict=True) if row in conflict]
                if sharing:
                    self._model.add(self._sum(sharing) <= 1)

    def _sum(self, indexes: list[int]) -> Any:
        return self._cp.LinearExpr.sum([self._variables[index] for index in indexes])

    def _of_priority(self, priority: int) -> list[int]:
        rows = [row for row, each in enumerate(self._problem.classes) if each.priority == priority]
        return [index for row in rows for index in self._by_row[row]]

    def keep(self, found: Amounts, priority: int) -> None:
        """Require as many pods of a priority as a solution has."""
        if indexes := self._of_priority(priority):
            self._model.add(self._sum(indexes) == self._problem.placed(found, priority))

    def most_pods(self, start: Amounts, priority: int, limit: float) -> tuple[Amounts, int, float]:
        """A solution with the most pods of a priority, a bound for their number, and the deterministic time spent."""
        indexes = self._of_priority(priority)
        self._model.maximize(self._sum(indexes))
        solver, found = self._solve(start, limit)
        if found is None:
            return start, int(self._problem.counts.sum()), limit
        spent = float(solver.response_proto.deterministic_time)
        return found, int(np.floor(solver.best_objective_bound + 1e-6)), spent

    def least_cost(self, start: Amounts, limit: float) -> tuple[Amounts, bool]:
        """A solution with the least cost, and whether that is proven."""
        problem = self._problem
        if not self._variables:
            return start, True
        costs = (problem.costs + problem.node_costs.first)[self._rows, self._columns]
        costs = costs - np.array([each.unscheduled for each in problem.classes], np.int64)[self._rows]
        terms, weights = list(self._variables), costs.tolist()
        if problem.node_costs.step:
            for column, indexes in enumerate(self._by_column):
                most = min(int(problem.slots[column]), int(problem.capacity[:, column].sum()))
                if most > 1:
                    terms.append(self._pairs(indexes, most))
                    weights.append(problem.node_costs.step)
        self._model.minimize(self._cp.LinearExpr.weighted_sum(terms, weights))
        solver, found = self._solve(start, limit)
        if found is None or problem.cost(found) > problem.cost(start):
            return start, False
        return found, bool(solver.best_objective_bound >= solver.objective_value - 0.5)

    def _pairs(self, indexes: list[int], most: int) -> Any:
        """A variable that is at least the number of pairs among a node's pods: the sum of 0, 1, 2, … for each."""
        pairs = self._model.new_int_var(0, most * (most - 1) // 2, "")
        pods = self._model.new_int_var(0, most, "")
        self._model.add(pods == self._sum(indexes))
        for taken in range(1, most):
            self._model.add(pairs >= taken * pods - taken * (taken + 1) // 2)
        return pairs

    def _solve(self, start: Amounts, limit: float) -> tuple[Any, Amounts | None]:
        model = self._model
        model.clear_hints()
        for variable, value in zip(self._variables, start[self._rows, self._columns].tolist(), strict=True):
            model.add_hint(variable, value)
        solver = self._cp.CpSolver()
        solver.parameters.max_deterministic_time = max(limit, 0.01)
        solver.parameters.random_seed = self._seed
        solver.parameters.num_workers = 1
        if solver.solve(model) not in (self._cp.OPTIMAL, self._cp.FEASIBLE):
            return solver, None
        found = np.zeros(start.shape, np.int64)
        found[self._rows, self._columns] = [solver.value(variable) for variable in self._variables]
        return solver, found
