"""Backoff: how long a pod waits after a failed attempt (semantics 6.2)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kubestow.scheduling.queued_pod import NO_BACKOFF, QueuedPod

__all__ = ["BackoffPolicy"]


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    """Backoff that doubles from ``initial`` to ``maximum`` seconds; a maximum of 0 turns it off.

    Expirations are compared in whole seconds, so that pods leave backoff together.
    """

    initial: float = 1.0
    maximum: float = 10.0

    def expiration(self, queued: QueuedPod) -> float:
        """When the pod's backoff ends, in seconds of the clock; NO_BACKOFF without backoff."""
        count = queued.consecutive_errors or queued.unschedulable_count
        if not count or not self.maximum:
            return NO_BACKOFF
        duration = min(self.maximum, self.initial * 2.0 ** min(count - 1, 60))
        return float(math.floor(queued.timestamp + duration))

    @staticmethod
    def is_backing_off(queued: QueuedPod, now: float) -> bool:
        """Whether the pod's backoff has not ended."""
        return queued.backoff_expiration >= math.floor(now)

    @staticmethod
    def flush_time(queued: QueuedPod) -> float:
        """The first moment at which :meth:`is_backing_off` is False."""
        return math.floor(queued.backoff_expiration) + 1.0
