"""The handles of plugins: what plugins can use of the scheduler around them.

:class:`BaseHandle` is the handle where plugins decide about pods and nothing else runs; offline decisions, the extender
server and tests derive theirs from it. :class:`SchedulerHandle` is that of a running scheduler.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from random import Random
from typing import Any, TypeVar

from kubestow import config
from kubestow.api.core import PodExtendedResourceClaimStatus
from kubestow.api.resource import ResourceClaim
from kubestow.cluster.cache import Cluster
from kubestow.cluster.changes.catalog import KubernetesObject
from kubestow.cluster.changes.events import ClusterEvent
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.handle import ResourceClaimWriter
from kubestow.framework.interface import Waiting
from kubestow.framework.profile import Profile
from kubestow.log_fields import fields
from kubestow.rules.minors import Behaviour, Minor
from kubestow.scheduling.api_calls.dispatcher import Dispatcher
from kubestow.scheduling.api_calls.pod_reports import pod_event
from kubestow.scheduling.background_work import BackgroundTasks, ChangeNotifier, PeriodicWork
from kubestow.scheduling.environment import Environment
from kubestow.scheduling.events.resources import resource_of
from kubestow.scheduling.interfaces import ObjectReference, reference
from kubestow.scheduling.observer import Call, Observer
from kubestow.scheduling.queue.scheduling_queue import SchedulingQueue
from kubestow.scheduling.waiting_pods import WaitingPods

_log = logging.getLogger(__name__)

T = TypeVar("T")


class BaseHandle:
    """A handle without queue, Permit, preemption in the background, and other clients that write."""

    extenders: Sequence[config.Extender] = ()

    def __init__(self, cluster: Cluster, gates: config.FeatureGates, random: Random) -> None:
        self.cluster, self.random = cluster, random
        self._gates = gates

    @property
    def minor(self) -> Minor:
        """The minor version of Kubernetes that is emulated."""
        return self._gates.minor

    def feature_enabled(self, gate: str) -> bool:
        """Whether a feature gate is enabled."""
        return self._gates.enabled(gate)

    def emulates(self, behaviour: Behaviour) -> bool:
        """Whether the emulated minor version of Kubernetes has a behaviour."""
        return self._gates.minor.has(behaviour)

    def is_preempting(self, uid: str) -> bool:
        """Always False."""
        return False

    def waiting_pods(self) -> Sequence[Waiting]:
        """Always empty."""
        return ()

    def waiting_pod(self, uid: str) -> Waiting | None:
        """The pod of this uid among the :meth:`waiting_pods`."""
        return next((waiting for waiting in self.waiting_pods() if waiting.info.uid == uid), None)

    def pending_pods(self) -> Sequence[PodInfo]:
        """Always empty."""
        return ()

    def activate(self, pods: Iterable[PodInfo]) -> None:
        """Do nothing."""

    def report_change(self, event: ClusterEvent, node_name: str | None = None) -> None:
        """Invalidate cached results; there is no queue."""
        self.cluster.record_change(event, node_name)

    def record(self, pod: PodInfo, *, reason: str, action: str, note: str, event_type: str = "Normal") -> None:
        """Drop the event."""

    def device_wait_ended(self, pod: PodInfo, driver: str, outcome: str, seconds: float) -> None:
        """Drop the measurement."""

    async def wait_for(self, condition: Callable[[], T | None], seconds: float) -> T | None:
        """Evaluate the condition once, without waiting."""
        return condition()

    async def retry_until_answered(self, subject: str, read: Callable[[], Awaitable[T]]) -> T:
        """Read once."""
        return await read()

    def lock(self) -> AbstractAsyncContextManager[Any]:
        """A lock."""
        return asyncio.Lock()

    async def pause_after_conflict(self) -> None:
        """Do nothing: no other client writes."""

    async def shield(self, work: Coroutine[Any, Any, T]) -> T:
        """Await the work; there is nothing to shield it from."""
        return await work

    async def compute(self, computation: Callable[[], T]) -> T:
        """Run the computation at once; nothing waits for it."""
        return computation()


class QueueRequests:
    """What plugins ask of the scheduling queue, which is built from plugins: before it listens, no pod is queued."""

    def __init__(self) -> None:
        self._queues: list[SchedulingQueue] = []

    def add_listener(self, queue: SchedulingQueue) -> None:
        """Deliver requests to a queue from now on."""
        self._queues.append(queue)

    def pending_pods(self) -> list[PodInfo]:
        """All queued pods."""
        return [queued.info for queue in self._queues for queued in queue.pods.values()]

    def activate(self, uids: Sequence[str]) -> None:
        """Move pods to activeQ."""
        for queue in self._queues:
            queue.activate(uids)

    def suggest_node(self, uid: str, node_name: str) -> None:
        """Have a queued pod tried on a node first."""
        for queue in self._queues:
            queue.suggest_node(uid, node_name)

    def report_change(self, event: ClusterEvent) -> None:
        """Requeue the pods that a change of a plugin's own data may help."""
        for queue in self._queues:
            queue.move_all_to_active_or_backoff(event)


class SchedulerHandle(BaseHandle):
    """Implements :class:`~kubestow.framework.handle.Handle` and its BatchHandle for a running scheduler.

    ``profiles`` is filled as profiles are built, each from this handle. ``is_preempting`` tells whether the victims of
    the pod of a uid are still being evicted.
    """

    def __init__(
        self,
        cluster: Cluster,
        gates: config.FeatureGates,
        environment: Environment,
        *,
        profiles: Mapping[str, Profile],
        requests: QueueRequests,
        dispatcher: Dispatcher,
        waiting_pods: WaitingPods,
        is_preempting: Callable[[str], bool],
        notifier: ChangeNotifier,
        extenders: Sequence[config.Extender] = (),
    ) -> None:
        super().__init__(cluster, gates, environment.random)
        self.profiles, self.extenders = profiles, extenders
        self.resource_claims = DispatchedClaims(environment.api.resource_claims, dispatcher, environment.observer)
        self.background = BackgroundTasks(environment.concurrency)
        self.periodic_work = PeriodicWork(environment.clock)
        self._environment, self._requests, self._dispatcher = environment, requests, dispatcher
        self._waiting_pods, self._is_preempting, self._notifier = waiting_pods, is_preempting, notifier

    def is_preempting(self, uid: str) -> bool:
        return self._is_preempting(uid)

    def waiting_pods(self) -> Sequence[Waiting]:
        return self._waiting_pods.all()

    def waiting_pod(self, uid: str) -> Waiting | None:
        return self._waiting_pods.get(uid)

    def pending_pods(self) -> Sequence[PodInfo]:
        return self._requests.pending_pods()

    def activate(self, pods: Iterable[PodInfo]) -> None:
        self._requests.activate([pod.uid for pod in pods])

    def suggest_node(self, pod: PodInfo, node_name: str) -> None:
        self._requests.suggest_node(pod.uid, node_name)

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        await self._dispatcher.binder.post_binding(reference(pod), node_name)

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
        return await self._dispatcher.retries.retry_until_answered(subject, read)

    async def pause_after_conflict(self) -> None:
        await self._dispatcher.retries.pause_after_conflict()

    async def shield(self, work: Coroutine[Any, Any, T]) -> T:
        task = self.background.start(_without_exit(work))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_log_failure)
            raise

    async def compute(self, computation: Callable[[], T]) -> T:
        outcome = functools.cache(lambda: _outcome(computation))
        await self._environment.computing.run(outcome)
        result, error = outcome()  # where the environment has left the computation out, it runs now
        if error is not None:
            raise error
        return result[0]

    def now(self) -> datetime:
        return self._environment.clock.now()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.background.spawn(work)

    def run_periodically(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        self.periodic_work.add(seconds, work)

    def report_change(self, event: ClusterEvent, node_name: str | None = None) -> None:
        super().report_change(event, node_name)
        self._requests.report_change(event)

    def record(self, pod: PodInfo, *, reason: str, action: str, note: str, event_type: str = "Normal") -> None:
        self._environment.api.record(pod_event(pod, reason, action, note, event_type))

    async def request(self, method: str, path: str, body: Any = None) -> Any:
        return await self._environment.api.request(method, path, body)

    def device_wait_ended(self, pod: PodInfo, driver: str, outcome: str, seconds: float) -> None:
        self._environment.observer.device_wait_ended(pod, driver, outcome, seconds)


class DispatchedClaims:
    """Writes ResourceClaims through the dispatcher, one at a time per claim.

    Every write is sent once and its result returned to the plugin, because what a conflict or a lost response means
    depends on the state of the claim.
    """

    def __init__(self, writer: ResourceClaimWriter, dispatcher: Dispatcher, observer: Observer) -> None:
        self._writer, self._dispatcher, self._observer = writer, dispatcher, observer

    async def read(self, namespace: str, name: str) -> ResourceClaim:
        return await self._writer.read(namespace, name)

    async def create(self, namespace: str, manifest: Mapping[str, Any]) -> ResourceClaim:
        succeeded = False
        try:
            claim = await self._writer.create(namespace, manifest)
            succeeded = True
        finally:
            self._observer.claim_created(succeeded=succeeded)
        return claim

    async def patch(self, claim: ResourceClaim, patch: Mapping[str, Any], *, subresource: str = "") -> ResourceClaim:
        return await self._dispatcher.write(
            claim.metadata.uid,
            Call.OBJECT_WRITE,
            lambda: self._writer.patch(claim, patch, subresource=subresource),
        )

    async def delete(self, claim: ResourceClaim) -> None:
        await self._dispatcher.write(claim.metadata.uid, Call.OBJECT_WRITE, lambda: self._writer.delete(claim))

    async def report_extended(self, pod: PodInfo, status: PodExtendedResourceClaimStatus) -> None:
        await self._dispatcher.write(pod.uid, Call.POD_STATUS_PATCH, lambda: self._writer.report_extended(pod, status))


def _outcome(computation: Callable[[], T]) -> tuple[list[T], BaseException | None]:
    """What a computation returns, in a list, or what it raises."""
    try:
        return [computation()], None
    except (Exception, SystemExit) as error:
        return [], error


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
