"""Pods as the controllers see them: the fields they read, decoded once per change, and an index of all pods."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime

import msgspec

from kubestow.api.core import NodeAffinity
from kubestow.rules.pods import is_terminal
from kubestow.rules.workloads import COMPLETION_INDEX
from kubestow_devcluster.apiserver.storage.store import WatchEvent
from kubestow_devcluster.component_base.stored_objects import OwnerRef, controller_of


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
    pod_ip: str = msgspec.field(name="podIP", default="")


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
    def pod_ip(self) -> str:
        """The pod's address; empty before it has started."""
        return self.status.pod_ip

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
    def completion_index(self) -> int:
        """The completion index of an indexed Job's pod; -1 if the pod has none."""
        text = self.metadata.annotations.get(COMPLETION_INDEX, "")
        return int(text) if text.isdigit() else -1

    @property
    def is_terminating(self) -> bool:
        """Whether the pod has a deletionTimestamp."""
        return bool(self.metadata.deletion_timestamp)

    @property
    def is_finished(self) -> bool:
        """Whether the pod has succeeded or failed."""
        return is_terminal(self.status.phase)

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


def _age(pod: PodView) -> tuple[str, str]:
    """The order of pods from the oldest to the youngest."""
    return pod.metadata.creation_timestamp, pod.name


class ControlledPods:
    """The pods of one controller object, and counts that are kept as pods change."""

    def __init__(self) -> None:
        self._pods: dict[str, PodView] = {}
        #: The number of active pods, and how many of these are ready.
        self.active = self.ready = 0
        #: The pods that are not active any more and have finalizers, and those that are terminating and not finished.
        self._held: dict[str, PodView] = {}
        self._terminating: dict[str, PodView] = {}
        #: The number of pods and of active pods by their labels, which pods of one template have in common.
        self._by_labels: dict[frozenset[tuple[str, str]], tuple[int, int]] = {}
        self._by_completion_index: dict[int, dict[str, PodView]] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[PodView]:
        return iter(self._pods.values())

    def add(self, pod: PodView) -> None:
        self._pods[pod.key] = pod
        if not pod.is_active and pod.metadata.finalizers:
            self._held[pod.key] = pod
        if pod.is_terminating and not pod.is_finished:
            self._terminating[pod.key] = pod
        if (index := pod.completion_index) >= 0:
            self._by_completion_index.setdefault(index, {})[pod.key] = pod
        self._count(pod, 1)

    def remove(self, pod: PodView) -> None:
        del self._pods[pod.key]
        self._held.pop(pod.key, None)
        self._terminating.pop(pod.key, None)
        if (of_index := self._by_completion_index.get(pod.completion_index)) is not None:
            del of_index[pod.key]
            if not of_index:
                del self._by_completion_index[pod.completion_index]
        self._count(pod, -1)

    def held(self) -> list[PodView]:
        """The pods that are not active any more and have finalizers, oldest first."""
        return sorted(self._held.values(), key=_age)

    def terminating(self) -> list[PodView]:
        """The pods that are terminating and have not finished, oldest first."""
        return sorted(self._terminating.values(), key=_age)

    def active_pods(self) -> list[PodView]:
        """The active pods, oldest first; takes time in proportion to all pods."""
        return sorted((pod for pod in self if pod.is_active), key=_age)

    def of_completion_index(self, index: int) -> Collection[PodView]:
        """The pods with a completion index."""
        return self._by_completion_index.get(index, {}).values()

    def label_sets(self) -> Iterator[tuple[dict[str, str], int]]:
        """The different labels of the pods, each with the number of active pods."""
        for labels, (_, active) in self._by_labels.items():
            yield dict(labels), active

    def _count(self, pod: PodView, change: int) -> None:
        labels = frozenset(pod.metadata.labels.items())
        total, active = self._by_labels.get(labels, (0, 0))
        if pod.is_active:
            self.active += change
            self.ready += change * pod.is_ready
            active += change
        self._by_labels[labels] = (total + change, active)
        if not total + change:
            del self._by_labels[labels]


class PodIndexer:
    """All pods of the cluster, indexed by controller, by node and by namespace."""

    def __init__(self) -> None:
        self._pods: dict[str, PodView] = {}
        #: By the controller's kind and key, then by its uid.
        self._controlled: dict[tuple[str, str], dict[str, ControlledPods]] = {}
        #: Pods without a controller, by namespace.
        self._orphans: dict[str, dict[str, PodView]] = {}
        self._by_node: dict[str, dict[str, PodView]] = {}
        self._by_namespace: dict[str, dict[str, PodView]] = {}

    def update(self, event: WatchEvent) -> None:
        """Apply a change of a pod."""
        key = event.object.key
        old = self._pods.pop(key, None)
        if old is not None:
            self._remove_from_controller(old)
            self._by_node.get(old.spec.node_name, {}).pop(key, None)
        by_namespace = self._by_namespace.setdefault(event.object.namespace, {})
        if event.type == "DELETED":
            by_namespace.pop(key, None)
            return
        pod = self._pods[key] = msgspec.json.decode(event.object.data, type=PodView)
        self._add_to_controller(pod)
        if pod.spec.node_name:
            self._by_node.setdefault(pod.spec.node_name, {})[key] = pod
        by_namespace[key] = pod

    def get(self, key: str) -> PodView | None:
        """The pod with this key, ``namespace/name``; None if it does not exist."""
        return self._pods.get(key)

    def controlled_by(self, kind: str, key: str, uid: str = "") -> list[PodView]:
        """The pods of a controller, oldest first; without ``uid`` also those of deleted controllers of this name."""
        by_uid = self._controlled.get((kind, key), {})
        groups = [by_uid[uid]] if uid in by_uid else [] if uid else list(by_uid.values())
        controlled = [pod for group in groups for pod in group]
        return sorted(controlled, key=_age)

    def of_former_controllers(self, kind: str, key: str, uid: str) -> Iterator[PodView]:
        """The pods of controllers of this name with another uid than ``uid``."""
        for other, pods in self._controlled.get((kind, key), {}).items():
            if other != uid:
                yield from list(pods)

    def of_controller(self, kind: str, key: str, uid: str) -> ControlledPods:
        """The pods of a controller with their counts, which cost nothing to read."""
        return self._controlled.get((kind, key), {}).get(uid) or ControlledPods()

    def orphans(self, namespace: str) -> Iterator[PodView]:
        """The pods of a namespace that have no controller."""
        return iter(self._orphans.get(namespace, {}).values())

    def on_node(self, name: str) -> list[PodView]:
        """The pods that are bound to a node, whether the Node object exists or not."""
        return list(self._by_node.get(name, {}).values())

    def in_namespace(self, namespace: str) -> Iterator[PodView]:
        return iter(self._by_namespace.get(namespace, {}).values())

    def _add_to_controller(self, pod: PodView) -> None:
        controller = pod.controller
        if controller is None:
            self._orphans.setdefault(pod.metadata.namespace, {})[pod.key] = pod
            return
        by_uid = self._controlled.setdefault((controller.kind, f"{pod.metadata.namespace}/{controller.name}"), {})
        if controller.uid not in by_uid:
            by_uid[controller.uid] = ControlledPods()
        by_uid[controller.uid].add(pod)

    def _remove_from_controller(self, pod: PodView) -> None:
        controller = pod.controller
        if controller is None:
            del self._orphans[pod.metadata.namespace][pod.key]
            return
        key = (controller.kind, f"{pod.metadata.namespace}/{controller.name}")
        by_uid = self._controlled[key]
        by_uid[controller.uid].remove(pod)
        if not by_uid[controller.uid]:
            del by_uid[controller.uid]
        if not by_uid:
            del self._controlled[key]
