"""Everything that observes one scheduler: its log, metrics and recent attempts.

It exists before the scheduler, so that a process can serve metrics while it starts and on standby: pass
:attr:`Observability.observer` to the scheduler, then call :meth:`Observability.attach`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry

from kubestow.cluster.pods.shapes import PodInfo
from kubestow.config import FeatureGates
from kubestow.framework.runtime.plugin_caller import PluginObserver
from kubestow.log_fields import V, fields
from kubestow.observability.instruments import LabelAllowList, exposition
from kubestow.observability.metrics import SchedulerMetrics
from kubestow.observability.metrics_recorder import metrics_recorder
from kubestow.observability.recent_attempts import RecentAttempts, RecentPreemptions
from kubestow.observability.state_gauges import PodResourceCollector, add_state_gauges
from kubestow.scheduling.decision.result import Decision, Scheduled
from kubestow.scheduling.environment import Leadership
from kubestow.scheduling.interfaces import Clock
from kubestow.scheduling.observer import Disruption, Observer, Result
from kubestow.scheduling.queued_pod import QueuedPod
from kubestow.scheduling.scheduler import Scheduler

_log = logging.getLogger(__name__)


class CompositeObserver(Observer):
    """Calls all ``observers`` in order. The plugins of a profile have one observer: the first that is not None, as the
    other observers wrap it.

    A method that one observer implements is that observer's. A method that none implements stays the no-op of the base
    class, so an event costs one call per interested observer.
    """

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers
        methods = {name for name in vars(Observer) if not name.startswith("_")}
        for name in methods - {"plugin_observer", "wrap_plugin_observer"}:
            implementations = [
                getattr(observer, name)
                for observer in observers
                if getattr(type(observer), name) is not getattr(Observer, name)
            ]
            if implementations:
                setattr(self, name, implementations[0] if len(implementations) == 1 else _call_all(implementations))

    def plugin_observer(self, scheduler_name: str) -> PluginObserver | None:
        plugin_observers = (observer.plugin_observer(scheduler_name) for observer in self._observers)
        found = next((observer for observer in plugin_observers if observer is not None), None)
        if found is not None:
            for observer in self._observers:
                found = observer.wrap_plugin_observer(found)
        return found


def _call_all(implementations: Sequence[Callable[..., None]]) -> Callable[..., None]:
    def call(*args: Any, **kwargs: Any) -> None:
        for implementation in implementations:
            implementation(*args, **kwargs)

    return call


class LoggingObserver(Observer):
    """Logs the results of attempts, bindings and preemptions.

    Messages are kube-scheduler's where it logs the same. Results are logged at V(2), scheduling cycles at V(3); errors
    are also logged at error level where they occur. Below its level a call costs one comparison.
    """

    def decision_made(self, decision: Decision, seconds: float) -> None:
        if _log.isEnabledFor(V(3)):
            values = fields(
                pod=decision.pod.key,
                node=decision.node_name or "",
                feasibleNodes=decision.candidate_count if isinstance(decision, Scheduled) else 0,
            )
            _log.log(V(3), "Scheduling algorithm finished", extra=values)

    def attempt_ended(self, queued: QueuedPod, result: Result, message: str, seconds: float) -> None:
        if result is not Result.SCHEDULED and _log.isEnabledFor(V(2)):
            text = (
                "Unable to schedule pod; no fit; waiting"
                if result is Result.UNSCHEDULABLE
                else "Error scheduling pod; retrying"
            )
            _log.log(V(2), text, extra=fields(pod=queued.info.key, attempt=queued.attempts, err=message))

    def pod_bound(self, queued: QueuedPod, node_name: str, seconds: float) -> None:
        if _log.isEnabledFor(V(2)):
            values = fields(pod=queued.info.key, node=node_name, attempts=queued.attempts, seconds=round(seconds, 6))
            _log.log(V(2), "Successfully bound pod to node", extra=values)

    def preemption_started(
        self, preemptors: Sequence[PodInfo], node_name: str, victims: Sequence[PodInfo], disruption: Disruption
    ) -> None:
        if _log.isEnabledFor(V(2)):
            values = fields(preemptor=preemptors[0].key, node=node_name, victims=len(victims))
            _log.log(V(2), "Preemptor pod selected victims", extra=values)


class Observability:
    """The observers of one scheduler; ``also`` are additional ones."""

    def __init__(
        self,
        clock: Clock,
        gates: FeatureGates,
        *,
        disabled_metrics: Collection[str] = (),
        allowed_labels: Mapping[str, LabelAllowList] | None = None,
        also: Sequence[Observer] = (),
    ) -> None:
        self.metrics = SchedulerMetrics(disabled=disabled_metrics, allowed=allowed_labels, minor=gates.minor)
        self.attempts = RecentAttempts(clock)
        self.preemptions = RecentPreemptions(clock)
        self.scheduler: Scheduler | None = None
        #: The version of the API server, such as ``v1.36.2``; "" before it answers, and if it does not tell.
        self.server_version = ""
        #: For how long the watch of each resource has been broken, in seconds, 0 if it is not.
        self.broken_watches: Callable[[], Mapping[str, float]] = dict
        #: Whether the process is shutting down gracefully.
        self.is_shutting_down: Callable[[], bool] = lambda: False
        self.observer = CompositeObserver(
            metrics_recorder(self.metrics), self.attempts, self.preemptions, LoggingObserver(), *also
        )
        self._pod_resources = PodResourceCollector()
        add_state_gauges(
            self.metrics,
            gates,
            scheduler=lambda: self.scheduler,
            is_leader=self._is_leader,
            broken_watches=lambda: self.broken_watches(),
        )

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
        if self.scheduler is not None and self._is_leader():  # standbys would report the same pods again
            self._pod_resources.pods = self.scheduler.pods.pods
            registry.register(self._pod_resources)
        return exposition(registry, accept)
