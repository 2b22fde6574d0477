"""Event handlers: what the watch brings goes into the cluster's state and into the queue (semantics 1.6, 6.9).

The handlers are level-triggered. They keep the last known object of every pod and node, so a repeated event changes
nothing, a new list is compared with what is known, and an object that cannot be read is reported once by name while the
others go on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from typing import Any, Protocol

from kubestow.api.core import Namespace, Node, Pod
from kubestow.cluster.cache import Cluster
from kubestow.cluster.events import Action, ClusterEvent
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import InvalidObject
from kubestow.scheduling.events.cluster_events import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    NODE_ADD,
    NODE_DELETE,
    UNSCHEDULABLE_POD_ADD,
    UNSCHEDULABLE_POD_DELETE,
    node_events,
    pod_events,
)
from kubestow.scheduling.events.resources import NAMESPACES, NODES, PODS
from kubestow.scheduling.ports import Resource

__all__ = ["EventHandlers", "Queue"]

_log = logging.getLogger(__name__)

_TERMINAL = frozenset({"Succeeded", "Failed"})

Key = tuple[str, str]


class Queue(Protocol):
    """What is told of pending pods and of events that may help them."""

    def add(self, info: PodInfo) -> None:
        """A pod without a node is there."""

    def update(self, old: PodInfo, new: PodInfo, events: Iterable[ClusterEvent]) -> None:
        """A pod without a node changed, in the ways that ``events`` name."""

    def delete(self, uid: str) -> None:
        """A pod is gone, or has a node now."""

    def move(
        self, event: ClusterEvent, old: Any = None, new: Any = None, *, among: Callable[[PodInfo], bool] | None = None
    ) -> None:
        """An event that may help pods which were refused, those of ``among`` at most."""


class EventHandlers:
    """The scheduler's subscriber to what is ``watched``; ``scheduler_names`` are the profiles whose pods are ours.

    ``on_pod_deleted`` is called when a pod that was assumed on a node is being deleted, ``on_pod_settled`` when a pod
    has a node for good, or is gone; ``on_handled`` is told of each event and how many seconds it took, by the clock
    ``monotonic``.
    """

    def __init__(
        self,
        cluster: Cluster,
        queue: Queue,
        *,
        scheduler_names: Container[str],
        watched: Collection[Resource],
        on_pod_deleted: Callable[[str], None],
        on_synced: Callable[[], None],
        on_news: Callable[[], None],
        on_pod_settled: Callable[[str], None] = lambda uid: None,
        monotonic: Callable[[], float] = lambda: 0.0,
        on_handled: Callable[[str, float], None] = lambda event, seconds: None,
    ) -> None:
        self._cluster = cluster
        self._queue = queue
        self._scheduler_names = scheduler_names
        self._on_pod_deleted, self._on_pod_settled = on_pod_deleted, on_pod_settled
        self._on_synced = on_synced
        self._on_news = on_news
        self._monotonic, self._on_handled = monotonic, on_handled
        #: What the object that is being handled has been found to mean.
        self._meant: list[ClusterEvent] = []
        self._pods: dict[Key, PodInfo] = {}
        self._by_uid: dict[str, PodInfo] = {}
        self._unsynced: set[tuple[str, str, type]] = set()
        self.expect(watched)
        #: What is wrong with objects that cannot be read, by kind and name, for as long as they are there.
        self._reported: dict[tuple[str, str], str] = {}

    def expect(self, resources: Iterable[Resource]) -> None:
        """Everything is there only when these have been listed too."""
        self._unsynced.update((resource.prefix, resource.plural, resource.type) for resource in resources)

    def known(self, uid: str) -> PodInfo | None:
        """The last state of a pod that the API server told, None when it is gone."""
        return self._by_uid.get(uid)

    def pod(self, namespace: str, name: str) -> PodInfo | None:
        """The pod of a name that has not ended, as the API server told it last."""
        return self._pods.get((namespace, name))

    def pods(self) -> Iterable[PodInfo]:
        """Every pod that has not ended, as the API server told it last."""
        return self._pods.values()

    # -- the subscriber's interface --------------------------------------------------------------------------------

    def replace(self, resource: Resource, objects: Sequence[Any]) -> None:
        """A complete list: what is not in it is gone."""
        listed = {(obj.metadata.namespace, obj.metadata.name) for obj in objects}
        for key in [key for key in self._keys(resource) if key not in listed]:
            self._handle(self._gone, resource, key)
        self._forget_reports(resource, listed)
        for obj in objects:
            self._handle(self._there, resource, obj)
        self._unsynced.discard((resource.prefix, resource.plural, resource.type))
        if not self._unsynced:
            self._on_synced()
        self._on_news()

    def apply(self, resource: Resource, event_type: str, obj: Any) -> None:
        """One watch event."""
        if event_type == "DELETED":
            self._handle(self._gone, resource, (obj.metadata.namespace, obj.metadata.name))
        else:
            self._handle(self._there, resource, obj)
        self._on_news()

    def _handle(self, take_in: Callable[[Resource, Any], None], resource: Resource, told: Any) -> None:
        """Take something in; each event that it means is told of, with the time that all of it took."""
        began = self._monotonic()
        take_in(resource, told)
        if self._meant:
            seconds = self._monotonic() - began
            for event in self._meant:
                self._on_handled(event.label, seconds)
            self._meant.clear()

    def unreadable(self, resource: Resource, subject: str, problem: str) -> None:
        """An object that does not decode is as good as not there, but is not silently lost."""
        self._report(resource, subject, problem)

    def _report(self, resource: Resource, subject: str, problem: str) -> None:
        reported = (resource.kind, subject)
        if self._reported.get(reported) != problem:
            self._reported[reported] = problem
            _log.warning("%s %s cannot be read and is left out: %s", *reported, problem)

    def _forget_reports(self, resource: Resource, listed: Collection[Key]) -> None:
        """Objects that are gone may come back, and are then told of once more."""
        there = {_subject(key) for key in listed}
        for kind, subject in list(self._reported):
            if kind == resource.kind and subject not in there:
                del self._reported[kind, subject]

    def _move(self, event: ClusterEvent, old: Any, new: Any, *, among: Callable[[PodInfo], bool] | None = None) -> None:
        self._meant.append(event)
        self._queue.move(event, old, new, among=among)

    # -- by kind ---------------------------------------------------------------------------------------------------

    def _keys(self, resource: Resource) -> list[Key]:
        if resource == PODS:
            return list(self._pods)
        if resource == NODES:
            return [("", name) for name in self._cluster.nodes.names]
        if resource == NAMESPACES:
            return [("", name) for name in self._cluster.namespaces]
        return [(obj.metadata.namespace, obj.metadata.name) for obj in self._cluster.catalog(resource.type)]

    def _there(self, resource: Resource, obj: Any) -> None:
        try:
            if resource == PODS:
                self._pod_there(obj)
            elif resource == NODES:
                self._node_there(obj)
            elif resource == NAMESPACES:
                self._namespace_there(obj)
            else:
                self._object_there(resource, obj)
        except InvalidObject as error:
            self._report(resource, _subject((obj.metadata.namespace, obj.metadata.name)), str(error))

    def _gone(self, resource: Resource, key: Key) -> None:
        self._reported.pop((resource.kind, _subject(key)), None)
        if resource == PODS:
            self._pod_gone(key)
        elif resource == NODES:
            self._node_gone(key[1])
        elif resource == NAMESPACES:
            self._cluster.remove_namespace(key[1])
        else:
            catalog = self._cluster.catalog(resource.type)
            old = catalog.remove(*key)
            if old is not None and catalog.resource is not None:
                self._move(ClusterEvent(catalog.resource, Action.DELETE), old, None)

    def _namespace_there(self, namespace: Namespace) -> None:
        self._cluster.put_namespace(namespace.metadata.name, namespace.metadata.labels)

    def _object_there(self, resource: Resource, obj: Any) -> None:
        catalog = self._cluster.catalog(resource.type)
        old = catalog.put(obj)
        if catalog.resource is not None:
            action = Action.ADD if old is None else Action.UPDATE
            self._move(ClusterEvent(catalog.resource, action), old, obj)

    # -- nodes -----------------------------------------------------------------------------------------------------

    def _node_there(self, node: Node) -> None:
        row = self._cluster.nodes.rows.get(node.metadata.name)
        if row is None:
            self._cluster.add_node(node)
            self._move(NODE_ADD, None, node)
            return
        old = self._cluster.nodes.objects[row]
        self._cluster.update_node(node)
        for event in node_events(old, node):
            self._move(event, old, node)

    def _node_gone(self, name: str) -> None:
        row = self._cluster.nodes.rows.get(name)
        if row is not None:
            self._move(NODE_DELETE, self._cluster.nodes.objects[row], None)
            self._cluster.remove_node(name)

    # -- pods ------------------------------------------------------------------------------------------------------

    def _pod_there(self, pod: Pod) -> None:
        key = (pod.metadata.namespace, pod.metadata.name)
        old = self._pods.get(key)
        if old is not None and old.uid != pod.metadata.uid:
            self._pod_gone(key)  # deleted and created again under the same name
            old = None
        if pod.status.phase in _TERMINAL:
            self._pod_gone(key)
            return
        try:
            info = self._cluster.shapes.info(pod)
        except InvalidObject:
            self._pod_gone(key)
            raise
        self._pods[key] = info
        self._by_uid[info.uid] = info
        has_joined = self._cluster.pod_groups.put(info)
        if info.spec.node_name:
            self._assigned(old, info)
        elif info.spec.scheduler_name in self._scheduler_names:
            self._unassigned(old, info)
        if has_joined:
            self._queue.move(UNSCHEDULABLE_POD_ADD, None, info)

    def _assigned(self, old: PodInfo | None, info: PodInfo) -> None:
        promised = self._cluster.nomination(info.uid)
        self._cluster.put_pod(info)
        if old is None or not old.spec.node_name:
            self._queue.delete(info.uid)
            self._on_pod_settled(info.uid)
            self._move(ASSIGNED_POD_ADD, None, info)
            self.release_nomination(info, promised)
            return
        for event in pod_events(old, info):
            self._move(event, old, info)

    def _unassigned(self, old: PodInfo | None, info: PodInfo) -> None:
        if self._cluster.is_assumed(info.uid):
            if info.terminating and (old is None or not old.terminating):
                self._on_pod_deleted(info.uid)
            return
        if old is not None and old.metadata.resource_version == info.metadata.resource_version:
            return
        self._nominate(old, info)
        if old is None:
            self._meant.append(UNSCHEDULABLE_POD_ADD)
            self._queue.add(info)
        else:
            events = pod_events(old, info)
            self._meant += events
            self._queue.update(old, info, events)
            if old.status.nominated_node_name != info.status.nominated_node_name:
                self.release_nomination(old, old.status.nominated_node_name)

    def _nominate(self, old: PodInfo | None, info: PodInfo) -> None:
        """The pod's own status decides; where it says nothing, a nomination in memory stays (semantics 6.6)."""
        node_name = info.status.nominated_node_name
        if node_name:
            self._cluster.nominate(info, node_name)
        elif old is not None and old.status.nominated_node_name:
            self._cluster.drop_nomination(info.uid)

    def release_nomination(self, info: PodInfo, node_name: str | None) -> None:
        """A pod is not promised a node any more: if it is not on it, there is room for others of no higher priority."""

        def may_have_it(other: PodInfo) -> bool:
            return other.priority <= info.priority and other.uid != info.uid

        if node_name and node_name != info.spec.node_name:
            self._move(ASSIGNED_POD_DELETE, info.on(node_name), None, among=may_have_it)

    def _pod_gone(self, key: Key) -> None:
        old = self._pods.pop(key, None)
        if old is None:
            return
        self._by_uid.pop(old.uid, None)
        self._on_pod_settled(old.uid)
        self._cluster.pod_groups.remove(old.uid)
        if old.spec.node_name:
            self._cluster.remove_pod(old.uid)
            self._move(ASSIGNED_POD_DELETE, old, None)
            return
        self._meant.append(UNSCHEDULABLE_POD_DELETE)
        self._queue.delete(old.uid)
        promised = self._cluster.nomination(old.uid)
        self._cluster.drop_nomination(old.uid)
        if self._cluster.is_assumed(old.uid):
            self._on_pod_deleted(old.uid)
        else:
            self.release_nomination(old, promised)


def _subject(key: Key) -> str:
    return "/".join(part for part in key if part)
