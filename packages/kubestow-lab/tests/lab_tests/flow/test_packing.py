"""On small problems the optimum is that of brute force, whatever the start; on larger ones solutions are valid."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kubestow.rules.pods import HostPort
from kubestow_lab.flow.problem import FlowProblem, NodeCosts, PodClass

pytest.importorskip("ortools", reason="kubestow-lab[flow] is not installed")

from kubestow.engine.placement import solvers
from kubestow_lab.flow.network import flow_bound, safe_slots, solve_flow
from kubestow_lab.flow.packing import PackingOptions, pack

Amounts = NDArray[np.int64]

PORTS = (
    (),
    (HostPort("0.0.0.0", "TCP", 80),),
    (HostPort("10.0.0.1", "TCP", 80),),
    (HostPort("10.0.0.2", "TCP", 80),),
)


@st.composite
def problems(draw: st.DrawFn) -> FlowProblem:
    """Problems of which brute force can try every solution."""
    nodes, classes = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    small = st.integers(0, 4)
    return FlowProblem(
        classes=[
            PodClass(
                count=draw(st.integers(1, 2)),
                priority=draw(st.integers(0, 1)),
                requests={"cpu": draw(st.integers(1, 4)), "memory": draw(st.integers(1, 4))},
                host_ports=draw(st.sampled_from(PORTS)),
                unscheduled=draw(st.integers(0, 30)),
            )
            for _ in range(classes)
        ],
        nodes=[f"node-{number}" for number in range(nodes)],
        feasible=np.array([[draw(st.integers(0, 3)) > 0 for _ in range(nodes)] for _ in range(classes)], np.bool_),
        free={name: np.array([draw(st.integers(0, 6)) for _ in range(nodes)]) for name in ("cpu", "memory")},
        slots=np.array([draw(small) for _ in range(nodes)]),
        costs=np.array([[draw(st.integers(0, 9)) for _ in range(nodes)] for _ in range(classes)], np.int64),
        node_costs=NodeCosts(np.array([draw(small) for _ in range(nodes)]), draw(st.integers(0, 3))),
    )


def solutions(problem: FlowProblem) -> list[Amounts]:
    """Every solution that a problem allows."""
    shape = problem.feasible.shape
    ranges = [range(each.count + 1) for each in problem.classes for _ in problem.nodes]
    tried = (np.array(values, np.int64).reshape(shape) for values in product(*ranges))
    return [solution for solution in tried if problem.allows(solution)]


@settings(max_examples=60, deadline=None)
@given(problems(), st.data())
def test_the_packing_is_the_optimum_of_brute_force(problem: FlowProblem, data: st.DataObject) -> None:
    every = solutions(problem)
    start = data.draw(st.sampled_from(every))
    packing = pack(problem, start)
    best = max(every, key=problem.rank)
    assert problem.allows(packing.solution)
    assert problem.rank(packing.solution) == problem.rank(best)
    assert packing.proven and packing.cost_proven
    lowest = min(problem.priorities)
    assert packing.bounds[lowest] == best.sum()


@settings(max_examples=60, deadline=None)
@given(problems())
def test_a_flow_is_a_solution_and_its_bound_holds_for_every_solution(problem: FlowProblem) -> None:
    slots = safe_slots(problem)
    flow = solve_flow(problem)
    capacity = np.minimum(problem.capacity, slots)
    assert (flow <= capacity).all() and (flow.sum(axis=0) <= slots).all()
    without_ports = FlowProblem(
        [PodClass(c.count, c.priority, c.requests, (), c.unscheduled) for c in problem.classes],
        problem.nodes,
        problem.feasible,
        problem.free,
        problem.slots,
        problem.costs,
        problem.node_costs,
    )
    assert without_ports.allows(flow)
    every = solutions(problem)
    for priority in problem.priorities:
        chosen = [row for row, each in enumerate(problem.classes) if each.priority >= priority]
        assert flow_bound(problem, priority) >= max(int(solution[chosen].sum()) for solution in every)


@settings(max_examples=40, deadline=None)
@given(problems())
def test_a_flow_is_the_cheapest_of_those_within_its_capacities(problem: FlowProblem) -> None:
    capacity, slots = np.minimum(problem.capacity, safe_slots(problem)), safe_slots(problem)
    shape = problem.feasible.shape
    ranges = [range(int(most) + 1) for most in capacity.ravel()]
    tried = (np.array(values, np.int64).reshape(shape) for values in product(*ranges))
    within = [s for s in tried if (s.sum(axis=0) <= slots).all() and (s.sum(axis=1) <= problem.counts).all()]
    assert problem.cost(solve_flow(problem)) == min(problem.cost(s) for s in within)


def random_problem(classes: int, nodes: int) -> FlowProblem:
    """A problem too large for brute force, with more pods than fit."""
    random = np.random.default_rng(1)
    return FlowProblem(
        [
            PodClass(4, 0, {"cpu": int(random.integers(1, 12)), "memory": int(random.integers(1, 12))}, (), 1000)
            for _ in range(classes)
        ],
        [f"node-{number}" for number in range(nodes)],
        random.random((classes, nodes)) < 0.8,
        {name: random.integers(4, 20, nodes) for name in ("cpu", "memory")},
        np.full(nodes, 110),
        random.integers(0, 100, (classes, nodes)),
        NodeCosts(np.full(nodes, 10), 10),
    )


@pytest.mark.parametrize("most_variables", [100_000, 40])
def test_a_limited_search_is_valid_repeatable_and_no_worse_than_its_start(most_variables: int) -> None:
    problem = random_problem(12, 10)
    start = solve_flow(problem)
    options = PackingOptions(limit=0.1, seed=3, most_variables=most_variables)
    packing = pack(problem, start, options)
    assert problem.allows(packing.solution)
    assert problem.rank(packing.solution) >= problem.rank(start)
    assert packing.solution.sum() <= packing.bounds[0]
    assert packing.proven == (packing.solution.sum() == packing.bounds[0])
    assert (pack(problem, start, options).solution == packing.solution).all()


def test_a_search_in_parts_finds_room_that_a_flow_leaves() -> None:
    problem = random_problem(30, 30)
    start = solve_flow(problem)
    packing = pack(problem, start, PackingOptions(limit=1.0, most_variables=15))
    assert problem.allows(packing.solution)
    assert start.sum() < packing.solution.sum() <= packing.bounds[0]
    assert not packing.cost_proven


def test_a_problem_without_classes_is_solved_already() -> None:
    empty = random_problem(0, 2)
    packing = pack(empty, solve_flow(empty))
    assert (packing.proven, packing.cost_proven, packing.bounds) == (True, True, {})


@st.composite
def crowded(draw: st.DrawFn) -> FlowProblem:
    """Problems with many pods of one size on a few nodes: a flow is as good as a packing."""
    nodes, classes = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    return FlowProblem(
        classes=[
            PodClass(draw(st.integers(1, 40)), 0, {"cpu": 1}, unscheduled=draw(st.integers(0, 300)))
            for _ in range(classes)
        ],
        nodes=[f"node-{number}" for number in range(nodes)],
        feasible=np.array([[draw(st.integers(0, 3)) > 0 for _ in range(nodes)] for _ in range(classes)], np.bool_),
        free={"cpu": np.array([draw(st.integers(0, 60)) for _ in range(nodes)])},
        slots=np.array([draw(st.integers(0, 60)) for _ in range(nodes)]),
        costs=np.array([[draw(st.integers(0, 90)) for _ in range(nodes)] for _ in range(classes)], np.int64),
        node_costs=NodeCosts(np.array([draw(st.integers(0, 20)) for _ in range(nodes)]), draw(st.integers(0, 9))),
    )


def least_cost(problem: FlowProblem) -> int:
    """The least cost of all solutions, by CP-SAT: a node that has its n-th further pod pays for it."""
    model = solvers.cp_model().CpModel()
    shape = problem.feasible.shape
    placed = [
        [model.new_int_var(0, int(problem.capacity[row, column]), "") for column in range(shape[1])]
        for row in range(shape[0])
    ]
    cost = 0
    for row, each in enumerate(problem.classes):
        model.add(sum(placed[row]) <= each.count)
        cost += each.unscheduled * (each.count - sum(placed[row]))
        cost += sum(int(problem.costs[row, column]) * placed[row][column] for column in range(shape[1]))
    for column in range(shape[1]):
        pays = [model.new_bool_var("") for _ in range(int(min(problem.slots[column], problem.free["cpu"][column])))]
        model.add(sum(placed[row][column] for row in range(shape[0])) == sum(pays))
        first, step = int(problem.node_costs.first[column]), problem.node_costs.step
        cost += sum((first + step * number) * one for number, one in enumerate(pays))
    model.minimize(cost)
    solver = solvers.cp_model().CpSolver()
    solver.parameters.num_workers = 1
    assert solver.status_name(solver.solve(model)) == "OPTIMAL"
    least: int = round(solver.objective_value)
    return least


@settings(max_examples=120, deadline=None)
@given(crowded())
def test_a_flow_is_the_cheapest_however_many_pods_a_node_takes(problem: FlowProblem) -> None:
    solution = solve_flow(problem)
    assert problem.allows(solution)
    assert problem.cost(solution) == least_cost(problem)
