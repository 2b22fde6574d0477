"""The cluster state of an extender, and the bind verb, which has a placement in it before the watch delivers it.

With an API server, all nodes and pods are cached from a watch, as in the scheduler. Without one, the cache holds the
nodes of the last request and no pods. As in the scheduler, a pod whose binding the watch does not confirm is read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Mapping
from random import Random
from typing import Any

from msgspec import Raw

from kubestow.api.core import Node
from kubestow.api.extender import BindingArgs
from kubestow.api.meta import decode
from kubestow.cluster.cache import Cluster
from kubestow.cluster.changes.events import ClusterEvent
from kubestow.cluster.pods.pod_groups import PodGroupAPI
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.config import FeatureGates
from kubestow.errors import APIError
from kubestow.log_fields import fields
from kubestow.scheduling.api_calls.dispatcher import PodBinder
from kubestow.scheduling.cycle.binding_confirmation import UnconfirmedBindings
from kubestow.scheduling.environment import Environment
from kubestow.scheduling.events.handlers import EventHandlers, WatchListener
from kubestow.scheduling.events.pod_store import PodStore
from kubestow.scheduling.events.resources import watched_always
from kubestow.scheduling.interfaces import Clock, ClusterAPI, ObjectReference, reference

_log = logging.getLogger(__name__)


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
    """The scheduling queue of an extender: always empty."""

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


class ExtenderBinder:
    """Binds pods through the API server and assumes them in the cache until the watch confirms the binding."""

    def __init__(self, api: ClusterAPI, cache: WatchCache, *, clock: Clock, random: Random) -> None:
        self._binder = PodBinder(Environment(api, clock, random))
        self._cache = cache
        self._unconfirmed = UnconfirmedBindings(self._read, clock)
        cache.on_pod_settled = self._unconfirmed.pod_settled

    async def bind(self, args: BindingArgs) -> None:
        """Bind a pod. Raises APIError or Unreachable if the pod is not bound."""
        cluster, info = self._cache.cluster, self._cache.known(args.pod_uid)
        assumed = info is not None and cluster.placed_pod(info.uid) is None
        if assumed and info is not None:
            cluster.assume(info, args.node)
        try:
            reference = ObjectReference("Pod", args.pod_namespace, args.pod_name, args.pod_uid)
            await self._binder.post_binding(reference, args.node)
        except BaseException:
            if assumed and cluster.is_assumed(args.pod_uid):
                cluster.forget(args.pod_uid)
            raise
        if info is not None and assumed and cluster.is_assumed(info.uid):
            self._unconfirmed.add(info.uid, (info, args.node))

    async def _read(self, binding: tuple[PodInfo, str]) -> None:
        """Read a pod, and correct its place if it is not on its node."""
        info, node_name = binding
        extra = fields(pod=info.key, node=node_name)
        try:
            current = await self._binder.read(reference(info))
        except APIError as error:
            _log.warning("The binding of pod %s is unconfirmed: %s", info.key, error, extra=extra)
            return
        cluster, placed = self._cache.cluster, self._cache.cluster.placed_pod(info.uid)
        if placed is None or not placed.assumed or placed.node_name != node_name:
            return  # settled while it was read
        actual = None if current is None else current.spec.node_name
        if actual == node_name:
            _log.info("The watch has not shown the binding of pod %s for half a minute", info.key, extra=extra)
            return
        where = "deleted" if actual is None else f"on node {actual}" if actual else "not bound"
        _log.warning(
            "The binding of pod %s to node %s had succeeded; it is %s", info.key, node_name, where, extra=extra
        )
        cluster.forget(info.uid)
        if actual:
            cluster.assume(info, actual)
