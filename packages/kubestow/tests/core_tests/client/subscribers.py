"""A subscriber that records what it receives, and the watch events to send to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any

from core_tests.hang_limit import HANG_LIMIT
from kubestow.api.core import Namespace, Node, Pod
from kubestow.api.meta import ObjectMeta
from kubestow.api.resource import ResourceClaim
from kubestow.client.raw_object_cache import RawObjectCache
from kubestow.client.reflector import Reflector
from kubestow.client.rest.transport import Transport
from kubestow.scheduling.interfaces import Clock, Resource

PODS = Resource("/api/v1", "pods", "Pod", Pod, field_selector="status.phase!=Succeeded,status.phase!=Failed")
NODES = Resource("/api/v1", "nodes", "Node", Node, namespaced=False)
SLICES = Resource("/apis/resource.k8s.io/v1", "resourceslices", "ResourceSlice", Namespace, optional=True)

RESOURCE_CLAIMS = Resource("/apis/resource.k8s.io/v1", "resourceclaims", "ResourceClaim", ResourceClaim, optional=True)


class RecordingSubscriber:
    """``seen`` lists ("replace", names), (event type, name) and ("unreadable", subject, problem) in order."""

    reflector: Reflector

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []
        self.objects: dict[str, Any] = {}
        self._changed = asyncio.Event()

    def replace(self, resource: Resource, objects: Sequence[Any]) -> None:
        self.objects = {obj.metadata.name: obj for obj in objects}
        self._add("replace", [obj.metadata.name for obj in objects])

    def apply(self, resource: Resource, event_type: str, obj: Any) -> None:
        self.objects[obj.metadata.name] = obj
        if event_type == "DELETED":
            del self.objects[obj.metadata.name]
        self._add(event_type, obj.metadata.name)

    def unreadable(self, resource: Resource, metadata: ObjectMeta, problem: str) -> None:
        self._add("unreadable", f"{metadata.namespace}/{metadata.name}", problem)

    def _add(self, *entry: Any) -> None:
        self.seen.append(entry)
        self._changed.set()

    async def wait_until_seen(self, count: int) -> list[tuple[Any, ...]]:
        """Everything seen so far, once there are at least ``count`` entries."""
        async with asyncio.timeout(HANG_LIMIT):
            while len(self.seen) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.seen


def pod(name: str, version: int = 1, **spec: Any) -> dict[str, Any]:
    """A pod as the API server returns it."""
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def event(kind: str, obj: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "object": obj}


def bookmark(version: int, *, initial_end: bool = False) -> dict[str, Any]:
    metadata: dict[str, Any] = {"resourceVersion": str(version)}
    if initial_end:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    return event("BOOKMARK", {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": {"containers": None}})


def expired() -> dict[str, Any]:
    return error_event(410, "Expired", "too old resource version: 2 (823)")


def error_event(code: int, reason: str, message: str) -> dict[str, Any]:
    """The ERROR event that ends a watch."""
    status = {"kind": "Status", "status": "Failure", "message": message, "reason": reason, "code": code}
    return event("ERROR", status)


@asynccontextmanager
async def reflecting(
    transport: Transport,
    clock: Clock,
    resource: Resource = PODS,
    idle_timeout: float = 150.0,
    raw_objects: RawObjectCache | None = None,
) -> AsyncIterator[RecordingSubscriber]:
    """The subscriber of a reflector that runs until the block ends."""
    subscriber = RecordingSubscriber()
    subscriber.reflector = reflector = Reflector(
        transport,
        resource,
        subscriber,
        clock=clock,
        random=Random(1),
        idle_timeout=idle_timeout,
        raw_objects=raw_objects,
    )
    task = asyncio.create_task(reflector.run())
    try:
        yield subscriber
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
