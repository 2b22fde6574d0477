"""The scheduler's interfaces to its environment in a replay: they return what was recorded, when the replay says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from kubestow import config
from kubestow.api.core import Pod, PodExtendedResourceClaimStatus
from kubestow.api.resource import ResourceClaim
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.flight_record.answers import decode_value, exception_of
from kubestow.flight_record.call_arguments import (
    claim_arguments,
    object_arguments,
    status_arguments,
    subscription_arguments,
    victims_arguments,
)
from kubestow.flight_record.entries import Answered, Called, Output
from kubestow.flight_record.replay.replay_loop import ReplayLoop
from kubestow.flight_record.replay.tape import Tape
from kubestow.framework.interface import Victims
from kubestow.scheduling.extenders.interface import ExtenderFilterResponse, ExtenderVictims
from kubestow.scheduling.interfaces import EventRecord, ObjectReference, PodStatusPatch, Resource, Subscriber

__all__ = ["ReplayedAPI", "ReplayedCalls", "ReplayedClock", "ReplayedExtender", "ReplayedLeadership"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Answer(asyncio.Future[Any]):
    """The result of a call, which is recorded also if the call was cancelled."""

    kind: Any

    def cancel(self, msg: Any = None) -> bool:
        return not self.done()


class ReplayedCalls:
    """The scheduler's calls; ``produce`` is called with each."""

    def __init__(self, produce: Callable[[Output], None], loop: ReplayLoop) -> None:
        self._produce, self._loop = produce, loop
        self._count = 0
        self._pending: dict[int, _Answer] = {}
        self._is_closed = False

    def start(self, method: str, arguments: list[Any], kind: Any = None) -> asyncio.Future[Any]:
        """Start a call whose result is of a ``kind``."""
        self._count += 1
        self._produce(Called(self._count, method, arguments))
        answer = self._pending[self._count] = _Answer(loop=self._loop)
        answer.kind = kind
        if self._is_closed:
            asyncio.Future.cancel(answer)
        return answer

    def close(self) -> None:
        """Cancel all calls, also those that are yet to start."""
        self._is_closed = True
        for answer in self._pending.values():
            asyncio.Future.cancel(answer)

    def end(self, answered: Answered) -> bool:
        """End a call; False if there is none of this number. Raises msgspec.ValidationError."""
        answer = self._pending.pop(answered.call, None)
        if answer is None:
            return False
        error = None if answered.failure is None else exception_of(answered.failure)
        if error is None:
            self._loop.run_at_once(partial(answer.set_result, decode_value(answered.value, answer.kind)))
        elif isinstance(error, asyncio.CancelledError):
            self._loop.run_at_once(partial(asyncio.Future.cancel, answer))
        else:
            self._loop.run_at_once(partial(answer.set_exception, error))
        return True


class ReplayedClock:
    """The recorded readings."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self.monotonic = tape.monotonic

    def now(self) -> datetime:
        return _EPOCH + timedelta(microseconds=self._tape.wall())

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class ReplayedAPI:
    """Implements :class:`kubestow.scheduling.interfaces.ClusterAPI`."""

    def __init__(self, calls: ReplayedCalls) -> None:
        self._calls = calls
        self.resource_claims = _ReplayedClaims(calls)
        self.resources: Sequence[Resource] = ()
        self.subscriber: Subscriber | None = None

    async def subscribe(self, resources: Sequence[Resource], subscriber: Subscriber) -> None:
        self.resources, self.subscriber = resources, subscriber
        await self._calls.start("subscribe", subscription_arguments(resources))

    async def bind(self, pod: ObjectReference, node_name: str) -> None:
        await self._calls.start("bind", [*object_arguments(pod), node_name])

    async def read_pod(self, pod: ObjectReference) -> Pod | None:
        result: Pod | None = await self._calls.start("read_pod", object_arguments(pod), Pod | None)
        return result

    async def patch_pod_status(self, pod: ObjectReference, patch: PodStatusPatch) -> None:
        await self._calls.start("patch_pod_status", status_arguments(pod, patch))

    async def patch(
        self, resource: Resource, obj: ObjectReference, changes: Mapping[str, Any], *, subresource: str = ""
    ) -> str:
        result: str = await self._calls.start("patch", [*object_arguments(obj), changes, subresource], str)
        return result

    async def request(self, method: str, path: str, body: Any = None) -> Any:
        return await self._calls.start("request", [method, path], Any)

    async def delete_pod(self, pod: ObjectReference) -> None:
        await self._calls.start("delete_pod", object_arguments(pod))

    def record(self, event: EventRecord) -> None:
        """Events are not written in a replay."""


class _ReplayedClaims:
    """Implements :class:`kubestow.framework.claim_writer.ResourceClaimWriter`."""

    def __init__(self, calls: ReplayedCalls) -> None:
        self._calls = calls

    async def read(self, namespace: str, name: str) -> ResourceClaim:
        result: ResourceClaim = await self._calls.start("read_claim", [namespace, name], ResourceClaim)
        return result

    async def create(self, namespace: str, manifest: Mapping[str, Any]) -> ResourceClaim:
        result: ResourceClaim = await self._calls.start("create_claim", [namespace, manifest], ResourceClaim)
        return result

    async def patch(self, claim: ResourceClaim, patch: Mapping[str, Any], *, subresource: str = "") -> ResourceClaim:
        result: ResourceClaim = await self._calls.start(
            "patch_claim", [*claim_arguments(claim), patch, subresource], ResourceClaim
        )
        return result

    async def delete(self, claim: ResourceClaim) -> None:
        await self._calls.start("delete_claim", claim_arguments(claim))

    async def report_extended(self, pod: PodInfo, status: PodExtendedResourceClaimStatus) -> None:
        await self._calls.start("report_extended_claim", [pod.key, pod.uid, status])


class ReplayedExtender:
    """Implements :class:`kubestow.scheduling.extenders.interface.Extender`."""

    def __init__(self, settings: config.Extender, calls: ReplayedCalls) -> None:
        self.settings, self._calls = settings, calls

    async def filter(self, pod: PodInfo, names: Sequence[str]) -> ExtenderFilterResponse:
        result: ExtenderFilterResponse = await self._calls.start(
            "filter", [pod.key, pod.uid, list(names)], ExtenderFilterResponse
        )
        return result

    async def prioritize(self, pod: PodInfo, names: Sequence[str]) -> Sequence[tuple[str, int]]:
        result: list[tuple[str, int]] = await self._calls.start(
            "prioritize", [pod.key, pod.uid, list(names)], list[tuple[str, int]]
        )
        return result

    async def preempt(self, pod: PodInfo, victims_by_node: Mapping[str, Victims]) -> Mapping[str, ExtenderVictims]:
        arguments = [pod.key, pod.uid, victims_arguments(victims_by_node)]
        result: dict[str, ExtenderVictims] = await self._calls.start("preempt", arguments, dict[str, ExtenderVictims])
        return result

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        await self._calls.start("extender_bind", [pod.key, pod.uid, node_name])


class ReplayedLeadership:
    """Implements :class:`kubestow.scheduling.leadership.Leadership`."""

    def __init__(self, calls: ReplayedCalls, tape: Tape) -> None:
        self._calls, self._tape = calls, tape

    @property
    def is_leader(self) -> bool:
        return bool(self._tape.monotonic())

    @property
    def overdue(self) -> float:
        return self._tape.monotonic()

    async def acquire(self) -> None:
        await self._calls.start("acquire_lease", [])

    async def hold(self) -> None:
        await self._calls.start("hold_lease", [])

    async def release(self) -> None:
        await self._calls.start("release_lease", [])
