"""A pod in the scheduling queue: where it waits, and what it has been through."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kubestow.cluster.pods.shapes import PodInfo

__all__ = ["Place", "QueuedPod"]


class Place(Enum):
    """Where a pod waits; the values are the labels of the pending_pods metric."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    ERROR_BACKOFF = "error backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"
    IN_FLIGHT = "in flight"


@dataclass(slots=True, eq=False)
class QueuedPod:
    """A pod and its history in the queue. Times are seconds of the injected clock."""

    info: PodInfo
    timestamp: float
    attempts: int = 0
    #: When the attempt under way began.
    attempt_began: float = 0.0
    initial_attempt: float | None = None
    unschedulable_count: int = 0
    consecutive_errors: int = 0
    backoff_expiration: float = 0.0
    rejectors: frozenset[str] = frozenset()
    pending: frozenset[str] = frozenset()
    gated_by: str = ""
    #: Whether it has been tried again only because it had waited so long.
    was_flushed: bool = False
    #: Whether something happened that is worth a try, and only a PreEnqueue plugin is in the way.
    held_up: bool = False
    place: Place = Place.UNSCHEDULABLE
    #: Tells the newest entry in a heap from stale ones.
    ticket: int = 0
