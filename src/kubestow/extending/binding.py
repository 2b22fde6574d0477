"""Binding pods for the scheduler that asked: with it an extender knows of a placement before the watch tells it."""

from __future__ import annotations

from random import Random

from kubestow.api.extender import BindingArgs
from kubestow.extending.mirror import Mirror
from kubestow.scheduling.environment import Environment
from kubestow.scheduling.ports import Clock, ClusterAPI, ObjectReference
from kubestow.scheduling.writes.dispatcher import Dispatcher

__all__ = ["Binding"]


class Binding:
    """Binds through a cluster API and takes the placement as done meanwhile."""

    def __init__(self, api: ClusterAPI, mirror: Mirror, *, clock: Clock, random: Random) -> None:
        self._dispatcher = Dispatcher(Environment(api, clock, random), known_pod=mirror.known)
        self._mirror = mirror

    async def bind(self, asked: BindingArgs) -> None:
        """Bind a pod. Raises APIError or Unreachable; then it is not bound there."""
        cluster, info = self._mirror.cluster, self._mirror.known(asked.pod_uid)
        assumed = info is not None and cluster.placed_pod(info.uid) is None
        if assumed and info is not None:
            cluster.assume(info, asked.node)
        try:
            reference = ObjectReference("Pod", asked.pod_namespace, asked.pod_name, asked.pod_uid)
            await self._dispatcher.bind(reference, asked.node)
        except BaseException:
            if assumed and cluster.is_assumed(asked.pod_uid):
                cluster.forget(asked.pod_uid)
            raise
