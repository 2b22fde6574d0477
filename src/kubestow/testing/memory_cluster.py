"""An in-memory cluster that implements the scheduler's cluster API port.

It stores pods, nodes and other objects and delivers changes to watchers. Binds and status patches fail as on the API
server; deletions are immediate; recorded events are kept in a list. For tests of the scheduler and of plugins.
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
from kubestow.scheduling.interfaces import EventRecord, ObjectReference, PodStatusPatch, Resource, Subscriber
from kubestow.simulation.resource_claims import InMemoryResourceClaims

__all__ = ["ClusterClaimStore", "MemoryCluster", "json_merge_patch"]

Key = tuple[str, str]
T = TypeVar("T")


@dataclass
class MemoryCluster:
    """Implements :class:`kubestow.scheduling.interfaces.ClusterAPI`. ``bindings`` lists (pod, node) in order."""

    bindings: list[tuple[str, str]] = field(default_factory=list)
    events: list[EventRecord] = field(default_factory=list)
    #: Raised by the next binds, in order, instead of binding.
    bind_failures: list[Exception] = field(default_factory=list)
    #: Raised by the next patches, in order, instead of patching.
    patch_failures: list[Exception] = field(default_factory=list)
    #: Raised by the next binds, in order, after binding.
    lost_responses: list[Exception] = field(default_factory=list)
    _objects: dict[Resource, dict[Key, Any]] = field(default_factory=lambda: {resource: {} for resource in WATCHED})
    _subscribers: list[Subscriber] = field(default_factory=list)
    _version: int = 0

    # -- for tests --------------------------------------------------------------------------------------------------

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
        self._notify(resource, "MODIFIED" if known else "ADDED", obj)

    def remove(self, obj: Any) -> None:
        """Delete an object."""
        resource = resource_of(type(obj))
        last = self._objects.get(resource, {}).pop((obj.metadata.namespace, obj.metadata.name), None)
        if last is not None:
            self._notify(resource, "DELETED", last)

    def pod(self, name: str, namespace: str = "default") -> Pod:
        """The current pod."""
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
        """The PodScheduled condition of a pod, or None."""
        return next((c for c in self.pod(name).status.conditions if c.type == "PodScheduled"), None)

    def claim(self, name: str, namespace: str = "default") -> ResourceClaim:
        """The current ResourceClaim."""
        found = ClusterClaimStore(self).get(namespace, name)
        assert found is not None
        return found

    def objects(self, kind: type[T]) -> dict[Key, T]:
        """All objects of a watched kind, by namespace and name."""
        return self._objects.get(resource_of(kind), {})

    def relist(self) -> None:
        """Deliver complete lists to all subscribers, as after a watch that could not be resumed."""
        for subscriber in self._subscribers:
            self._list(list(self._objects), subscriber)

    # -- ClusterAPI -------------------------------------------------------------------------------------------------

    async def subscribe(self, resources: Sequence[Resource], subscriber: Subscriber) -> None:
        """Deliver lists, then every change."""
        self._list(resources, subscriber)
        self._subscribers.append(subscriber)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._subscribers.remove(subscriber)

    async def bind(self, pod: ObjectReference, node_name: str) -> None:
        """Bind a pod. Raises APIError if it does not exist, has another UID, or is already bound."""
        await asyncio.sleep(0)
        if self.bind_failures:
            raise self.bind_failures.pop(0)
        current = self._current(pod)
        if current.spec.node_name:
            raise APIError(409, "Conflict", f'pod {pod.name} is already assigned to node "{current.spec.node_name}"')
        self.bindings.append((f"{pod.namespace}/{pod.name}", node_name))
        self.put(msgspec.structs.replace(current, spec=msgspec.structs.replace(current.spec, node_name=node_name)))
        if self.lost_responses:
            raise self.lost_responses.pop(0)

    async def read_pod(self, pod: ObjectReference) -> Pod | None:
        """The current pod, or None."""
        await asyncio.sleep(0)
        current: Pod | None = self._objects[PODS].get((pod.namespace, pod.name))
        return current if current is not None and current.metadata.uid == pod.uid else None

    async def patch_pod_status(self, pod: ObjectReference, patch: PodStatusPatch) -> None:
        """Set conditions and the nominated node name."""
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
        """Apply a merge patch. Raises APIError if the object does not exist or its resource version has changed."""
        await asyncio.sleep(0)
        if self.patch_failures:
            raise self.patch_failures.pop(0)
        current = self._objects.get(resource, {}).get((obj.namespace, obj.name))
        if current is None:
            raise APIError(404, "NotFound", f'{resource.plural} "{obj.name}" not found')
        if current.metadata.resource_version != obj.resource_version:
            raise APIError(409, "Conflict", f'{resource.plural} "{obj.name}" has been modified')
        self.put(convert(resource.type, json_merge_patch(msgspec.to_builtins(current), changes)))
        return str(self._version)

    async def delete_pod(self, pod: ObjectReference) -> None:
        """Delete a pod immediately."""
        await asyncio.sleep(0)
        current = self._objects[PODS].get((pod.namespace, pod.name))
        if current is not None and current.metadata.uid == pod.uid:
            self.remove(current)

    @cached_property
    def resource_claims(self) -> InMemoryResourceClaims:
        """The writer of ResourceClaims."""
        return InMemoryResourceClaims(ClusterClaimStore(self))

    def record(self, event: EventRecord) -> None:
        """Append an event to ``events``."""
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

    def _notify(self, resource: Resource, event_type: str, obj: Any) -> None:
        for subscriber in self._subscribers:
            subscriber.apply(resource, event_type, obj)


def json_merge_patch(target: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Apply a JSON merge patch (RFC 7386)."""
    merged = dict(target)
    for name, value in patch.items():
        if isinstance(value, Mapping):
            known = merged.get(name)
            merged[name] = json_merge_patch(known if isinstance(known, Mapping) else {}, value)
        elif value is None:
            merged.pop(name, None)
        else:
            merged[name] = value
    return merged


@dataclass(frozen=True, slots=True)
class ClusterClaimStore:
    """The ResourceClaims of a memory cluster as a store."""

    cluster: MemoryCluster

    def get(self, namespace: str, name: str) -> ResourceClaim | None:
        """The current claim, or None."""
        return self.cluster.objects(ResourceClaim).get((namespace, name))

    def put(self, obj: ResourceClaim, /) -> None:
        """Create or replace a claim and notify subscribers."""
        self.cluster.put(obj)

    def remove(self, namespace: str, name: str, /) -> None:
        """Remove a claim and notify subscribers."""
        claim = self.get(namespace, name)
        if claim is not None:
            self.cluster.remove(claim)
