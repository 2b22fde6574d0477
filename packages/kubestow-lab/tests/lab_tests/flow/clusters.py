"""Small clusters with the scheduler that places pods on them."""

from __future__ import annotations

from collections.abc import Iterable

from kubestow.api.core import Node, Pod
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.offline_scheduler import OfflineScheduler, SchedulerOptions


def scheduler_of(nodes: Iterable[Node], pods: Iterable[Pod] = ()) -> OfflineScheduler:
    """A scheduler with default plugins on these nodes, with these pods placed."""
    return OfflineScheduler(ClusterObjects.of(nodes, pods), SchedulerOptions(), without=None)


def infos(scheduler: OfflineScheduler, *pods: Pod) -> list[PodInfo]:
    """Pods as the scheduler sees them."""
    return [scheduler.cache.shapes.info(pod) for pod in pods]
