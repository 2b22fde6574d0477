"""LowNodeUtilization: evicts pods from nodes that are used too much, as long as others are used little."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

import msgspec
import numpy as np

from kubestow.descheduling.cluster_state import ClusterState
from kubestow.descheduling.interface import BalancePlugin, Evictor, Problem
from kubestow.descheduling.pod_selection import Namespaces
from kubestow.descheduling.strategies.node_utilization.balancing import Balancing
from kubestow.descheduling.strategies.node_utilization.thresholds import (
    Thresholds,
    first_of,
    first_threshold_problem,
    namespace_problems,
)
from kubestow.descheduling.strategies.node_utilization.usage import METRIC_RESOURCE, NodeUsage

__all__ = ["LowNodeUtilization", "LowNodeUtilizationArgs"]

_KUBERNETES_METRICS, _PROMETHEUS = "KubernetesMetrics", "Prometheus"
_DIFFERENT = "thresholds and targetThresholds configured different resources"


class PrometheusQuery(msgspec.Struct, frozen=True):
    """``metricsUtilization.prometheus``."""

    query: str = ""


class MetricsUtilization(msgspec.Struct, frozen=True, rename="camel"):
    """Where measured utilization comes from; requests are used without it."""

    metrics_server: bool = False
    source: str = ""
    prometheus: PrometheusQuery | None = None

    @property
    def query(self) -> str:
        """The Prometheus query, "" if utilization comes from elsewhere."""
        return self.prometheus.query if self.source == _PROMETHEUS and self.prometheus else ""


class NodeEvictionLimits(msgspec.Struct, frozen=True):
    """``evictionLimits``: how many pods of a node this plugin evicts at most."""

    node: Annotated[int, msgspec.Meta(le=2**63 - 1)] | None = None


class LowNodeUtilizationArgs(msgspec.Struct, frozen=True, rename="camel"):
    """The arguments of LowNodeUtilization; thresholds are in per cent, or distances from the average."""

    thresholds: dict[str, float] = {}
    target_thresholds: dict[str, float] = {}
    use_deviation_thresholds: bool = False
    number_of_nodes: int = 0
    metrics_utilization: MetricsUtilization | None = None
    evictable_namespaces: Namespaces | None = None
    eviction_limits: NodeEvictionLimits | None = None

    @property
    def query(self) -> str:
        """The Prometheus query that measures utilization, "" if none does."""
        return self.metrics_utilization.query if self.metrics_utilization else ""

    @property
    def node_limit(self) -> int | None:
        """How many pods of a node are evicted at most, None for any number.

        One by default where a query measures utilization, as it does not say what a pod uses.
        """
        limit = self.eviction_limits.node if self.eviction_limits else None
        return 1 if limit is None and self.query else limit


class LowNodeUtilization(BalancePlugin):
    """Evicts pods from nodes above the target thresholds, until they are below or the low nodes are full."""

    name = "LowNodeUtilization"
    Args = LowNodeUtilizationArgs

    @classmethod
    def validate(cls, args: LowNodeUtilizationArgs) -> Iterator[Problem]:
        return first_of(_problems(args))

    @classmethod
    def prometheus_queries(cls, args: LowNodeUtilizationArgs) -> Sequence[str]:
        return [args.query] if args.query else []

    def balance(self, cluster: ClusterState, evictor: Evictor) -> None:
        args: LowNodeUtilizationArgs = self.args
        measured = args.metrics_utilization is not None
        usage = NodeUsage(cluster, args.thresholds, measured=measured, query=args.query)
        thresholds: Thresholds = args.thresholds
        targets: Thresholds = args.target_thresholds
        if args.use_deviation_thresholds:
            thresholds, targets = usage.around_average(thresholds, targets)
        is_low = usage.below(thresholds) & usage.schedulable
        low, high = np.flatnonzero(is_low), np.flatnonzero(usage.above(targets) & ~is_low)
        if len(low) <= max(0, args.number_of_nodes) or len(low) == len(usage.rows) or not len(high):
            return
        capacity = usage.capped(targets)

        def is_below_target(position: int, used: Mapping[str, int]) -> bool:
            return all(amount <= capacity[name][position] for name, amount in used.items())

        fullest_first = high[np.argsort(-usage.total()[high], kind="stable")]
        balancing = Balancing(
            cluster,
            evictor,
            usage,
            low,
            capacity,
            why="its node uses more than the target",
            excluded_namespaces=frozenset(args.evictable_namespaces.exclude if args.evictable_namespaces else ()),
            node_limit=args.node_limit,
        )
        balancing.run(fullest_first.tolist(), evictor.filter, is_below_target)


def _problems(args: LowNodeUtilizationArgs) -> Iterator[Problem]:
    yield from namespace_problems(args.evictable_namespaces)
    for path, thresholds in (("thresholds", args.thresholds), ("targetThresholds", args.target_thresholds)):
        if problem := first_threshold_problem(path, thresholds):
            yield Problem(problem.path, f"{path} config is not valid: {problem.message}")
    if args.thresholds.keys() != args.target_thresholds.keys():
        yield Problem("targetThresholds", _DIFFERENT)
        return
    for name, percent in args.thresholds.items():
        if percent > args.target_thresholds[name] and not args.use_deviation_thresholds:
            text = f"thresholds' {name} percentage is greater than targetThresholds'"
            yield Problem(f"thresholds.{name}", text)
    if args.number_of_nodes < 0:
        yield Problem("numberOfNodes", f"must be 0 or more, got {args.number_of_nodes}")
    limit = args.eviction_limits.node if args.eviction_limits else None
    if limit is not None and limit < 0:
        yield Problem("evictionLimits.node", f"must be 0 or more, got {limit}")
    if args.metrics_utilization is not None:
        yield from _metrics_problems(args.metrics_utilization)
    if args.query and args.thresholds.keys() != {METRIC_RESOURCE}:
        names = ", ".join(args.thresholds)
        yield Problem("thresholds", f"expected {METRIC_RESOURCE} alone, which the query measures, got {names}")


def _metrics_problems(metrics: MetricsUtilization) -> Iterator[Problem]:
    if metrics.source == _KUBERNETES_METRICS and metrics.metrics_server:
        text = f'it is not allowed to set both "{_KUBERNETES_METRICS}" source and metricsServer'
        yield Problem("metricsUtilization", text)
    if metrics.source == _KUBERNETES_METRICS and metrics.prometheus is not None:
        text = f'prometheus configuration is not allowed to set when source is set to "{_KUBERNETES_METRICS}"'
        yield Problem("metricsUtilization.prometheus", text)
    if metrics.source == _PROMETHEUS and not (metrics.prometheus and metrics.prometheus.query):
        text = f'prometheus query is required when metrics source is set to "{_PROMETHEUS}"'
        yield Problem("metricsUtilization.prometheus.query", text)
    if not metrics.metrics_server and metrics.source not in (_KUBERNETES_METRICS, _PROMETHEUS):
        text = f'expected {_KUBERNETES_METRICS} or {_PROMETHEUS}, got "{metrics.source}"'
        yield Problem("metricsUtilization.source", text)
