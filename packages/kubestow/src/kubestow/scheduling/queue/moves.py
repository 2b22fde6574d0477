"""Moves between the places of the queue: pods after a failed attempt, that an event may help, or that waited too long.

An event is decided about once per cohort of unschedulable pods (:mod:`.unschedulable`), and the pods that it helps are
moved a few hundred at a time, so that no event blocks for long. A pod that an event helps stays in its place until its
turn, with the pending move in :attr:`QueuedPod.move`; :meth:`QueueMoves.settle` performs the move before any other
operation on the pod.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from kubestow.cluster.changes.events import ClusterEvent
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.rules.minors import DEFAULT_MINOR, Behaviour, Minor
from kubestow.scheduling.interfaces import Clock
from kubestow.scheduling.queue.gating import Gating
from kubestow.scheduling.queue.places import QueuePlaces
from kubestow.scheduling.queue.queueing_hints import EventDecisions, QueueingHints
from kubestow.scheduling.queue.unschedulable import Cohort, CohortKey
from kubestow.scheduling.queued_pod import Place, QueuedPod, QueueingStrategy

#: Between two looks for pods that have been unschedulable for too long, in seconds.
_UNSCHEDULABLE_FLUSH_PERIOD = 30.0

#: An event moves this many pods at once; the scheduling loop moves the others in steps of the same size, 4 ms each.
_MOVED_AT_ONCE = 500

_ticket = attrgetter("ticket")


class QueueMoves:
    """Moves pods between places. ``on_change`` is called when pods are left to be moved later."""

    def __init__(
        self,
        places: QueuePlaces,
        gating: Gating,
        hints: QueueingHints,
        clock: Clock,
        *,
        max_unschedulable_seconds: float,
        on_change: Callable[[], None],
        minor: Minor = DEFAULT_MINOR,
    ) -> None:
        self._places, self._gating, self._hints, self._clock = places, gating, hints, clock
        self._max_unschedulable_seconds = max_unschedulable_seconds
        self._on_change = on_change
        waits_for_gating_plugin = minor.has(Behaviour.GATED_PODS_WAIT_FOR_GATING_PLUGIN)
        #: Whether an event may help the pods of a scheduler name that a plugin gates.
        self._may_ungate = EventDecisions.concerns if waits_for_gating_plugin else _concerns_any_rejector
        #: The pods that events have helped and that are yet to be moved, each with its ticket at the time.
        self._helped: deque[tuple[int, QueuedPod]] = deque()
        self._next_unschedulable_flush = clock.monotonic() + _UNSCHEDULABLE_FLUSH_PERIOD
        if math.isinf(max_unschedulable_seconds):
            self._next_unschedulable_flush = math.inf  # no pod ever waits for too long

    # -- one pod ---------------------------------------------------------------------------------------------------

    def requeue_with_strategy(self, queued: QueuedPod, strategy: QueueingStrategy, event: str, now: float) -> None:
        """Move a pod where a strategy takes it: SKIP among the unschedulable pods, the others to backoffQ or activeQ.

        ``event`` is the label of the cause, ``now`` is in seconds.
        """
        queued.move = None
        if strategy is QueueingStrategy.SKIP:
            queued.requeue_when_ungated = False
            self._places.enter_unschedulable(queued, event)
            return
        queued.requeue_when_ungated = True
        if queued.put_aside_until > now:
            strategy = QueueingStrategy.AFTER_BACKOFF
            queued.backoff_expiration = max(queued.backoff_expiration, queued.put_aside_until)
        if strategy is QueueingStrategy.AFTER_BACKOFF and self._places.backoff_policy.is_backing_off(queued, now):
            self._gating.back_off(queued, event, now)
        else:
            self._gating.enqueue(queued, event, now)
        if queued.place is not Place.GATED:
            queued.requeue_when_ungated = False

    def settle(self, uid: str) -> QueuedPod | None:
        """Move a queued pod if an event has helped it, and return it; None when it is not queued."""
        queued = self._places.pods.get(uid)
        if queued is not None and queued.move is not None:
            self.requeue_with_strategy(queued, *queued.move, self._clock.monotonic())
        return queued

    def requeue_if_helped(self, queued: QueuedPod, decisions: EventDecisions) -> bool:
        """Requeue one unschedulable or gated pod if an event may help it; whether it was requeued."""
        scheduler_name = queued.info.spec.scheduler_name
        if queued.place is Place.GATED and not self._may_ungate(decisions, scheduler_name, queued.gated_by):
            return False
        decision = QueueingStrategy.AFTER_BACKOFF
        if not queued.requeue_when_ungated:
            decision = decisions.of(queued.info, rejectors=queued.rejectors, pending_plugins=queued.pending_plugins)
        if decision is QueueingStrategy.SKIP:
            return False
        self.requeue_with_strategy(queued, decision, decisions.event.label, self._clock.monotonic())
        return queued.place not in (Place.UNSCHEDULABLE, Place.GATED)

    # -- the pods that an event helps ------------------------------------------------------------------------------

    def requeue_helped(
        self, event: ClusterEvent, old: Any, new: Any, *, among: Callable[[PodInfo], bool] | None
    ) -> None:
        """Requeue the unschedulable and gated pods that an event may help, of those ``among`` selects."""
        unschedulable = self._places.unschedulable
        if not unschedulable:
            return
        registrations = self._hints.filtered(event, old, new)
        decisions = self._hints.decisions(event, registrations, old, new)
        subject = self._waiting_subject(old, new)
        if event.is_wildcard:
            cohorts = unschedulable.cohorts()
        else:
            cohorts = unschedulable.rejected_by(
                self._hints.keys_of(registrations, old, new, rejectors=unschedulable.rejectors)
            )
        helped: list[QueuedPod] = []
        for cohort in [cohort for cohort in cohorts if self._may_help(cohort.key, decisions)]:
            decision = _decision_for(cohort, subject, decisions)
            if decision is not QueueingStrategy.SKIP:
                helped += self._take(cohort, (decision, event.label), among, spared=subject)
        if subject is not None and (among is None or among(subject.info)):
            self.requeue_if_helped(subject, decisions)
        self._begin_moving(helped)

    def _may_help(self, key: CohortKey, decisions: EventDecisions) -> bool:
        """Whether the gate of a cohort, if it has one, may have opened; of held pods, only the first is remembered."""
        if key.is_held and key.requeue_when_ungated:
            return False
        return not key.gated_by or self._may_ungate(decisions, key.scheduler_name, key.gated_by)

    def _waiting_subject(self, old: Any, new: Any) -> QueuedPod | None:
        """The unschedulable or gated pod that an event is about; its hints are called for it alone."""
        obj = old if new is None else new
        queued = self._places.pods.get(obj.uid) if isinstance(obj, PodInfo) else None
        return queued if queued is not None and queued.info.uid in self._places.unschedulable else None

    def _take(
        self,
        cohort: Cohort,
        move: tuple[QueueingStrategy, str],
        among: Callable[[PodInfo], bool] | None,
        *,
        spared: QueuedPod | None,
    ) -> list[QueuedPod]:
        """Take the pods that an event has helped out of a cohort, to be moved."""
        unschedulable = self._places.unschedulable
        if among is None and spared is None:
            pods = unschedulable.take_all(cohort)
        else:
            chosen = (q for q in cohort.pods.values() if q is not spared and (among is None or among(q.info)))
            pods = unschedulable.take(cohort, [q.info.uid for q in chosen])
        for queued in pods:
            queued.move = move
        return pods

    def _begin_moving(self, pods: list[QueuedPod]) -> None:
        """Move pods that have a move, the first of them at once, in the order in which they began to wait."""
        if not pods:
            return
        pods.sort(key=_ticket)
        if len(self._helped) > len(self._places.pods):
            # A standby scheduler moves few pods, and many may have been deleted.
            self._helped = deque(
                each for each in self._helped if each[1].move is not None and each[1].ticket == each[0]
            )
        self._helped.extend(zip(map(_ticket, pods), pods, strict=True))
        self.continue_moving()
        if self._helped:
            self._on_change()

    @property
    def is_moving(self) -> bool:
        """Whether pods that events have helped are yet to be moved."""
        return bool(self._helped)

    def continue_moving(self, limit: int = _MOVED_AT_ONCE) -> None:
        """Move the next pods that events have helped, at most ``limit`` of them, so that no event blocks for long."""
        now = self._clock.monotonic()
        for _ in range(min(limit, len(self._helped))):
            ticket, queued = self._helped.popleft()
            # With another ticket it was moved or deleted, and may wait again since.
            if queued.ticket == ticket and queued.move is not None:
                self.requeue_with_strategy(queued, *queued.move, now)

    # -- time ------------------------------------------------------------------------------------------------------

    def next_flush(self) -> float:
        """When :meth:`flush` has something to do or a pod may be tried early, at the earliest, in seconds."""
        places = self._places
        return min(
            places.next_backoff_end(),
            places.next_debt_end,
            places.next_early_try(),
            self._next_unschedulable_flush,
        )

    def flush(self) -> None:
        """Move pods whose backoff has ended to activeQ, and requeue those unschedulable for too long."""
        now, places = self._clock.monotonic(), self._places
        places.end_debts(now)
        while (queued := places.pop_backed_off(now)) is not None:
            self._gating.end_backoff(queued, now)
        if now < self._next_unschedulable_flush:
            return
        self._next_unschedulable_flush = now + _UNSCHEDULABLE_FLUSH_PERIOD
        unschedulable = (q for q in places.pods.values() if q.place is Place.UNSCHEDULABLE and q.move is None)
        expired = [q for q in unschedulable if now - q.timestamp > self._max_unschedulable_seconds]
        for queued in expired:
            places.unschedulable.remove(queued.info.uid)
            queued.was_flushed, queued.move = True, (QueueingStrategy.AFTER_BACKOFF, "UnschedulableTimeout")
        self._begin_moving(expired)

    def retry_time(self, queued: QueuedPod) -> float | None:
        """When a queued pod is tried again without an event, at the latest, in seconds of the clock; None for never."""
        if queued.place in (Place.BACKOFF, Place.ERROR_BACKOFF):
            return self._places.backoff_policy.flush_time(queued)
        if queued.place is not Place.UNSCHEDULABLE or math.isinf(self._max_unschedulable_seconds):
            return None
        return queued.timestamp + self._max_unschedulable_seconds + _UNSCHEDULABLE_FLUSH_PERIOD


def _concerns_any_rejector(decisions: EventDecisions, scheduler_name: str, gated_by: str) -> bool:
    """Before ``GATED_PODS_WAIT_FOR_GATING_PLUGIN``: any event, unless the gating plugin is SchedulingGates."""
    return gated_by != "SchedulingGates" or decisions.concerns(scheduler_name, gated_by)


def _decision_for(cohort: Cohort, subject: QueuedPod | None, decisions: EventDecisions) -> QueueingStrategy:
    """What the event means for the pods of a cohort other than its subject."""
    example = next((queued for queued in cohort.pods.values() if queued is not subject), None)
    if example is None:
        return QueueingStrategy.SKIP
    # An event that helped while the gate was closed (kube-scheduler drops it) need not happen again.
    if cohort.key.requeue_when_ungated:
        return QueueingStrategy.AFTER_BACKOFF
    return decisions.of_all_like(example.info, cohort.key.signatures, pending_plugins=cohort.key.pending_plugins)
