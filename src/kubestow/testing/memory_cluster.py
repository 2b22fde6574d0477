"""A cluster in memory, as the scheduler's port sees one: what is written to it comes back through the watch.

Small on purpose: pods, nodes and whatever else is put into it, binds and status patches with the API server's refusals,
deletions, a list of the events that were recorded. For tests of the scheduler and of plugins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import msgspec

from kubestow.api.core import Node, Pod, PodCondition
from kubestow.api.meta import convert
from kubestow.api.resource import ResourceClaim
from kubestow.errors import APIError
from kubestow.scheduling.events.resources import NODES, PODS, WATCHED, resource_of
from kubestow.scheduling.ports import EventRecord, ObjectReference, PodStatusPatch, Resource, Subscriber
from kubestow.simulation.resource_claims import ClaimsInMemory

__all__ = ["ClaimsOf", "MemoryCluster", "merged_patch"]

Key = tuple[str, str]
T = TypeVar("T")


@dataclass
class MemoryCluster:
    """Implements :class:`kubestow.scheduling.ports.ClusterAPI`. ``bindings`` lists (pod, node) in order."""

    bindings: list[tuple[str, str]] = field(default_factory=list)
    events: list[EventRecord] = field(default_factory=list)
    #: Raised by the next binds, first to last, in place of binding.
    bind_failures: list[Exception] = field(default_factory=list)
    #: The same for patches of objects.
    patch_failures: list[Exception] = field(default_factory=list)
    #: Raised by the next binds, first to last, after binding.
    lost_answers: list[Exception] = field(default_factory=list)
    _objects: dict[Resource, dict[Key, Any]] = field(default_factory=lambda: {resource: {} for resource in WATCHED})
    _subscribers: list[Subscriber] = field(default_factory=list)
    _version: int = 0

    # -- what a test does -------------------------------------------------------------------------------------------

    def put(self, obj: Any) -> None:
        """Create or replace an object of any watched kind."""
        resource = resource_of(type(obj))
        objects = self._objects.setdefault(resource, {})
        key = (obj.metadata.namespace, obj.metadata.name)
        self._version += 1
        obj = msgspec.structs.replace(
            obj, metadata=msgspec.structs.replace(obj.metadata, resource_version=str(self._version))
        )
        known = key in objects
        objects[key] = obj
        self._tell(resource, "MODIFIED" if known else "ADDED", obj)

    def remove(self, obj: Any) -> None:
        """Delete an object."""
        resource = resource_of(type(obj))
        last = self._objects.get(resource, {}).pop((obj.metadata.namespace, obj.metadata.name), None)
        if last is not None:
            self._tell(resource, "DELETED", last)

    def pod(self, name: str, namespace: str = "default") -> Pod:
        """A pod as it is now."""
        pod = self._objects[PODS][namespace, name]
        assert isinstance(pod, Pod)
        return pod

    def pods(self) -> list[Pod]:
        """All pods."""
        return list(self._objects[PODS].values())

    def nodes(self) -> list[Node]:
        """All nodes."""
        return list(self._objects[NODES].values())

    def condition(self, name: str) -> PodCondition | None:
        """A pod's PodScheduled condition."""
        return next((c for c in self.pod(name).status.conditions if c.type == "PodScheduled"), None)

    def claim(self, name: str, namespace: str = "default") -> ResourceClaim:
        """A claim on devices as it is now."""
        found = ClaimsOf(self).get(namespace, name)
        assert found is not None
        return found

    def objects(self, kind: type[T]) -> dict[Key, T]:
        """All objects of a watched kind, by namespace and name."""
        return self._objects.get(resource_of(kind), {})

    def relist(self) -> None:
        """Give every subscriber complete lists again, as after a watch that could not be resumed."""
        for subscriber in self._subscribers:
            self._list(list(self._objects), subscriber)

    # -- the port ---------------------------------------------------------------------------------------------------

    async def subscribe(self, resources: Sequence[Resource], subscriber: Subscriber) -> None:
        """List, then tell of every change."""
        self._list(resources, subscriber)
        self._subscribers.append(subscriber)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._subscribers.remove(subscriber)

    async def bind(self, pod: ObjectReference, node_name: str) -> None:
        """Bind a pod that is there, of that uid, and not bound yet."""
        await asyncio.sleep(0)
        if self.bind_failures:
            raise self.bind_failures.pop(0)
        current = self._current(pod)
        if current.spec.node_name:
            raise APIError(409, "Conflict", f'pod {pod.name} is already assigned to node "{current.spec.node_name}"')
        self.bindings.append((f"{pod.namespace}/{pod.name}", node_name))
        self.put(msgspec.structs.replace(current, spec=msgspec.structs.replace(current.spec, node_name=node_name)))
        if self.lost_answers:
            raise self.lost_answers.pop(0)

    async def read_pod(self, pod: ObjectReference) -> Pod | None:
        """The pod as it is."""
        await asyncio.sleep(0)
        current: Pod | None = self._objects[PODS].get((pod.namespace, pod.name))
        return current if current is not None and current.metadata.uid == pod.uid else None

    async def patch_pod_status(self, pod: ObjectReference, patch: PodStatusPatch) -> None:
        """Set conditions and the nomination."""
        await asyncio.sleep(0)
        current = self._current(pod)
        status = current.status
        if patch.conditions:
            changed = {condition.type for condition in patch.conditions}
            others = [c for c in status.conditions if c.type not in changed]
            status = msgspec.structs.replace(status, conditions=[*others, *patch.conditions])
        if patch.nominated_node_name is not None:
            status = msgspec.structs.replace(status, nominated_node_name=patch.nominated_node_name)
        self.put(msgspec.structs.replace(current, status=status))

    async def patch(
        self, resource: Resource, obj: ObjectReference, changes: Mapping[str, Any], *, subresource: str = ""
    ) -> str:
        """Merge a patch into an object that is still as it was read."""
        await asyncio.sleep(0)
        if self.patch_failures:
            raise self.patch_failures.pop(0)
        current = self._objects.get(resource, {}).get((obj.namespace, obj.name))
        if current is None:
            raise APIError(404, "NotFound", f'{resource.plural} "{obj.name}" not found')
        if current.metadata.resource_version != obj.resource_version:
            raise APIError(409, "Conflict", f'{resource.plural} "{obj.name}" has been modified')
        self.put(convert(resource.type, merged_patch(msgspec.to_builtins(current), changes)))
        return str(self._version)

    async def delete_pod(self, pod: ObjectReference) -> None:
        """Delete a pod at once."""
        await asyncio.sleep(0)
        current = self._objects[PODS].get((pod.namespace, pod.name))
        if current is not None and current.metadata.uid == pod.uid:
            self.remove(current)

    @cached_property
    def resource_claims(self) -> ClaimsInMemory:
        """Claims among the other objects."""
        return ClaimsInMemory(ClaimsOf(self))

    def record(self, event: EventRecord) -> None:
        """Keep an event."""
        self.events.append(event)

    def _current(self, pod: ObjectReference) -> Pod:
        current = self._objects[PODS].get((pod.namespace, pod.name))
        if current is None:
            raise APIError(404, "NotFound", f'pods "{pod.name}" not found')
        if current.metadata.uid != pod.uid:
            raise APIError(409, "Conflict", f'uid of pod "{pod.name}" is {current.metadata.uid}, not {pod.uid}')
        assert isinstance(current, Pod)
        return current

    def _list(self, resources: Sequence[Resource], subscriber: Subscriber) -> None:
        for resource in resources:
            subscriber.replace(resource, list(self._objects.get(resource, {}).values()))

    def _tell(self, resource: Resource, event_type: str, obj: Any) -> None:
        for subscriber in self._subscribers:
            subscriber.apply(resource, event_type, obj)


def merged_patch(target: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON merge patch (RFC 7386) applied to an object."""
    merged = dict(target)
    for name, value in patch.items():
        if isinstance(value, Mapping):
            known = merged.get(name)
            merged[name] = merged_patch(known if isinstance(known, Mapping) else {}, value)
        elif value is None:
            merged.pop(name, None)
        else:
            merged[name] = value
    return merged


@dataclass(frozen=True, slots=True)
class ClaimsOf:
    """A memory cluster's claims as a store."""

    cluster: MemoryCluster

    def get(self, namespace: str, name: str) -> ResourceClaim | None:
        """A claim as it is now."""
        return self.cluster.objects(ResourceClaim).get((namespace, name))

    def put(self, obj: ResourceClaim, /) -> None:
        """Keep a claim under a new version, and tell everybody."""
        self.cluster.put(obj)

    def remove(self, namespace: str, name: str, /) -> None:
        """Drop a claim."""
        claim = self.get(namespace, name)
        if claim is not None:
            self.cluster.remove(claim)
