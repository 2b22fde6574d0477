"""The dashboard of one scheduler: its stream, and what is read on request."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from kubestow.config import FeatureGates, KubeSchedulerConfiguration
from kubestow.dashboard.counterfactual_searches import CounterfactualSearches
from kubestow.dashboard.details import PodDetails, node_details
from kubestow.dashboard.event_stream import EventStream
from kubestow.dashboard.plugin_reports import PluginReports
from kubestow.dashboard.queue_pages import QueuePages, QueueRows
from kubestow.dashboard.sections import (
    DecisionsSection,
    GangsSection,
    NodesSection,
    QueueSection,
    ReportsSection,
    StreamSection,
    VersionSection,
)
from kubestow.observability.pod_states import PodStates
from kubestow.observability.recent_attempts import RecentAttempts, RecentPreemptions
from kubestow.scheduling.interfaces import Clock
from kubestow.scheduling.scheduler import Scheduler

#: Pods of a group for which a change is tried.
_MOST_HELPED = 100


class Dashboard:
    """Everything the page shows. ``configuration`` and ``gates`` are those of the scheduler.

    ``server_version`` returns the version of the API server, such as ``v1.36.2``; "" if it is not known.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        attempts: RecentAttempts,
        preemptions: RecentPreemptions,
        clock: Clock,
        configuration: KubeSchedulerConfiguration,
        gates: FeatureGates,
        *,
        server_version: Callable[[], str],
    ) -> None:
        self._scheduler, self._attempts, self._preemptions, self._clock = scheduler, attempts, preemptions, clock
        self.pages = QueuePages(scheduler, self._queue_rows, clock)
        self.reports = PluginReports(scheduler, clock)
        self.pods = PodDetails(scheduler, attempts, preemptions, clock)
        self._minor, self._server_version = gates.minor, server_version
        self._searches = CounterfactualSearches(scheduler, configuration, gates, clock)
        self.stream = EventStream(self._sections, clock)

    def _sections(self) -> Sequence[StreamSection]:
        return (
            VersionSection(self._minor, self._server_version),
            NodesSection(self._scheduler.cluster),
            QueueSection(self._scheduler, self._queue_rows()),
            DecisionsSection(self._attempts, self._clock),
            GangsSection(self._scheduler),
            ReportsSection(self._scheduler),
        )

    def _queue_rows(self) -> QueueRows:
        return QueueRows(self._scheduler, PodStates(self._scheduler, self._attempts, self._clock), self._clock)

    def events(self, *, compressed: bool) -> AsyncGenerator[bytes, None]:
        """The stream for one more viewer. Raises TooManyViewers."""
        self._preemptions.watch()
        return self.stream.events(compressed=compressed)

    async def counterfactuals(self, namespace: str, name: str) -> dict[str, Any] | None:
        """The changes that would make a pod fit; None for an unknown one. Raises SearchFailed."""
        info = self._scheduler.pods.named(namespace, name)
        return None if info is None else await self._searches.search([info])

    async def group_counterfactuals(self, group: str) -> dict[str, Any] | None:
        """The changes that would help pods that wait for the same reason; None if there is none. Raises SearchFailed.

        The first of them are counted, up to a number.
        """
        infos = [queued.info for queued in self.pages.pods_of(group)[:_MOST_HELPED]]
        return await self._searches.search(infos, group) if infos else None

    def node(self, name: str) -> dict[str, Any] | None:
        """The details of a node; None for an unknown one."""
        return node_details(self._scheduler.cluster, name)
