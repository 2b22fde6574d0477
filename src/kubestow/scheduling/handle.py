"""What plugins see of the scheduler: the cluster, and what they may ask of the world.

This is the :class:`~kubestow.framework.interface.Handle` that every plugin of a living scheduler is made with. Work that a
plugin sends off runs in the background; what goes wrong with it is logged and costs nobody else anything.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from random import Random
from typing import Any, TypeVar

from kubestow import config
from kubestow.cluster.cache import Cluster
from kubestow.cluster.catalog import Described
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import APIError, Unreachable
from kubestow.framework.interface import Waiting
from kubestow.scheduling.events.change_notifier import ChangeNotifier
from kubestow.scheduling.events.resources import resource_of
from kubestow.scheduling.observer import Call, Observer
from kubestow.scheduling.ports import Clock, ClusterAPI, ObjectReference, reference
from kubestow.scheduling.preemption.evictions import Evictions
from kubestow.scheduling.queue.scheduling_queue import SchedulingQueue
from kubestow.scheduling.waiting_pods import WaitingPods
from kubestow.scheduling.writes.claims import DispatchedClaims
from kubestow.scheduling.writes.dispatcher import Dispatcher
from kubestow.scheduling.writes.pod_reports import event_of

__all__ = ["Handle"]

_log = logging.getLogger(__name__)

T = TypeVar("T")


class Handle:
    """What plugins see of the scheduler."""

    def __init__(
        self,
        cluster: Cluster,
        gates: config.FeatureGates,
        api: ClusterAPI,
        *,
        dispatcher: Dispatcher,
        clock: Clock,
        random: Random,
        evictions: Evictions,
        waiting: WaitingPods,
        news: ChangeNotifier,
        queue: Callable[[], SchedulingQueue],
        observer: Observer,
    ) -> None:
        self.cluster = cluster
        self._queue = queue
        self._waiting = waiting
        self.random = random
        self.resource_claims = DispatchedClaims(api.resource_claims, dispatcher, observer)
        self.background: set[asyncio.Task[Any]] = set()
        self._clock = clock
        self._news = news
        self._gates = gates
        self._api = api
        self._observer = observer
        self._dispatcher = dispatcher
        self._evictions = evictions

    def feature_enabled(self, gate: str) -> bool:
        return self._gates.enabled(gate)

    def is_preempting(self, uid: str) -> bool:
        return self._evictions.is_preempting(uid)

    def waiting_pods(self) -> Sequence[Waiting]:
        return self._waiting.all()

    def pending_pods(self) -> Sequence[PodInfo]:
        return [queued.info for queued in self._queue().waiting()]

    def activate(self, pods: Iterable[PodInfo]) -> None:
        self._queue().activate([pod.uid for pod in pods])

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        await self._dispatcher.bind(reference(pod), node_name)

    async def patch(self, obj: Described, changes: Mapping[str, Any], *, subresource: str = "") -> str:
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
            lambda: self._api.patch(resource, subject, changes, subresource=subresource),
        )

    async def wait_for(self, answer: Callable[[], T | None], seconds: float) -> T | None:
        return await self._news.wait_for(answer, seconds)

    async def retry_until_answered(self, subject: str, read: Callable[[], Awaitable[T]]) -> T:
        return await self._dispatcher.retry_until_answered(subject, read)

    async def shield(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.create_task(work)
        self.background.add(task)
        task.add_done_callback(self.background.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_drop)
            raise

    def now(self) -> datetime:
        return self._clock.now()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(_logged(work))
        self.background.add(task)
        task.add_done_callback(self.background.discard)

    def record(self, pod: PodInfo, *, reason: str, action: str, note: str) -> None:
        self._api.record(event_of(pod, reason, action, note))

    def device_wait_ended(self, pod: PodInfo, driver: str, outcome: str, seconds: float) -> None:
        self._observer.device_wait_ended(pod, driver, outcome, seconds)


def _drop(task: asyncio.Task[Any]) -> None:
    """Nobody waits any more for how a task ends."""
    if not task.cancelled() and task.exception() is not None:
        _log.info("%s", task.exception())


async def _logged(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except (APIError, Unreachable) as error:
        _log.warning("%s", error)
    except Exception:
        _log.exception("work of a plugin failed")
