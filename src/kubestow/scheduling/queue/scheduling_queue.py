"""The scheduling queue (semantics 6).

A pod that waits is in exactly one place:

    active          ready, in the order of the QueueSort plugin
    backoff         refused a moment ago, to be tried again when its backoff is over (or when nothing else is ready)
    error backoff   the same after an internal error
    unschedulable   refused, waiting for an event that one of the plugins that refused it thinks could help;
                    also pods that a PreEnqueue plugin keeps gated

or it is in flight: popped and not done yet. Events that happen meanwhile are kept and replayed when the pod comes back
(:mod:`kubestow.scheduling.queue.in_flight`), so that none is lost. The queue does no waiting itself: time comes from the
injected clock, and whoever drives it calls :meth:`SchedulingQueue.flush` when :meth:`next_flush` says so.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kubestow.cluster.events import Action, ClusterEvent, EventResource
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.status import Code, Status
from kubestow.scheduling.events.cluster_events import UNSCHEDULABLE_POD_ADD
from kubestow.scheduling.observer import Observer
from kubestow.scheduling.ports import Clock
from kubestow.scheduling.queue.heap import PodHeap
from kubestow.scheduling.queue.hints import Concerned, QueueingHints, Requeue
from kubestow.scheduling.queue.in_flight import Happened, PodsInFlight
from kubestow.scheduling.queue.queued_pod import Place, QueuedPod

__all__ = ["UNSCHEDULABLE_TIMEOUT", "SchedulingQueue"]

UNSCHEDULABLE_TIMEOUT = ClusterEvent(EventResource.WILDCARD, Action.ALL)
"""The event of having waited too long: worth a try whatever refused the pod."""

#: Decides whether a pod may enter the active queue: None, or the name of the plugin that keeps it out, and its status.
Gate = Callable[[PodInfo], tuple[str, Status] | None]

_FLUSH_PERIOD = 30.0

_POD_ADDED = UNSCHEDULABLE_POD_ADD.label
#: What an observer calls the parts of the queue; gated pods count as unschedulable when they come in.
_ACTIVE, _BACKOFF, _UNSCHEDULABLE = "active", "backoff", "unschedulable"


class SchedulingQueue:
    """All pods that want a node. ``on_change`` is called when a pod became ready, or will without any event."""

    def __init__(
        self,
        *,
        sort_key: Callable[[QueuedPod], Any],
        hints: QueueingHints,
        gate: Gate,
        clock: Clock,
        initial_backoff: float = 1.0,
        max_backoff: float = 10.0,
        max_unschedulable: float = 300.0,
        on_change: Callable[[], None] = lambda: None,
        observer: Observer | None = None,
    ) -> None:
        self._sort_key = sort_key
        self._hints = hints
        self._gate = gate
        self._clock = clock
        self._initial_backoff, self._max_backoff = initial_backoff, max_backoff
        self._max_unschedulable = max_unschedulable
        self._on_change = on_change
        self._observer = observer or Observer()
        self._tickets = itertools.count(1)
        self._active = PodHeap(Place.ACTIVE)
        self._backoff = PodHeap(Place.BACKOFF)
        self._error_backoff = PodHeap(Place.ERROR_BACKOFF)
        self._pods: dict[str, QueuedPod] = {}
        #: Unschedulable pods by each plugin that refused them: who might be woken by an event.
        self._refused_by: dict[str, dict[str, QueuedPod]] = {}
        self._in_flight = PodsInFlight()
        self._next_unschedulable_flush = clock.monotonic() + _FLUSH_PERIOD

    # -- looking -------------------------------------------------------------------------------------------------

    def counts(self) -> dict[Place, int]:
        """How many pods wait in each place."""
        counts = dict.fromkeys(Place, 0)
        for queued in self._pods.values():
            counts[queued.place] += 1
        counts[Place.IN_FLIGHT] = len(self._in_flight)
        return counts

    def unfinished_events(self) -> Counter[str]:
        """How many events are kept for pods in flight, by their label; the taking of each such pod is one too."""
        return self._in_flight.counts()

    def __len__(self) -> int:
        """How many pods wait anywhere (those in flight not counted)."""
        return len(self._pods)

    def get(self, uid: str) -> QueuedPod | None:
        """A waiting pod."""
        return self._pods.get(uid)

    def waiting(self) -> Iterable[QueuedPod]:
        """All waiting pods."""
        return self._pods.values()

    # -- coming and going ----------------------------------------------------------------------------------------

    def add(self, info: PodInfo) -> None:
        """A pod without a node is there."""
        known = self._pods.get(info.uid)
        if known is not None or info.uid in self._in_flight:
            return
        self._enter(QueuedPod(info, self._clock.monotonic()), _POD_ADDED)

    def update(self, old: PodInfo, new: PodInfo, events: Iterable[ClusterEvent]) -> None:
        """A waiting pod changed, in the ways that ``events`` name (semantics 6.6)."""
        if new.uid in self._in_flight:
            for event in events:
                self._in_flight.keep(event, old, new)
            return
        queued = self._pods.get(new.uid)
        if queued is None:
            self.add(new)
            return
        queued.info = new
        if queued.place is Place.ACTIVE:
            self._active.push(self._sort_key(queued), next(self._tickets), queued)
        elif queued.place in (Place.UNSCHEDULABLE, Place.GATED):
            for event in events:
                if self._consider(queued, event, self._hints.concerned(event), old, new):
                    break

    def delete(self, uid: str) -> None:
        """A pod is gone, or has a node now. A pod in flight is left to whoever holds it."""
        queued = self._pods.get(uid)
        if queued is not None:
            self._leave(queued)

    def activate(self, uids: Iterable[str]) -> None:
        """Bring pods to the active queue whatever their backoff; those in flight come back after their attempt."""
        for uid in uids:
            queued = self._pods.get(uid)
            if queued is None and uid in self._in_flight:
                self._in_flight.keep(UNSCHEDULABLE_TIMEOUT, only=uid)
            elif queued is not None and queued.place is not Place.ACTIVE:
                self._enter(queued, "ForceActivate")

    def pop(self) -> QueuedPod | None:
        """The next pod to schedule, None when none is ready. It is in flight until :meth:`done`.

        With nothing active, the pod whose backoff ends first is taken before its time (semantics 6.3).
        """
        queued = self._active.pop()
        if queued is not None:
            return self._let_fly(queued)
        queued = self._backoff.pop()
        if queued is None:
            return None
        self._observer.enqueued(_ACTIVE, "PopFromBackoffQ")
        return self._let_fly(queued)

    def take(self, uid: str) -> QueuedPod | None:
        """One particular pod, wherever it waits, as if it had come first; None when it is not here, or gated.

        Nor is it taken while it backs off after an error: others must not make it fail without a pause.
        """
        queued = self._pods.get(uid)
        if queued is None or self.error_backoff_end(uid) is not None:
            return None
        if queued.place is not Place.ACTIVE:
            self._enter(queued, "ForceActivate")
        return self._let_fly(queued) if queued.place is Place.ACTIVE else None

    def error_backoff_end(self, uid: str) -> float | None:
        """When a pod's backoff after an error is over, in seconds of the clock; None when it is in none."""
        queued = self._pods.get(uid)
        if queued is None or queued.place is not Place.ERROR_BACKOFF:
            return None
        return queued.backoff_expiration if self._backing_off(queued, self._clock.monotonic()) else None

    def postpone(self, queued: QueuedPod, until: float) -> None:
        """A pod was popped too early, and nothing has been tried: it comes back then, in seconds of the clock."""
        queued.attempts -= 1
        queued.backoff_expiration = max(queued.backoff_expiration, until)
        self.done(queued.info.uid)
        self._pods[queued.info.uid] = queued
        self._await_backoff(queued)

    def _let_fly(self, queued: QueuedPod) -> QueuedPod:
        del self._pods[queued.info.uid]
        queued.place = Place.IN_FLIGHT
        queued.attempts += 1
        queued.attempt_began = self._clock.monotonic()
        self._in_flight.add(queued.info.uid)
        return queued

    @property
    def ready(self) -> bool:
        """Whether :meth:`pop` would give a pod."""
        return self._active.peek() is not None or self._backoff.peek() is not None

    def done(self, uid: str) -> None:
        """A pod is no longer in flight; events from here on are not kept for it."""
        self._in_flight.remove(uid)

    def put_back(self, queued: QueuedPod, *, rejectors: frozenset[str], pending: frozenset[str]) -> None:
        """A pod's attempt failed: wait for what could help, or back off (semantics 6.2 and 6.8)."""
        newer = self._pods.get(queued.info.uid)
        if newer is not None:  # it was let go of, changed after that, and came in again
            self._leave(newer)
        happened = list(self._in_flight.since(queued.info.uid))
        queued.rejectors, queued.pending = rejectors, pending
        queued.timestamp = self._clock.monotonic()
        if rejectors or pending:
            queued.unschedulable_count += 1
            queued.consecutive_errors = 0
        else:
            queued.consecutive_errors += 1
        queued.backoff_expiration = self._expiration(queued)
        self.done(queued.info.uid)
        self._pods[queued.info.uid] = queued
        queued.was_flushed = False
        self._settle(queued, self._replayed(queued, happened), "ScheduleAttemptFailure")

    def _replayed(self, queued: QueuedPod, happened: Iterable[Happened]) -> Requeue:
        """What the events of the pod's own attempt make of it."""
        if not queued.rejectors and not queued.pending:
            return Requeue.AFTER_BACKOFF
        found = Requeue.SKIP
        for item in happened:
            concerned = self._hints.concerned(item.event)
            decision = self._decide(queued, item.event, concerned, item.old, item.new)
            if decision is Requeue.IMMEDIATELY:
                return decision
            if decision is Requeue.AFTER_BACKOFF:
                found = decision
        return found

    # -- events --------------------------------------------------------------------------------------------------

    def move(
        self,
        event: ClusterEvent,
        old: Any = None,
        new: Any = None,
        *,
        among: Callable[[PodInfo], bool] | None = None,
    ) -> None:
        """Something happened: bring back the pods that it could help (semantics 6.7)."""
        self._in_flight.keep(event, old, new)
        if not self._refused_by and not event.is_wildcard:
            return  # nobody waits for anything
        concerned = self._hints.at_a_glance(event, old, new)
        for queued in list(self._candidates(event, concerned)):
            if among is None or among(queued.info):
                self._consider(queued, event, concerned, old, new)

    def _candidates(self, event: ClusterEvent, concerned: Concerned) -> Iterator[QueuedPod]:
        if event.is_wildcard:
            yield from (q for q in self._pods.values() if q.place in (Place.UNSCHEDULABLE, Place.GATED))
            return
        seen: set[str] = set()
        for plugin in dict.fromkeys(name for hints in concerned.values() for name in hints):
            for uid, queued in self._refused_by.get(plugin, {}).items():
                if uid not in seen:
                    seen.add(uid)
                    yield queued

    def _consider(self, queued: QueuedPod, event: ClusterEvent, concerned: Concerned, old: Any, new: Any) -> bool:
        """Move one unschedulable pod if the event could help it; whether it moved."""
        if queued.place is Place.GATED:
            hints = concerned.get(queued.info.spec.scheduler_name, {})
            if queued.gated_by not in hints:
                return False
        # What helped while the gate was closed (the reference forgets it) must not need to happen again.
        decision = Requeue.AFTER_BACKOFF if queued.held_up else self._decide(queued, event, concerned, old, new)
        if decision is Requeue.SKIP:
            return False
        self._settle(queued, decision, event.label)
        return queued.place not in (Place.UNSCHEDULABLE, Place.GATED)

    def _decide(self, queued: QueuedPod, event: ClusterEvent, concerned: Concerned, old: Any, new: Any) -> Requeue:
        if not queued.rejectors and not queued.pending:
            return Requeue.AFTER_BACKOFF
        if event.is_wildcard:
            return Requeue.AFTER_BACKOFF
        hints = concerned.get(queued.info.spec.scheduler_name, {})
        return self._hints.decide(
            event, hints, queued.info, rejectors=queued.rejectors, pending=queued.pending, old=old, new=new
        )

    # -- time ----------------------------------------------------------------------------------------------------

    def next_flush(self) -> float:
        """When :meth:`flush` has something to do at the earliest, in seconds of the clock."""
        heads = (heap.peek() for heap in (self._backoff, self._error_backoff))
        ends = [math.floor(head.backoff_expiration) + 1.0 for head in heads if head is not None]
        return min((*ends, self._next_unschedulable_flush))

    def flush(self) -> None:
        """Release pods whose backoff is over, and those that have waited for an event too long."""
        now = self._clock.monotonic()
        for heap in (self._backoff, self._error_backoff):
            while (head := heap.peek()) is not None and not self._backing_off(head, now):
                heap.pop()
                if head.gated_by:
                    self._enter(head, "BackoffComplete")
                else:
                    self._activate(head, "BackoffComplete")
        if now >= self._next_unschedulable_flush:
            self._next_unschedulable_flush = now + _FLUSH_PERIOD
            waited = [
                queued
                for queued in self._pods.values()
                if queued.place is Place.UNSCHEDULABLE and now - queued.timestamp > self._max_unschedulable
            ]
            for queued in waited:
                queued.was_flushed = True
                self._settle(queued, Requeue.AFTER_BACKOFF, "UnschedulableTimeout")

    def _expiration(self, queued: QueuedPod) -> float:
        count = queued.consecutive_errors or queued.unschedulable_count
        if not count or not self._max_backoff:
            return 0.0
        duration = min(self._max_backoff, self._initial_backoff * 2.0 ** min(count - 1, 60))
        return float(math.floor(queued.timestamp + duration))

    @staticmethod
    def _backing_off(queued: QueuedPod, now: float) -> bool:
        """Compared in whole seconds, so that pods come out of backoff together (semantics 6.2)."""
        return queued.backoff_expiration >= math.floor(now)

    # -- placing -------------------------------------------------------------------------------------------------

    def _settle(self, queued: QueuedPod, decision: Requeue, event: str) -> None:
        """Where a pod goes from here, because of the event of this label."""
        self._forget_refusals(queued)
        if decision is Requeue.SKIP:
            queued.place = Place.UNSCHEDULABLE
            self._observer.enqueued(_UNSCHEDULABLE, event)
            self._remember_refusals(queued)
        elif decision is Requeue.AFTER_BACKOFF and self._backing_off(queued, self._clock.monotonic()):
            self._back_off(queued, event)
        else:
            self._enter(queued, event)
        queued.held_up = queued.place is Place.GATED

    def _back_off(self, queued: QueuedPod, event: str) -> None:
        if self._is_gated(queued, event):
            return
        heap = self._backoff if queued.rejectors or queued.pending else self._error_backoff
        heap.push(self._sort_key(queued), next(self._tickets), queued, until=queued.backoff_expiration)
        self._observer.enqueued(_BACKOFF, event)
        self._on_change()

    def _enter(self, queued: QueuedPod, event: str) -> None:
        """To the active queue, if no PreEnqueue plugin objects."""
        self._pods[queued.info.uid] = queued
        self._forget_refusals(queued)
        if not self._is_gated(queued, event):
            self._activate(queued, event)

    def _activate(self, queued: QueuedPod, event: str) -> None:
        if queued.initial_attempt is None:
            queued.initial_attempt = self._clock.monotonic()
        self._active.push(self._sort_key(queued), next(self._tickets), queued)
        self._observer.enqueued(_ACTIVE, event)
        self._on_change()

    def _is_gated(self, queued: QueuedPod, event: str) -> bool:
        refused = self._gate(queued.info)
        if refused is None:
            queued.gated_by = ""
            return False
        queued.gated_by, status = refused
        if status.code is Code.ERROR:
            self._gate_failed(queued)
            self._observer.enqueued(_BACKOFF, event)
            return True
        if queued.place is not Place.GATED:
            self._observer.enqueued(_UNSCHEDULABLE, event)
        queued.rejectors |= {queued.gated_by}
        queued.place = Place.GATED
        self._remember_refusals(queued)
        return True

    def _gate_failed(self, queued: QueuedPod) -> None:
        """Nobody can tell which event would help, so the gates are asked again after a backoff."""
        queued.consecutive_errors += 1
        queued.timestamp = self._clock.monotonic()
        queued.backoff_expiration = self._expiration(queued)
        self._await_backoff(queued)

    def _await_backoff(self, queued: QueuedPod) -> None:
        rank = self._sort_key(queued)
        self._error_backoff.push(rank, next(self._tickets), queued, until=queued.backoff_expiration)
        self._on_change()

    def _leave(self, queued: QueuedPod) -> None:
        self._forget_refusals(queued)
        del self._pods[queued.info.uid]
        queued.ticket = 0

    def _remember_refusals(self, queued: QueuedPod) -> None:
        for plugin in queued.rejectors | queued.pending:
            self._refused_by.setdefault(plugin, {})[queued.info.uid] = queued

    def _forget_refusals(self, queued: QueuedPod) -> None:
        for plugin in queued.rejectors | queued.pending:
            refused = self._refused_by.get(plugin)
            if refused is not None:
                refused.pop(queued.info.uid, None)
                if not refused:
                    del self._refused_by[plugin]
