"""The bind verb of an extender, which has a placement in the cache before the watch delivers it.

As in the scheduler, a pod whose binding the watch does not confirm is read.
"""

from __future__ import annotations

import logging
from random import Random

from kubestow.api.extender import BindingArgs
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import APIError, Unreachable
from kubestow.log_fields import fields
from kubestow.rules.pods import is_terminal
from kubestow.scheduling.api_calls.dispatcher import PodBinder
from kubestow.scheduling.cycle.binding_confirmation import UnconfirmedBindings
from kubestow.scheduling.environment import Environment
from kubestow.scheduling.events.watch_cache import WatchCache
from kubestow.scheduling.interfaces import Clock, ClusterAPI, ObjectReference, reference

_log = logging.getLogger(__name__)


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

    async def _read(self, binding: tuple[PodInfo, str]) -> bool:
        """Read a pod, and correct its place if it is not on its node; False if that must be repeated."""
        info, node_name = binding
        extra = fields(pod=info.key, node=node_name)
        try:
            current = await self._binder.read(reference(info))
        except (APIError, Unreachable) as error:
            _log.warning("The binding of pod %s is unconfirmed: %s", info.key, error, extra=extra)
            return False
        cluster, placed = self._cache.cluster, self._cache.cluster.placed_pod(info.uid)
        if placed is None or not placed.assumed or placed.node_name != node_name:
            return True  # settled while it was read
        actual = None if current is None or is_terminal(current.status.phase) else current.spec.node_name
        if actual == node_name:
            _log.info("The watch has not shown the binding of pod %s for half a minute", info.key, extra=extra)
            return False
        where = "gone" if actual is None else f"on node {actual}" if actual else "not bound"
        _log.warning(
            "The binding of pod %s to node %s had succeeded; it is %s", info.key, node_name, where, extra=extra
        )
        cluster.forget(info.uid)
        if actual:
            cluster.assume(info, actual)
        return True
