"""Everything that observes one scheduler, and the exposition of its metrics.

It exists before the scheduler, so that a process can serve metrics while it starts and on standby: pass
:attr:`Observability.observer` to the scheduler, then call :meth:`Observability.attach`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from kubestow.config import FeatureGates
from kubestow.observability.composite_observer import CompositeObserver
from kubestow.observability.instruments import LabelAllowList, exposition
from kubestow.observability.logging_observer import LoggingObserver
from kubestow.observability.metrics import SchedulerMetrics
from kubestow.observability.metrics_recorder import MetricsRecorder
from kubestow.observability.pod_resources import PodResourceCollector
from kubestow.observability.recent_attempts import RecentAttempts
from kubestow.observability.recent_preemptions import RecentPreemptions
from kubestow.observability.state_gauges import add_state_gauges
from kubestow.scheduling.environment import Leadership
from kubestow.scheduling.interfaces import Clock
from kubestow.scheduling.observer import Observer
from kubestow.scheduling.scheduler import Scheduler

__all__ = ["Observability"]


class Observability:
    """The observers of one scheduler; ``also`` is an additional one."""

    def __init__(
        self,
        clock: Clock,
        gates: FeatureGates,
        *,
        disabled_metrics: Collection[str] = (),
        allowed_labels: Mapping[str, LabelAllowList] | None = None,
        also: Observer | None = None,
    ) -> None:
        self.metrics = SchedulerMetrics(disabled=disabled_metrics, allowed=allowed_labels)
        self.attempts = RecentAttempts(clock)
        self.preemptions = RecentPreemptions(clock)
        self.scheduler: Scheduler | None = None
        #: Whether the process is shutting down gracefully.
        self.is_shutting_down: Callable[[], bool] = lambda: False
        additional = [also] if also else []
        self.observer = CompositeObserver(
            MetricsRecorder(self.metrics), self.attempts, self.preemptions, LoggingObserver(), *additional
        )
        self._pod_resources = PodResourceCollector()
        add_state_gauges(self.metrics, gates, scheduler=lambda: self.scheduler, is_leader=self._is_leader)

    def attach(self, scheduler: Scheduler) -> None:
        """Compute the gauges from this scheduler from now on."""
        self.scheduler = scheduler

    @property
    def leadership(self) -> Leadership | None:
        """The leadership of the scheduler; None before there is a scheduler."""
        return None if self.scheduler is None else self.scheduler.leadership

    def _is_leader(self) -> bool:
        return self.leadership is not None and self.leadership.is_leader

    def scrape(self, accept: str = "") -> tuple[bytes, str]:
        """All metrics in the format that the Accept header requests, and the content type."""
        return exposition(self.metrics.registry, accept)

    def scrape_resources(self, accept: str = "") -> tuple[bytes, str]:
        """The resource requests and limits of pods, likewise."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_SingleUse(self._resource_metrics()))
        return exposition(registry, accept)

    def _resource_metrics(self) -> Iterator[Metric]:
        if self.scheduler is not None and self._is_leader():  # standbys would report the same pods again
            yield from self._pod_resources.collect(self.scheduler.pods.pods())


class _SingleUse:
    def __init__(self, families: Iterator[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return self._families
