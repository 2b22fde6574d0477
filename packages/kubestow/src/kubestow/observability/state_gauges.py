"""Gauges computed at a scrape: queue, cache, leadership, versions and feature gates, and the resources of pods.

They cost nothing while the scheduler works. Before there is a scheduler, those about it are empty. The resource
requests and limits of pods are the metrics of /metrics/resources (semantics 10.4); pods of one shape share the sums.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from weakref import WeakKeyDictionary

from prometheus_client.core import GaugeMetricFamily, Metric

from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.config import FeatureGates, Stage, feature_specs
from kubestow.errors import InvalidObject
from kubestow.observability.instruments import MetricDefinition
from kubestow.observability.metrics import SchedulerMetrics
from kubestow.rules.requests import CPU, limits_by_spec
from kubestow.scheduling.observer import Call
from kubestow.scheduling.partitions.scheduler import PartitionedScheduler
from kubestow.scheduling.queued_pod import Place
from kubestow.scheduling.scheduler import Scheduler
from kubestow.version import KUBERNETES_VERSION, VERSION

_QUEUES = {
    "active": (Place.ACTIVE,),
    "backoff": (Place.BACKOFF, Place.ERROR_BACKOFF),
    "unschedulable": (Place.UNSCHEDULABLE,),
    "gated": (Place.GATED,),
}

Samples = Iterable[tuple[tuple[str, ...], float]]


def add_state_gauges(
    metrics: SchedulerMetrics,
    gates: FeatureGates,
    *,
    scheduler: Callable[[], Scheduler | None],
    is_leader: Callable[[], bool],
    broken_watches: Callable[[], Mapping[str, float]],
) -> None:
    """Add all gauges; ``scheduler`` returns None until there is a scheduler.

    ``broken_watches`` returns for how many seconds each resource has not been read.
    """

    def add(name: str, documentation: str, read: Callable[[Scheduler], Samples]) -> None:
        def samples() -> Samples:
            current = scheduler()
            return () if current is None else read(current)

        metrics.gauge(name, documentation, read=samples)

    add("scheduler_pending_pods", "Number of pending pods, by queue.", _pending)
    add("scheduler_queued_entities", "Number of pods and of pod groups in the queue as entities, by queue.", _entities)
    add("scheduler_unschedulable_pods", "Number of unschedulable pods, by plugin that rejected them.", _unschedulable)
    add("scheduler_inflight_events", "Number of events recorded for pods that are being scheduled.", _in_flight)
    add("scheduler_goroutines", "Number of running background tasks, by operation.", _tasks)
    add(
        "scheduler_pending_async_api_calls",
        "Number of write requests to the API server that are queued or in flight, by call type.",
        _pending_writes,
    )
    for name in ("scheduler_cache_size", "scheduler_scheduler_cache_size"):
        add(name, "Number of nodes, pods, and assumed pods in the scheduler cache.", _cache_size)
    metrics.gauge(
        "leader_election_master_status",
        "Whether this process is the leader (1) or a standby (0).",
        read=lambda: [(("kube-scheduler",), float(is_leader()))],
    )
    metrics.gauge(
        "kubestow_watch_broken_seconds",
        "For how long the resource has not been read, in seconds; 0 if its watch is well.",
        MetricDefinition(labels=("resource",)),
        read=lambda: [((resource,), seconds) for resource, seconds in broken_watches().items()],
    )
    metrics.gauge(
        "kubestow_partition_held",
        "Whether this process holds the partition (1) or another one does (0); empty if schedulers share none.",
        MetricDefinition(labels=("partition",)),
        read=lambda: () if (current := scheduler()) is None else _partitions(current),
    )
    metrics.gauge(
        "kubestow_undecodable_objects",
        "Number of objects that cannot be decoded, or not as a whole, by kind.",
        MetricDefinition(labels=("kind",)),
        read=lambda: () if (current := scheduler()) is None else _undecodable(current),
    )
    major, minor, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
    build = {
        "major": major,
        "minor": minor,
        "git_version": KUBERNETES_VERSION,
        "git_commit": "",
        "git_tree_state": "",
        "build_date": "",
        "go_version": "",
        "compiler": f"kubestow {VERSION}",
        "platform": f"{platform.system().lower()}/{platform.machine()}",
    }
    metrics.gauge(
        "kubernetes_build_info",
        "Constant 1; the labels describe the build.",
        MetricDefinition(labels=tuple(build)),
        read=lambda: [(tuple(build.values()), 1.0)],
    )
    specs = feature_specs(gates.minor)
    stages = {name: "" if spec.stage is Stage.GA else spec.stage.value for name, spec in specs.items()}
    metrics.gauge(
        "kubernetes_feature_enabled",
        "Whether the feature gate is enabled (1) or disabled (0).",
        read=lambda: [((name, stages[name]), float(enabled)) for name, enabled in gates],
    )


def _partitions(scheduler: Scheduler) -> Iterator[tuple[tuple[str, ...], float]]:
    if isinstance(scheduler, PartitionedScheduler):
        partitions = scheduler.partitions
        held = partitions.held
        for partition in range(partitions.count):
            yield (str(partition),), float(partition in held)


def _pending(scheduler: Scheduler) -> Iterator[tuple[tuple[str, ...], float]]:
    counts = scheduler.queue.counts()
    incomplete = scheduler.queue.incomplete_count()
    for queue, places in _QUEUES.items():
        count = sum(counts[place] for place in places)
        yield (queue,), count - incomplete if queue == "gated" and incomplete is not None else count
    if incomplete is not None:
        yield ("incomplete",), incomplete
        yield ("pending",), scheduler.queue.returned_count()


def _entities(scheduler: Scheduler) -> Iterator[tuple[tuple[str, ...], float]]:
    counts = scheduler.queue.entity_counts()
    for kind in ("pod", "podgroup"):
        for queue, places in _QUEUES.items():
            yield (queue, kind), sum(counts[place, kind] for place in places)


def _unschedulable(scheduler: Scheduler) -> Samples:
    counts: Counter[tuple[str, ...]] = Counter()
    for queued in scheduler.queue.pods.values():
        for plugin in queued.rejectors | queued.pending_plugins:
            counts[plugin, queued.info.spec.scheduler_name] += 1
    return counts.items()


def _undecodable(scheduler: Scheduler) -> Samples:
    return [((kind,), float(count)) for kind, count in scheduler.handlers.undecodable_counts().items()]


def _in_flight(scheduler: Scheduler) -> Samples:
    return [((event,), count) for event, count in scheduler.queue.in_flight.counts().items()]


def _tasks(scheduler: Scheduler) -> Iterator[tuple[tuple[str, ...], float]]:
    yield ("binding",), scheduler.binding_cycle_count
    yield ("prioritizing_extender",), scheduler.extenders_prioritizing


def _pending_writes(scheduler: Scheduler) -> Iterator[tuple[tuple[str, ...], float]]:
    pending = scheduler.dispatcher.pending_calls()
    for call in Call:
        yield (call.value,), pending[call]


def _cache_size(scheduler: Scheduler) -> Iterator[tuple[tuple[str, ...], float]]:
    cluster = scheduler.cluster
    yield ("assumed_pods",), sum(1 for _ in cluster.assumed())
    yield ("pods",), cluster.pod_count
    yield ("nodes",), len(cluster.nodes)


_LABELS = ("namespace", "pod", "node", "scheduler", "priority", "resource", "unit")
_REQUESTS = "[STABLE] Resources requested by pods, as the scheduler counts them."
_LIMITS = "[STABLE] Resource limits of pods, aggregated as their requests."


class PodResourceCollector:
    """Collects the requests and limits of pods for prometheus_client."""

    def __init__(self) -> None:
        #: The pods of the next scrape.
        self.pods: Callable[[], Iterable[PodInfo]] = lambda: ()
        self._limits: WeakKeyDictionary[Shape, Mapping[str, int]] = WeakKeyDictionary()

    def collect(self) -> Iterator[Metric]:
        """The metrics of limits and requests."""
        requests = GaugeMetricFamily("kube_pod_resource_request", _REQUESTS, labels=_LABELS)
        limits = GaugeMetricFamily("kube_pod_resource_limit", _LIMITS, labels=_LABELS)
        for info in self.pods():
            priority = "" if info.spec.priority is None else str(info.spec.priority)
            labels = (info.namespace, info.name, info.spec.node_name, info.spec.scheduler_name, priority)
            _add(requests, labels, info.requests)
            _add(limits, labels, self._limits_of(info))
        yield limits
        yield requests

    def _limits_of(self, info: PodInfo) -> Mapping[str, int]:
        limits = self._limits.get(info.shape)
        if limits is None:
            try:
                limits = limits_by_spec(info.pod)
            except InvalidObject:  # only these metrics read limits, so they are not validated earlier
                limits = {}
            self._limits[info.shape] = limits
        return limits


def _add(family: GaugeMetricFamily, labels: tuple[str, ...], amounts: Mapping[str, int]) -> None:
    for resource, amount in amounts.items():
        if amount:
            value = amount / 1000 if resource == CPU else amount
            family.add_metric((*labels, resource, _unit(resource)), value)


def _unit(resource: str) -> str:
    if resource == CPU:
        return "cores"
    if resource in ("memory", "storage", "ephemeral-storage") or resource.startswith("hugepages-"):
        return "bytes"
    return "integer" if resource.startswith("attachable-volumes-") else ""
