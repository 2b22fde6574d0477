"""Comparing two schedulers: simulate a baseline and a candidate on the same cluster and workload."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from kubestow.engine.input.cluster import Cluster
from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions
from kubestow_lab.comparison.comparison import Comparison, Side
from kubestow_lab.simulation.arrivals import Arrivals
from kubestow_lab.simulation.simulation import Progress, Simulation, SimulationOptions

__all__ = ["compare"]


def compare(
    cluster: Cluster,
    arrivals: Arrivals | None = None,
    *,
    baseline: SchedulerOptions,
    candidate: SchedulerOptions,
    options: SimulationOptions | None = None,
    names: Sequence[str] = ("baseline", "candidate"),
    progress: Callable[[Progress], None] = lambda progress: None,
) -> Comparison:
    """Simulate two schedulers, with the same options and seed, and compare the results.

    ``baseline`` and ``candidate`` are configuration, plugin classes and feature gates; both may have plugins of one
    name, such as two versions of a plugin. ``progress`` is called now and then, with the pods of both simulations.
    Raises ConfigurationError for an invalid configuration, and PluginError when a plugin cannot be constructed.
    """
    simulations = [
        Simulation(
            cluster,
            arrivals or Arrivals(),
            configuration=side.configuration,
            plugins=side.plugins,
            gates=side.gates,
            options=options or SimulationOptions(),
        )
        for side in (baseline, candidate)
    ]
    results = [simulation.run(partial(_of_both, progress, number)) for number, simulation in enumerate(simulations)]
    sides = [Side(name, result) for name, result in zip(names, results, strict=True)]
    return Comparison.of(*sides)


def _of_both(progress: Callable[[Progress], None], simulation: int, done: Progress) -> None:
    """Report the progress of the first or second simulation as that of both."""
    progress(Progress(simulation * done.total + done.pods, 2 * done.total, done.time))
