"""What a scheduler has been told of the cluster: what its decisions may be judged by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kubestow.api.core import Node, Pod
from kubestow.api.storage import PersistentVolume, PersistentVolumeClaim
from kubestow.scheduling.events.resources import NODES
from kubestow.scheduling.ports import Resource, Subscriber
from tests.fault_simulation.server import Key, key_of
from tests.fault_simulation.trace import Trace

__all__ = ["Glimpse", "Sight"]


@dataclass(frozen=True, slots=True)
class Glimpse:
    """What was known of a node when a pod was placed on it: who was there, and which of its sizes was the last."""

    node_name: str
    uids: frozenset[str]
    size: int


class Sight:
    """Stands between a watch and its subscriber, and remembers."""

    def __init__(self, name: str, trace: Trace) -> None:
        self._name, self._trace = name, trace
        self._subscriber: Subscriber | None = None
        self.nodes: dict[Key, Node] = {}
        self.pods: dict[Key, Pod] = {}
        self.claims: dict[Key, PersistentVolumeClaim] = {}
        self.volumes: dict[Key, PersistentVolume] = {}
        #: All states of each node, in the order in which they were told.
        self.sizes: dict[str, list[Node]] = {}

    def through(self, subscriber: Subscriber) -> Sight:
        """Pass on to a subscriber what is told from now on."""
        self._subscriber = subscriber
        return self

    def glimpse(self, node_name: str) -> Glimpse:
        """What is known of a node now."""
        uids = frozenset(pod.metadata.uid for pod in self.pods.values() if pod.spec.node_name == node_name)
        return Glimpse(node_name, uids, len(self.sizes[node_name]) - 1)

    # -- the subscriber's interface --------------------------------------------------------------------------------

    def replace(self, resource: Resource, objects: Sequence[Any]) -> None:
        self._trace.note(self._name, "is listed", len(objects), resource.plural)
        for seen in self._seen(resource):
            seen.clear()
        for obj in objects:
            self._note(resource, obj)
        assert self._subscriber is not None
        self._subscriber.replace(resource, objects)

    def apply(self, resource: Resource, event_type: str, obj: Any) -> None:
        self._trace.note(self._name, "hears", event_type, *key_of(obj), obj.metadata.resource_version)
        if event_type == "DELETED":
            for seen in self._seen(resource):
                seen.pop(key_of(obj), None)
        else:
            self._note(resource, obj)
        assert self._subscriber is not None
        self._subscriber.apply(resource, event_type, obj)

    def unreadable(self, resource: Resource, subject: str, problem: str) -> None:
        raise AssertionError(f"{resource.kind} {subject} is unreadable: {problem}")

    def _seen(self, resource: Resource) -> list[dict[Key, Any]]:
        by_kind: dict[type, dict[Key, Any]] = {
            Node: self.nodes,
            Pod: self.pods,
            PersistentVolumeClaim: self.claims,
            PersistentVolume: self.volumes,
        }
        return [by_kind[resource.type]] if resource.type in by_kind else []

    def _note(self, resource: Resource, obj: Any) -> None:
        for seen in self._seen(resource):
            seen[key_of(obj)] = obj
        if resource == NODES:
            self.sizes.setdefault(obj.metadata.name, []).append(obj)
