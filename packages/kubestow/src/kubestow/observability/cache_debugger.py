"""The cache debugger: on SIGUSR2, the scheduler cache and the queue in the log, and a comparison with the API server.

It is kube-scheduler's CacheDebugger, with the same information. A difference is no fault in itself: watch events may be
on their way, and an assumed pod is on its node before the API server knows it. One that stays is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping

from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import KubestowError
from kubestow.log_fields import fields
from kubestow.scheduling.events.resources import NODES, PODS
from kubestow.scheduling.interfaces import Resource
from kubestow.scheduling.scheduler import Scheduler

_log = logging.getLogger(__name__)

#: The names (with the namespace, if there is one) of the objects of a collection, by uid.
ListNames = Callable[[Resource], Awaitable[Mapping[str, str]]]
#: Records between two turns of the event loop.
_BATCH = 100


class CacheDebugger:
    """Debugs the cache of one scheduler; ``list_names`` reads the API server, and raises KubestowError."""

    def __init__(self, scheduler: Scheduler, list_names: ListNames) -> None:
        self._scheduler, self._list_names = scheduler, list_names

    async def run(self) -> None:
        """Compare the cache with the API server, then dump it and the queue to the log."""
        await self.compare()
        await self.dump()

    async def compare(self) -> None:
        """Log the nodes and pods that only the API server or only the cache has. A failure is logged, too."""
        try:
            nodes, pods = await self._list_names(NODES), await self._list_names(PODS)
        except KubestowError as error:
            _log.warning("Unable to compare the cache with the API server", extra=fields(err=str(error)))
            return
        _log.info("Cache comparer started")
        cluster = self._scheduler.cluster
        cached_nodes = {name: name for name in cluster.nodes.names}
        _log_mismatch("Nodes", {name: name for name in nodes.values()}, cached_nodes)
        # The pods in the cache, those in the queue, and those of other schedulers that wait for a node.
        placed = [info for on_node in cluster.nodes.pods for info in on_node.values()]
        unplaced = [info for info in self._scheduler.pods.pods() if cluster.placed_pod(info.uid) is None]
        _log_mismatch("Pods", pods, {info.uid: info.key for info in (*placed, *unplaced)})
        _log.info("Cache comparer finished")

    async def dump(self) -> None:
        """Log every node with its pods, and every pod in the queue, with one record each."""
        nodes = self._scheduler.cluster.nodes
        names = list(nodes.names)
        _log.info("Dump of cached NodeInfo", extra=fields(nodes=len(names), pods=self._scheduler.cluster.pod_count))
        for number, name in enumerate(names, 1):
            row = nodes.rows.get(name)  # a node may be deleted between two batches
            if row is not None:
                _log.info("Cached node", extra=fields(node=name, **self._node(row)))
            if number % _BATCH == 0:
                await asyncio.sleep(0)
        queue = self._scheduler.queue
        counts = {place.value: count for place, count in queue.counts().items()}
        _log.info("Dump of scheduling queue", extra=fields(summary=counts))
        for number, queued in enumerate(list(queue.pods.values()), 1):
            _log.info("Pending pod", extra=fields(pod=self._pod(queued.info), place=queued.place.value))
            if number % _BATCH == 0:
                await asyncio.sleep(0)

    def _node(self, row: int) -> dict[str, object]:
        cluster = self._scheduler.cluster
        nodes = cluster.nodes
        nominated = cluster.nominated_pods(nodes.names[row])
        return {
            "requested": dict(nodes.requested.at(row)),
            "allocatable": dict(nodes.allocatable.at(row)),
            "scheduledPods": [self._pod(info) for info in nodes.pods[row].values()],
            "nominatedPods": [self._pod(info) for info in nominated],
        }

    def _pod(self, info: PodInfo) -> dict[str, str]:
        nominated = self._scheduler.cluster.nomination(info.uid) or ""
        return {"name": info.name, "namespace": info.namespace, "uid": info.uid, "nominatedNode": nominated}


def _log_mismatch(kind: str, actual: Mapping[str, str], cached: Mapping[str, str]) -> None:
    missed, redundant = _only_in(actual, cached), _only_in(cached, actual)
    if missed or redundant:
        pairs = {f"missed{kind}": missed, f"redundant{kind}": redundant}
        _log.warning("Cache mismatch", extra=fields(**pairs))


def _only_in(these: Mapping[str, str], others: Collection[str]) -> list[str]:
    return sorted(f"{name} ({uid})" if uid != name else name for uid, name in these.items() if uid not in others)
