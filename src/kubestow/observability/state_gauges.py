"""What is read when somebody asks: how many pods wait where, how many nodes there are, which features are on.

Nothing is counted for these while the scheduler works; a scrape looks at its queue and its cluster. Before a scheduler
is there (a process that is starting) the readings are zero.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from kubestow.config import FEATURES, FeatureGates
from kubestow.observability.instruments import Gauge, Stability
from kubestow.observability.metrics import SchedulerMetrics
from kubestow.scheduling.observer import Call
from kubestow.scheduling.queue.queued_pod import Place
from kubestow.scheduling.scheduler import Scheduler
from kubestow.version import KUBERNETES_VERSION, VERSION

__all__ = ["add_readings"]

_QUEUES = {
    "active": (Place.ACTIVE,),
    "backoff": (Place.BACKOFF, Place.ERROR_BACKOFF),
    "unschedulable": (Place.UNSCHEDULABLE,),
    "gated": (Place.GATED,),
}

_BUILD = (
    "major",
    "minor",
    "git_version",
    "git_commit",
    "git_tree_state",
    "build_date",
    "go_version",
    "compiler",
    "platform",
)

Reading = Iterable[tuple[tuple[str, ...], float]]


def add_readings(
    metrics: SchedulerMetrics,
    gates: FeatureGates,
    *,
    scheduler: Callable[[], Scheduler | None],
    leads: Callable[[], bool],
) -> None:
    """Add all readings of a scheduler, which may not be there yet, nor lead."""

    def gauge(
        name: str, meaning: str, stability: Stability, labels: tuple[str, ...], read: Callable[[Scheduler], Reading]
    ) -> None:
        def reading() -> Reading:
            there = scheduler()
            return () if there is None else read(there)

        metrics.add(Gauge(name, meaning, stability, labels, read=reading))

    beta, alpha = Stability.BETA, Stability.ALPHA
    gauge("scheduler_pending_pods", "Pods that wait, by where.", Stability.STABLE, ("queue",), _pending)
    gauge("scheduler_unschedulable_pods", "Waiting pods by who refused them.", beta, ("plugin", "profile"), _refused)
    gauge("scheduler_inflight_events", "Events kept for pods being scheduled.", alpha, ("event",), _in_flight)
    gauge("scheduler_goroutines", "Tasks under way beside the scheduling cycle.", beta, ("operation",), _tasks)
    gauge("scheduler_pending_async_api_calls", "Writes asked for and not done.", alpha, ("call_type",), _writes)
    gauge("scheduler_cache_size", "Pods on nodes, those not confirmed yet, and nodes.", alpha, ("type",), _cached)
    metrics.add(
        Gauge(
            "leader_election_master_status",
            "Whether this process leads.",
            alpha,
            ("name",),
            read=lambda: [(("kube-scheduler",), float(leads()))],
        )
    )
    major, minor, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
    system = f"{platform.system().lower()}/{platform.machine()}"
    build = (major, minor, KUBERNETES_VERSION, "", "", "", "", f"kubestow {VERSION}", system)
    metrics.add(
        Gauge(
            "kubernetes_build_info",
            "Always 1; the labels say what this is.",
            alpha,
            _BUILD,
            read=lambda: [(build, 1.0)],
        )
    )
    metrics.add(
        Gauge(
            "kubernetes_feature_enabled",
            "Whether a feature gate is on.",
            beta,
            ("name", "stage"),
            read=lambda: [((name, _stage(name)), float(on)) for name, on in gates],
        )
    )


def _stage(name: str) -> str:
    stage = FEATURES[name].stage.value
    return "" if stage == "GA" else stage


def _pending(scheduler: Scheduler) -> Iterator[tuple[tuple[str, ...], float]]:
    counts = scheduler.queue.counts()
    for queue, places in _QUEUES.items():
        yield (queue,), sum(counts[place] for place in places)


def _refused(scheduler: Scheduler) -> Reading:
    counts: Counter[tuple[str, ...]] = Counter()
    for queued in scheduler.queue.waiting():
        for plugin in queued.rejectors | queued.pending:
            counts[plugin, queued.info.spec.scheduler_name] += 1
    return counts.items()


def _in_flight(scheduler: Scheduler) -> Reading:
    return [((event,), count) for event, count in scheduler.queue.unfinished_events().items()]


def _tasks(scheduler: Scheduler) -> Iterator[tuple[tuple[str, ...], float]]:
    yield ("binding",), scheduler.bindings_under_way
    yield ("prioritizing_extender",), scheduler.extenders_prioritizing


def _writes(scheduler: Scheduler) -> Iterator[tuple[tuple[str, ...], float]]:
    pending = scheduler.dispatcher.pending()
    for call in Call:
        yield (call.value,), pending[call]


def _cached(scheduler: Scheduler) -> Iterator[tuple[tuple[str, ...], float]]:
    cluster = scheduler.cluster
    yield ("assumed_pods",), sum(1 for _ in cluster.assumed())
    yield ("pods",), cluster.pod_count
    yield ("nodes",), len(cluster.nodes)
