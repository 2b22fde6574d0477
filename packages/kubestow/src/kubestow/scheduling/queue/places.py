"""The places of the scheduling queue, how long pods back off, and the pods in flight.

    activeQ         ready to be scheduled, in the order of the QueueSort plugin
    backoffQ        rejected by a plugin, until its backoff ends, or until nothing else is ready and its turn comes
    error backoffQ  without a plugin that rejected it (an error, no nodes, a failed binding), or after an attempt that
                    took too long, until its backoff ends; never tried early
    unschedulable   rejected, until an event that one of the rejecting plugins registered may help it
    gated           rejected by a PreEnqueue plugin, until an event that this plugin registered

Every queued pod is in exactly one of them; :mod:`.gating` and :mod:`.moves` move pods between them. A pod that has been
popped is in flight, with the cluster events since then (semantics 6.7).
"""

from __future__ import annotations

import heapq
import itertools
import logging
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any

from kubestow.cluster.changes.events import ClusterEvent
from kubestow.framework.runtime.queueing_runtime import QueueingRuntime
from kubestow.log_fields import fields
from kubestow.scheduling.observer import Observer
from kubestow.scheduling.queue.budget import EarlyTries, NamespaceDebts
from kubestow.scheduling.queue.unschedulable import UnschedulablePods
from kubestow.scheduling.queued_pod import NO_BACKOFF, Place, QueuedPod

_log = logging.getLogger(__name__)

#: The places as the observer names them; gated pods count as unschedulable when they enter.
_ACTIVE, _BACKOFF, _UNSCHEDULABLE = "active", "backoff", "unschedulable"
#: A heap with fewer entries than this is not compacted.
_MIN_COMPACTED = 64
#: The rank of every pod once ranks have proved not to be comparable.
_UNRANKED = (1, 0.0)
#: Fewer subqueues than this are not looked through for empty ones.
_MIN_PRUNED = 64
#: Ready pods of namespaces in debt that one pop passes over, and that return to their order at once, at most.
_PASSED_OVER_AT_ONCE = 500
#: Events that no pod in flight needs any more are dropped once there are this many and half of them can go.
_COMPACTION_THRESHOLD = 1024


def count_failures(queued: QueuedPod) -> int:
    """The errors in a row that a pod's last attempts ended with, or else how many attempts ended unschedulable."""
    return queued.consecutive_errors or queued.unschedulable_count


def count_attempts(queued: QueuedPod) -> int:
    """All attempts, whatever they ended with; errors of PreEnqueue, which are no attempts, count too."""
    return max(queued.attempts, queued.consecutive_errors)


@dataclass(frozen=True)
class BackoffPolicy:
    """Backoff that doubles from ``initial`` to ``maximum`` seconds; a maximum of 0 turns it off (semantics 6.2).

    Expirations are compared in whole seconds, so that pods leave backoff together. ``count`` is how often it doubles,
    plus one.
    """

    initial: float = 1.0
    maximum: float = 10.0
    count: Callable[[QueuedPod], int] = count_failures

    def expiration(self, queued: QueuedPod) -> float:
        """When the pod's backoff ends, in seconds of the clock; NO_BACKOFF without backoff."""
        count = self.count(queued)
        if not count or not self.maximum:
            return NO_BACKOFF
        return self._rounded(queued.timestamp + min(self.maximum, self.initial * 2.0 ** min(count - 1, 60)))

    @staticmethod
    def _rounded(expiration: float) -> float:
        return float(math.floor(expiration))

    def is_backing_off(self, queued: QueuedPod, now: float) -> bool:
        """Whether the pod's backoff has not ended."""
        return queued.backoff_expiration >= math.floor(now)

    def flush_time(self, queued: QueuedPod) -> float:
        """When the pod leaves backoffQ at the end of its backoff, in seconds of the clock."""
        return math.floor(queued.backoff_expiration) + 1.0


class ExactBackoffPolicy(BackoffPolicy):
    """Backoff without the gate SchedulerPopFromBackoffQ: it ends to the moment; pods leave backoffQ once a second."""

    @staticmethod
    def _rounded(expiration: float) -> float:
        return expiration

    def is_backing_off(self, queued: QueuedPod, now: float) -> bool:
        return queued.backoff_expiration > now

    def flush_time(self, queued: QueuedPod) -> float:
        return float(math.ceil(queued.backoff_expiration))


class PodHeap:
    """The pods of one place, ordered by the end of their backoff, then by rank, then first in, first out.

    Removing a pod leaves its entry in the heap as a stale one, dropped when it reaches the top. A standby scheduler
    pops nothing while pods are added and removed, so the heap is also compacted whenever it has doubled. Ranks are keys
    of the QueueSort plugin; if they turn out not to be comparable, the heap stops using them.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._entries: list[tuple[float, Any, int, QueuedPod]] = []
        #: How many entries there may be before the heap is compacted.
        self._limit = _MIN_COMPACTED
        self._is_ranked = True

    def __bool__(self) -> bool:
        """Whether there is a pod."""
        return bool(self._entries) and self.peek() is not None

    def push(self, rank: Any, ticket: int, queued: QueuedPod, *, until: float = 0.0) -> None:
        """Move a pod here from wherever it was; ``ticket`` must be greater than any before."""
        queued.place, queued.ticket = self._place, ticket
        self._change(heapq.heappush, (until, rank if self._is_ranked else _UNRANKED, ticket, queued))
        if len(self._entries) > self._limit:
            self._entries = [entry for entry in self._entries if self._is_current(entry)]
            self._change(heapq.heapify)
            self._limit = max(_MIN_COMPACTED, 2 * len(self._entries))

    def _is_current(self, entry: tuple[float, Any, int, QueuedPod]) -> bool:
        _, _, ticket, queued = entry
        return queued.place is self._place and queued.ticket == ticket

    def peek(self) -> QueuedPod | None:
        """The first pod; None when there is none."""
        while self._entries:
            if self._is_current(self._entries[0]):
                return self._entries[0][3]
            self._change(heapq.heappop)
        return None

    @property
    def first_until(self) -> float:
        """The end of the backoff of the first pod, in seconds of the clock; infinity when there is none."""
        return math.inf if self.peek() is None else self._entries[0][0]

    def pop(self) -> QueuedPod | None:
        """Remove and return the first pod; None when there is none."""
        while self._entries:
            first = self._entries[0]
            try:
                heapq.heappop(self._entries)
            except Exception:
                self._stop_ranking()
            if self._is_current(first):
                return first[3]
        return None

    def _change(self, change: Callable[..., Any], *entry: Any) -> None:
        try:
            change(self._entries, *entry)
        except Exception:
            self._stop_ranking()

    def _stop_ranking(self) -> None:
        """Order pods by arrival, after a heapq operation that failed halfway: it lost no entry, only their order."""
        _log.exception(
            "keys of the QueueSort plugin cannot be compared; pods are ordered by arrival from now on",
            extra=fields(pods=len(self._entries)),
        )
        self._is_ranked = False
        self._entries = [(until, _UNRANKED, ticket, queued) for until, _, ticket, queued in self._entries]
        heapq.heapify(self._entries)


class Subqueues:
    """activeQ in subqueues: a heap for each, and the QueueSort plugin names the next one at every pop.

    A heap keeps the order that its keys had when they were pushed. Subqueues are for orders that depend on what has
    been scheduled meanwhile, such as the shares of queues (:class:`kubestow.framework.interface.SubqueueOrder`).
    ``sort`` is the runtime of the QueueSort plugin.
    """

    def __init__(self, sort: QueueingRuntime) -> None:
        self._sort = sort
        self._heaps: dict[Hashable, PodHeap] = {}
        #: How many subqueues there may be before those without pods are dropped.
        self._limit = _MIN_PRUNED

    def __len__(self) -> int:
        """How many subqueues there are, some of which may have lost their pods."""
        return len(self._heaps)

    def __bool__(self) -> bool:
        """Whether there is a pod."""
        while self._heaps:
            subqueue, heap = next(iter(self._heaps.items()))
            if heap:
                return True
            del self._heaps[subqueue]
        return False

    def push(self, rank: Any, ticket: int, queued: QueuedPod) -> None:
        """Move a pod here from wherever it was; ``ticket`` must be greater than any before."""
        subqueue = self._sort.subqueue_of(queued.info)
        heap = self._heaps.get(subqueue)
        if heap is None:
            heap = self._heaps[subqueue] = PodHeap(Place.ACTIVE)
            self._sort.subqueue_opened(subqueue)
        heap.push(rank, ticket, queued)
        if len(self._heaps) > self._limit:  # a standby scheduler pops nothing while pods are added and removed
            self._heaps = {name: other for name, other in self._heaps.items() if other}
            self._limit = max(_MIN_PRUNED, 2 * len(self._heaps))

    def pop(self) -> QueuedPod | None:
        """Remove and return the first pod of the subqueue that is next; None when there is no pod."""
        while self._heaps:
            subqueue = self._sort.first_subqueue(self._heaps.keys())
            heap = self._heaps[subqueue]
            queued = heap.pop()
            if not heap:
                del self._heaps[subqueue]
            if queued is not None:
                return queued
        return None


class QueuePlaces:
    """The queued pods by place. ``on_change`` is called when a pod becomes ready or starts to back off.

    ``sort`` is the runtime of the QueueSort plugin. Adding a pod to a place removes it from the heap that it was in;
    from ``unschedulable`` the caller has to remove it first. ``pops_from_backoff``: pods in backoffQ are tried early
    while no other pod is ready.
    """

    def __init__(
        self,
        sort: QueueingRuntime,
        unschedulable: UnschedulablePods,
        *,
        backoff: BackoffPolicy,
        observer: Observer,
        on_change: Callable[[], None],
        pops_from_backoff: bool = True,
    ) -> None:
        #: All queued pods by uid; those in flight are not among them.
        self.pods: dict[str, QueuedPod] = {}
        #: The unschedulable and gated pods of these that no event has helped yet.
        self.unschedulable = unschedulable
        self.backoff_policy = backoff
        self._sort, self._observer, self._on_change = sort, observer, on_change
        self._tickets = itertools.count(1)
        self._active = Subqueues(sort) if sort.has_subqueues else PodHeap(Place.ACTIVE)
        #: The ready pods that have been passed over, ordered by the end of their namespace's debt.
        self._passed_over = PodHeap(Place.ACTIVE)
        #: The ready pods of namespaces that are held back, ordered by the end of that.
        self._held_back = PodHeap(Place.ACTIVE)
        self.debts = NamespaceDebts()
        self.early_tries = EarlyTries()
        self._backoff = PodHeap(Place.BACKOFF)
        self._error_backoff = PodHeap(Place.ERROR_BACKOFF)
        #: All that back off; those of the first heap come first.
        self._backing_off = [self._backoff, self._error_backoff]
        #: The pods that are tried before their backoff ends: those in backoffQ, or none.
        self._tried_early = self._backoff if pops_from_backoff else PodHeap(Place.BACKOFF)

    def has_ready(self, now: float) -> bool:
        """Whether a pod can be popped, or could be after more have been passed over."""
        return bool(self._active) or bool(self._passed_over) or self.next_early_try() <= now

    def counts(self) -> dict[Place, int]:
        """How many pods are in each place."""
        counts = dict.fromkeys(Place, 0)
        for queued in self.pods.values():
            counts[queued.place] += 1
        return counts

    # -- entering the queue, and a place of it -----------------------------------------------------------------------

    def add(self, queued: QueuedPod) -> None:
        """Add a pod to the queue, where it enters a place next."""
        self.pods[queued.info.uid] = queued

    def enter_active(self, queued: QueuedPod, event: str, now: float) -> None:
        """Make a pod ready; ``event`` is the label of the cause."""
        if queued.initial_attempt is None:
            queued.initial_attempt = now
        self.push_active(queued)
        self._observer.pod_enqueued(_ACTIVE, event)
        self._on_change()

    def push_active(self, queued: QueuedPod) -> None:
        """Push a pod onto activeQ, where its sort key belongs; one that is there already moves."""
        self._active.push(self._sort.sort_key(queued), next(self._tickets), queued)

    def enter_backoff(self, queued: QueuedPod, event: str) -> None:
        """Have a pod back off until its ``backoff_expiration``.

        It does so in error backoffQ if no plugin rejected it, or if its last attempt took too long.
        """
        is_put_aside = queued.put_aside_until >= queued.backoff_expiration
        is_tried_early = (queued.rejectors or queued.pending_plugins) and not is_put_aside
        heap = self._backoff if is_tried_early else self._error_backoff
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

    def pop(self, now: float) -> QueuedPod | None:
        """Take the first pod of activeQ, or one that is tried early (semantics 6.3); None when none is ready.

        Pods of namespaces in debt are passed over, hundreds at a time, and left to :meth:`pop_in_debt`; those of
        namespaces that are held back wait for the end of that.
        """
        if self.debts:
            for _ in range(_PASSED_OVER_AT_ONCE):
                queued = self._active.pop()
                if queued is None or not (self._hold_back(queued, now) or self._pass_over_in_debt(queued, now)):
                    break
            else:
                return None
        else:
            queued = self._active.pop()
        if queued is not None or self._passed_over:
            self.early_tries.begin(None)
            return queued
        queued = self._pop_early(now)
        self.early_tries.begin(queued)
        return queued

    def next_early_try(self) -> float:
        """When a pod may be tried before its backoff has ended, in seconds of the clock; infinity if there is none."""
        return self.early_tries.next_time if self._tried_early else math.inf

    def _pop_early(self, now: float) -> QueuedPod | None:
        """Take the first pod to try early whose namespace is not held back; None if none is found within hundreds."""
        if now < self.early_tries.next_time:
            return None
        for _ in range(_PASSED_OVER_AT_ONCE):
            queued = self._tried_early.pop()
            if queued is None:
                return None
            self._observer.pod_enqueued(_ACTIVE, "PopFromBackoffQ")
            if not (self.debts and self._hold_back(queued, now)):
                return queued
        return None

    def take(self, queued: QueuedPod) -> None:
        """Take a pod out of the queue that is in flight from now on; an entry of it in a heap becomes a stale one."""
        del self.pods[queued.info.uid]
        queued.place = Place.IN_FLIGHT

    def pop_in_debt(self) -> QueuedPod | None:
        """Take the first pod that was passed over; None while others are ready, or may be."""
        return None if self._active else self._passed_over.pop()

    def _hold_back(self, queued: QueuedPod, now: float) -> bool:
        """Have a ready pod wait if its namespace is held back; whether it is."""
        end = self.debts.hold_end(queued.info.namespace, now)
        if end is None:
            return False
        self._held_back.push(self._sort.sort_key(queued), next(self._tickets), queued, until=end)
        return True

    def _pass_over_in_debt(self, queued: QueuedPod, now: float) -> bool:
        """Have a ready pod wait behind others if its namespace is in debt; whether it is."""
        end = self.debts.end_of(queued.info.namespace, now)
        if end is None:
            return False
        self._passed_over.push(self._sort.sort_key(queued), next(self._tickets), queued, until=end)
        return True

    def end_debts(self, now: float) -> None:
        """Return ready pods to their order whose namespace is no longer in debt or held back, some hundreds at once."""
        for heap, wait in ((self._held_back, self._hold_back), (self._passed_over, self._pass_over_in_debt)):
            for _ in range(_PASSED_OVER_AT_ONCE):
                if not heap or heap.first_until > now:
                    break
                queued = heap.pop()
                if queued is not None and not wait(queued, now):
                    self.push_active(queued)

    @property
    def next_debt_end(self) -> float:
        """When :meth:`end_debts` returns a pod that was held back, in seconds of the clock; infinity for never."""
        return self._held_back.first_until

    def pop_backed_off(self, now: float) -> QueuedPod | None:
        """Take a pod whose backoff has ended; None when there is none."""
        for heap in self._backing_off:
            head = heap.peek()
            if head is not None and self.backoff_policy.flush_time(head) <= now:
                return heap.pop()
        return None

    def next_backoff_end(self) -> float:
        """When :meth:`pop_backed_off` returns a pod at the earliest, in seconds of the clock; infinity for never."""
        heads = (heap.peek() for heap in self._backing_off)
        return min((self.backoff_policy.flush_time(head) for head in heads if head is not None), default=math.inf)

    def remove(self, queued: QueuedPod) -> None:
        """Remove a pod from the queue."""
        self.unschedulable.remove(queued.info.uid)
        del self.pods[queued.info.uid]
        queued.ticket, queued.move = 0, None


@dataclass(frozen=True, slots=True)
class InFlightEvent:
    """An event with the object before and after. ``only`` is the uid of the one pod that it concerns, "" for any."""

    event: ClusterEvent
    old: Any
    new: Any
    only: str = ""


class PodsInFlight:
    """The pods in flight by uid, and the events since the first of them was popped.

    An event cannot requeue a pod that is in flight, yet the pod's attempt may end in a rejection that the event has
    already resolved. Events are therefore kept while any pod is in flight that was popped before them, and replayed
    when that pod returns to the queue.
    """

    def __init__(self) -> None:
        self._events: list[InFlightEvent] = []
        #: How many events have been dropped from the front of the list; positions include them.
        self._dropped = 0
        #: When each pod was popped, as a position in the event list; in that order.
        self._popped_at: dict[str, int] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._popped_at

    def __len__(self) -> int:
        return len(self._popped_at)

    def uids(self) -> list[str]:
        """The uids of the pods, in the order in which they were popped."""
        return list(self._popped_at)

    def counts(self) -> Counter[str]:
        """How many events are kept, by label; each pop counts as an event of its own."""
        counts = Counter(kept.event.label for kept in self._events)
        if self._popped_at:
            counts["PodPopped"] = len(self._popped_at)
        return counts

    def add(self, uid: str) -> None:
        """A pod has been popped; it was not in flight."""
        self._popped_at[uid] = self._dropped + len(self._events)

    def keep(self, event: ClusterEvent, old: Any = None, new: Any = None, *, only: str = "") -> None:
        """Keep an event for the pods in flight, or for the ``only`` one of this uid."""
        if self._popped_at:
            self._events.append(InFlightEvent(event, old, new, only))

    def since(self, uid: str) -> Iterator[InFlightEvent]:
        """The events since a pod was popped that concern it; none for a pod that is not in flight."""
        position = self._popped_at.get(uid)
        if position is not None:
            yield from (kept for kept in self._events[position - self._dropped :] if kept.only in ("", uid))

    def done(self, uid: str) -> None:
        """A pod is no longer in flight; no further events are kept for it."""
        self._popped_at.pop(uid, None)
        unneeded = len(self._events)
        if self._popped_at:
            if unneeded <= _COMPACTION_THRESHOLD:
                return
            unneeded = next(iter(self._popped_at.values())) - self._dropped
            if unneeded <= _COMPACTION_THRESHOLD // 2:
                return
        del self._events[:unneeded]
        self._dropped += unneeded
