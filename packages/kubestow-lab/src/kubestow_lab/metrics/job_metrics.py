"""The metrics of jobs whose pods start together: how long jobs wait by their size, and how spread out they are.

Kant (Zeng et al., arXiv 2510.01256) names them job waiting time distribution (JWTD) and job training time estimation
distribution (JTTED). Training takes longer the more nodes and network groups the pods of a job are on; what placement
decides is measured here: how many more of them a job has than the fewest that can hold it. How much longer it then
takes depends on the model and the network.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kubestow.rules.requests import requests_by_spec
from kubestow_lab.metrics.run_metrics import QUANTILES
from kubestow_lab.simulation.arrivals import Arrivals
from kubestow_lab.simulation.simulation_result import SimulationResult


@dataclass(frozen=True, slots=True)
class JobRun:
    """What became of a job: ``amount`` is what its pods request of a resource, times are in seconds.

    ``started`` is when its last pod was bound, None if any has not been. ``nodes`` has the node of each bound pod.
    """

    name: str
    amount: int
    arrived: float
    started: float | None
    nodes: tuple[str, ...]

    @property
    def wait(self) -> float | None:
        """The time from the arrival until all pods are bound, None if any is not."""
        return None if self.started is None else self.started - self.arrived


def job_runs(result: SimulationResult, arrivals: Arrivals, resource: str, annotation: str) -> list[JobRun]:
    """The jobs of a simulation in order of arrival: the pods with the same value of an annotation are one."""
    job_of = {arrival.pod.key: arrival.pod.metadata.annotations.get(annotation) for arrival in arrivals.pods}
    amounts = {arrival.pod.key: requests_by_spec(arrival.pod).get(resource, 0) for arrival in arrivals.pods}
    pods: dict[str, list[str]] = {}
    for key, job in job_of.items():
        if job is not None:
            pods.setdefault(job, []).append(key)
    outcomes = {outcome.key: outcome for outcome in result.outcomes}
    found = []
    for job, keys in pods.items():
        of_job = [outcomes[key] for key in keys]
        bound = [outcome.bound for outcome in of_job if outcome.bound is not None]
        started = max(bound) if len(bound) == len(of_job) else None
        nodes = tuple(outcome.node for outcome in of_job if outcome.bound is not None)
        arrived = min(outcome.arrived for outcome in of_job)
        found.append(JobRun(job, sum(amounts[key] for key in keys), arrived, started, nodes))
    return sorted(found, key=lambda run: run.arrived)


def waits_by_size(runs: Iterable[JobRun], largest: Sequence[int]) -> dict[int, dict[str, float]]:
    """JWTD: ``mean`` and quantiles such as ``P90`` of the waits of started jobs, by class of size.

    ``largest`` are the largest amounts of the classes, ascending. A job above the last of them is in no class, and a
    class without jobs is missing.
    """
    waits: dict[int, list[float]] = {}
    for run in runs:
        position = int(np.searchsorted(largest, run.amount))
        if run.wait is not None and position < len(largest):
            waits.setdefault(largest[position], []).append(run.wait)
    return {
        size: {"mean": float(np.mean(waits[size]))}
        | {f"P{percent}": float(np.percentile(waits[size], percent)) for percent in QUANTILES}
        for size in sorted(waits)
    }


def node_excess(run: JobRun, per_node: int) -> float:
    """JTTED: the nodes of a started job divided by the fewest nodes that can hold it, of ``per_node`` each."""
    return len(set(run.nodes)) / _fewest(run.amount, per_node)


def group_excess(run: JobRun, group_of: Mapping[str, str], per_group: int) -> float:
    """JTTED: the groups of nodes of a started job divided by the fewest that can hold it, of ``per_group`` each."""
    return len({group_of[node] for node in run.nodes}) / _fewest(run.amount, per_group)


def _fewest(amount: int, capacity: int) -> int:
    return max(1, -(-amount // capacity))
