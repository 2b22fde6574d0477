"""A pod in the scheduling queue: where it is, and the history of its attempts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.interface import PreEnqueuePlugin

NO_BACKOFF = -1.0
"""The backoff expiration of a pod without a backoff: before any time of the clock, which may start at 0."""


class QueueingStrategy(Enum):
    """What an event means for a rejected pod: kube-scheduler's queueSkip, queueAfterBackoff and queueImmediately."""

    SKIP = "skip"
    AFTER_BACKOFF = "after backoff"
    IMMEDIATELY = "immediately"

    def outranks(self, other: QueueingStrategy) -> bool:
        """Whether it takes a pod to activeQ sooner than another one."""
        return self is QueueingStrategy.IMMEDIATELY and other is not self


class Place(Enum):
    """Where a pod is in the queue."""

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
    backoff_expiration: float = NO_BACKOFF
    #: After an attempt that took too long: when the next one may be made, whatever events help it.
    put_aside_until: float = NO_BACKOFF
    #: The plugins that rejected it, and those that returned Pending.
    rejectors: frozenset[str] = frozenset()
    pending_plugins: frozenset[str] = frozenset()
    #: While it is gated: the PreEnqueue plugins that can gate it, with the pod as it was when they were found.
    gates: tuple[PodInfo, Sequence[PreEnqueuePlugin]] | None = None
    #: The PreEnqueue plugin that gates it, and why.
    gated_by: str = ""
    gate_message: str = ""
    #: Whether it was last requeued only because it had been unschedulable for too long.
    was_flushed: bool = False
    #: Whether an event would have requeued it while it was gated.
    requeue_when_ungated: bool = False
    place: Place = Place.UNSCHEDULABLE
    #: What an event that has helped it means for it, with the event's label, until the pod leaves its place.
    move: tuple[QueueingStrategy, str] | None = None
    #: Distinguishes the newest heap entry from stale ones.
    ticket: int = 0
