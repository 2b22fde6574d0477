"""The bind verb: with it, the extender's cache has a placement before the watch delivers it."""

from __future__ import annotations

from random import Random

from kubestow.api.extender import BindingArgs
from kubestow.extender.watch_cache import WatchCache
from kubestow.scheduling.api_calls.dispatcher import Dispatcher
from kubestow.scheduling.environment import Environment
from kubestow.scheduling.interfaces import Clock, ClusterAPI, ObjectReference

__all__ = ["ExtenderBinder"]


class ExtenderBinder:
    """Binds pods through the API server and assumes them in the cache."""

    def __init__(self, api: ClusterAPI, cache: WatchCache, *, clock: Clock, random: Random) -> None:
        self._dispatcher = Dispatcher(Environment(api, clock, random), known_pod=cache.known)
        self._cache = cache

    async def bind(self, args: BindingArgs) -> None:
        """Bind a pod. Raises APIError or Unreachable if the pod is not bound."""
        cluster, info = self._cache.cluster, self._cache.known(args.pod_uid)
        assumed = info is not None and cluster.placed_pod(info.uid) is None
        if assumed and info is not None:
            cluster.assume(info, args.node)
        try:
            reference = ObjectReference("Pod", args.pod_namespace, args.pod_name, args.pod_uid)
            await self._dispatcher.bind(reference, args.node)
        except BaseException:
            if assumed and cluster.is_assumed(args.pod_uid):
                cluster.forget(args.pod_uid)
            raise
