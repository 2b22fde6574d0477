"""The view that a scheduler's watches have delivered: its decisions are checked against it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Protocol

from kubestow.api.core import Node, Pod
from kubestow.api.meta import ObjectMeta
from kubestow.api.storage import PersistentVolume, PersistentVolumeClaim
from kubestow.scheduling.events.resources import NODES, PODS
from kubestow.scheduling.interfaces import Resource, Subscriber
from kubestow_lab.fault_simulation.apiserver.server import Key, key_of
from kubestow_lab.fault_simulation.trace import Trace


@dataclass(frozen=True, slots=True)
class DecisionSnapshot:
    """The view of a node when a pod was placed on it: the uids of its pods, and the index of its last known state."""

    node_name: str
    uids: frozenset[str]
    state: int


class Deliveries(Protocol):
    """Is called with everything that a watch delivers, before the subscriber gets it and the view has it."""

    def listed(self, view: WatchView, resource: Resource, objects: Sequence[Any]) -> None:
        """A collection is listed."""

    def changed(self, view: WatchView, resource: Resource, event_type: str, obj: Any) -> None:
        """An object changes."""


class WatchView:
    """Forwards the events of a watch to its subscriber, and keeps the delivered state.

    ``deliveries`` is called before that.
    """

    def __init__(self, name: str, trace: Trace, deliveries: Deliveries) -> None:
        self._name, self._trace, self._deliveries = name, trace, deliveries
        self._subscriber: Subscriber | None = None
        self.nodes: dict[Key, Node] = {}
        self.pods: dict[Key, Pod] = {}
        self.claims: dict[Key, PersistentVolumeClaim] = {}
        self.volumes: dict[Key, PersistentVolume] = {}
        #: All delivered states of each node, in order.
        self.node_states: dict[str, list[Node]] = {}
        #: Since when each pod has been known to be gone, on its way out or on a node, by uid, in virtual seconds.
        self.settled_at: dict[str, float] = {}
        #: When the present state of each pod was delivered, by uid, in virtual seconds.
        self.pod_delivered_at: dict[str, float] = {}
        self._newest: dict[Resource, int] = {}

    @property
    def now(self) -> float:
        """The virtual time in seconds."""
        return self._trace.now()

    def newest_version(self, resource: Resource) -> int:
        """The newest version of an object of a collection that has been delivered, 0 if none was."""
        return self._newest.get(resource, 0)

    def through(self, subscriber: Subscriber) -> WatchView:
        """Forward events to a subscriber from now on."""
        self._subscriber = subscriber
        return self

    def snapshot(self, node_name: str) -> DecisionSnapshot:
        """The current view of a node."""
        uids = frozenset(pod.metadata.uid for pod in self.pods.values() if pod.spec.node_name == node_name)
        return DecisionSnapshot(node_name, uids, len(self.node_states[node_name]) - 1)

    # -- the subscriber's interface --------------------------------------------------------------------------------

    def replace(self, resource: Resource, objects: Sequence[Any]) -> None:
        self._trace.note(self._name, "receives a list of", len(objects), resource.plural)
        self._deliveries.listed(self, resource, objects)
        if resource == PODS:
            listed = {obj.metadata.uid for obj in objects}
            self._settle(pod for pod in self.pods.values() if pod.metadata.uid not in listed)
        for cache in self._caches(resource):
            cache.clear()
        self._newest[resource] = max((int(obj.metadata.resource_version) for obj in objects), default=0)
        for obj in objects:
            self._store(resource, obj)
        assert self._subscriber is not None
        self._subscriber.replace(resource, [copy(obj) for obj in objects])  # a client decodes every delivery anew

    def apply(self, resource: Resource, event_type: str, obj: Any) -> None:
        self._trace.note(self._name, "receives", event_type, *key_of(obj), obj.metadata.resource_version)
        self._deliveries.changed(self, resource, event_type, obj)
        self._newest[resource] = max(self.newest_version(resource), int(obj.metadata.resource_version))
        if event_type == "DELETED":
            if resource == PODS:
                self._settle([obj])
            for cache in self._caches(resource):
                cache.pop(key_of(obj), None)
        else:
            self._store(resource, obj)
        assert self._subscriber is not None
        self._subscriber.apply(resource, event_type, copy(obj))

    def unreadable(self, resource: Resource, metadata: ObjectMeta, problem: str) -> None:
        raise AssertionError(f"{resource.kind} {metadata.namespace}/{metadata.name} is unreadable: {problem}")

    def _caches(self, resource: Resource) -> list[dict[Key, Any]]:
        by_kind: dict[type, dict[Key, Any]] = {
            Node: self.nodes,
            Pod: self.pods,
            PersistentVolumeClaim: self.claims,
            PersistentVolume: self.volumes,
        }
        return [by_kind[resource.type]] if resource.type in by_kind else []

    def _store(self, resource: Resource, obj: Any) -> None:
        for cache in self._caches(resource):
            cache[key_of(obj)] = obj
        if resource == PODS:
            self.pod_delivered_at[obj.metadata.uid] = self.now
        if resource == PODS and (obj.spec.node_name or obj.metadata.deletion_timestamp is not None):
            self._settle([obj])
        if resource == NODES:
            self.node_states.setdefault(obj.metadata.name, []).append(obj)

    def _settle(self, pods: Iterable[Pod]) -> None:
        for pod in pods:
            self.settled_at.setdefault(pod.metadata.uid, self.now)
