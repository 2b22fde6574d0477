"""The state of a scheduler: where its pods are. The cycles, preemption and failure handling share it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kubestow.cluster.cache import Cluster
from kubestow.scheduling.events.pod_store import PodStore
from kubestow.scheduling.interfaces import Resource
from kubestow.scheduling.queue.scheduling_queue import SchedulingQueue


@dataclass(frozen=True, slots=True)
class SchedulerState:
    """What holds pods: ``cluster`` those on nodes, ``queue`` the pending ones, ``pods`` all of them."""

    cluster: Cluster
    pods: PodStore
    queue: SchedulingQueue


@dataclass(frozen=True, slots=True)
class ListedState:
    """What a scheduler knows of a cluster once everything has been listed, before its first decision.

    Another scheduler with the same feature gates can begin with it, whatever its configuration, if it watches the same
    resources (``watched``), its plugins follow pods by way of the cluster cache, and no pod is pending.
    """

    cluster: Cluster
    pods: PodStore
    watched: Sequence[Resource]
