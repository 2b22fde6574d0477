"""The metrics of a simulation: what comparisons, thresholds, objectives, experiments and evaluations report.

A metric is a number of one simulation. Those of a resource are named ``metric.resource``, such as ``utilisation.cpu``
or ``fragmentation.nvidia.com/gpu``. Means over time are exact, but that of fragmentation, which weights each sample of
the timeline with the time until the next. Quantiles interpolate linearly between pods. A mean or quantile over no pods
is 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from kubestow_lab.simulation.outcomes import Origin, OutcomeState, PodOutcome
from kubestow_lab.simulation.simulation_result import SimulationResult
from kubestow_lab.simulation.timeline import ClusterSample, mean_over_time

_ZONE = "topology.kubernetes.io/zone"
#: A pod that runs for less than this is taken to run so long, in seconds: the usual bound of slowdowns.
_SHORTEST_RUN = 10.0
_WENG = "Weng et al., USENIX ATC 2023"
_ZENG = "Zeng et al. (Kant), arXiv 2510.01256"
_FEITELSON = "Feitelson and Rudolph, JSSPP 1998"


class Unit(StrEnum):
    """What a metric counts or measures."""

    PODS = "pods"
    NODES = "nodes"
    COUNT = "count"
    #: From 0 to 1.
    SHARE = "share"
    #: A quotient of two amounts of one kind, without an upper bound.
    RATIO = "ratio"
    SECONDS = "seconds"
    WATTS = "watts"
    KILOWATT_HOURS = "kilowatt-hours"
    #: Of CO2 equivalent.
    KILOGRAMS = "kilograms"
    KILOGRAMS_PER_HOUR = "kilograms per hour"
    #: The currency of the prices.
    MONEY = "money"


@dataclass(frozen=True, slots=True)
class Metric:
    """What a metric means. ``better`` is 1 if higher values are better, -1 if lower ones are, 0 if it depends.

    ``source`` is who defined it, empty for numbers that need no definition.
    """

    name: str
    unit: Unit
    better: int
    meaning: str
    source: str = ""


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


#: The quantiles of times and slowdowns, in percent.
QUANTILES = (50, 90, 99)

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
        *(
            Metric(f"waitP{percent}", Unit.SECONDS, -1, f"{percent} % quantile of the time from arrival to binding")
            for percent in QUANTILES
        ),
        Metric("maxWait", Unit.SECONDS, -1, "longest time from arrival to binding"),
        Metric(
            "makespan", Unit.SECONDS, -1, "from the first arrival to the end of the last pod that completed", _FEITELSON
        ),
        Metric(
            "meanSlowdown",
            Unit.RATIO,
            -1,
            "mean of (time from arrival to end) / (run time, at least 10 s), at least 1, of the pods that completed",
            _FEITELSON,
        ),
        *(
            Metric(f"slowdownP{percent}", Unit.RATIO, -1, f"{percent} % quantile of the same", _FEITELSON)
            for percent in QUANTILES
        ),
        Metric(
            "jain",
            Unit.SHARE,
            1,
            "Jain's index of the inverse mean slowdowns of the namespaces; 1 is equal progress",
            "Jain, Chiu and Hawe, DEC-TR-301, 1984",
        ),
        Metric("nodesUsed", Unit.NODES, 0, "nodes with pods at the end"),
        Metric("maxNodesUsed", Unit.NODES, 0, "largest number of nodes with pods"),
        Metric("zoneSkew", Unit.PODS, -1, "pods of an owner in its fullest zone more than in its emptiest, mean"),
    )
}
"""The metrics without a resource, by name."""

RESOURCE_METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("utilisation", Unit.SHARE, 1, "requested share at the end: the allocation ratio"),
        Metric("meanUtilisation", Unit.SHARE, 1, "mean of the requested share over time"),
        Metric("fragmentation", Unit.SHARE, -1, "free share that pods of the workload cannot use, at the end", _WENG),
        Metric("meanFragmentation", Unit.SHARE, -1, "mean of the fragmentation over time", _WENG),
        Metric(
            "partialNodes", Unit.SHARE, -1, "share of the nodes with the resource of which a part is requested", _ZENG
        ),
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


def metric_of(name: str) -> Metric:
    """The metric with a name, which may have a resource. Raises KeyError."""
    family, dot, _ = name.partition(".")
    return RESOURCE_METRICS[family] if dot else METRICS[name]


def pod_counts(outcomes: Iterable[PodOutcome]) -> dict[str, float]:
    """The metrics that count pods by state: ``pending``, ``placed`` and ``preempted``."""
    states = Counter(outcome.state for outcome in outcomes)
    placed = states[OutcomeState.RUNNING] + states[OutcomeState.COMPLETED]
    return {"pending": states[OutcomeState.PENDING], "placed": placed, "preempted": states[OutcomeState.PREEMPTED]}


def metrics_of(result: SimulationResult) -> dict[str, float]:
    """The value of each metric but those that need a baseline: ``lost``, ``won``, ``moved``, ``changed``."""
    outcomes, timeline = result.outcomes, result.timeline
    waits = np.array([outcome.bound - outcome.arrived for outcome in outcomes if outcome.bound is not None])
    counts = pod_counts(outcomes)
    values: dict[str, float] = {
        **counts,
        "pending": counts["pending"] + result.refused_count,
        "preemptions": result.run["preemptions"],
        "attempts": result.run["attempts"],
        "meanPending": _mean_pending(outcomes, timeline[-1]),
        "meanWait": float(waits.mean()) if len(waits) else 0.0,
        **_quantiles("waitP", waits),
        "maxWait": float(waits.max(initial=0.0)),
        **_slowdowns(outcomes),
        "nodesUsed": timeline[-1].nodes_used,
        "maxNodesUsed": max(sample.nodes_used for sample in timeline),
        "zoneSkew": _zone_skew(result),
    }
    for index, resource in enumerate(result.resources):
        fragmentation = [sample.fragmentation[index] for sample in timeline]
        of_nodes = [
            state.requested[resource] / state.allocatable[resource]
            for state in result.nodes
            if state.allocatable[resource]
        ]
        values |= {
            f"utilisation.{resource}": timeline[-1].share(index),
            f"meanUtilisation.{resource}": result.mean_requested[index] / (timeline[-1].allocatable[index] or 1),
            f"fragmentation.{resource}": fragmentation[-1],
            f"meanFragmentation.{resource}": mean_over_time(timeline, fragmentation),
            f"partialNodes.{resource}": sum(0 < share < 1 for share in of_nodes) / max(len(of_nodes), 1),
            f"imbalance.{resource}": float(np.std(of_nodes)) if of_nodes else 0.0,
        }
    return values


def metrics_over_time(result: SimulationResult) -> dict[str, list[float]]:
    """The metrics of each sample of the timeline as columns for a data frame, ``time`` in seconds first.

    They are ``pending``, ``placed`` (pods on nodes at that time), ``nodesUsed``, and for each resource ``utilisation``
    and ``fragmentation``.
    """
    timeline = result.timeline
    columns: dict[str, list[float]] = {
        "time": [sample.time for sample in timeline],
        "pending": [sample.pending for sample in timeline],
        "placed": [sample.pods for sample in timeline],
        "nodesUsed": [sample.nodes_used for sample in timeline],
    }
    for index, resource in enumerate(result.resources):
        columns[f"utilisation.{resource}"] = [sample.share(index) for sample in timeline]
        columns[f"fragmentation.{resource}"] = [sample.fragmentation[index] for sample in timeline]
    return columns


def quantiles_over_time(
    columns: Mapping[str, Sequence[float]], quantiles: Sequence[float] = (0.5, 0.9, 0.99)
) -> dict[str, list[float]]:
    """For each column of metrics over time, the values that it is at most for these shares of the time.

    ``columns`` have ``time`` in seconds; a value is valid until the next time. The result is columns for a data frame,
    ``quantile`` first. Without a span of time, the last values count.
    """
    times = np.asarray(columns["time"], dtype=float)
    spans = np.diff(times)
    if not spans.sum():
        spans = np.append(np.zeros(len(times) - 1), 1.0)
    else:
        spans = np.append(spans, 0.0)
    found: dict[str, list[float]] = {"quantile": list(quantiles)}
    for name in columns.keys() - {"time"}:
        values = np.asarray(columns[name], dtype=float)
        order = np.argsort(values, kind="stable")
        reached = np.cumsum(spans[order]) / spans.sum()
        positions = np.minimum(np.searchsorted(reached, np.asarray(quantiles) - 1e-12), len(values) - 1)
        found[name] = values[order][positions].tolist()
    return {name: found[name] for name in ("quantile", *(each for each in columns if each != "time"))}


def jain_index(values: Sequence[float]) -> float:
    """Jain's fairness index of some values that are not negative: 1 if they are equal, 1/n if one has all."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def _slowdowns(outcomes: Iterable[PodOutcome]) -> dict[str, float]:
    """The makespan, and the metrics of the bounded slowdowns of the pods that completed."""
    completed = [outcome for outcome in outcomes if outcome.state is OutcomeState.COMPLETED]
    by_namespace: dict[str, list[float]] = {}
    for outcome in completed:
        assert outcome.ended is not None
        run = outcome.ended - outcome.bound if outcome.bound is not None else 0.0
        slowdown = max(1.0, (outcome.ended - outcome.arrived) / max(run, _SHORTEST_RUN))
        by_namespace.setdefault(outcome.namespace, []).append(slowdown)
    slowdowns = np.array([slowdown for of_namespace in by_namespace.values() for slowdown in of_namespace])
    last = max((outcome.ended or 0.0 for outcome in completed), default=0.0)
    first = min((outcome.arrived for outcome in outcomes), default=0.0)
    return {
        "makespan": last - first if completed else 0.0,
        "meanSlowdown": float(slowdowns.mean()) if len(slowdowns) else 0.0,
        **_quantiles("slowdownP", slowdowns),
        "jain": jain_index([len(of_namespace) / sum(of_namespace) for of_namespace in by_namespace.values()]),
    }


def _quantiles(prefix: str, values: NDArray[np.float64]) -> dict[str, float]:
    return {
        f"{prefix}{percent}": float(np.percentile(values, percent)) if len(values) else 0.0 for percent in QUANTILES
    }


def _mean_pending(outcomes: Iterable[PodOutcome], last: ClusterSample) -> float:
    """The mean over time of the number of pods that have arrived and have no node yet."""
    if not last.time:
        return float(last.pending)
    waiting = (outcome for outcome in outcomes if outcome.origin is not Origin.CLUSTER)
    seconds = 0.0
    for outcome in waiting:
        until = (each for each in (outcome.bound, outcome.ended, last.time) if each is not None)
        seconds += next(until) - outcome.arrived
    return seconds / last.time


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
