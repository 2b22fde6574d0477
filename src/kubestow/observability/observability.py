"""Everything that watches one scheduler, put together; and the text that a scrape gets.

Made before there is a scheduler, so that a process can answer while it starts and while it stands by: hand
:attr:`Observability.observer` to the scheduler, then :meth:`Observability.attach` it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder

from kubestow.config import FeatureGates
from kubestow.observability.composite_observer import together
from kubestow.observability.instruments import LabelAllowList
from kubestow.observability.last_attempts import LastAttempts
from kubestow.observability.logging_observer import LoggingObserver
from kubestow.observability.metrics import SchedulerMetrics
from kubestow.observability.metrics_recorder import MetricsRecorder
from kubestow.observability.pod_resources import PodResourceCollector
from kubestow.observability.state_gauges import add_readings
from kubestow.scheduling.leadership import Leadership
from kubestow.scheduling.observer import Observer
from kubestow.scheduling.ports import Clock
from kubestow.scheduling.scheduler import Scheduler

__all__ = ["Observability", "exposed"]


class Observability:
    """The watchers of one scheduler. ``also`` is told of everything besides them."""

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
        self.attempts = LastAttempts(clock)
        self.scheduler: Scheduler | None = None
        #: Whether the process has been asked to end, and is letting what is under way come to an end.
        self.is_ending: Callable[[], bool] = lambda: False
        self.observer = together(
            MetricsRecorder(self.metrics), self.attempts, LoggingObserver(), *([also] if also else [])
        )
        self._resources = PodResourceCollector()
        add_readings(self.metrics, gates, scheduler=lambda: self.scheduler, leads=self._leads)

    def attach(self, scheduler: Scheduler) -> None:
        """From here on the readings are this scheduler's."""
        self.scheduler = scheduler

    @property
    def leadership(self) -> Leadership | None:
        """The scheduler's candidacy, None before there is a scheduler."""
        return None if self.scheduler is None else self.scheduler.leadership

    def _leads(self) -> bool:
        return self.leadership is not None and self.leadership.is_leader

    def scrape(self, accept: str = "") -> tuple[bytes, str]:
        """All metrics in the format that an Accept header asks for, and its content type."""
        return exposed(self.metrics.registry, accept)

    def scrape_resources(self, accept: str = "") -> tuple[bytes, str]:
        """What pods ask for and may use, in the same formats."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Once(self._pod_resources()))
        return exposed(registry, accept)

    def _pod_resources(self) -> Iterator[Metric]:
        if self.scheduler is not None and self._leads():  # or else several replicas would tell the same
            yield from self._resources.collect(self.scheduler.handlers.pods())


class _Once:
    def __init__(self, families: Iterator[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return self._families


def exposed(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """What a registry holds, in the format that an Accept header asks for, and its content type."""
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type
