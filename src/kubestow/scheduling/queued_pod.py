"""A pod in the scheduling queue: where it is, and the history of its attempts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kubestow.cluster.pods.shapes import PodInfo

__all__ = ["Place", "QueuedPod"]


class Place(Enum):
    """Where a pod is in the queue; the values are labels of the pending_pods metric."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    ERROR_BACKOFF = "error backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"
    IN_FLIGHT = "in flight"


@dataclass(slots=True, eq=False)
class QueuedPod:
    """A pod and its history in the queue, kube-scheduler's QueuedPodInfo. Times are seconds of the injected clock."""

    info: PodInfo
    #: When it entered the queue, or when its last attempt failed.
    timestamp: float
    attempts: int = 0
    #: When the current attempt began.
    attempt_began: float = 0.0
    #: When it first became schedulable.
    initial_attempt: float | None = None
    #: How many attempts ended unschedulable, and how many in a row with an error; both determine the backoff.
    unschedulable_count: int = 0
    consecutive_errors: int = 0
    backoff_expiration: float = 0.0
    #: The plugins that rejected it, and those that returned Pending.
    rejectors: frozenset[str] = frozenset()
    pending: frozenset[str] = frozenset()
    #: The PreEnqueue plugin that gates it.
    gated_by: str = ""
    #: Whether it was last requeued only because it had been unschedulable for too long.
    was_flushed: bool = False
    #: Whether an event would have requeued it while it was gated.
    requeue_when_ungated: bool = False
    place: Place = Place.UNSCHEDULABLE
    #: Distinguishes the newest heap entry from stale ones.
    ticket: int = 0
