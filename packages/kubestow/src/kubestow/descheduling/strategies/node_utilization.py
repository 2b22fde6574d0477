"""LowNodeUtilization and HighNodeUtilization: even out the utilization of nodes, or pack pods on fewer of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import Taint
from kubestow.api.formats.int64 import exact_sum
from kubestow.cluster.pods.shapes import ShapeFamily
from kubestow.descheduling.cluster_state import AssignedPod, ClusterState
from kubestow.descheduling.eviction import EvictionOutcome, eviction_order
from kubestow.descheduling.interface import ArgumentProblem, BalancePlugin, Evictor
from kubestow.descheduling.pod_selection import Namespaces
from kubestow.descheduling.strategies.node_usage import (
    METRIC_RESOURCE,
    Thresholds,
    Utilization,
)
from kubestow.rules.matching import tolerates


class Balancing:
    """Evicts pods from source nodes while the destinations have room of every resource.

    ``sources`` and ``destinations`` are positions in ``usage``; ``capacity`` are the amounts up to which destinations
    may be filled, int64 by resource. ``why`` is the message of the evictions from a source. Where it is not known what
    pods use, nothing but ``node_limit`` ends the evictions of a node.
    """

    def __init__(
        self,
        cluster: ClusterState,
        evictor: Evictor,
        usage: Utilization,
        destinations: NDArray[np.intp],
        capacity: Mapping[str, NDArray[np.int64]],
        *,
        why: Callable[[int], str],
        excluded_namespaces: frozenset[str] = frozenset(),
        node_limit: int | None = None,
    ) -> None:
        self._cluster, self._evictor, self._usage = cluster, evictor, usage
        self._why, self._excluded, self._node_limit = why, excluded_namespaces, node_limit
        #: The room that is left in all destinations together.
        self._room = {name: exact_sum((capacity[name] - usage.used[name])[destinations]) for name in usage.resources}
        rows = usage.rows[destinations].tolist()
        self._taints = {tuple(cluster.nodes[row].spec.taints) for row in rows}
        self._tolerating: dict[ShapeFamily, bool] = {}

    def run(
        self,
        sources: Sequence[int],
        is_movable: Callable[[AssignedPod], bool],
        is_done: Callable[[int, Mapping[str, int]], bool] = lambda position, used: False,
    ) -> None:
        """Evict pods from one source after the other.

        ``is_movable`` selects the pods of a source; ``is_done`` gets the position of a source and what is still used
        there, and says whether enough has been evicted.
        """
        for position in sources:
            if not self._has_room():
                return
            used = {name: int(amounts[position]) for name, amounts in self._usage.used.items()}
            if is_done(position, used):
                continue
            pods = [pod for pod in self._cluster.pods_on(int(self._usage.rows[position])) if is_movable(pod)]
            if self._evict(pods, position, used, is_done).ends_plugin:
                return

    def _has_room(self) -> bool:
        return min(self._room.values()) > 0

    def _evict(
        self,
        pods: Sequence[AssignedPod],
        position: int,
        used: dict[str, int],
        is_done: Callable[[int, Mapping[str, int]], bool],
    ) -> EvictionOutcome:
        """Evict pods of one node, until it is done or the room is used up. The outcome of the last eviction."""
        evicted, outcome, why = 0, EvictionOutcome.REFUSED, self._why(position)
        for pod in self._evictor.in_order(pods, key=eviction_order):
            if is_done(position, used) or not self._has_room() or evicted == self._node_limit:
                break
            if not self._tolerates_a_destination(pod) or pod.namespace in self._excluded:
                continue
            if not self._evictor.pre_eviction_filter(pod):
                continue
            amounts = self._usage.of_pod(pod)
            if amounts is None:
                continue
            outcome = self._evictor.evict(pod, why)
            if outcome.evicted:
                evicted += 1
                for name, amount in amounts.items():
                    used[name] -= amount
                    self._room[name] -= amount
            elif outcome.ends_node:
                break
        return outcome

    def _tolerates_a_destination(self, pod: AssignedPod) -> bool:
        family = pod.shape.family
        if family not in self._tolerating:
            self._tolerating[family] = any(_tolerates_all(pod, taints) for taints in self._taints)
        return self._tolerating[family]


def _tolerates_all(pod: AssignedPod, taints: Sequence[Taint]) -> bool:
    """Whether a pod tolerates all taints, PreferNoSchedule included.

    QUIRK: it must also have at least as many tolerations as there are taints.
    """
    tolerations = pod.spec.tolerations
    return len(tolerations) >= len(taints) and all(
        any(tolerates(toleration, taint, comparisons=True) for toleration in tolerations) for taint in taints
    )


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
    def validate(cls, args: LowNodeUtilizationArgs) -> Iterator[ArgumentProblem]:
        return _low_problems(args)

    @classmethod
    def prometheus_queries(cls, args: LowNodeUtilizationArgs) -> Sequence[str]:
        return [args.query] if args.query else []

    def balance(self, cluster: ClusterState, evictor: Evictor) -> None:
        args: LowNodeUtilizationArgs = self.args
        measured = args.metrics_utilization is not None
        usage = Utilization(cluster, args.thresholds, measured=measured, query=args.query)
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
            why=lambda position: _excess(usage, targets, position),
            excluded_namespaces=frozenset(args.evictable_namespaces.exclude if args.evictable_namespaces else ()),
            node_limit=args.node_limit,
        )
        balancing.run(fullest_first.tolist(), evictor.filter, is_below_target)


def _excess(usage: Utilization, targets: Thresholds, position: int) -> str:
    """By how much a node is above its targets, before pods are evicted."""
    shares = ((name, float(usage.percent(name)[position]), target) for name, target in targets.items())
    above = [f"{share:.0f}% of {name} (target: {target:.0f}%)" for name, share, target in shares if share > target]
    return f"its node uses more than the target: {', '.join(above)}"


def _threshold_problems(path: str, thresholds: Thresholds) -> Iterator[ArgumentProblem]:
    """The mistakes of thresholds."""
    if not thresholds:
        yield ArgumentProblem(path, "no resource threshold is configured")
    for name, percent in thresholds.items():
        if not 0 <= percent <= 100:
            yield ArgumentProblem(f"{path}.{name}", f"{name} threshold not in [0, 100] range")


def _namespace_problems(namespaces: Namespaces | None) -> Iterator[ArgumentProblem]:
    """The mistake in ``evictableNamespaces``, if it has one."""
    if namespaces is not None and namespaces.include:
        yield ArgumentProblem(
            "evictableNamespaces.include", "only Exclude namespaces can be set, inclusion is not supported"
        )


def _low_problems(args: LowNodeUtilizationArgs) -> Iterator[ArgumentProblem]:
    yield from _namespace_problems(args.evictable_namespaces)
    for path, thresholds in (("thresholds", args.thresholds), ("targetThresholds", args.target_thresholds)):
        for problem in _threshold_problems(path, thresholds):
            yield ArgumentProblem(problem.path, f"{path} config is not valid: {problem.message}")
    if args.thresholds.keys() != args.target_thresholds.keys():
        yield ArgumentProblem("targetThresholds", _DIFFERENT)
    for name, percent in args.thresholds.items():
        if percent > args.target_thresholds.get(name, percent) and not args.use_deviation_thresholds:
            text = f"thresholds' {name} percentage is greater than targetThresholds'"
            yield ArgumentProblem(f"thresholds.{name}", text)
    if args.number_of_nodes < 0:
        yield ArgumentProblem("numberOfNodes", f"must be 0 or more, got {args.number_of_nodes}")
    limit = args.eviction_limits.node if args.eviction_limits else None
    if limit is not None and limit < 0:
        yield ArgumentProblem("evictionLimits.node", f"must be 0 or more, got {limit}")
    if args.metrics_utilization is not None:
        yield from _metrics_problems(args.metrics_utilization)
    if args.query and args.thresholds.keys() != {METRIC_RESOURCE}:
        names = ", ".join(args.thresholds)
        yield ArgumentProblem("thresholds", f"expected {METRIC_RESOURCE} alone, which the query measures, got {names}")


def _metrics_problems(metrics: MetricsUtilization) -> Iterator[ArgumentProblem]:
    if metrics.source == _KUBERNETES_METRICS and metrics.metrics_server:
        text = f'it is not allowed to set both "{_KUBERNETES_METRICS}" source and metricsServer'
        yield ArgumentProblem("metricsUtilization", text)
    if metrics.source == _KUBERNETES_METRICS and metrics.prometheus is not None:
        text = f'prometheus configuration is not allowed to set when source is set to "{_KUBERNETES_METRICS}"'
        yield ArgumentProblem("metricsUtilization.prometheus", text)
    if metrics.source == _PROMETHEUS and not (metrics.prometheus and metrics.prometheus.query):
        text = f'prometheus query is required when metrics source is set to "{_PROMETHEUS}"'
        yield ArgumentProblem("metricsUtilization.prometheus.query", text)
    if not metrics.metrics_server and metrics.source not in (_KUBERNETES_METRICS, _PROMETHEUS):
        text = f'expected {_KUBERNETES_METRICS} or {_PROMETHEUS}, got "{metrics.source}"'
        yield ArgumentProblem("metricsUtilization.source", text)


_ONLY_THRESHOLDING_RESOURCES = "OnlyThresholdingResources"


class HighNodeUtilizationArgs(msgspec.Struct, frozen=True, rename="camel"):
    """The arguments of HighNodeUtilization; thresholds are in per cent."""

    thresholds: dict[str, float] = {}
    number_of_nodes: int = 0
    eviction_modes: tuple[str, ...] = ()
    evictable_namespaces: Namespaces | None = None


class HighNodeUtilization(BalancePlugin):
    """Evicts pods from nodes below the thresholds, the emptiest first, while the other nodes have room."""

    name = "HighNodeUtilization"
    Args = HighNodeUtilizationArgs

    @classmethod
    def validate(cls, args: HighNodeUtilizationArgs) -> Iterator[ArgumentProblem]:
        return _high_problems(args)

    def balance(self, cluster: ClusterState, evictor: Evictor) -> None:
        args: HighNodeUtilizationArgs = self.args
        usage = Utilization(cluster, args.thresholds)
        is_low = usage.below(args.thresholds)
        low, others = np.flatnonzero(is_low), np.flatnonzero(usage.schedulable & ~is_low)
        if len(low) <= max(0, args.number_of_nodes) or len(low) == len(usage.rows) or not len(others):
            return
        emptiest_first = low[np.argsort(usage.total()[low], kind="stable")]
        balancing = Balancing(
            cluster,
            evictor,
            usage,
            others,
            usage.capped({}),
            why=lambda position: "its node uses so little that it could be emptied",
            excluded_namespaces=frozenset(args.evictable_namespaces.exclude if args.evictable_namespaces else ()),
        )
        balancing.run(emptiest_first.tolist(), lambda pod: evictor.filter(pod) and self._is_meant(pod))

    def _is_meant(self, pod: AssignedPod) -> bool:
        args: HighNodeUtilizationArgs = self.args
        if _ONLY_THRESHOLDING_RESOURCES not in args.eviction_modes:
            return True
        containers = (*pod.spec.containers, *pod.spec.init_containers)
        return any(name in container.resources.requests for container in containers for name in args.thresholds)


def _high_problems(args: HighNodeUtilizationArgs) -> Iterator[ArgumentProblem]:
    yield from _namespace_problems(args.evictable_namespaces)
    yield from _threshold_problems("thresholds", args.thresholds)
    for index, mode in enumerate(args.eviction_modes):
        if mode != _ONLY_THRESHOLDING_RESOURCES:
            yield ArgumentProblem(f"evictionModes[{index}]", f"invalid eviction mode {mode}")
    if args.number_of_nodes < 0:
        yield ArgumentProblem("numberOfNodes", f"must be 0 or more, got {args.number_of_nodes}")
