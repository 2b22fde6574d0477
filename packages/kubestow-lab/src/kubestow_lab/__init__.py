"""The laboratory: simulations, comparisons, capacity planning, tuning, and benchmarks with kubestow's engine.

The names that most programs need are here::

    from kubestow_lab import Arrivals, Cluster, Simulation, explain

Importing this package imports none of its modules; each name is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kubestow.engine.explanation.explain import explain
    from kubestow.engine.input.cluster_objects import ClusterObjects as Cluster
    from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions
    from kubestow_lab.call_trace import trace
    from kubestow_lab.comparison.comparison import compare
    from kubestow_lab.simulation.arrivals import Arrivals
    from kubestow_lab.simulation.forked_simulation import ForkedSimulation
    from kubestow_lab.simulation.simulation import Simulation, SimulationOptions
    from kubestow_lab.simulation.simulation_result import SimulationResult
    from kubestow_lab.traces.loading import load_trace
    from kubestow_lab.tuning.tuning_search import tune
    from kubestow_lab.what_if.node_count import nodes_needed
    from kubestow_lab.what_if.node_removal import drain

__all__ = [
    "Arrivals",
    "Cluster",
    "ForkedSimulation",
    "SchedulerOptions",
    "Simulation",
    "SimulationOptions",
    "SimulationResult",
    "compare",
    "drain",
    "explain",
    "load_trace",
    "nodes_needed",
    "trace",
    "tune",
]

#: Where each name is, with the class that it stands for if that has another name.
_MODULES = {
    "Arrivals": "kubestow_lab.simulation.arrivals",
    "Cluster": "kubestow.engine.input.cluster_objects:ClusterObjects",
    "ForkedSimulation": "kubestow_lab.simulation.forked_simulation",
    "SchedulerOptions": "kubestow.engine.pipeline.offline_scheduler",
    "Simulation": "kubestow_lab.simulation.simulation",
    "SimulationOptions": "kubestow_lab.simulation.simulation",
    "SimulationResult": "kubestow_lab.simulation.simulation_result",
    "compare": "kubestow_lab.comparison.comparison",
    "drain": "kubestow_lab.what_if.node_removal",
    "explain": "kubestow.engine.explanation.explain",
    "load_trace": "kubestow_lab.traces.loading",
    "nodes_needed": "kubestow_lab.what_if.node_count",
    "trace": "kubestow_lab.call_trace",
    "tune": "kubestow_lab.tuning.tuning_search",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, original = _MODULES[name].partition(":")
    return getattr(import_module(module), original or name)
