"""The places of the scheduling queue, and how long pods back off.

    activeQ         ready to be scheduled, in the order of the QueueSort plugin
    backoffQ        rejected by a plugin, until its backoff ends (or until nothing else is ready)
    error backoffQ  the same after an internal error
    unschedulable   rejected, until an event that one of the rejecting plugins registered may help it
    gated           rejected by a PreEnqueue plugin, until an event that this plugin registered

Every queued pod is in exactly one of them; :mod:`.gating` and :mod:`.moves` move pods between them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

from kubestow.framework.queueing_runtime import QueueingRuntime
from kubestow.scheduling.observer import Observer
from kubestow.scheduling.queue.heaps import PodHeap, Subqueues
from kubestow.scheduling.queue.unschedulable import UnschedulablePods
from kubestow.scheduling.queued_pod import NO_BACKOFF, Place, QueuedPod

#: The places as the observer names them; gated pods count as unschedulable when they enter.
_ACTIVE, _BACKOFF, _UNSCHEDULABLE = "active", "backoff", "unschedulable"


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    """Backoff that doubles from ``initial`` to ``maximum`` seconds; a maximum of 0 turns it off (semantics 6.2).

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


class QueuePlaces:
    """The queued pods by place. ``on_change`` is called when a pod becomes ready or starts to back off.

    ``sort`` is the runtime of the QueueSort plugin. Adding a pod to a place removes it from the heap that it was in;
    from ``unschedulable`` the caller has to remove it first.
    """

    def __init__(
        self,
        sort: QueueingRuntime,
        unschedulable: UnschedulablePods,
        *,
        backoff: BackoffPolicy,
        observer: Observer,
        on_change: Callable[[], None],
    ) -> None:
        #: All queued pods by uid; those in flight are not among them.
        self.pods: dict[str, QueuedPod] = {}
        #: The unschedulable and gated pods of these that no event has helped yet.
        self.unschedulable = unschedulable
        self.backoff_policy = backoff
        self._sort, self._observer, self._on_change = sort, observer, on_change
        self._tickets = itertools.count(1)
        self._active = Subqueues(sort) if sort.has_subqueues else PodHeap(Place.ACTIVE)
        self._backoff = PodHeap(Place.BACKOFF)
        self._error_backoff = PodHeap(Place.ERROR_BACKOFF)

    @property
    def has_ready(self) -> bool:
        """Whether :meth:`pop` would return a pod."""
        return bool(self._active) or bool(self._backoff)

    def counts(self) -> dict[Place, int]:
        """How many pods are in each place."""
        counts = dict.fromkeys(Place, 0)
        for queued in self.pods.values():
            counts[queued.place] += 1
        return counts

    # -- entering a place ------------------------------------------------------------------------------------------

    def enter_active(self, queued: QueuedPod, event: str, now: float) -> None:
        """Make a pod ready; ``event`` is the label of the cause."""
        if queued.initial_attempt is None:
            queued.initial_attempt = now
        self.reorder_active(queued)
        self._observer.pod_enqueued(_ACTIVE, event)
        self._on_change()

    def reorder_active(self, queued: QueuedPod) -> None:
        """Put a pod in activeQ where its sort key belongs."""
        self._active.push(self._sort.sort_key(queued), next(self._tickets), queued)

    def enter_backoff(self, queued: QueuedPod, event: str) -> None:
        """Have a pod back off until its ``backoff_expiration``: in error backoffQ if no plugin rejected it."""
        heap = self._backoff if queued.rejectors or queued.pending else self._error_backoff
        self._back_off_in(heap, queued)
        self._observer.pod_enqueued(_BACKOFF, event)
        self._on_change()

    def enter_error_backoff(self, queued: QueuedPod, event: str = "") -> None:
        """Have a pod back off as after an error, whatever rejected it before; reported only with an event."""
        self._back_off_in(self._error_backoff, queued)
        if event:
            self._observer.pod_enqueued(_BACKOFF, event)
        self._on_change()

    def _back_off_in(self, heap: PodHeap, queued: QueuedPod) -> None:
        heap.push(self._sort.sort_key(queued), next(self._tickets), queued, until=queued.backoff_expiration)

    def enter_unschedulable(self, queued: QueuedPod, event: str) -> None:
        """Have a pod wait for an event."""
        queued.place, queued.ticket = Place.UNSCHEDULABLE, next(self._tickets)
        self.unschedulable.add(queued)
        self._observer.pod_enqueued(_UNSCHEDULABLE, event)

    def enter_gated(self, queued: QueuedPod, event: str, *, is_held: bool) -> None:
        """Have a pod wait for its gate; ``is_held`` as in :class:`~.unschedulable.CohortKey`."""
        if queued.place is not Place.GATED:
            queued.place, queued.ticket = Place.GATED, next(self._tickets)
            self._observer.pod_enqueued(_UNSCHEDULABLE, event)
        queued.rejectors |= {queued.gated_by}
        self.unschedulable.add(queued, is_held=is_held)

    # -- leaving the queue, or a backoff -----------------------------------------------------------------------------

    def pop(self) -> QueuedPod | None:
        """Take the first pod of activeQ, or of backoffQ if there is none (semantics 6.3); None when none is ready."""
        queued = self._active.pop()
        if queued is None:
            queued = self._backoff.pop()
            if queued is None:
                return None
            self._observer.pod_enqueued(_ACTIVE, "PopFromBackoffQ")
        return queued

    def pop_backed_off(self, now: float) -> QueuedPod | None:
        """Take a pod whose backoff has ended; None when there is none."""
        for heap in (self._backoff, self._error_backoff):
            head = heap.peek()
            if head is not None and not self.backoff_policy.is_backing_off(head, now):
                return heap.pop()
        return None

    def next_backoff_end(self) -> float:
        """When :meth:`pop_backed_off` returns a pod at the earliest, in seconds of the clock; infinity for never."""
        heads = (heap.peek() for heap in (self._backoff, self._error_backoff))
        return min((self.backoff_policy.flush_time(head) for head in heads if head is not None), default=math.inf)

    def remove(self, queued: QueuedPod) -> None:
        """Remove a pod from the queue."""
        self.unschedulable.remove(queued.info.uid)
        del self.pods[queued.info.uid]
        queued.ticket, queued.move = 0, None
