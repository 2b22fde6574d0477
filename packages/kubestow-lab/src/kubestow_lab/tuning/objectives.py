"""Objectives: figures of a simulation's result, of which less is better. All are of its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.errors import InputError
from kubestow_lab.simulation.outcomes import OutcomeState
from kubestow_lab.simulation.simulation_result import SimulationResult
from kubestow_lab.tuning.search_space import SearchSpace

DESCRIPTIONS: Mapping[str, str] = {
    "pending": "pods without a node",
    "fragmentation": "the unusable share of what is free, mean of the resources that pods of the workload request",
    "spread": "the standard deviation of the nodes' requested share, mean of CPU and memory; 0 is even",
    "nodes": "nodes with pods",
    "cost": "the price of the nodes with pods",
    "preemptions": "preemptions",
}
NAMES = tuple(DESCRIPTIONS)


def measure(result: SimulationResult, objectives: Sequence[str], prices: Mapping[str, float]) -> tuple[float, ...]:
    """The objectives of a result; ``prices`` are those of nodes by name."""
    return tuple(_figure(name, result, prices) for name in objectives)


def _figure(objective: str, result: SimulationResult, prices: Mapping[str, float]) -> float:
    match objective:
        case "pending":
            return result.count(OutcomeState.PENDING)
        case "fragmentation":
            figures = [share for name, share in result.fragmentation.items() if result.utilisation[name]]
            return float(np.mean(figures)) if figures else 0.0
        case "spread":
            return float(np.mean([_deviation(result, resource) for resource in ("cpu", "memory")]))
        case "nodes":
            return sum(1 for state in result.nodes if state.pods)
        case "cost":
            return float(sum(prices[state.name] for state in result.nodes if state.pods))
        case "preemptions":
            return float(result.run["preemptions"])
    raise ValueError(f"no objective {objective!r}")


def _deviation(result: SimulationResult, resource: str) -> float:
    """The standard deviation of the nodes' requested shares of a resource; 0 if no node has it."""
    shares = [
        state.requested.get(resource, 0) / state.allocatable[resource]
        for state in result.nodes
        if state.allocatable.get(resource)
    ]
    return float(np.std(shares)) if shares else 0.0


def check_objectives(objectives: Sequence[str], space: SearchSpace, cluster: ClusterObjects) -> dict[str, float]:
    """Check the names, and return the price of each node if costs matter. Raises InputError."""
    if not objectives:
        raise InputError("objectives", f"there are none, expected some of {', '.join(NAMES)}")
    for index, name in enumerate(objectives):
        if name not in DESCRIPTIONS:
            raise InputError(f"objective {name}", f"expected one of {', '.join(NAMES)}")
        if name in objectives[:index]:
            raise InputError(f"objective {name}", "is given twice")
    return _prices(space, cluster) if "cost" in objectives else {}


def _prices(space: SearchSpace, cluster: ClusterObjects) -> dict[str, float]:
    listed = space.prices
    if listed is None:
        raise InputError(space.subject, "has no prices, which the objective cost needs", place="prices")
    prices = {}
    for node in cluster.nodes:
        value = node.metadata.labels.get(listed.label, "")
        if value not in listed.values:
            has = f"has the label {listed.label}={value}" if value else f"has no label {listed.label}"
            problem = f"no price for node {node.metadata.name}, which {has}"
            raise InputError(space.subject, problem, place="prices.values")
        prices[node.metadata.name] = listed.values[value]
    return prices
