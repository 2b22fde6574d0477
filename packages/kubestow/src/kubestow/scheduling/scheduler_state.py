"""The state of a scheduler: where its pods are. The cycles, preemption and failure handling share it."""

from __future__ import annotations

from dataclasses import dataclass

from kubestow.cluster.cache import Cluster
from kubestow.scheduling.events.pod_store import PodStore
from kubestow.scheduling.queue.scheduling_queue import SchedulingQueue


@dataclass(frozen=True, slots=True)
class SchedulerState:
    """What holds pods: ``cluster`` those on nodes, ``queue`` the pending ones, ``pods`` all of them."""

    cluster: Cluster
    pods: PodStore
    queue: SchedulingQueue
