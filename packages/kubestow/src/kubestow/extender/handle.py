"""The plugin handle of an extender.

Filter and Score plugins only read; all writes are done by kube-scheduler. Write methods raise an error. The queue, the
waiting pods, the preemptions and the other extenders of kube-scheduler are unknown.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from datetime import datetime
from random import Random
from typing import Any, NoReturn

from kubestow.cluster.cache import Cluster
from kubestow.cluster.changes.catalog import KubernetesObject
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.config import FeatureGates
from kubestow.errors import KubestowError
from kubestow.framework.handle import ResourceClaimWriter
from kubestow.log_fields import fields
from kubestow.process import WallClock
from kubestow.scheduling.background_work import BackgroundTasks, PeriodicWork
from kubestow.scheduling.scheduler.handle import BaseHandle

_log = logging.getLogger(__name__)


class ReadOnlyHandle(BaseHandle):
    """Implements :class:`kubestow.framework.interface.Handle`."""

    def __init__(self, cluster: Cluster, gates: FeatureGates, random: Random) -> None:
        super().__init__(cluster, gates, random)
        self._clock = WallClock()
        self._background = BackgroundTasks()
        self._periodic = PeriodicWork(self._clock)

    def activate(self, pods: Iterable[PodInfo]) -> None:
        """Raises KubestowError."""
        _reject("activate pods")

    def now(self) -> datetime:
        """The current time, in UTC."""
        return self._clock.now()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the background."""
        self._background.spawn(work)

    def run_periodically(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        """Run work in the background until the server ends, at once and so many seconds after each end of it."""
        self._periodic.add(seconds, work)

    def start_periodic_work(self) -> None:
        """Begin the periodic work of the plugins."""
        self._periodic.start()

    def record(self, pod: PodInfo, *, reason: str, action: str, note: str, event_type: str = "Normal") -> None:
        """Log the event instead of creating it."""
        _log.info("pod %s: %s: %s", pod.key, reason, note, extra=fields(pod=pod.key, reason=reason))

    async def request(self, method: str, path: str, body: Any = None) -> Any:
        """Raises KubestowError."""
        _reject("send requests")

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        """Raises KubestowError."""
        _reject("bind a pod")

    async def patch(self, obj: KubernetesObject, changes: Mapping[str, Any], *, subresource: str = "") -> str:
        """Raises KubestowError."""
        _reject("patch an object")

    @property
    def resource_claims(self) -> ResourceClaimWriter:
        """Raises KubestowError."""
        _reject("write to resource claims")


def _reject(operation: str) -> NoReturn:
    raise KubestowError(f"plugins of an extender cannot {operation}: an extender only filters and scores")
