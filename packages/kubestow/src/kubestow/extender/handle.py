"""The plugin handle of an extender.

Filter and Score plugins only read; all writes are done by kube-scheduler. Write methods raise an error.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from random import Random
from typing import Any, NoReturn, TypeVar

from kubestow.cluster.cache import Cluster
from kubestow.cluster.catalog import KubernetesObject
from kubestow.cluster.events import ClusterEvent
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.config import Extender, FeatureGates
from kubestow.errors import KubestowError
from kubestow.framework.claim_writer import ResourceClaimWriter
from kubestow.framework.interface import Waiting
from kubestow.log_fields import fields

__all__ = ["ReadOnlyHandle"]

_log = logging.getLogger(__name__)

T = TypeVar("T")


class ReadOnlyHandle:
    """Implements :class:`kubestow.framework.interface.Handle`."""

    def __init__(self, cluster: Cluster, gates: FeatureGates, random: Random) -> None:
        self.cluster = cluster
        self.random = random
        self._gates = gates
        self._background: set[asyncio.Task[None]] = set()
        self._periodic: list[tuple[float, Callable[[], Awaitable[None]]]] = []

    def feature_enabled(self, gate: str) -> bool:
        """Whether a feature gate is enabled."""
        return self._gates.enabled(gate)

    def is_preempting(self, uid: str) -> bool:
        """Always False: preemptions of kube-scheduler are unknown."""
        return False

    def waiting_pods(self) -> Sequence[Waiting]:
        """Always empty: pods waiting on Permit in kube-scheduler are unknown."""
        return ()

    def waiting_pod(self, uid: str) -> Waiting | None:
        """Always None."""
        return None

    def pending_pods(self) -> Sequence[PodInfo]:
        """Always empty: the queue of kube-scheduler is unknown."""
        return ()

    def activate(self, pods: Iterable[PodInfo]) -> None:
        """Raises KubestowError."""
        _reject("activate pods")

    def now(self) -> datetime:
        """The current time, in UTC."""
        return datetime.now(UTC)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the background."""
        task = asyncio.create_task(_logged(work))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def run_periodically(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        """Run work in the background until the server ends, at once and so many seconds after each end of it."""
        self._periodic.append((seconds, work))

    def start_periodic_work(self) -> None:
        """Begin the periodic work of the plugins."""
        for seconds, work in self._periodic:
            self.spawn(_repeated(seconds, work))

    def report_change(self, event: ClusterEvent, node_name: str | None = None) -> None:
        """Invalidate cached results; kube-scheduler's queue does not learn of the change."""
        self.cluster.record_change(event, node_name)

    def record(self, pod: PodInfo, *, reason: str, action: str, note: str, event_type: str = "Normal") -> None:
        """Log the event instead of creating it."""
        _log.info("pod %s: %s: %s", pod.key, reason, note, extra=fields(pod=pod.key, reason=reason))

    def device_wait_ended(self, pod: PodInfo, driver: str, outcome: str, seconds: float) -> None:
        """No effect: an extender never waits for devices."""

    async def wait_for(self, condition: Callable[[], T | None], seconds: float) -> T | None:
        """Evaluate the condition once, without waiting."""
        return condition()

    async def retry_until_answered(self, subject: str, read: Callable[[], Awaitable[T]]) -> T:
        """Call ``read`` once: there are no writes whose result is unknown."""
        return await read()

    def lock(self) -> AbstractAsyncContextManager[Any]:
        """A lock."""
        return asyncio.Lock()

    async def pause_after_conflict(self) -> None:
        """No effect: there are no writes that could conflict."""

    async def shield(self, work: Coroutine[Any, Any, T]) -> T:
        """Await the work: there are no writes to shield."""
        return await work

    @property
    def extenders(self) -> Sequence[Extender]:
        """Always empty: the other extenders of kube-scheduler are unknown."""
        return ()

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


async def _repeated(seconds: float, work: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            await work()
        except (Exception, SystemExit):  # not even sys.exit() in a plugin ends the server
            _log.exception(
                "periodic work of a plugin failed", extra=fields(work=getattr(work, "__qualname__", str(work)))
            )
        await asyncio.sleep(seconds)


async def _logged(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except (Exception, SystemExit):  # not even sys.exit() in a plugin ends the server
        _log.exception(
            "background task of a plugin failed", extra=fields(work=getattr(work, "__qualname__", str(work)))
        )
