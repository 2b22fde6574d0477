"""The API server: objects of every watched kind, one resource version counter, and a history per kind for watches.

It rejects the bindings and patches that a real one rejects. Completed pods leave the collection that schedulers watch,
because their watch has a field selector.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace

from kubestow.api.core import Node, Pod
from kubestow.api.scheduling import CompositePodGroup
from kubestow.engine.cluster_api.object_writes import merge_patched
from kubestow.errors import APIError
from kubestow.plugins.registry import find_pod_group_apis
from kubestow.scheduling.events.resources import NODES, PODS, with_custom
from kubestow.scheduling.interfaces import Clock, ObjectReference, PodStatusPatch, Resource
from kubestow_lab.fault_simulation.apiserver.lease import SimulatedLease
from kubestow_lab.fault_simulation.trace import Trace

Key = tuple[str, str]
T = TypeVar("T")

#: All resources that a scheduler may watch.
SERVED = with_custom([*(api.kind for api in find_pod_group_apis()), CompositePodGroup])


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One watch event: ADDED, MODIFIED or DELETED."""

    type: str
    key: Key
    obj: Any


def key_of(obj: Any) -> Key:
    """Namespace and name."""
    return obj.metadata.namespace, obj.metadata.name


def with_metadata(obj: Any, **changes: Any) -> Any:
    """The object with changed metadata."""
    return replace(obj, metadata=replace(obj.metadata, **changes))


def with_spec(obj: Any, **changes: Any) -> Any:
    """The object with a changed spec."""
    return replace(obj, spec=replace(obj.spec, **changes))


def with_status(obj: Any, **changes: Any) -> Any:
    """The object with a changed status."""
    return replace(obj, status=replace(obj.status, **changes))


def ended(pod: Pod) -> bool:
    """Whether a pod has succeeded or failed."""
    return pod.status.phase in ("Succeeded", "Failed")


def may_be_bound_by_user(pod: Pod) -> bool:
    """Whether a user may bind a pod to any node, past the schedulers: it is pending, and uses nothing shared."""
    ports = [port for container in pod.spec.containers for port in container.ports]
    uses_shared_resources = ports or pod.spec.volumes or pod.spec.resource_claims
    return not (
        uses_shared_resources
        or pod.spec.node_name
        or pod.spec.scheduling_gates
        or pod.metadata.deletion_timestamp is not None
    )


class SimulatedServer:
    """The state of the cluster.

    ``bound_by`` maps a pod's uid to its binder, ``bindings`` to the nodes that it was bound to; ``node_names`` includes
    deleted nodes.
    """

    def __init__(self, clock: Clock, trace: Trace) -> None:
        self._clock, self._trace = clock, trace
        self._objects: dict[Resource, dict[Key, Any]] = {resource: {} for resource in SERVED}
        self.history: dict[Resource, list[WatchEvent]] = {resource: [] for resource in SERVED}
        self.watchers: dict[Resource, list[asyncio.Event]] = {resource: [] for resource in SERVED}
        self._change = asyncio.Event()
        self.bound_by: dict[str, str] = {}
        self.bindings: dict[str, list[str]] = {}
        self.node_names: set[str] = set()
        #: Called when another process holds the lease, or none.
        self.lease_changed: Callable[[], None] = lambda: None
        self.lease = SimulatedLease(self._lease_changed)
        #: Called with a partition that another process holds, or none.
        self.partition_changed: Callable[[int], None] = lambda partition: None
        #: The Leases of partitions, by number.
        self.partition_leases: list[SimulatedLease] = []
        self.version = 0
        #: The versions before which the changes of a collection are not known any more.
        self._expired_before: dict[Resource, int] = {}

    def _lease_changed(self) -> None:
        self._trace.note("server", "the lease is held by", self.lease.holder or "no process")
        self.lease_changed()

    def add_partitions(self, count: int) -> None:
        """Have so many Leases of partitions, ``kube-scheduler-0`` and so on."""
        self.partition_leases = [SimulatedLease(partial(self._partition_changed, number)) for number in range(count)]

    def _partition_changed(self, partition: int) -> None:
        holder = self.partition_leases[partition].holder or "no process"
        self._trace.note("server", f"partition {partition} is held by", holder)
        self.partition_changed(partition)

    def lease_named(self, name: str) -> SimulatedLease:
        """The Lease of a name."""
        number = name.removeprefix("kube-scheduler-")
        return self.partition_leases[int(number)] if number.isdecimal() else self.lease

    def expire(self, resource: Resource, version: int) -> None:
        """Forget what a collection was like up to a version, if it is not the newest of the server."""
        if version < self.version:
            self._expired_before[resource] = max(version + 1, self._expired_before.get(resource, 0))

    def has_expired(self, resource: Resource, version: int) -> bool:
        """Whether the changes of a collection since a version are not known any more, as after a compaction."""
        return version < self._expired_before.get(resource, 0)

    # -- reading -------------------------------------------------------------------------------------------------

    def listed(self, resource: Resource) -> list[Any]:
        """The objects of a scheduler's list of a collection."""
        return [obj for obj in self._objects[resource].values() if resource != PODS or not ended(obj)]

    def pods(self) -> list[Pod]:
        """All pods, including completed ones."""
        return list(self._objects[PODS].values())

    def nodes(self) -> dict[str, Node]:
        """All nodes by name."""
        return {name: node for (_, name), node in self._objects[NODES].items()}

    def objects(self, kind: type[T]) -> list[T]:
        """All objects of a kind."""
        return list(next(objects for resource, objects in self._objects.items() if resource.type is kind).values())

    def get(self, resource: Resource, key: Key) -> Any | None:
        """One object, None when it does not exist."""
        return self._objects[resource].get(key)

    def find(self, pod: ObjectReference) -> Pod | None:
        """The pod with this name and uid, None when it does not exist."""
        found: Pod | None = self._objects[PODS].get((pod.namespace, pod.name))
        return found if found is not None and found.metadata.uid == pod.uid else None

    def timestamp(self) -> str:
        """The time on the server's clock."""
        return self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")

    def break_watches(self) -> None:
        """Let every idle watch find out that the server has stopped."""
        for events in self.watchers.values():
            for event in events:
                event.set()

    async def change(self) -> None:
        """Wait for the next write."""
        await self._change.wait()

    # -- writing -------------------------------------------------------------------------------------------------

    def put(self, obj: Any) -> Any:
        """Create or replace an object; the stored object."""
        resource, key = self._place(obj)
        old = self._objects[resource].get(key)
        if old is None:
            obj = with_metadata(obj, creation_timestamp=self.timestamp())
        obj = self._versioned(obj)
        self._objects[resource][key] = obj
        if resource == NODES:
            self.node_names.add(obj.metadata.name)
        if resource == PODS and ended(obj):
            if old is not None and not ended(old):
                self._record(resource, WatchEvent("DELETED", key, obj))
        else:
            self._record(resource, WatchEvent("ADDED" if old is None else "MODIFIED", key, obj))
        return obj

    def remove(self, obj: Any) -> None:
        """Remove an object."""
        resource, key = self._place(obj)
        old = self._objects[resource].pop(key)
        if resource != PODS or not ended(old):
            self._record(resource, WatchEvent("DELETED", key, self._versioned(old)))

    def _versioned(self, obj: Any) -> Any:
        self.version += 1
        self._change.set()
        self._change = asyncio.Event()
        return with_metadata(obj, resource_version=str(self.version))

    @staticmethod
    def _place(obj: Any) -> tuple[Resource, Key]:
        return next(resource for resource in SERVED if resource.type is type(obj)), key_of(obj)

    def _record(self, resource: Resource, change: WatchEvent) -> None:
        named = change.obj.metadata
        self._trace.note("server", change.type, resource.kind, *change.key, named.uid, named.resource_version)
        self.history[resource].append(change)
        for watcher in self.watchers[resource]:
            watcher.set()

    # -- requests of schedulers ------------------------------------------------------------------------------------

    def bind(self, pod: ObjectReference, node_name: str, *, by: str) -> None:
        """Bind a pod. Like a real API server, it does not check whether the node exists. Raises APIError."""
        current = self._current(pod)
        if current.metadata.deletion_timestamp is not None:
            raise APIError(409, "Conflict", f"pod {pod.name} is being deleted, cannot be assigned to a host")
        if current.spec.node_name:
            raise APIError(409, "Conflict", f'pod {pod.name} is already assigned to node "{current.spec.node_name}"')
        if current.spec.scheduling_gates:
            raise APIError(409, "Conflict", f"pod {pod.name} has non-empty .spec.schedulingGates")
        self._trace.note("server", by, "binds", pod.name, "to", node_name)
        self.bound_by[pod.uid] = by
        self.bindings.setdefault(pod.uid, []).append(node_name)
        self.put(with_status(with_spec(current, node_name=node_name), nominated_node_name=""))

    def patch(self, pod: ObjectReference, patch: PodStatusPatch) -> None:
        """Patch a pod's status. Raises APIError."""
        current = self._current(pod)
        if patch.conditions:
            changed = {condition.type for condition in patch.conditions}
            others = [c for c in current.status.conditions if c.type not in changed]
            current = with_status(current, conditions=[*others, *patch.conditions])
        if patch.nominated_node_name is not None:
            current = with_status(current, nominated_node_name=patch.nominated_node_name)
        self.put(current)

    def merge(self, resource: Resource, obj: ObjectReference, changes: Mapping[str, Any]) -> str:
        """Merge-patch an object of the given resource version; its new version. Raises APIError."""
        current = self.get(resource, (obj.namespace, obj.name))
        merged = self.put(merge_patched(resource, current, obj, changes))
        return str(merged.metadata.resource_version)

    def delete(self, pod: ObjectReference) -> None:
        """Delete a pod: gracefully if it runs on a node or has finalizers, otherwise at once."""
        current = self.find(pod)
        if current is None or current.metadata.deletion_timestamp is not None:
            return
        if current.metadata.finalizers or (current.spec.node_name in self.nodes() and not ended(current)):
            self.put(with_metadata(current, deletion_timestamp=self.timestamp()))
        else:
            self.remove(current)

    def _current(self, pod: ObjectReference) -> Pod:
        named: Pod | None = self._objects[PODS].get((pod.namespace, pod.name))
        if named is None:
            raise APIError(404, "NotFound", f'pods "{pod.name}" not found')
        if named.metadata.uid != pod.uid:
            raise APIError(409, "Conflict", f"uid of {pod.name} is {named.metadata.uid}, not {pod.uid}")
        return named

    def pods_on(self, node_name: str) -> Iterable[Pod]:
        """The pods that use the capacity of a node."""
        return (pod for pod in self._objects[PODS].values() if pod.spec.node_name == node_name and not ended(pod))
