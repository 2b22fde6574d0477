"""The scheduler's state: what the API server says of pods, the cluster as the scheduler assumes it, and the queue."""

from __future__ import annotations

from dataclasses import dataclass

from kubestow.cluster.cache import Cluster
from kubestow.scheduling.events.pod_store import PodStore
from kubestow.scheduling.queue.scheduling_queue import SchedulingQueue

__all__ = ["SchedulerState"]


@dataclass(frozen=True, slots=True)
class SchedulerState:
    """The three places that hold pods: ``cluster`` those on nodes, ``queue`` the pending ones, ``pods`` all of them."""

    cluster: Cluster
    pods: PodStore
    queue: SchedulingQueue
