"""Objectives: figures of a simulation's result, of which less is better. All are of its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.errors import InputError
from kubestow_lab.metrics.energy_and_cost import node_cost
from kubestow_lab.metrics.run_metrics import metrics_of
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
    """The objectives of a result; ``prices`` are those of nodes by name, empty unless costs are an objective."""
    metrics = metrics_of(result)
    used = [resource for resource in result.resources if metrics[f"utilisation.{resource}"]]
    figures = {
        "pending": metrics["pending"],
        "fragmentation": float(np.mean([metrics[f"fragmentation.{name}"] for name in used])) if used else 0.0,
        "spread": float(np.mean([metrics.get(f"imbalance.{name}", 0.0) for name in ("cpu", "memory")])),
        "nodes": metrics["nodesUsed"],
        "cost": node_cost(result, prices) if prices else 0.0,
        "preemptions": float(metrics["preemptions"]),
    }
    return tuple(figures[name] for name in objectives)


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
    if space.prices is None:
        raise InputError(space.subject, "has no prices, which the objective cost needs", place="prices")
    return space.prices.of_nodes(cluster.nodes, space.subject)
