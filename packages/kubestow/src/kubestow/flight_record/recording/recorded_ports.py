"""The scheduler's interfaces to its environment, each in front of another implementation whose results it records.

While the scheduler waits for a call, its task belongs to the environment: what the client does there, and what wakes it
up, is no step of the scheduler. The only thing that the scheduler gets is the result, at one point of its execution.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from kubestow import config
from kubestow.api.core import Pod, PodExtendedResourceClaimStatus
from kubestow.api.resource import ResourceClaim
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.flight_record.answers import WITHHELD, failure_of
from kubestow.flight_record.call_arguments import (
    claim_arguments,
    object_arguments,
    status_arguments,
    subscription_arguments,
    victims_arguments,
)
from kubestow.flight_record.entries import Answered, Called, Changed, Listed, Undecodable
from kubestow.flight_record.recording.journal import Journal, recorded_by
from kubestow.framework.claim_writer import ResourceClaimWriter
from kubestow.framework.interface import Victims
from kubestow.scheduling.extenders.interface import Extender, ExtenderFilterResponse, ExtenderVictims
from kubestow.scheduling.interfaces import (
    Clock,
    ClusterAPI,
    EventRecord,
    ObjectReference,
    PodStatusPatch,
    Resource,
    Subscriber,
)
from kubestow.scheduling.leadership import Leadership

__all__ = ["Calls", "RecordedAPI", "RecordedClock", "RecordedExtender", "RecordedLeadership", "RecordedSubscriber"]

T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
#: What plugins may read with requests of their own, and a record never has.
_CONFIDENTIAL_PATH = re.compile(r"/(secrets|configmaps|token)\b")


class Calls:
    """Makes the scheduler's calls, and records them and their results."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._count = 0

    async def make(
        self, method: str, arguments: list[Any], work: Coroutine[Any, Any, T], *, is_confidential: bool = False
    ) -> T:
        """The result of the ``work``, which runs in the scheduler's task and yet outside of the scheduler.

        It ends in another turn of the event loop than it began, so the scheduler's step always ends with the call. Of a
        confidential result only that there was one is recorded.
        """
        journal = self._journal
        self._count += 1
        call = self._count
        journal.append(Called(call, method, arguments))
        recorded_by.set(None)
        turns: list[None] = []
        asyncio.get_running_loop().call_soon(turns.append, None)  # far cheaper than a turn that every call would take
        try:
            try:
                value = await work
            finally:
                if not turns:
                    await asyncio.sleep(0)
        except BaseException as error:
            work.close()  # if it has not begun
            recorded_by.set(journal)
            journal.append(Answered(journal.steps, journal.readings, call, failure=failure_of(error)))
            raise
        recorded_by.set(journal)
        if is_confidential:
            journal.append(Answered(journal.steps, journal.readings, call, failure=WITHHELD))
        else:
            journal.append(Answered(journal.steps, journal.readings, call, value))
        return value

    def notify(self, receiver: Callable[..., object], *arguments: Any) -> None:
        """Call something of the environment that has no result."""
        token = recorded_by.set(None)
        try:
            receiver(*arguments)
        finally:
            recorded_by.reset(token)


class RecordedClock:
    """A clock whose readings by the scheduler are recorded. Other code, such as metrics, may read it as well."""

    def __init__(self, clock: Clock) -> None:
        self._read, self._read_wall, self._sleep = clock.monotonic, clock.now, clock.sleep

    def monotonic(self) -> float:
        """Seconds of the clock."""
        now = self._read()
        journal = recorded_by.get()
        if journal is not None:
            journal.read_monotonic(now)
        return now

    def now(self) -> datetime:
        """The current time."""
        now = self._read_wall()
        journal = recorded_by.get()
        if journal is not None:
            journal.read_wall((now - _EPOCH) // _MICROSECOND)
        return now

    async def sleep(self, seconds: float) -> None:
        """Sleep by the clock, whose timer is the event loop's."""
        await self._sleep(seconds)


class RecordedSubscriber:
    """Records what the watch delivers, and hands it to the scheduler."""

    def __init__(self, subscriber: Subscriber, resources: Sequence[Resource], journal: Journal, clock: Clock) -> None:
        self._subscriber, self._journal, self._read = subscriber, journal, clock.monotonic
        self._inside = journal.inside()
        self._resources = list(resources)
        #: By identity, because a resource takes long to hash.
        self._positions = {id(resource): position for position, resource in enumerate(resources)}

    def replace(self, resource: Resource, objects: Sequence[Any]) -> None:
        position, journal = self._position(resource), self._journal
        if position is not None:
            journal.append(Listed(journal.steps, journal.readings, self._read(), position, list(objects)))
        self._inside.copy().run(self._subscriber.replace, resource, objects)

    def apply(self, resource: Resource, event_type: str, obj: Any) -> None:
        position, journal = self._position(resource), self._journal
        if position is not None:
            journal.append(Changed(journal.steps, journal.readings, self._read(), position, event_type, obj))
        self._inside.copy().run(self._subscriber.apply, resource, event_type, obj)

    def unreadable(self, resource: Resource, subject: str, problem: str) -> None:
        position, journal = self._position(resource), self._journal
        if position is not None:
            journal.append(Undecodable(journal.steps, journal.readings, position, subject, problem))
        self._inside.copy().run(self._subscriber.unreadable, resource, subject, problem)

    def _position(self, resource: Resource) -> int | None:
        """The position of a resource among those subscribed to; None for one that was not asked for."""
        position = self._positions.get(id(resource))
        if position is None and resource in self._resources:
            position = self._resources.index(resource)
        return position


class RecordedAPI:
    """Implements :class:`kubestow.scheduling.interfaces.ClusterAPI`."""

    def __init__(self, api: ClusterAPI, calls: Calls, journal: Journal, clock: Clock) -> None:
        self._api, self._calls, self._journal, self._clock = api, calls, journal, clock
        self.resource_claims = _RecordedClaims(api.resource_claims, calls)

    async def subscribe(self, resources: Sequence[Resource], subscriber: Subscriber) -> None:
        recorded = RecordedSubscriber(subscriber, resources, self._journal, self._clock)
        work = self._api.subscribe(resources, recorded)
        await self._calls.make("subscribe", subscription_arguments(resources), work)

    async def bind(self, pod: ObjectReference, node_name: str) -> None:
        await self._calls.make("bind", [*object_arguments(pod), node_name], self._api.bind(pod, node_name))

    async def read_pod(self, pod: ObjectReference) -> Pod | None:
        return await self._calls.make("read_pod", object_arguments(pod), self._api.read_pod(pod))

    async def patch_pod_status(self, pod: ObjectReference, patch: PodStatusPatch) -> None:
        work = self._api.patch_pod_status(pod, patch)
        await self._calls.make("patch_pod_status", status_arguments(pod, patch), work)

    async def patch(
        self, resource: Resource, obj: ObjectReference, changes: Mapping[str, Any], *, subresource: str = ""
    ) -> str:
        work = self._api.patch(resource, obj, changes, subresource=subresource)
        return await self._calls.make("patch", [*object_arguments(obj), changes, subresource], work)

    async def request(self, method: str, path: str, body: Any = None) -> Any:
        work, is_confidential = self._api.request(method, path, body), bool(_CONFIDENTIAL_PATH.search(path))
        return await self._calls.make("request", [method, path], work, is_confidential=is_confidential)

    async def delete_pod(self, pod: ObjectReference) -> None:
        await self._calls.make("delete_pod", object_arguments(pod), self._api.delete_pod(pod))

    def record(self, event: EventRecord) -> None:
        self._calls.notify(self._api.record, event)


class _RecordedClaims:
    """Implements :class:`kubestow.framework.claim_writer.ResourceClaimWriter`."""

    def __init__(self, claims: ResourceClaimWriter, calls: Calls) -> None:
        self._claims, self._calls = claims, calls

    async def read(self, namespace: str, name: str) -> ResourceClaim:
        return await self._calls.make("read_claim", [namespace, name], self._claims.read(namespace, name))

    async def create(self, namespace: str, manifest: Mapping[str, Any]) -> ResourceClaim:
        work = self._claims.create(namespace, manifest)
        return await self._calls.make("create_claim", [namespace, manifest], work)

    async def patch(self, claim: ResourceClaim, patch: Mapping[str, Any], *, subresource: str = "") -> ResourceClaim:
        work = self._claims.patch(claim, patch, subresource=subresource)
        return await self._calls.make("patch_claim", [*claim_arguments(claim), patch, subresource], work)

    async def delete(self, claim: ResourceClaim) -> None:
        await self._calls.make("delete_claim", claim_arguments(claim), self._claims.delete(claim))

    async def report_extended(self, pod: PodInfo, status: PodExtendedResourceClaimStatus) -> None:
        work = self._claims.report_extended(pod, status)
        await self._calls.make("report_extended_claim", [pod.key, pod.uid, status], work)


class RecordedExtender:
    """Implements :class:`kubestow.scheduling.extenders.interface.Extender`."""

    def __init__(self, extender: Extender, calls: Calls) -> None:
        self._extender, self._calls = extender, calls

    @property
    def settings(self) -> config.Extender:
        return self._extender.settings

    async def filter(self, pod: PodInfo, names: Sequence[str]) -> ExtenderFilterResponse:
        work = self._extender.filter(pod, names)
        return await self._calls.make("filter", [pod.key, pod.uid, list(names)], work)

    async def prioritize(self, pod: PodInfo, names: Sequence[str]) -> Sequence[tuple[str, int]]:
        work = self._extender.prioritize(pod, names)
        return await self._calls.make("prioritize", [pod.key, pod.uid, list(names)], work)

    async def preempt(self, pod: PodInfo, victims_by_node: Mapping[str, Victims]) -> Mapping[str, ExtenderVictims]:
        work = self._extender.preempt(pod, victims_by_node)
        return await self._calls.make("preempt", [pod.key, pod.uid, victims_arguments(victims_by_node)], work)

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        await self._calls.make("extender_bind", [pod.key, pod.uid, node_name], self._extender.bind(pod, node_name))


class RecordedLeadership:
    """Implements :class:`kubestow.scheduling.leadership.Leadership`; readings are recorded like those of a clock."""

    def __init__(self, leadership: Leadership, calls: Calls) -> None:
        self._leadership, self._calls = leadership, calls

    @property
    def is_leader(self) -> bool:
        leads = self._leadership.is_leader
        _read(float(leads))
        return leads

    @property
    def overdue(self) -> float:
        seconds = self._leadership.overdue
        _read(seconds)
        return seconds

    async def acquire(self) -> None:
        await self._calls.make("acquire_lease", [], self._leadership.acquire())

    async def hold(self) -> None:
        await self._calls.make("hold_lease", [], self._leadership.hold())

    async def release(self) -> None:
        await self._calls.make("release_lease", [], self._leadership.release())


def _read(value: float) -> None:
    journal = recorded_by.get()
    if journal is not None:
        journal.read_monotonic(value)
