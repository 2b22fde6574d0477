"""The scheduling queue (semantics 6).

A pending pod is in exactly one place:

    activeQ         ready to be scheduled, in the order of the QueueSort plugin
    backoffQ        rejected by a plugin, until its backoff ends (or until nothing else is ready)
    error backoffQ  the same after an internal error
    unschedulable   rejected, until an event that one of the rejecting plugins registered may help it
    gated           rejected by a PreEnqueue plugin, until an event that this plugin registered

or it is in flight: popped, and not done yet. Events are kept meanwhile and replayed when the pod returns
(:mod:`.in_flight`), so none is lost. The queue never waits: time comes from the injected clock, and the scheduling loop
calls :meth:`SchedulingQueue.flush` at :meth:`SchedulingQueue.next_flush`.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from kubestow.cluster.bounded_cache import BoundedCache
from kubestow.cluster.events import Action, ClusterEvent, EventResource
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.interface import PreEnqueuePlugin
from kubestow.framework.profile import Profile
from kubestow.framework.status import Code
from kubestow.scheduling.environment import Environment
from kubestow.scheduling.events.cluster_events import ASSIGNED_POD_DELETE, UNSCHEDULABLE_POD_ADD
from kubestow.scheduling.queue.backoff import BackoffPolicy
from kubestow.scheduling.queue.gating import GatingListener
from kubestow.scheduling.queue.heap import PodHeap
from kubestow.scheduling.queue.in_flight import InFlightEvent, PodsInFlight
from kubestow.scheduling.queue.queueing_hints import EventDecisions, QueueingHints, Registrations
from kubestow.scheduling.queue.subqueues import Subqueues
from kubestow.scheduling.queue.unschedulable import Cohort, CohortKey, UnschedulablePods
from kubestow.scheduling.queued_pod import Place, QueuedPod, Requeue

__all__ = ["UNSCHEDULABLE_TIMEOUT", "SchedulingQueue"]

UNSCHEDULABLE_TIMEOUT = ClusterEvent(EventResource.WILDCARD, Action.ALL)
"""The event of having been unschedulable for too long; it requeues a pod whatever rejected it."""

#: Between two looks for pods that have been unschedulable for too long, in seconds.
_UNSCHEDULABLE_FLUSH_PERIOD = 30.0

#: An event moves this many pods at once; the scheduling loop moves the others in steps of the same size, 4 ms each.
_MOVED_AT_ONCE = 500

#: Sets of plugins that are shared between pods, at most; a cluster has a few dozen.
_MOST_PLUGIN_SETS = 1000

_ticket = attrgetter("ticket")

#: The queue's parts as the observer names them; gated pods count as unschedulable when they enter.
_ACTIVE, _BACKOFF, _UNSCHEDULABLE = "active", "backoff", "unschedulable"


class SchedulingQueue:
    """All pending pods of the profiles. ``on_change`` is called when a pod becomes ready or starts to back off."""

    def __init__(
        self,
        profiles: Mapping[str, Profile],
        hints: QueueingHints,
        environment: Environment,
        *,
        backoff: BackoffPolicy | None = None,
        max_unschedulable_seconds: float = 300.0,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._profiles, self._hints = profiles, hints
        #: Profiles share one QueueSort plugin; the first one's runtime computes the keys.
        self._sort = next(iter(profiles.values())).queueing
        self._clock, self._observer = environment.clock, environment.observer
        self._backoff_policy = backoff or BackoffPolicy()
        self._max_unschedulable_seconds = max_unschedulable_seconds
        self._on_change = on_change
        self._gating_listeners: list[GatingListener] = []
        self._tickets = itertools.count(1)
        self._active = Subqueues(self._sort) if self._sort.has_subqueues else PodHeap(Place.ACTIVE)
        self._backoff = PodHeap(Place.BACKOFF)
        self._error_backoff = PodHeap(Place.ERROR_BACKOFF)
        self._pods: dict[str, QueuedPod] = {}
        self._unschedulable = UnschedulablePods(hints.signatures, hints.keys)
        #: Equal sets of plugins that rejected pods are one object: many pods wait for the same reasons.
        self._plugin_sets: BoundedCache[frozenset[str], frozenset[str]] = BoundedCache(_MOST_PLUGIN_SETS)
        #: The pods whose preemption is in progress.
        self._preempting: set[str] = set()
        #: The pods that events have helped and that are yet to be moved, each with its ticket at the time.
        self._moves: deque[tuple[int, QueuedPod]] = deque()
        self._in_flight = PodsInFlight()
        self._next_unschedulable_flush = self._clock.monotonic() + _UNSCHEDULABLE_FLUSH_PERIOD
        if math.isinf(max_unschedulable_seconds):
            self._next_unschedulable_flush = math.inf  # no pod ever waits for too long

    def add_gating_listener(self, listener: GatingListener) -> None:
        """Have a listener hear of every pod that PreEnqueue rejects from now on."""
        self._gating_listeners.append(listener)

    # -- reading -------------------------------------------------------------------------------------------------

    def counts(self) -> dict[Place, int]:
        """How many pods are in each place."""
        counts = dict.fromkeys(Place, 0)
        for queued in self._pods.values():
            counts[queued.place] += 1
        counts[Place.IN_FLIGHT] = len(self._in_flight)
        return counts

    def in_flight_events(self) -> Counter[str]:
        """How many events are kept for pods in flight, by label; each pop counts as an event of its own."""
        return self._in_flight.counts()

    def __len__(self) -> int:
        """How many pods are queued, those in flight not counted."""
        return len(self._pods)

    def get(self, uid: str) -> QueuedPod | None:
        """A queued pod; None for one in flight."""
        return self._settled(uid)

    def pending(self) -> Iterable[QueuedPod]:
        """All queued pods."""
        return self._pods.values()

    def in_flight(self) -> list[str]:
        """The uids of the pods in flight, in the order in which they were popped."""
        return self._in_flight.uids()

    def retry_time(self, queued: QueuedPod) -> float | None:
        """When a queued pod is tried again without an event, at the latest, in seconds of the clock; None for never."""
        if queued.place in (Place.BACKOFF, Place.ERROR_BACKOFF):
            return self._backoff_policy.flush_time(queued)
        if queued.place is not Place.UNSCHEDULABLE or math.isinf(self._max_unschedulable_seconds):
            return None
        return queued.timestamp + self._max_unschedulable_seconds + _UNSCHEDULABLE_FLUSH_PERIOD

    @property
    def ready(self) -> bool:
        """Whether :meth:`pop` would return a pod."""
        return self.is_moving or bool(self._active) or bool(self._backoff)

    # -- pods from the watch -------------------------------------------------------------------------------------

    def add(self, info: PodInfo) -> None:
        """Queue a new pending pod."""
        if info.uid not in self._pods and info.uid not in self._in_flight:
            self._enqueue(QueuedPod(info, self._clock.monotonic()), UNSCHEDULABLE_POD_ADD.label)

    def update(self, old: PodInfo, new: PodInfo, events: Iterable[ClusterEvent]) -> None:
        """Update a pending pod; ``events`` name what changed about it (semantics 6.6)."""
        if new.uid in self._in_flight:
            for event in events:
                self._in_flight.keep(event, old, new)
            return
        queued = self._settled(new.uid)
        if queued is None:
            self.add(new)
            return
        queued.info = new
        if queued.place is Place.ACTIVE:
            self._active.push(self._sort.sort_key(queued), next(self._tickets), queued)
        elif queued.place in (Place.UNSCHEDULABLE, Place.GATED):
            self._unschedulable.add(queued, is_held=self._unschedulable.is_held(new.uid))
            for event in events:
                if self._requeue_if_helped(queued, self._hints.decisions(event, self._hints.matching(event), old, new)):
                    break

    def delete(self, uid: str) -> None:
        """Remove a pod that was deleted or assigned. A pod in flight is left to its cycle."""
        queued = self._pods.get(uid)
        if queued is not None:
            self._remove(queued)

    # -- pods to and from the scheduling cycle -------------------------------------------------------------------

    def pop(self) -> QueuedPod | None:
        """The next pod to schedule, in flight until :meth:`done`; None when none is ready.

        With activeQ empty, the pod whose backoff ends first is popped before its time (semantics 6.3).
        """
        while self._moves:
            self.continue_moving()
        queued = self._active.pop()
        if queued is None:
            queued = self._backoff.pop()
            if queued is None:
                return None
            self._observer.pod_enqueued(_ACTIVE, "PopFromBackoffQ")
        return self._put_in_flight(queued)

    def pop_pod(self, uid: str) -> QueuedPod | None:
        """A particular pod, as if it were the next; None if it is not queued or gated, or backs off after an error."""
        queued = self._settled(uid)
        if queued is None or self.error_backoff_end(uid) is not None:
            return None
        if queued.place is not Place.ACTIVE:
            self._enqueue(queued, "ForceActivate")
        return self._put_in_flight(queued) if queued.place is Place.ACTIVE else None

    def _put_in_flight(self, queued: QueuedPod) -> QueuedPod:
        del self._pods[queued.info.uid]
        queued.place = Place.IN_FLIGHT
        queued.attempts += 1
        queued.attempt_began = self._clock.monotonic()
        self._in_flight.add(queued.info.uid)
        return queued

    def done(self, uid: str) -> None:
        """A pod is no longer in flight; no further events are kept for it."""
        self._in_flight.remove(uid)

    def requeue(self, queued: QueuedPod, *, rejectors: frozenset[str], pending: frozenset[str]) -> None:
        """Return a pod whose attempt failed: to wait for an event, or to back off (semantics 6.2, 6.8).

        Without rejectors and pending plugins the attempt ended with an error.
        """
        newer = self._pods.get(queued.info.uid)
        if newer is not None:  # the pod was done, changed afterwards, and was queued again
            self._remove(newer)
        events = list(self._in_flight.since(queued.info.uid))
        queued.rejectors, queued.pending = self._shared(rejectors), self._shared(pending)
        queued.timestamp = self._clock.monotonic()
        if rejectors or pending:
            queued.unschedulable_count += 1
            queued.consecutive_errors = 0
        else:
            queued.consecutive_errors += 1
        queued.backoff_expiration = self._backoff_policy.expiration(queued)
        self.done(queued.info.uid)
        self._pods[queued.info.uid] = queued
        queued.was_flushed = False
        self._place(queued, self._replay(queued, events), "ScheduleAttemptFailure")

    def _replay(self, queued: QueuedPod, events: Iterable[InFlightEvent]) -> Requeue:
        """What the events during the pod's attempt mean for it."""
        if not queued.rejectors and not queued.pending:
            return Requeue.AFTER_BACKOFF
        found = Requeue.SKIP
        for kept in events:
            decisions = self._hints.decisions(kept.event, self._hints.matching(kept.event), kept.old, kept.new)
            decision = decisions.of(queued.info, rejectors=queued.rejectors, pending=queued.pending)
            if decision is Requeue.IMMEDIATELY:
                return decision
            if decision is Requeue.AFTER_BACKOFF:
                found = decision
        return found

    def postpone(self, queued: QueuedPod, until: float) -> None:
        """Return a pod that was popped without an attempt; it backs off until then, in seconds of the clock."""
        queued.attempts -= 1
        queued.backoff_expiration = max(queued.backoff_expiration, until)
        self.done(queued.info.uid)
        self._pods[queued.info.uid] = queued
        self._push_error_backoff(queued)

    def error_backoff_end(self, uid: str) -> float | None:
        """When a pod's backoff after an error ends, in seconds of the clock; None when it has none."""
        queued = self._settled(uid)
        if queued is None or queued.place is not Place.ERROR_BACKOFF or not self._is_backing_off(queued):
            return None
        return queued.backoff_expiration

    def activate(self, uids: Iterable[str]) -> None:
        """Move pods to activeQ whatever their backoff; pods in flight return after their attempt."""
        for uid in uids:
            queued = self._settled(uid)
            if queued is None and uid in self._in_flight:
                self._in_flight.keep(UNSCHEDULABLE_TIMEOUT, only=uid)
            elif queued is not None and queued.place is not Place.ACTIVE:
                self._enqueue(queued, "ForceActivate")

    def suggest_node(self, uid: str, node_name: str) -> None:
        """Have a queued pod tried on a node first, until its next attempt or update."""
        queued = self._settled(uid)
        if queued is not None:
            queued.info = queued.info.nominated_to(node_name)

    # -- events --------------------------------------------------------------------------------------------------

    def move_all_to_active_or_backoff(
        self,
        event: ClusterEvent,
        old: Any = None,
        new: Any = None,
        *,
        among: Callable[[PodInfo], bool] | None = None,
    ) -> None:
        """Requeue the unschedulable pods that an event may help, of those ``among`` selects (semantics 6.7).

        Pods are requeued in the order in which they began to wait.
        """
        self._in_flight.keep(event, old, new)
        if not self._unschedulable:
            return
        registrations = self._hints.filtered(event, old, new)
        decisions = self._hints.decisions(event, registrations, old, new)
        subject = self._waiting_subject(old, new)
        helped: list[QueuedPod] = []
        for cohort in self._concerned_cohorts(decisions, registrations, old, new):
            decision = self._decide_for_cohort(cohort, subject, decisions)
            if decision is not Requeue.SKIP:
                helped += self._take(cohort, (decision, event.label), among, spared=subject)
        if subject is not None and (among is None or among(subject.info)):
            self._requeue_if_helped(subject, decisions)
        self._begin_moving(helped)

    def _begin_moving(self, pods: list[QueuedPod]) -> None:
        """Move pods that have a move, the first of them at once."""
        if not pods:
            return
        pods.sort(key=_ticket)
        if len(self._moves) > len(self._pods):  # a standby scheduler moves few pods, and many may have been deleted
            self._moves = deque(move for move in self._moves if move[1].move is not None and move[1].ticket == move[0])
        self._moves.extend(zip(map(_ticket, pods), pods, strict=True))
        self.continue_moving()
        if self._moves:
            self._on_change()

    def _take(
        self,
        cohort: Cohort,
        move: tuple[Requeue, str],
        among: Callable[[PodInfo], bool] | None,
        *,
        spared: QueuedPod | None,
    ) -> list[QueuedPod]:
        """Take the pods that an event has helped out of a cohort, to be moved."""
        if among is None and spared is None:
            pods = self._unschedulable.take_all(cohort)
        else:
            chosen = (q for q in cohort.pods.values() if q is not spared and (among is None or among(q.info)))
            pods = self._unschedulable.take(cohort, [q.info.uid for q in chosen])
        for queued in pods:
            queued.move = move
        return pods

    @property
    def is_moving(self) -> bool:
        """Whether pods that events have helped are yet to be moved; :meth:`pop` moves all of them first."""
        return bool(self._moves)

    def continue_moving(self, limit: int = _MOVED_AT_ONCE) -> None:
        """Move the next pods that events have helped, at most ``limit`` of them, so that no event blocks for long."""
        for _ in range(min(limit, len(self._moves))):
            ticket, queued = self._moves.popleft()
            if queued.ticket == ticket:  # else it was moved or deleted, and may wait again since
                self._settle(queued)

    def _settle(self, queued: QueuedPod) -> None:
        """Move a pod if an event has helped it that was not carried out yet."""
        if queued.move is not None:
            self._place(queued, *queued.move)

    def _settled(self, uid: str) -> QueuedPod | None:
        """A queued pod; one that is yet to be moved is moved first."""
        queued = self._pods.get(uid)
        if queued is not None:
            self._settle(queued)
        return queued

    def release_nomination(self, pod: PodInfo, node_name: str | None) -> bool:
        """Requeue the pods that may use a node for which a pod is no longer nominated; whether there is such a node.

        Those are pods of no higher priority, because a nomination does not count for pods of higher priority. A pod
        that is on the node now releases nothing.
        """
        if not node_name or node_name == pod.spec.node_name:
            return False

        def may_use_node(other: PodInfo) -> bool:
            return other.priority <= pod.priority and other.uid != pod.uid

        self.move_all_to_active_or_backoff(ASSIGNED_POD_DELETE, pod.on(node_name), None, among=may_use_node)
        return True

    def _waiting_subject(self, old: Any, new: Any) -> QueuedPod | None:
        """The unschedulable or gated pod that an event is about; its hints are called for it alone."""
        obj = old if new is None else new
        queued = self._pods.get(obj.uid) if isinstance(obj, PodInfo) else None
        return queued if queued is not None and queued.info.uid in self._unschedulable else None

    def _concerned_cohorts(
        self, decisions: EventDecisions, registrations: Registrations, old: Any, new: Any
    ) -> list[Cohort]:
        """The cohorts that an event may help, by the plugins that registered it."""
        if decisions.event.is_wildcard:
            cohorts = self._unschedulable.cohorts()
        else:
            cohorts = self._unschedulable.rejected_by(self._hints.keys_of(registrations, old, new))
        return [cohort for cohort in cohorts if self._may_be_helped(cohort.key, decisions)]

    @staticmethod
    def _may_be_helped(key: CohortKey, decisions: EventDecisions) -> bool:
        """Gated pods need an event that the gating plugin registered; of held ones, only the first is remembered."""
        if key.is_held and key.requeue_when_ungated:
            return False
        return not key.gated_by or decisions.concerns(key.scheduler_name, key.gated_by)

    @staticmethod
    def _decide_for_cohort(cohort: Cohort, subject: QueuedPod | None, decisions: EventDecisions) -> Requeue:
        """What the event means for the pods of a cohort other than its subject."""
        example = next((queued for queued in cohort.pods.values() if queued is not subject), None)
        if example is None:
            return Requeue.SKIP
        # An event that helped while the gate was closed (kube-scheduler drops it) need not happen again.
        if cohort.key.requeue_when_ungated:
            return Requeue.AFTER_BACKOFF
        return decisions.of_all_like(example.info, cohort.key.signatures, pending=cohort.key.pending)

    def _requeue_if_helped(self, queued: QueuedPod, decisions: EventDecisions) -> bool:
        """Requeue one unschedulable or gated pod if the event may help it; whether it was requeued."""
        is_gated = queued.place is Place.GATED
        if is_gated and not decisions.concerns(queued.info.spec.scheduler_name, queued.gated_by):
            return False
        decision = Requeue.AFTER_BACKOFF
        if not queued.requeue_when_ungated:
            decision = decisions.of(queued.info, rejectors=queued.rejectors, pending=queued.pending)
        if decision is Requeue.SKIP:
            return False
        self._place(queued, decision, decisions.event.label)
        return queued.place not in (Place.UNSCHEDULABLE, Place.GATED)

    # -- preemption ----------------------------------------------------------------------------------------------

    def preemption_started(self, uids: Iterable[str]) -> None:
        """Evictions for these pods have begun: once gated, they are not looked at until :meth:`preemption_ended`."""
        self._preempting.update(uids)

    def preemption_ended(self, uids: Iterable[str]) -> None:
        """The evictions for these pods have ended; the next event that helps them requeues them."""
        for uid in uids:
            self._preempting.discard(uid)
            if self._unschedulable.is_held(uid):
                self._unschedulable.add(self._pods[uid])

    # -- time ----------------------------------------------------------------------------------------------------

    def next_flush(self) -> float:
        """When :meth:`flush` has something to do at the earliest, in seconds of the clock."""
        heads = (heap.peek() for heap in (self._backoff, self._error_backoff))
        ends = [self._backoff_policy.flush_time(head) for head in heads if head is not None]
        return min((*ends, self._next_unschedulable_flush))

    def flush(self) -> None:
        """Move pods whose backoff has ended to activeQ, and requeue those unschedulable for too long."""
        now = self._clock.monotonic()
        for heap in (self._backoff, self._error_backoff):
            while (head := heap.peek()) is not None and not self._backoff_policy.is_backing_off(head, now):
                heap.pop()
                if head.gated_by:
                    self._enqueue(head, "BackoffComplete")
                else:
                    self._push_active(head, "BackoffComplete")
        if now >= self._next_unschedulable_flush:
            self._next_unschedulable_flush = now + _UNSCHEDULABLE_FLUSH_PERIOD
            self._flush_unschedulable(now)

    def _flush_unschedulable(self, now: float) -> None:
        unschedulable = (q for q in self._pods.values() if q.place is Place.UNSCHEDULABLE and q.move is None)
        expired = [q for q in unschedulable if now - q.timestamp > self._max_unschedulable_seconds]
        for queued in expired:
            self._unschedulable.remove(queued.info.uid)
            queued.was_flushed, queued.move = True, (Requeue.AFTER_BACKOFF, "UnschedulableTimeout")
        self._begin_moving(expired)

    def _is_backing_off(self, queued: QueuedPod) -> bool:
        return self._backoff_policy.is_backing_off(queued, self._clock.monotonic())

    # -- moving between places -----------------------------------------------------------------------------------

    def _place(self, queued: QueuedPod, decision: Requeue, event: str) -> None:
        """Put a pod where a requeue decision takes it; ``event`` is the label of its cause."""
        queued.move = None
        if decision is Requeue.SKIP:
            queued.place, queued.requeue_when_ungated = Place.UNSCHEDULABLE, False
            queued.ticket = next(self._tickets)
            self._unschedulable.add(queued)
            self._observer.pod_enqueued(_UNSCHEDULABLE, event)
            return
        queued.requeue_when_ungated = True
        if decision is Requeue.AFTER_BACKOFF and self._is_backing_off(queued):
            self._back_off(queued, event)
        else:
            self._enqueue(queued, event)
        if queued.place is not Place.GATED:
            queued.requeue_when_ungated = False

    def _back_off(self, queued: QueuedPod, event: str) -> None:
        if self._is_gated(queued, event):
            return
        heap = self._backoff if queued.rejectors or queued.pending else self._error_backoff
        heap.push(self._sort.sort_key(queued), next(self._tickets), queued, until=queued.backoff_expiration)
        self._observer.pod_enqueued(_BACKOFF, event)
        self._on_change()

    def _enqueue(self, queued: QueuedPod, event: str) -> None:
        """Move a pod to activeQ unless a PreEnqueue plugin gates it."""
        self._pods[queued.info.uid] = queued
        if not self._is_gated(queued, event):
            self._push_active(queued, event)

    def _push_active(self, queued: QueuedPod, event: str) -> None:
        if queued.initial_attempt is None:
            queued.initial_attempt = self._clock.monotonic()
        self._active.push(self._sort.sort_key(queued), next(self._tickets), queued)
        self._observer.pod_enqueued(_ACTIVE, event)
        self._on_change()

    def _is_gated(self, queued: QueuedPod, event: str) -> bool:
        """Run the PreEnqueue plugins; a pod that one of them rejects stays out of activeQ and backoffQ."""
        gates = self._gates_of(queued)
        runtime = self._profiles[queued.info.spec.scheduler_name].queueing
        status = runtime.run_pre_enqueue_plugins(queued.info, gates)
        if status.ok:
            self._unschedulable.remove(queued.info.uid)
            queued.gated_by, queued.gates = "", None
            return False
        for listener in self._gating_listeners:
            listener.pod_gated(queued.info, status)
        queued.gated_by = status.plugin
        if status.code is Code.ERROR:
            # No event is known to help, so the plugins run again after a backoff.
            self._unschedulable.remove(queued.info.uid)
            queued.consecutive_errors += 1
            queued.timestamp = self._clock.monotonic()
            queued.backoff_expiration = self._backoff_policy.expiration(queued)
            self._push_error_backoff(queued)
            self._observer.pod_enqueued(_BACKOFF, event)
            return True
        if queued.place is not Place.GATED:
            queued.place, queued.ticket = Place.GATED, next(self._tickets)
            self._observer.pod_enqueued(_UNSCHEDULABLE, event)
        queued.rejectors |= {queued.gated_by}
        is_held = any(gate.name == queued.gated_by and gate.gates_during_preemption for gate in gates)
        self._unschedulable.add(queued, is_held=is_held)
        return True

    def _shared(self, plugins: frozenset[str]) -> frozenset[str]:
        """The set of equal plugins that other pods have already, else this one."""
        found = self._plugin_sets.get(plugins)
        return self._plugin_sets.put(plugins, plugins) if found is None else found

    def _gates_of(self, queued: QueuedPod) -> Sequence[PreEnqueuePlugin]:
        """The PreEnqueue plugins to call for a pod now."""
        info = queued.info
        if queued.gates is None or queued.gates[0] is not info:
            queued.gates = info, self._profiles[info.spec.scheduler_name].queueing.gates_of(info)
        gates = queued.gates[1]
        return gates if info.uid in self._preempting else [gate for gate in gates if not gate.gates_during_preemption]

    def _push_error_backoff(self, queued: QueuedPod) -> None:
        rank = self._sort.sort_key(queued)
        self._error_backoff.push(rank, next(self._tickets), queued, until=queued.backoff_expiration)
        self._on_change()

    def _remove(self, queued: QueuedPod) -> None:
        self._unschedulable.remove(queued.info.uid)
        del self._pods[queued.info.uid]
        queued.ticket, queued.move = 0, None
