"""The bind verb of an extender, which has a placement in the cache before the watch delivers it.

As in the scheduler, a pod whose binding the watch does not confirm is read.
"""

from __future__ import annotations

import logging
from random import Random

from kubestow.api.extender import BindingArgs
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.log_fields import fields
from kubestow.scheduling.api_calls.dispatcher import PodBinder
from kubestow.scheduling.cycle.binding_confirmation import UnconfirmedBindings
from kubestow.scheduling.environment import Environment
from kubestow.scheduling.events.watch_cache import WatchCache
from kubestow.scheduling.interfaces import Clock, ClusterAPI, ObjectReference

_log = logging.getLogger(__name__)


class ExtenderBinder:
    """Binds pods through the API server and assumes them in the cache until the watch confirms the binding."""

    def __init__(self, api: ClusterAPI, cache: WatchCache, *, clock: Clock, random: Random) -> None:
        self._binder = PodBinder(Environment(api, clock, random))
        self._cache = cache
        self._unconfirmed = UnconfirmedBindings[tuple[PodInfo, str]](
            cache.cluster, self._binder, clock, on_misplaced=self._correct
        )
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
        if info is not None and assumed:
            self._unconfirmed.add(info, args.node, (info, args.node))

    def _correct(self, binding: tuple[PodInfo, str], actual: str | None) -> None:
        """Correct the place of a pod that is not on its node."""
        (info, node_name), cluster = binding, self._cache.cluster
        where = "gone" if actual is None else f"on node {actual}" if actual else "not bound"
        text = "The binding of pod %s to node %s had succeeded; it is %s"
        _log.warning(text, info.key, node_name, where, extra=fields(pod=info.key, node=node_name))
        cluster.forget(info.uid)
        if actual:
            cluster.assume(info, actual)
