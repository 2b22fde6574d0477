"""The metrics of a simulation that a comparison shows and that thresholds are about.

A metric is a number of one simulation. Those of a resource are named ``metric.resource``, such as ``utilisation.cpu``
or ``fragmentation.nvidia.com/gpu``. Means over time weight each sample of the timeline with the time until the next.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from kubestow_lab.comparison.recorded_runs import RecordedRun
from kubestow_lab.simulation.outcomes import OutcomeState
from kubestow_lab.simulation.simulation_result import SimulationResult
from kubestow_lab.simulation.timeline import ClusterSample

_ZONE = "topology.kubernetes.io/zone"


class Unit(StrEnum):
    """What a metric counts or measures."""

    PODS = "pods"
    NODES = "nodes"
    COUNT = "count"
    #: From 0 to 1.
    SHARE = "share"
    SECONDS = "seconds"


@dataclass(frozen=True, slots=True)
class Metric:
    """What a metric means. ``better`` is 1 if higher values are better, -1 if lower ones are, 0 if it depends."""

    name: str
    unit: Unit
    better: int
    meaning: str


@dataclass(frozen=True, slots=True)
class MetricChange:
    """A metric in the baseline and in the candidate; ``name`` has the resource, if there is one."""

    name: str
    metric: Metric
    baseline: float
    candidate: float

    @property
    def change(self) -> float:
        """The candidate's value minus the baseline's."""
        return self.candidate - self.baseline

    @property
    def verdict(self) -> str:
        """``better``, ``worse``, or empty if the values are equal or neither is."""
        sign = (self.change > 0) - (self.change < 0)
        return {1: "better", -1: "worse", 0: ""}[sign * self.metric.better]


METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("pending", Unit.PODS, -1, "pods without a node at the end"),
        Metric("placed", Unit.PODS, 1, "pods that got a node, completed ones included"),
        Metric("lost", Unit.PODS, -1, "pods that are placed in the baseline and pending here; 0 in the baseline"),
        Metric("won", Unit.PODS, 1, "pods that are pending in the baseline and placed here; 0 in the baseline"),
        Metric("moved", Unit.PODS, 0, "pods that are on another node than in the baseline; 0 in the baseline"),
        Metric("changed", Unit.PODS, 0, "pods that differ from the baseline in any way; 0 in the baseline"),
        Metric("preempted", Unit.PODS, -1, "pods that were evicted for others of higher priority"),
        Metric("preemptions", Unit.COUNT, -1, "attempts that evicted pods"),
        Metric("attempts", Unit.COUNT, -1, "scheduling attempts"),
        Metric("meanPending", Unit.PODS, -1, "mean of the pods without a node over time"),
        Metric("meanWait", Unit.SECONDS, -1, "mean time from arrival to binding, of the pods that were bound"),
        Metric("maxWait", Unit.SECONDS, -1, "longest time from arrival to binding"),
        Metric("nodesUsed", Unit.NODES, 0, "nodes with pods at the end"),
        Metric("maxNodesUsed", Unit.NODES, 0, "largest number of nodes with pods"),
        Metric("zoneSkew", Unit.PODS, -1, "pods of an owner in its fullest zone more than in its emptiest, mean"),
    )
}
"""The metrics without a resource, by name."""

RESOURCE_METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("utilisation", Unit.SHARE, 1, "requested share at the end"),
        Metric("meanUtilisation", Unit.SHARE, 1, "mean of the requested share over time"),
        Metric("fragmentation", Unit.SHARE, -1, "free share that pods of the workload cannot use, at the end"),
        Metric("meanFragmentation", Unit.SHARE, -1, "mean of the fragmentation over time"),
        Metric("imbalance", Unit.SHARE, 0, "standard deviation of the requested shares of the nodes at the end"),
    )
}
"""The metrics of each resource, by the part of the name before the dot."""


def is_metric(name: str, resources: Iterable[str] | None = None) -> bool:
    """Whether there is such a metric; without ``resources``, of any resource."""
    metric, dot, resource = name.partition(".")
    if not dot:
        return name in METRICS
    return metric in RESOURCE_METRICS and bool(resource) and (resources is None or resource in resources)


def metric_lines(resources: Iterable[str] | None = None) -> list[str]:
    """The names of all metrics, in lines; those of each resource too if the ``resources`` are known."""
    names = [] if resources is None else sorted(resources)
    return [
        ", ".join(METRICS),
        *(
            ", ".join(f"{name}.{resource}" for resource in names) or f"{name}.RESOURCE, such as {name}.cpu"
            for name in RESOURCE_METRICS
        ),
    ]


def metrics_of(result: SimulationResult | RecordedRun) -> dict[str, float]:
    """The value of each metric but those that need a baseline: ``lost``, ``won``, ``moved``, ``changed``.

    A run of a record has the numbers of pods only.
    """
    outcomes = result.outcomes
    if isinstance(result, RecordedRun):
        states = Counter(outcome.state for outcome in outcomes)
        named = {"pending": OutcomeState.PENDING, "placed": OutcomeState.RUNNING, "preempted": OutcomeState.PREEMPTED}
        return {name: states[state] for name, state in named.items()}
    timeline = result.timeline
    waits = [outcome.bound - outcome.arrived for outcome in outcomes if outcome.bound is not None]
    values: dict[str, float] = {
        "pending": result.count(OutcomeState.PENDING) + result.refused_count,
        "placed": result.count(OutcomeState.RUNNING) + result.count(OutcomeState.COMPLETED),
        "preempted": result.count(OutcomeState.PREEMPTED),
        "preemptions": result.run["preemptions"],
        "attempts": result.run["attempts"],
        "meanPending": _mean(timeline, [sample.pending for sample in timeline]),
        "meanWait": sum(waits) / len(waits) if waits else 0.0,
        "maxWait": max(waits, default=0.0),
        "nodesUsed": timeline[-1].nodes_used,
        "maxNodesUsed": max(sample.nodes_used for sample in timeline),
        "zoneSkew": _zone_skew(result),
    }
    for index, resource in enumerate(result.resources):
        shares = [sample.share(index) for sample in timeline]
        fragmentation = [sample.fragmentation[index] for sample in timeline]
        of_nodes = [
            state.requested[resource] / state.allocatable[resource]
            for state in result.nodes
            if state.allocatable[resource]
        ]
        values |= {
            f"utilisation.{resource}": shares[-1],
            f"meanUtilisation.{resource}": _mean(timeline, shares),
            f"fragmentation.{resource}": fragmentation[-1],
            f"meanFragmentation.{resource}": _mean(timeline, fragmentation),
            f"imbalance.{resource}": float(np.std(of_nodes)) if of_nodes else 0.0,
        }
    return values


def _mean(timeline: Sequence[ClusterSample], values: Sequence[float]) -> float:
    """The mean over time of a value of each sample; a sample is valid until the next one."""
    seconds = timeline[-1].time - timeline[0].time
    if not seconds:
        return float(values[-1])
    spans = zip(values, itertools.pairwise(timeline), strict=False)
    return sum(value * (following.time - sample.time) for value, (sample, following) in spans) / seconds


def _zone_skew(result: SimulationResult) -> float:
    """The mean over owners with several placed pods; 0 for a cluster with fewer than two zones."""
    zone_of = {node.metadata.name: node.metadata.labels.get(_ZONE) for node in result.api.nodes()}
    zones = sorted({zone for zone in zone_of.values() if zone is not None})
    counts: dict[tuple[str, str], Counter[str]] = {}
    for outcome in result.outcomes:
        zone = zone_of.get(outcome.node) if outcome.state.is_placed and outcome.owner else None
        if zone is not None:
            counts.setdefault((outcome.namespace, outcome.owner), Counter())[zone] += 1
    skews = [
        max(of_owner.values()) - min(of_owner[zone] for zone in zones)
        for of_owner in counts.values()
        if of_owner.total() > 1
    ]
    return sum(skews) / len(skews) if len(zones) > 1 and skews else 0.0
