"""The dispatcher harness: a dispatcher, a server with scripted responses, and a watch that is synced by the test.

The server records concurrent writes to one object as violations, which fail the test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from kubestow.api.core import Pod, PodCondition
from kubestow.cluster.pods.shapes import PodInfo, Shapes
from kubestow.errors import APIError, KubestowError, Unreachable
from kubestow.framework.status import SUCCESS, Status
from kubestow.rules.minors import DEFAULT_MINOR, Minor
from kubestow.scheduling.api_calls.dispatcher import Dispatcher
from kubestow.scheduling.environment import Environment
from kubestow.scheduling.interfaces import ObjectReference, PodStatusPatch, Resource, reference
from kubestow.scheduling.observer import Call, Observer
from kubestow.testing import MemoryCluster
from kubestow.testing.virtual_time import VirtualClock, run

T = TypeVar("T")


def api_error(code: int = 503, *, retry_after: float | None = None) -> APIError:
    """The server rejects the request with this HTTP status."""
    return APIError(code, "Rejected", f"rejected with {code}", retry_after=retry_after)


def unreachable() -> Unreachable:
    """The request times out."""
    return Unreachable("server", "no answer in time")


@dataclass(frozen=True, slots=True)
class Response:
    """The response to one request after ``seconds``; a failed request ``has_effect`` when only its response is lost."""

    seconds: float = 1.0
    failure: KubestowError | None = None
    has_effect: bool = False


class ScriptedCluster(MemoryCluster):
    """Gives the next of ``responses`` to each request. ``received`` lists (second, request).

    ``violations`` are requests that the dispatcher must not send.
    """

    def __init__(self) -> None:
        super().__init__()
        self.responses: list[Response] = []
        self.received: list[tuple[float, str]] = []
        self.violations: list[str] = []
        self._in_flight: set[str] = set()

    def fail_next(self, *failures: KubestowError) -> None:
        """Let the next requests fail without an effect."""
        self.responses += [Response(failure=failure) for failure in failures]

    async def bind(self, pod: ObjectReference, node_name: str) -> None:
        await self._write(pod, f"bind to {node_name}", lambda: MemoryCluster.bind(self, pod, node_name))

    async def read_pod(self, pod: ObjectReference) -> Pod | None:
        return await self._respond("read", lambda: MemoryCluster.read_pod(self, pod))

    async def patch_pod_status(self, pod: ObjectReference, patch: PodStatusPatch) -> None:
        nomination = patch.nominated_node_name
        messages = [condition.message for condition in patch.conditions]
        messages += [] if nomination is None else [f"nominated {nomination}".strip()]
        await self._write(pod, ", ".join(messages), lambda: MemoryCluster.patch_pod_status(self, pod, patch))

    async def delete_pod(self, pod: ObjectReference) -> None:
        await self._write(pod, "delete", lambda: MemoryCluster.delete_pod(self, pod))

    async def patch(
        self, resource: Resource, obj: ObjectReference, changes: Mapping[str, Any], *, subresource: str = ""
    ) -> str:
        patching = lambda: MemoryCluster.patch(self, resource, obj, changes, subresource=subresource)  # noqa: E731
        return await self._write(obj, f"patch {obj.name}", patching)

    async def _write(self, obj: ObjectReference, what: str, effect: Callable[[], Awaitable[T]]) -> T:
        if obj.uid in self._in_flight:
            self.violations.append(f"{what}: another write to {obj.name} is in flight")
        self._in_flight.add(obj.uid)
        try:
            return await self._respond(what, effect)
        finally:
            self._in_flight.discard(obj.uid)

    async def _respond(self, what: str, effect: Callable[[], Awaitable[T]]) -> T:
        self.received.append((asyncio.get_running_loop().time(), what))
        response = self.responses.pop(0) if self.responses else Response()
        await asyncio.sleep(response.seconds)
        if response.failure is None:
            return await effect()
        if response.has_effect:
            await effect()
        raise response.failure


@dataclass
class DispatcherHarness(Observer):
    """A dispatcher, its server, the pods that the watch has delivered, and the API calls that the observer saw."""

    server: ScriptedCluster = field(default_factory=ScriptedCluster)
    known: dict[str, PodInfo] = field(default_factory=dict)
    minor: Minor = DEFAULT_MINOR
    observed_calls: list[tuple[Call, bool, float]] = field(default_factory=list)
    _shapes: Shapes = field(default_factory=Shapes)

    def __post_init__(self) -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        environment = Environment(self.server, clock, Random(1), self)
        self.dispatcher = Dispatcher(environment, known_pod=self.known.get, minor=self.minor)

    def api_call_ended(self, call: Call, *, succeeded: bool, seconds: float) -> None:
        self.observed_calls.append((call, succeeded, seconds))

    def create_pod(self, pod: Pod) -> ObjectReference:
        """Create a pod, and deliver its watch event."""
        self.server.put(pod)
        self.sync_watch()
        return reference(self.known[pod.metadata.uid])

    def sync_watch(self) -> None:
        """Deliver the current state of all pods, and report bound and deleted ones to the dispatcher."""
        current = {pod.metadata.uid: self._shapes.info(pod) for pod in self.server.pods()}
        deleted = self.known.keys() - current.keys()
        self.known.clear()
        self.known.update(current)
        for uid in [*deleted, *(uid for uid, info in current.items() if info.spec.node_name)]:
            self.dispatcher.pod_settled(uid)

    def patch_status(self, pod: ObjectReference, *messages: str, nominated: str | None = None) -> None:
        """Queue a status patch."""
        self.dispatcher.patch_status(pod, status_patch(*messages, nominated=nominated))

    def start_binding(self, pod: ObjectReference, node_name: str = "n") -> asyncio.Task[Status]:
        """Bind a pod as its binding cycle does."""

        async def send() -> Status:
            try:
                await self.dispatcher.binder.post_binding(pod, node_name)
            except (APIError, Unreachable) as error:
                return Status.error(str(error))
            return SUCCESS

        return asyncio.create_task(self.dispatcher.run_in_binding_turn(pod.uid, send))

    def start_eviction(self, pod: ObjectReference) -> asyncio.Task[None]:
        """Evict a pod as a victim of preemption."""
        return asyncio.create_task(self.dispatcher.evict(self.known[pod.uid], condition("evicted", "DisruptionTarget")))

    async def drain(self) -> None:
        """Wait for all background tasks of the dispatcher."""
        while self.dispatcher.tasks:
            await asyncio.wait(self.dispatcher.tasks)

    @property
    def requests(self) -> list[str]:
        """The requests that the server received, in order."""
        return [request for _, request in self.server.received]


def condition(message: str, kind: str = "PodScheduled") -> PodCondition:
    """A false condition with this message."""
    return PodCondition(type=kind, status="False", reason="Because", message=message)


def status_patch(*messages: str, nominated: str | None = None) -> PodStatusPatch:
    """A patch with one condition per message: PodScheduled, then two other types."""
    kinds = ("PodScheduled", "Second", "Third")
    conditions = tuple(condition(message, kind) for kind, message in zip(kinds, messages, strict=False))
    return PodStatusPatch(conditions, nominated)


def with_dispatcher(scenario: Callable[[DispatcherHarness], Awaitable[None]], minor: Minor = DEFAULT_MINOR) -> None:
    """Run a scenario in virtual time. Fails when a violation, a pending call or a task is left at its end."""

    async def main() -> None:
        harness = DispatcherHarness(minor=minor)
        await scenario(harness)
        await harness.drain()
        assert harness.server.violations == []
        assert harness.dispatcher.pending_calls().total() == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(main())
