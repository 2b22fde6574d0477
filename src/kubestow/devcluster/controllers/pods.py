"""Pods as controllers see them: few fields, decoded once per change, and found by the object that controls them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec

from kubestow.api.core import NodeAffinity
from kubestow.devcluster.apiserver.storage.store import Event
from kubestow.devcluster.controllers.owners import Owner, controller_among

__all__ = ["Pod", "Pods"]


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    namespace: str
    uid: str
    creation_timestamp: str
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[Owner, ...] = ()
    deletion_timestamp: str = ""


class _Affinity(msgspec.Struct, frozen=True, rename="camel"):
    node_affinity: NodeAffinity | None = None


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""
    affinity: _Affinity | None = None


class _Condition(msgspec.Struct, frozen=True, rename="camel"):
    type: str
    status: str
    reason: str = ""
    last_transition_time: str | None = None


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = "Pending"
    conditions: tuple[_Condition, ...] = ()


class Pod(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: _Spec
    status: _Status

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def controller(self) -> Owner | None:
        return controller_among(self.metadata.owner_references)

    @property
    def target(self) -> str:
        """The node it is on, or the one that its affinity demands by name; empty for a pod that may go to several."""
        affinity = self.spec.affinity.node_affinity if self.spec.affinity else None
        required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
        if self.spec.node_name or required is None:
            return self.spec.node_name
        fields = [field for term in required.node_selector_terms for field in term.match_fields]
        return next((field.values[0] for field in fields if field.key == "metadata.name" and field.values), "")

    @property
    def is_deleted(self) -> bool:
        return bool(self.metadata.deletion_timestamp)

    @property
    def is_finished(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def is_active(self) -> bool:
        return not self.is_deleted and not self.is_finished

    @property
    def is_ready(self) -> bool:
        return any(one.type == "Ready" and one.status == "True" for one in self.status.conditions)

    def ready_for(self, now: datetime) -> float:
        """Seconds since the pod became ready; negative when it is not."""
        for condition in self.status.conditions:
            if condition.type == "Ready" and condition.status == "True":
                since = datetime.fromisoformat(condition.last_transition_time or self.metadata.creation_timestamp)
                return (now - since).total_seconds()
        return -1.0


class Pods:
    """Every pod by its controller, named (kind, ``namespace/name``), or else by namespace; and by its node."""

    def __init__(self) -> None:
        self._pods: dict[str, Pod] = {}
        self._controlled: dict[tuple[str, str], dict[str, Pod]] = {}
        self._free: dict[str, dict[str, Pod]] = {}
        self._on_nodes: dict[str, dict[str, Pod]] = {}
        self._by_namespace: dict[str, dict[str, Pod]] = {}

    def observe(self, event: Event) -> tuple[Pod | None, Pod | None]:
        """Take note of a change; what the pod was and what it is."""
        key = event.object.key
        before = self._pods.pop(key, None)
        if before is not None:
            self._shelf(before).pop(key, None)
            self._on_nodes.get(before.spec.node_name, {}).pop(key, None)
        neighbours = self._by_namespace.setdefault(event.object.namespace, {})
        if event.type == "DELETED":
            neighbours.pop(key, None)
            return before, None
        pod = self._pods[key] = msgspec.json.decode(event.object.data, type=Pod)
        self._shelf(pod)[key] = pod
        if pod.spec.node_name:
            self._on_nodes.setdefault(pod.spec.node_name, {})[key] = pod
        neighbours[key] = pod
        return before, pod

    def controlled(self, kind: str, key: str, uid: str = "") -> list[Pod]:
        """The pods of a controller, the oldest first; with ``uid`` only those of this one of several of that name."""
        found = self._controlled.get((kind, key), {}).values()
        chosen = [pod for pod in found if not uid or (pod.controller is not None and pod.controller.uid == uid)]
        return sorted(chosen, key=lambda pod: (pod.metadata.creation_timestamp, pod.name))

    def free(self, namespace: str) -> Iterator[Pod]:
        """The pods that nobody controls."""
        return iter(self._free.get(namespace, {}).values())

    def on_node(self, name: str) -> list[Pod]:
        """The pods that are bound to a node, whether it exists or not."""
        return list(self._on_nodes.get(name, {}).values())

    def within(self, namespace: str) -> Iterator[Pod]:
        """All pods of a namespace."""
        return iter(self._by_namespace.get(namespace, {}).values())

    def _shelf(self, pod: Pod) -> dict[str, Pod]:
        owner = pod.controller
        if owner is None:
            return self._free.setdefault(pod.metadata.namespace, {})
        return self._controlled.setdefault((owner.kind, f"{pod.metadata.namespace}/{owner.name}"), {})
