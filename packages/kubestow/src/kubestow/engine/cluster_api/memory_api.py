"""An API server in memory: the cluster API that a simulated scheduler runs on.

Writes take effect at once and are delivered to subscribers before they return. Bindings and patches fail as on a real
API server; deletions do not wait for a grace period.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import msgspec

from kubestow.api.core import Node, Pod
from kubestow.api.meta import ObjectMeta
from kubestow.api.resource import ResourceClaim
from kubestow.engine.cluster_api.object_writes import merge_patched
from kubestow.engine.cluster_api.resource_claims import InMemoryResourceClaims
from kubestow.errors import APIError
from kubestow.scheduling.events.resources import NODES, PODS, WATCHED, resource_of
from kubestow.scheduling.interfaces import EventRecord, ObjectReference, PodStatusPatch, Resource, Subscriber

Key = tuple[str, str]
T = TypeVar("T")


class MemoryAPI:
    """Implements :class:`kubestow.scheduling.interfaces.ClusterAPI`."""

    def __init__(self) -> None:
        self._objects: dict[Resource, dict[Key, Any]] = {resource: {} for resource in WATCHED}
        self._pods: dict[Key, Pod] = self._objects[PODS]
        self._subscribers: list[Subscriber] = []
        self._version = 0

    # -- objects -----------------------------------------------------------------------------------------------------

    def put(self, obj: Any) -> str:
        """Create or replace an object of any watched kind. Returns its new resourceVersion."""
        resource = resource_of(type(obj))
        objects = self._objects.setdefault(resource, {})
        key = (obj.metadata.namespace, obj.metadata.name)
        obj = msgspec.structs.replace(obj, metadata=self._new_version(obj))
        known = key in objects
        objects[key] = obj
        self._notify(resource, "MODIFIED" if known else "ADDED", obj)
        version: str = obj.metadata.resource_version
        return version

    def remove(self, obj: Any) -> None:
        """Delete an object, if it exists."""
        resource = resource_of(type(obj))
        last = self._objects.get(resource, {}).pop((obj.metadata.namespace, obj.metadata.name), None)
        if last is not None:
            self._notify(resource, "DELETED", last)

    def pods(self) -> list[Pod]:
        """All pods."""
        return list(self._pods.values())

    def nodes(self) -> list[Node]:
        """All nodes."""
        return list(self._objects[NODES].values())

    def objects(self, kind: type[T]) -> Mapping[Key, T]:
        """All objects of a kind, by namespace and name."""
        return self._objects.get(resource_of(kind), {})

    def all_objects(self) -> Iterator[Any]:
        """The objects of all kinds, those that only plugins read included."""
        for objects in self._objects.values():
            yield from objects.values()

    def copy(self) -> MemoryAPI:
        """An API server with the same objects and without subscribers."""
        copied = MemoryAPI()
        copied._version = self._version
        copied._objects = {resource: dict(objects) for resource, objects in self._objects.items()}
        copied._pods = copied._objects[PODS]
        return copied

    def relist(self) -> None:
        """Deliver complete lists to all subscribers, as after a watch that could not be resumed."""
        for subscriber in self._subscribers:
            self._list(list(self._objects), subscriber)

    def begin_watch(self, resources: Sequence[Resource], subscriber: Subscriber) -> None:
        """Deliver lists, and from now on every change."""
        self._list(resources, subscriber)
        self._subscribers.append(subscriber)

    def pass_watch_to(self, subscriber: Subscriber) -> None:
        """From now on, deliver every change to a subscriber that knows everything so far, and to no other."""
        self._subscribers = [subscriber]

    # -- ClusterAPI --------------------------------------------------------------------------------------------------

    async def subscribe(self, resources: Sequence[Resource], subscriber: Subscriber) -> None:
        """Deliver lists, then every change."""
        self.begin_watch(resources, subscriber)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._subscribers.remove(subscriber)

    async def bind(self, pod: ObjectReference, node_name: str) -> None:
        """Bind a pod. Raises APIError if it does not exist, has another UID, or is already bound."""
        current = self._current(pod)
        if current.spec.node_name:
            raise APIError(409, "Conflict", f'pod {pod.name} is already assigned to node "{current.spec.node_name}"')
        self.put(msgspec.structs.replace(current, spec=msgspec.structs.replace(current.spec, node_name=node_name)))

    async def request(self, method: str, path: str, body: Any = None) -> Any:
        """Raises APIError: there is no API beyond the other methods."""
        raise APIError(404, "NotFound", f"{method} {path}: a cluster in memory has no such API")

    async def read_pod(self, pod: ObjectReference) -> Pod | None:
        """The current pod, or None."""
        current: Pod | None = self._pods.get((pod.namespace, pod.name))
        return current if current is not None and current.metadata.uid == pod.uid else None

    async def patch_pod_status(self, pod: ObjectReference, patch: PodStatusPatch) -> None:
        """Set conditions and the nominated node name."""
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
        current = self._objects.get(resource, {}).get((obj.namespace, obj.name))
        return self.put(merge_patched(resource, current, obj, changes))

    async def delete_pod(self, pod: ObjectReference) -> None:
        """Delete a pod immediately."""
        current = self._pods.get((pod.namespace, pod.name))
        if current is not None and current.metadata.uid == pod.uid:
            self.remove(current)

    @cached_property
    def resource_claims(self) -> InMemoryResourceClaims:
        """The writer of ResourceClaims."""
        return InMemoryResourceClaims(ClusterClaimStore(self))

    def record(self, event: EventRecord) -> None:
        """Drop the event."""

    def _new_version(self, obj: Any) -> ObjectMeta:
        """The metadata of an object that is about to be written."""
        self._version += 1
        metadata: ObjectMeta = msgspec.structs.replace(obj.metadata, resource_version=str(self._version))
        return metadata

    def _current(self, pod: ObjectReference) -> Pod:
        current = self._pods.get((pod.namespace, pod.name))
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


@dataclass(frozen=True, slots=True)
class ClusterClaimStore:
    """The ResourceClaims of an API as a store."""

    api: MemoryAPI

    def get(self, namespace: str, name: str) -> ResourceClaim | None:
        """The current claim, or None."""
        return self.api.objects(ResourceClaim).get((namespace, name))

    def put(self, obj: ResourceClaim, /) -> None:
        """Create or replace a claim and notify subscribers."""
        self.api.put(obj)

    def remove(self, namespace: str, name: str, /) -> None:
        """Remove a claim and notify subscribers."""
        claim = self.get(namespace, name)
        if claim is not None:
            self.api.remove(claim)
