"""Pods as the controllers see them: the fields they read, decoded once per change, and an index of all pods."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec

from kubestow.api.core import NodeAffinity
from kubestow.devcluster.apiserver.storage.store import WatchEvent
from kubestow.devcluster.controllers.owner_references import OwnerRef, controller_of

__all__ = ["PodIndexer", "PodView"]


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    namespace: str
    uid: str
    creation_timestamp: str
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerRef, ...] = ()
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


class PodView(msgspec.Struct, frozen=True):
    """The part of a pod that controllers read."""

    metadata: _Metadata
    spec: _Spec
    status: _Status

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def controller(self) -> OwnerRef | None:
        return controller_of(self.metadata.owner_references)

    @property
    def target_node(self) -> str:
        """The node the pod is bound to, or else the one that its node affinity requires by name; empty without any."""
        affinity = self.spec.affinity.node_affinity if self.spec.affinity else None
        required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
        if self.spec.node_name or required is None:
            return self.spec.node_name
        fields = [field for term in required.node_selector_terms for field in term.match_fields]
        return next((field.values[0] for field in fields if field.key == "metadata.name" and field.values), "")

    @property
    def is_terminating(self) -> bool:
        """Whether the pod has a deletionTimestamp."""
        return bool(self.metadata.deletion_timestamp)

    @property
    def is_finished(self) -> bool:
        """Whether the pod has succeeded or failed."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def is_active(self) -> bool:
        return not self.is_terminating and not self.is_finished

    @property
    def is_ready(self) -> bool:
        return any(condition.type == "Ready" and condition.status == "True" for condition in self.status.conditions)

    def seconds_ready(self, now: datetime) -> float:
        """Seconds since the pod became ready; negative if it is not ready."""
        for condition in self.status.conditions:
            if condition.type == "Ready" and condition.status == "True":
                since = datetime.fromisoformat(condition.last_transition_time or self.metadata.creation_timestamp)
                return (now - since).total_seconds()
        return -1.0


class PodIndexer:
    """All pods of the cluster, indexed by controller, by node and by namespace."""

    def __init__(self) -> None:
        self._pods: dict[str, PodView] = {}
        #: By the controller's kind and key; pods in dicts by key.
        self._controlled: dict[tuple[str, str], dict[str, PodView]] = {}
        #: Pods without a controller, by namespace.
        self._orphans: dict[str, dict[str, PodView]] = {}
        self._by_node: dict[str, dict[str, PodView]] = {}
        self._by_namespace: dict[str, dict[str, PodView]] = {}

    def update(self, event: WatchEvent) -> None:
        """Apply a change of a pod."""
        key = event.object.key
        old = self._pods.pop(key, None)
        if old is not None:
            self._by_controller(old).pop(key, None)
            self._by_node.get(old.spec.node_name, {}).pop(key, None)
        by_namespace = self._by_namespace.setdefault(event.object.namespace, {})
        if event.type == "DELETED":
            by_namespace.pop(key, None)
            return
        pod = self._pods[key] = msgspec.json.decode(event.object.data, type=PodView)
        self._by_controller(pod)[key] = pod
        if pod.spec.node_name:
            self._by_node.setdefault(pod.spec.node_name, {})[key] = pod
        by_namespace[key] = pod

    def controlled_by(self, kind: str, key: str, uid: str = "") -> list[PodView]:
        """The pods of a controller, oldest first; without ``uid`` also those of deleted controllers of this name."""
        pods = self._controlled.get((kind, key), {}).values()
        controlled = [pod for pod in pods if not uid or (pod.controller is not None and pod.controller.uid == uid)]
        return sorted(controlled, key=lambda pod: (pod.metadata.creation_timestamp, pod.name))

    def orphans(self, namespace: str) -> Iterator[PodView]:
        """The pods of a namespace that have no controller."""
        return iter(self._orphans.get(namespace, {}).values())

    def on_node(self, name: str) -> list[PodView]:
        """The pods that are bound to a node, whether the Node object exists or not."""
        return list(self._by_node.get(name, {}).values())

    def in_namespace(self, namespace: str) -> Iterator[PodView]:
        return iter(self._by_namespace.get(namespace, {}).values())

    def _by_controller(self, pod: PodView) -> dict[str, PodView]:
        controller = pod.controller
        if controller is None:
            return self._orphans.setdefault(pod.metadata.namespace, {})
        return self._controlled.setdefault((controller.kind, f"{pod.metadata.namespace}/{controller.name}"), {})
