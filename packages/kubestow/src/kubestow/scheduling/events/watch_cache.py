"""A cluster cache that a watch keeps up to date without a scheduler: an extender's, and that of a shadow.

With an API server, all nodes and pods are cached, as in the scheduler. Without one, an extender's cache holds the nodes
of the last request and no pods.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

from msgspec import Raw

from kubestow.api.core import Namespace, Node
from kubestow.api.meta import ObjectMeta, decode
from kubestow.cluster.cache import Cluster
from kubestow.cluster.changes.events import ClusterEvent
from kubestow.cluster.pods.pod_groups import PodGroupAPI
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.config import FeatureGates
from kubestow.scheduling.events.handlers import EventHandlers, WatchListener
from kubestow.scheduling.events.pod_store import PodStore
from kubestow.scheduling.events.resources import NAMESPACES, NODES, PODS, watched_always
from kubestow.scheduling.interfaces import Resource


class WatchCache(EventHandlers):
    """A cluster cache, filled by a watch (as its subscriber) or by :meth:`set_nodes`."""

    def __init__(self, pod_group_apis: Iterable[PodGroupAPI] = (), *, gates: FeatureGates | None = None) -> None:
        gates = gates or FeatureGates()
        self.cluster, self._pods = Cluster(pod_group_apis, gates=gates), PodStore()
        #: What is watched in any case.
        self.watched = watched_always(gates)
        self.synced = False
        #: Called once, when all initial lists have been received.
        self.on_synced: Callable[[], None] = lambda: None
        #: Called with the uid of a pod that the watch shows as bound or deleted.
        self.on_pod_settled: Callable[[str], None] = lambda uid: None
        super().__init__(
            self.cluster,
            self._pods,
            _NoQueue(),
            scheduler_names=_AnySchedulerName(),
            watched=self.watched,
            listener=_CacheListener(self),
        )

    def known(self, uid: str) -> PodInfo | None:
        """The pod with this UID as last received from the API server, or None."""
        return self._pods.get(uid)

    def observed(self, resource: Resource, key: tuple[str, str]) -> Any:
        """An object (namespace, name) as last received; of a namespace only name and labels. None if there is none."""
        if resource == PODS:
            info = self._pods.named(*key)
            return None if info is None else info.pod
        if resource == NODES:
            row = self.cluster.nodes.rows.get(key[1])
            return None if row is None else self.cluster.nodes.objects[row]
        if resource == NAMESPACES:
            labels = self.cluster.namespaces.get(key[1])
            return None if labels is None else Namespace(metadata=ObjectMeta(name=key[1], labels=dict(labels)))
        return self.cluster.catalog(resource.type).as_observed(*key)

    def keys(self, resource: Resource) -> list[tuple[str, str]]:
        """Namespace and name of every object of a resource."""
        return self._known_keys(resource)

    def restore(self, resource: Resource, key: tuple[str, str], obj: Any) -> None:
        """Put an object into a former state; None for one that was not there."""
        self._handle(resource, key, obj)

    def set_nodes(self, nodes: Mapping[str, Raw]) -> None:
        """Replace all nodes, given by name as JSON. Raises InvalidObject.

        Unchanged nodes are only decoded and invalidate no cached results.
        """
        decoded = {name: decode(Node, data) for name, data in nodes.items()}
        table = self.cluster.nodes
        for name in [name for name in table.names if name not in decoded]:
            self.cluster.remove_node(name)
        for name, node in decoded.items():
            row = table.rows.get(name)
            if row is None:
                self.cluster.add_node(node)
            elif table.objects[row] != node:
                self.cluster.update_node(node)


class _NoQueue:
    """Takes the place of the scheduling queue: always empty."""

    def add(self, info: PodInfo) -> bool:
        return False

    def update(self, old: PodInfo, new: PodInfo, events: Iterable[ClusterEvent]) -> None:
        pass

    def delete(self, uid: str) -> None:
        pass

    def move_all_to_active_or_backoff(self, event: ClusterEvent, old: Any = None, new: Any = None) -> None:
        pass

    def requeue_for_freed_nomination(self, pod: PodInfo, node_name: str | None) -> bool:
        return False


class _CacheListener(WatchListener):
    """Forgets assumed pods that are deleted, passes settled pods on, and marks the cache as synced."""

    def __init__(self, cache: WatchCache) -> None:
        self._cache = cache

    def assumed_pod_deleted(self, uid: str) -> None:
        self._cache.cluster.forget(uid)

    def pod_settled(self, uid: str) -> None:
        self._cache.on_pod_settled(uid)

    def synced(self) -> None:
        if not self._cache.synced:
            self._cache.synced = True
            self._cache.on_synced()


class _AnySchedulerName(Container[str]):
    """Nominated pods of every scheduler are tracked."""

    def __contains__(self, name: object) -> bool:
        return True
