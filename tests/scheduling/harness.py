"""A dispatcher at its desk: the server it writes to is slow and fails as it is told, and the watch tells when asked to.

No object may be written to by two requests at once; the server remembers who did, and the test fails in the end.
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
from kubestow.scheduling.environment import Environment
from kubestow.scheduling.observer import Call, Observer
from kubestow.scheduling.ports import ObjectReference, PodStatusPatch, Resource, reference
from kubestow.scheduling.writes.dispatcher import Dispatcher
from kubestow.testing import MemoryCluster
from kubestow.testing.virtual_time import VirtualClock, run

__all__ = ["Answer", "Desk", "Server", "at_a_desk", "busy", "condition", "said", "silence"]

T = TypeVar("T")


def busy(code: int = 503, *, retry_after: float | None = None) -> APIError:
    """A refusal."""
    return APIError(code, "Refused", f"refused with {code}", retry_after=retry_after)


def silence() -> Unreachable:
    """No answer."""
    return Unreachable("server", "no answer in time")


@dataclass(frozen=True, slots=True)
class Answer:
    """What becomes of one request after so many seconds: it fails or not, in time to have no effect or too late."""

    seconds: float = 1.0
    failure: KubestowError | None = None
    has_effect: bool = False


class Server(MemoryCluster):
    """Gives the next of the ``answers`` to each request. ``asked`` lists them, with the second in which they came.

    ``complaints`` are about requests that should never have come.
    """

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[Answer] = []
        self.asked: list[tuple[float, str]] = []
        self.complaints: list[str] = []
        self._under_way: set[str] = set()

    def fails(self, *failures: KubestowError) -> None:
        """The next requests fail without an effect."""
        self.answers += [Answer(failure=failure) for failure in failures]

    async def bind(self, pod: ObjectReference, node_name: str) -> None:
        await self._write(pod, f"bind to {node_name}", lambda: MemoryCluster.bind(self, pod, node_name))

    async def read_pod(self, pod: ObjectReference) -> Pod | None:
        return await self._answered("read", lambda: MemoryCluster.read_pod(self, pod))

    async def patch_pod_status(self, pod: ObjectReference, patch: PodStatusPatch) -> None:
        nomination = patch.nominated_node_name
        words = [condition.message for condition in patch.conditions]
        words += [] if nomination is None else [f"nominated {nomination}".strip()]
        await self._write(pod, ", ".join(words), lambda: MemoryCluster.patch_pod_status(self, pod, patch))

    async def delete_pod(self, pod: ObjectReference) -> None:
        await self._write(pod, "delete", lambda: MemoryCluster.delete_pod(self, pod))

    async def patch(
        self, resource: Resource, obj: ObjectReference, changes: Mapping[str, Any], *, subresource: str = ""
    ) -> str:
        patching = lambda: MemoryCluster.patch(self, resource, obj, changes, subresource=subresource)  # noqa: E731
        return await self._write(obj, f"patch {obj.name}", patching)

    async def _write(self, obj: ObjectReference, what: str, effect: Callable[[], Awaitable[T]]) -> T:
        if obj.uid in self._under_way:
            self.complaints.append(f"{what}: another write to {obj.name} is under way")
        self._under_way.add(obj.uid)
        try:
            return await self._answered(what, effect)
        finally:
            self._under_way.discard(obj.uid)

    async def _answered(self, what: str, effect: Callable[[], Awaitable[T]]) -> T:
        self.asked.append((asyncio.get_running_loop().time(), what))
        answer = self.answers.pop(0) if self.answers else Answer()
        await asyncio.sleep(answer.seconds)
        if answer.failure is None:
            return await effect()
        if answer.has_effect:
            await effect()
        raise answer.failure


@dataclass
class Desk(Observer):
    """The dispatcher, its server, what the watch has told so far, and what an observer was told."""

    server: Server = field(default_factory=Server)
    known: dict[str, PodInfo] = field(default_factory=dict)
    told: list[tuple[Call, bool, float]] = field(default_factory=list)
    _shapes: Shapes = field(default_factory=Shapes)

    def __post_init__(self) -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        self.dispatcher = Dispatcher(Environment(self.server, clock, Random(1), self), known_pod=self.known.get)

    def api_call_ended(self, call: Call, *, succeeded: bool, seconds: float) -> None:
        self.told.append((call, succeeded, seconds))

    def puts(self, pod: Pod) -> ObjectReference:
        """There is a pod, and the watch has told of it."""
        self.server.put(pod)
        self.watch_catches_up()
        return reference(self.known[pod.metadata.uid])

    def watch_catches_up(self) -> None:
        """The watch tells how all pods are now, and which are settled."""
        there = {pod.metadata.uid: self._shapes.info(pod) for pod in self.server.pods()}
        gone = self.known.keys() - there.keys()
        self.known.clear()
        self.known.update(there)
        for uid in [*gone, *(uid for uid, info in there.items() if info.spec.node_name)]:
            self.dispatcher.pod_settled(uid)

    def says(self, pod: ObjectReference, *messages: str, nominated: str | None = None) -> None:
        """A pod's status is to be patched."""
        self.dispatcher.patch_status(pod, said(*messages, nominated=nominated))

    def binds(self, pod: ObjectReference, node_name: str = "n") -> asyncio.Task[Status]:
        """A pod's binding cycle is at the step that binds it."""

        async def step() -> Status:
            async with self.dispatcher.binding_turn(pod.uid) as turn:
                try:
                    await self.dispatcher.bind(pod, node_name)
                except (APIError, Unreachable) as error:
                    return Status.error(str(error))
                turn.succeeded()
            return SUCCESS

        return asyncio.create_task(step())

    def evicts(self, pod: ObjectReference) -> asyncio.Task[None]:
        """A pod has to make room."""
        return asyncio.create_task(self.dispatcher.evict(self.known[pod.uid], condition("evicted", "DisruptionTarget")))

    async def done(self) -> None:
        """Wait until nothing is under way in the background."""
        while self.dispatcher.tasks:
            await asyncio.wait(self.dispatcher.tasks)

    @property
    def requests(self) -> list[str]:
        """What the server was asked for, in order."""
        return [what for _, what in self.server.asked]


def condition(message: str, kind: str = "PodScheduled") -> PodCondition:
    """A condition that says something."""
    return PodCondition(type=kind, status="False", reason="Because", message=message)


def said(*messages: str, nominated: str | None = None) -> PodStatusPatch:
    """A patch with a PodScheduled condition for a message, and conditions of other types for others."""
    kinds = ("PodScheduled", "Second", "Third")
    conditions = tuple(condition(message, kind) for kind, message in zip(kinds, messages, strict=False))
    return PodStatusPatch(conditions, nominated)


def at_a_desk(story: Callable[[Desk], Awaitable[None]]) -> None:
    """Tell a story in virtual time; in the end nothing is left over."""

    async def told() -> None:
        desk = Desk()
        await story(desk)
        await desk.done()
        assert desk.server.complaints == []
        assert desk.dispatcher.pending_calls().total() == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(told())
