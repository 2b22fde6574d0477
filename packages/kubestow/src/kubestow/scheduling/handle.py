"""The handle: what plugins of a running scheduler can use (:class:`~kubestow.framework.batch_placement.BatchHandle`).

It is built before the plugins, and they before the queue; :meth:`Handle.attach` adds what exists only afterwards.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, TypeVar

from kubestow import config
from kubestow.cluster.cache import Cluster
from kubestow.cluster.catalog import KubernetesObject
from kubestow.cluster.events import ClusterEvent
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.interface import Waiting
from kubestow.framework.profile import Profile
from kubestow.log_fields import fields
from kubestow.scheduling.api_calls.claims import DispatchedClaims
from kubestow.scheduling.api_calls.dispatcher import Dispatcher
from kubestow.scheduling.api_calls.pod_reports import pod_event
from kubestow.scheduling.background_tasks import BackgroundTasks
from kubestow.scheduling.environment import Environment
from kubestow.scheduling.events.change_notifier import ChangeNotifier
from kubestow.scheduling.events.resources import resource_of
from kubestow.scheduling.interfaces import ObjectReference, reference
from kubestow.scheduling.observer import Call
from kubestow.scheduling.periodic_work import PeriodicWork
from kubestow.scheduling.preemption.evictions import Evictions
from kubestow.scheduling.queue.scheduling_queue import SchedulingQueue
from kubestow.scheduling.waiting_pods import WaitingPods

__all__ = ["Handle"]

_log = logging.getLogger(__name__)

T = TypeVar("T")


class Handle:
    """What plugins can use of the scheduler."""

    def __init__(
        self,
        cluster: Cluster,
        gates: config.FeatureGates,
        environment: Environment,
        *,
        dispatcher: Dispatcher,
        waiting_pods: WaitingPods,
        notifier: ChangeNotifier,
        extenders: Sequence[config.Extender] = (),
    ) -> None:
        self.cluster = cluster
        self.random = environment.random
        self.extenders = extenders
        self.resource_claims = DispatchedClaims(environment.api.resource_claims, dispatcher, environment.observer)
        self.background = BackgroundTasks()
        self.periodic_work = PeriodicWork(environment.clock)
        self._gates, self._environment = gates, environment
        self._dispatcher, self._waiting_pods, self._notifier = dispatcher, waiting_pods, notifier
        self.profiles: Mapping[str, Profile] = {}
        self._queue: SchedulingQueue | None = None
        self._evictions: Evictions | None = None

    def attach(self, profiles: Mapping[str, Profile], queue: SchedulingQueue, evictions: Evictions) -> None:
        """Connect what is built after the plugins."""
        self.profiles, self._queue, self._evictions = profiles, queue, evictions

    def feature_enabled(self, gate: str) -> bool:
        return self._gates.enabled(gate)

    def is_preempting(self, uid: str) -> bool:
        return self._evictions is not None and self._evictions.is_preempting(uid)

    def waiting_pods(self) -> Sequence[Waiting]:
        return self._waiting_pods.all()

    def waiting_pod(self, uid: str) -> Waiting | None:
        return self._waiting_pods.get(uid)

    def pending_pods(self) -> Sequence[PodInfo]:
        return [] if self._queue is None else [queued.info for queued in self._queue.pods.values()]

    def activate(self, pods: Iterable[PodInfo]) -> None:
        if self._queue is not None:
            self._queue.activate([pod.uid for pod in pods])

    def suggest_node(self, pod: PodInfo, node_name: str) -> None:
        if self._queue is not None:
            self._queue.suggest_node(pod.uid, node_name)

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        await self._dispatcher.bind(reference(pod), node_name)

    async def patch(self, obj: KubernetesObject, changes: Mapping[str, Any], *, subresource: str = "") -> str:
        resource, metadata = resource_of(type(obj)), obj.metadata
        subject = ObjectReference(
            resource.kind,
            metadata.namespace,
            metadata.name,
            metadata.uid,
            resource.api_version,
            metadata.resource_version,
        )
        return await self._dispatcher.write(
            subject.uid,
            Call.OBJECT_WRITE,
            lambda: self._environment.api.patch(resource, subject, changes, subresource=subresource),
        )

    async def wait_for(self, condition: Callable[[], T | None], seconds: float) -> T | None:
        return await self._notifier.wait_for(condition, seconds)

    async def retry_until_answered(self, subject: str, read: Callable[[], Awaitable[T]]) -> T:
        return await self._dispatcher.retry_until_answered(subject, read)

    def lock(self) -> AbstractAsyncContextManager[Any]:
        return asyncio.Lock()

    async def pause_after_conflict(self) -> None:
        await self._dispatcher.pause_after_conflict()

    async def shield(self, work: Coroutine[Any, Any, T]) -> T:
        task = self.background.start(_without_exit(work))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_log_failure)
            raise

    def now(self) -> datetime:
        return self._environment.clock.now()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.background.spawn(work)

    def run_periodically(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        self.periodic_work.add(seconds, work)

    def report_change(self, event: ClusterEvent, node_name: str | None = None) -> None:
        self.cluster.record_change(event, node_name)
        if self._queue is not None:
            self._queue.move_all_to_active_or_backoff(event)

    def record(self, pod: PodInfo, *, reason: str, action: str, note: str, event_type: str = "Normal") -> None:
        self._environment.api.record(pod_event(pod, reason, action, note, event_type))

    async def request(self, method: str, path: str, body: Any = None) -> Any:
        return await self._environment.api.request(method, path, body)

    def device_wait_ended(self, pod: PodInfo, driver: str, outcome: str, seconds: float) -> None:
        self._environment.observer.device_wait_ended(pod, driver, outcome, seconds)


async def _without_exit(work: Coroutine[Any, Any, T]) -> T:
    """Await work of a plugin, whose ``sys.exit()`` in a task of its own would end the scheduler."""
    try:
        return await work
    except SystemExit as error:
        raise RuntimeError(f"SystemExit: {error}") from error


def _log_failure(task: asyncio.Task[Any]) -> None:
    """Log the failure of a task whose result nothing awaits any more."""
    if not task.cancelled() and task.exception() is not None:
        _log.info("%s", task.exception(), extra=fields(err=str(task.exception())))
