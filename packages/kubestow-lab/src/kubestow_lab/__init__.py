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
    from kubestow.engine.input.cluster import Cluster
    from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions
    from kubestow_lab.simulation.arrivals import Arrivals
    from kubestow_lab.simulation.result import SimulationResult
    from kubestow_lab.simulation.simulation import Simulation, SimulationOptions

__all__ = ["Arrivals", "Cluster", "SchedulerOptions", "Simulation", "SimulationOptions", "SimulationResult", "explain"]

_MODULES = {
    "Arrivals": "kubestow_lab.simulation.arrivals",
    "Cluster": "kubestow.engine.input.cluster",
    "SchedulerOptions": "kubestow.engine.pipeline.offline_scheduler",
    "Simulation": "kubestow_lab.simulation.simulation",
    "SimulationOptions": "kubestow_lab.simulation.simulation",
    "SimulationResult": "kubestow_lab.simulation.result",
    "explain": "kubestow.engine.explanation.explain",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
