"""Event handlers: list and watch results update the cluster cache and the scheduling queue (semantics 1.6, 6.9).

The handlers are level-triggered. They compare each object with its last known state, so a repeated event changes
nothing and a new list is a set of additions, updates and deletions. An object that cannot be decoded is logged once by
name. It is ignored, unless it is a pod on a node, whose room counts as far as it is known. A handler that fails ends
neither the watch nor the process: the object is logged by name, and its state is made anew.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from kubestow.api.core import Node, Pod
from kubestow.api.meta import ObjectMeta
from kubestow.cluster.cache import Cluster
from kubestow.cluster.changes.events import Action, ClusterEvent
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import InvalidObject
from kubestow.log_fields import fields
from kubestow.rules.minors import DEFAULT_MINOR, Behaviour, Minor
from kubestow.rules.pods import is_terminal
from kubestow.rules.requests import without_invalid_quantities
from kubestow.scheduling.events.cluster_events import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    EVERY_EVENT,
    NODE_ADD,
    NODE_DELETE,
    UNSCHEDULABLE_POD_ADD,
    UNSCHEDULABLE_POD_DELETE,
    node_events,
    pod_events,
)
from kubestow.scheduling.events.pod_store import PodStore
from kubestow.scheduling.events.resources import NAMESPACES, NODES, PODS
from kubestow.scheduling.interfaces import Resource

_log = logging.getLogger(__name__)


Key = tuple[str, str]

#: The phases of a pod that no kubelet has started.
_PENDING = ("", "Pending")


class PendingPods(Protocol):
    """The queue, as far as the handlers use it."""

    def add(self, info: PodInfo) -> bool:
        """Queue a new pending pod. Returns whether a PreEnqueue plugin gates it."""

    def update(self, old: PodInfo, new: PodInfo, events: Iterable[ClusterEvent]) -> None:
        """Update a pending pod; ``events`` name what changed about it."""

    def delete(self, uid: str) -> None:
        """Remove a pod that was deleted or assigned."""

    def move_all_to_active_or_backoff(self, event: ClusterEvent, old: Any = None, new: Any = None) -> None:
        """Requeue the pods that an event may help."""

    def requeue_for_freed_nomination(self, pod: PodInfo, node_name: str | None) -> bool:
        """Requeue the pods that may use a node for which a pod is no longer nominated; whether there is such a node."""


@dataclass(frozen=True, slots=True)
class UnreadableObject:
    """An object that cannot be decoded, or not as a whole; of its metadata at least what identifies it, if known."""

    resource: Resource
    metadata: ObjectMeta
    problem: str


class WatchListener:
    """What else follows from the watch. Does nothing; derive from it. No method may block or raise."""

    def assumed_pod_deleted(self, uid: str) -> None:
        """A pod that is assumed on a node is being deleted."""

    def pod_terminating(self, uid: str) -> None:
        """A pod has got a deletion timestamp."""

    def pod_settled(self, uid: str) -> None:
        """A pod has been assigned or deleted."""

    def synced(self) -> None:
        """Every watched resource has been listed; called again after later lists."""

    def changed(self) -> None:
        """A list or an event has been handled."""

    def event_handled(self, event: str, seconds: float) -> None:
        """A cluster event of this label has been handled, the queue's part included."""

    def handler_failed(self, kind: str) -> None:
        """The handler of an object of this kind has failed, and the state of the object has been made anew."""

    def object_unreadable(self, unreadable: UnreadableObject) -> None:
        """An object cannot be decoded, or not as a whole; called once per object and problem."""


class EventHandlers:
    """The scheduler's subscriber to the ``watched`` resources; it queues pods of the ``scheduler_names``."""

    def __init__(
        self,
        cluster: Cluster,
        pods: PodStore,
        queue: PendingPods,
        *,
        scheduler_names: Container[str],
        watched: Collection[Resource],
        listener: WatchListener,
        duration_clock: Callable[[], float] = lambda: 0.0,
        minor: Minor = DEFAULT_MINOR,
    ) -> None:
        self._cluster, self._pods, self._queue = cluster, pods, queue
        self._scheduler_names = scheduler_names
        self._listener, self._now = listener, duration_clock
        self._counts_nominations_of_gated_pods = minor.has(Behaviour.NOMINATIONS_OF_GATED_PODS_COUNT)
        #: The cluster events raised by the object being handled.
        self._raised: list[ClusterEvent] = []
        self._unlisted: set[tuple[str, str, type]] = set()
        self.expect(watched)
        #: Why objects cannot be decoded, by kind and name, until they are deleted.
        self._undecodable: dict[tuple[str, str], UnreadableObject] = {}

    def expect(self, resources: Iterable[Resource]) -> None:
        """Count as synced only when these have been listed too."""
        self._unlisted.update((resource.prefix, resource.plural, resource.type) for resource in resources)

    # -- the subscriber's interface ------------------------------------------------------------------------------

    def replace(self, resource: Resource, objects: Sequence[Any]) -> None:
        """A complete list: objects that are not in it have been deleted."""
        known = self._known_keys(resource)
        if known or self._undecodable:
            listed = {(obj.metadata.namespace, obj.metadata.name) for obj in objects}
            for key in [key for key in known if key not in listed]:
                self._handle(resource, key, None)
            self.drop_unreadable(resource, listed)
        for obj in objects:
            self._handle(resource, (obj.metadata.namespace, obj.metadata.name), obj)
        self._unlisted.discard((resource.prefix, resource.plural, resource.type))
        if not self._unlisted:
            self._listener.synced()
        self._listener.changed()

    def apply(self, resource: Resource, event_type: str, obj: Any) -> None:
        """One watch event."""
        key = (obj.metadata.namespace, obj.metadata.name)
        self._handle(resource, key, None if event_type == "DELETED" else obj)
        self._listener.changed()

    def unreadable(self, resource: Resource, metadata: ObjectMeta, problem: str) -> None:
        """An object that does not decode, or not as a whole: logged once.

        Nothing else follows here, so of an ignored object a state known before stays until the next list.
        """
        key = (resource.kind, _subject((metadata.namespace, metadata.name or "(no name)")))
        unreadable = UnreadableObject(resource, metadata, problem)
        known = self._undecodable.get(key)
        if known is None or known.problem != problem:
            self._undecodable[key] = unreadable
            _log.warning(
                "%s %s cannot be decoded: %s",
                *key,
                problem,
                extra=fields(kind=key[0], object=key[1], err=problem),
            )
            self._listener.object_unreadable(unreadable)

    def drop_unreadable(self, resource: Resource, listed: Collection[Key]) -> None:
        """Drop what was reported about objects that a list does not contain: should they come back, it is logged."""
        subjects = {_subject(key) for key in listed}
        for kind, subject in list(self._undecodable):
            if kind == resource.kind and subject not in subjects:
                del self._undecodable[kind, subject]

    # -- pods from a source that reports each change once --------------------------------------------------------

    def pod_added(self, pod: Pod) -> None:
        """A pod has been created: what :meth:`apply` does, without comparisons for a pod that is plainly pending.

        Unlike it, this and the next two methods report no cluster events to the listener, and raise what a plugin or
        the cluster cache raises.
        """
        status = pod.status
        if pod.spec.node_name or status.nominated_node_name or status.phase not in _PENDING or _is_deleted(pod):
            self.apply(PODS, "ADDED", pod)
            return
        try:
            info = self._cluster.shapes.info(pod)
        except InvalidObject:
            self.apply(PODS, "ADDED", pod)
            return
        self._pods.put(info)
        has_joined_group = self._cluster.observe_pod(info)
        if pod.spec.scheduler_name in self._scheduler_names:
            self._enqueue(info)
        if has_joined_group:
            self._queue.move_all_to_active_or_backoff(UNSCHEDULABLE_POD_ADD, None, info)

    def pod_bound(self, info: PodInfo) -> None:
        """A pending pod is on a node now, and has not changed otherwise in a way that matters to scheduling."""
        self._pods.put(info)
        has_joined_group = self._cluster.observe_pod(info)
        self._put_assigned_pod(None, info)
        if has_joined_group:
            self._queue.move_all_to_active_or_backoff(UNSCHEDULABLE_POD_ADD, None, info)
        self._raised.clear()

    def pod_deleted(self, namespace: str, name: str) -> None:
        """A pod has been deleted, or has ended."""
        self._delete_pod((namespace, name))
        self._raised.clear()

    # -- handling one object -------------------------------------------------------------------------------------

    def _handle(self, resource: Resource, key: Key, obj: Any) -> None:
        """Handle a new state of an object, None if it was deleted.

        Each cluster event that this raises is reported with the time that the handler took.
        """
        began = self._now()
        try:
            if obj is None:
                self._deleted(resource, key)
            else:
                self._put(resource, obj)
        except Exception:
            self._recover(resource, key, obj)
        if self._raised:
            seconds = self._now() - began
            for event in self._raised:
                self._listener.event_handled(event.label, seconds)
            self._raised.clear()

    def _recover(self, resource: Resource, key: Key, obj: Any) -> None:
        """Make the state of an object anew after its handler has failed; to be called while the error is handled.

        The object is removed from everything that knows it and added again, each step by itself, and every pending pod
        is tried again, because the events of the object may not have reached the queue.
        """
        _log.exception(
            "the event handler failed for %s %s; its state is made anew",
            resource.kind,
            _subject(key),
            extra=fields(kind=resource.kind, object=_subject(key)),
        )
        self._listener.handler_failed(resource.kind)
        steps = self._removal(resource, key)
        if obj is not None:
            steps += self._addition(resource, obj)
        steps.append(partial(self._queue.move_all_to_active_or_backoff, EVERY_EVENT))
        for step in steps:
            try:
                step()
            except Exception:
                _log.exception(
                    "the state of %s %s may be wrong from now on",
                    resource.kind,
                    _subject(key),
                    extra=fields(kind=resource.kind, object=_subject(key)),
                )

    def _removal(self, resource: Resource, key: Key) -> list[Callable[[], object]]:
        """The steps that remove an object from everything that may know it."""
        if resource == NODES:
            return [partial(self._cluster.remove_node, key[1])] if key[1] in self._cluster.nodes.rows else []
        if resource == NAMESPACES:
            return [partial(self._cluster.remove_namespace, key[1])]
        if resource != PODS:
            return [partial(self._cluster.catalog(resource.type).remove, *key)]
        old = self._pods.named(*key)
        if old is None:
            return []
        by_uid: tuple[Callable[[str], object], ...] = (
            self._queue.delete,
            self._listener.pod_settled,
            self._cluster.end_pod,
            self._cluster.drop_nomination,
            self._cluster.remove_pod,
        )
        return [partial(self._pods.remove, *key), *(partial(step, old.uid) for step in by_uid)]

    def _addition(self, resource: Resource, obj: Any) -> list[Callable[[], object]]:
        """The steps that add an object after its removal."""
        if resource == NODES:
            return [partial(self._cluster.add_node, obj)]
        if resource == NAMESPACES:
            return [partial(self._cluster.put_namespace, obj.metadata.name, obj.metadata.labels)]
        if resource != PODS:
            return [partial(self._cluster.catalog(resource.type).put, obj)]
        if is_terminal(obj.status.phase):
            return []
        try:
            info = self._cluster.shapes.info(obj)
        except Exception:  # what the handler has failed with
            return []
        steps: list[Callable[[], object]] = [partial(self._pods.put, info), partial(self._cluster.observe_pod, info)]
        if info.spec.node_name:
            return [*steps, partial(self._cluster.put_pod, info)]
        if info.spec.scheduler_name in self._scheduler_names:
            return [*steps, partial(self._update_nomination, None, info), partial(self._enqueue, info)]
        return steps

    def _move(self, event: ClusterEvent, old: Any, new: Any) -> None:
        self._raised.append(event)
        self._queue.move_all_to_active_or_backoff(event, old, new)

    def _requeue_for_freed_nomination(self, pod: PodInfo, node_name: str | None) -> None:
        if self._queue.requeue_for_freed_nomination(pod, node_name):
            self._raised.append(ASSIGNED_POD_DELETE)

    @property
    def unreadable_objects(self) -> list[UnreadableObject]:
        """The objects that cannot be decoded, or not as a whole."""
        return list(self._undecodable.values())

    def undecodable_counts(self) -> Counter[str]:
        """The number of objects that cannot be decoded, or not as a whole, by kind."""
        return Counter(kind for kind, _ in self._undecodable)

    # -- by kind -------------------------------------------------------------------------------------------------

    def _known_keys(self, resource: Resource) -> list[Key]:
        if resource == PODS:
            return self._pods.names()
        if resource == NODES:
            return [("", name) for name in self._cluster.nodes.names]
        if resource == NAMESPACES:
            return [("", name) for name in self._cluster.namespaces]
        return [(obj.metadata.namespace, obj.metadata.name) for obj in self._cluster.catalog(resource.type)]

    def _put(self, resource: Resource, obj: Any) -> None:
        try:
            if resource == PODS:
                self._put_pod(obj)
            elif resource == NODES:
                self._put_node(obj)
            elif resource == NAMESPACES:
                self._cluster.put_namespace(obj.metadata.name, obj.metadata.labels)
            else:
                catalog = self._cluster.catalog(resource.type)
                old = catalog.put(obj)
                if catalog.resource is not None:
                    action = Action.ADD if old is None else Action.UPDATE
                    self._move(ClusterEvent(catalog.resource, action), old, obj)
        except InvalidObject as error:
            self.unreadable(resource, obj.metadata, f"{error}; it is ignored")

    def _deleted(self, resource: Resource, key: Key) -> None:
        self._undecodable.pop((resource.kind, _subject(key)), None)
        if resource == PODS:
            self._delete_pod(key)
        elif resource == NODES:
            if (row := self._cluster.nodes.rows.get(key[1])) is not None:
                self._move(NODE_DELETE, self._cluster.nodes.objects[row], None)
                self._cluster.remove_node(key[1])
        elif resource == NAMESPACES:
            self._cluster.remove_namespace(key[1])
        else:
            catalog = self._cluster.catalog(resource.type)
            old = catalog.remove(*key)
            if old is not None and catalog.resource is not None:
                self._move(ClusterEvent(catalog.resource, Action.DELETE), old, None)

    # -- nodes ---------------------------------------------------------------------------------------------------

    def _put_node(self, node: Node) -> None:
        row = self._cluster.nodes.rows.get(node.metadata.name)
        if row is None:
            self._cluster.add_node(node)
            self._move(NODE_ADD, None, node)
            return
        old = self._cluster.nodes.objects[row]
        self._cluster.update_node(node)
        for event in node_events(old, node):
            self._move(event, old, node)

    # -- pods ----------------------------------------------------------------------------------------------------

    def _put_pod(self, pod: Pod) -> None:
        key = (pod.metadata.namespace, pod.metadata.name)
        namesake, old = self._pods.named(*key), self._pods.get(pod.metadata.uid)
        if namesake is not None and namesake is not old:
            self._delete_pod(key)  # deleted and created again under the same name
        if old is not None and not _is_update(old, pod):
            self._delete_pod((old.namespace, old.name))
            old = None
        if is_terminal(pod.status.phase):
            self._delete_pod(key)
            return
        try:
            info = self._cluster.shapes.info(pod, old)
        except InvalidObject as error:
            if not pod.spec.node_name:
                self._delete_pod(key)
                raise
            self.unreadable(PODS, pod.metadata, f"{error}; the rest of it counts")
            info = self._cluster.shapes.info(without_invalid_quantities(pod))
        self._pods.put(info)
        if info.terminating and (old is None or not old.terminating):
            self._listener.pod_terminating(info.uid)
        has_joined_group = self._cluster.observe_pod(info)
        if info.spec.node_name:
            self._put_assigned_pod(old, info)
        elif info.spec.scheduler_name in self._scheduler_names:
            self._put_pending_pod(old, info)
        if has_joined_group:
            self._queue.move_all_to_active_or_backoff(UNSCHEDULABLE_POD_ADD, None, info)

    def _put_assigned_pod(self, old: PodInfo | None, info: PodInfo) -> None:
        nominated = self._cluster.nomination(info.uid)
        self._cluster.put_pod(info)
        if old is None or not old.spec.node_name:
            self._queue.delete(info.uid)
            self._listener.pod_settled(info.uid)
            self._move(ASSIGNED_POD_ADD, None, info)
            self._requeue_for_freed_nomination(info, nominated)
            return
        for event in pod_events(old, info):
            self._move(event, old, info)

    def _put_pending_pod(self, old: PodInfo | None, info: PodInfo) -> None:
        if self._cluster.is_assumed(info.uid):
            if info.terminating and (old is None or not old.terminating):
                self._listener.assumed_pod_deleted(info.uid)
            return
        if old is not None and old.metadata.resource_version == info.metadata.resource_version:
            return
        self._update_nomination(old, info)
        if old is None:
            self._raised.append(UNSCHEDULABLE_POD_ADD)
            self._enqueue(info)
        else:
            events = pod_events(old, info)
            self._raised += events
            self._queue.update(old, info, events)
            self._requeue_for_former_nomination(old, info)

    def _requeue_for_former_nomination(self, old: PodInfo, info: PodInfo) -> None:
        """Requeue the pods that may use the node for which the status of a pod no longer nominates it."""
        if old.status.nominated_node_name != info.status.nominated_node_name:
            self._requeue_for_freed_nomination(old, old.status.nominated_node_name)

    def _enqueue(self, info: PodInfo) -> None:
        if self._queue.add(info) and not self._counts_nominations_of_gated_pods:
            self._cluster.drop_nomination(info.uid)

    def _update_nomination(self, old: PodInfo | None, info: PodInfo) -> None:
        """The status decides; without a nomination there, one in memory stays, for the new pod (semantics 6.6)."""
        node_name: str | None = info.status.nominated_node_name
        if not node_name and (old is None or not old.status.nominated_node_name):
            node_name = self._cluster.nomination(info.uid)
        if node_name:
            self._cluster.nominate(info, node_name)
        else:
            self._cluster.drop_nomination(info.uid)

    def _delete_pod(self, key: Key) -> None:
        old = self._pods.remove(*key)
        if old is None:
            return
        self._listener.pod_settled(old.uid)
        self._cluster.end_pod(old.uid)
        if old.spec.node_name:
            self._cluster.remove_pod(old.uid)
            self._move(ASSIGNED_POD_DELETE, old, None)
            return
        self._queue.delete(old.uid)
        if old.spec.scheduling_gates:  # other pods of its group may have waited for it
            self._move(UNSCHEDULABLE_POD_DELETE, old, None)
        else:
            self._raised.append(UNSCHEDULABLE_POD_DELETE)
        nominated = self._cluster.nomination(old.uid)
        self._cluster.drop_nomination(old.uid)
        if self._cluster.is_assumed(old.uid):
            self._listener.assumed_pod_deleted(old.uid)
        else:
            self._requeue_for_freed_nomination(old, nominated)


def _is_update(old: PodInfo, new: Pod) -> bool:
    """Whether a state of a pod can follow another one of the same uid; if not, the pod is handled as a new one.

    An API server changes neither the name of a pod nor its scheduler, and a pod keeps its node. A restored or faulty
    one may do so.
    """
    if (old.namespace, old.name) != (new.metadata.namespace, new.metadata.name):
        return False
    if new.spec.node_name:
        return True
    return not old.spec.node_name and old.spec.scheduler_name == new.spec.scheduler_name


def _is_deleted(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None


def _subject(key: Key) -> str:
    return "/".join(part for part in key if part)
