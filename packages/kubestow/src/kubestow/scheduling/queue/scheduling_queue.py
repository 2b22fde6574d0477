"""The scheduling queue (semantics 6): the pending pods of a scheduler.

A pending pod is in one of the queue's places (:mod:`.places`), or in flight: popped, and not done yet. Events are kept
meanwhile and replayed when the pod returns, so none is lost. Gates (:mod:`.gating`) and moves
(:mod:`.moves`) take pods from one place to another. The queue never waits: time comes from the injected clock, and the
scheduling loop calls :meth:`QueueMoves.flush` at :meth:`QueueMoves.next_flush`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kubestow.cluster.changes.events import ClusterEvent
from kubestow.cluster.pods.caches import BoundedCache
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.config import FeatureGates
from kubestow.framework.gang import GangOutcome
from kubestow.framework.profile import Profile
from kubestow.rules.minors import Behaviour
from kubestow.scheduling.environment import Environment
from kubestow.scheduling.events.cluster_events import ASSIGNED_POD_DELETE, EVERY_EVENT, UNSCHEDULABLE_POD_ADD
from kubestow.scheduling.queue.budget import delay_after
from kubestow.scheduling.queue.gating import Gating, GatingAfterBackoff
from kubestow.scheduling.queue.moves import QueueMoves
from kubestow.scheduling.queue.places import (
    BackoffPolicy,
    ExactBackoffPolicy,
    InFlightEvent,
    PodsInFlight,
    QueuePlaces,
    count_attempts,
    count_failures,
)
from kubestow.scheduling.queue.queueing_hints import QueueingHints
from kubestow.scheduling.queue.unschedulable import UnschedulablePods
from kubestow.scheduling.queued_pod import Place, QueuedPod, QueueingStrategy

#: The places that pods leave without an event.
_BUSY = (Place.ACTIVE, Place.BACKOFF, Place.ERROR_BACKOFF, Place.IN_FLIGHT)
#: Sets of plugins that are shared between pods, at most; a cluster has a few dozen.
_MOST_PLUGIN_SETS = 1000


class SchedulingQueue:
    """All pending pods of the profiles. ``on_change`` is called when a pod becomes ready or starts to back off.

    ``backoff_seconds`` are the shortest and the longest backoff. The gates, and their minor version, choose the rules.
    """

    #: The classes of the places, of the gates with and without SchedulerPopFromBackoffQ, and of the moves.
    _kinds: tuple[type[QueuePlaces], type[Gating], type[GatingAfterBackoff], type[QueueMoves]] = (
        QueuePlaces,
        Gating,
        GatingAfterBackoff,
        QueueMoves,
    )

    def __init__(
        self,
        profiles: Mapping[str, Profile],
        hints: QueueingHints,
        environment: Environment,
        *,
        gates: FeatureGates | None = None,
        backoff_seconds: tuple[float, float] = (1.0, 10.0),
        max_unschedulable_seconds: float = 300.0,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._profiles, self._hints = profiles, hints
        self._clock, self._observer = environment.clock, environment.observer
        gates = gates or FeatureGates()
        minor, pops_from_backoff = gates.minor, gates.enabled("SchedulerPopFromBackoffQ")
        self._requeues_for_freed_nominations = minor.has(Behaviour.FREED_NOMINATIONS_REQUEUE)
        policy = BackoffPolicy if pops_from_backoff else ExactBackoffPolicy
        count = count_failures if minor.has(Behaviour.ERRORS_BACK_OFF_APART) else count_attempts
        places, gating, gating_after_backoff, moves = self._kinds
        self.places = places(
            # Profiles share one QueueSort plugin; the first one's runtime computes the keys.
            next(iter(profiles.values())).queueing,
            UnschedulablePods(hints.signatures, hints.keys),
            backoff=policy(*backoff_seconds, count),
            observer=environment.observer,
            on_change=on_change,
            pops_from_backoff=pops_from_backoff,
        )
        self.gating = (gating if pops_from_backoff else gating_after_backoff)(profiles, self.places, minor)
        self.moves = moves(
            self.places,
            self.gating,
            hints,
            environment.clock,
            max_unschedulable_seconds=max_unschedulable_seconds,
            on_change=on_change,
            minor=minor,
        )
        self.in_flight = PodsInFlight()
        #: All queued pods by uid, those in flight not among them.
        self.pods: Mapping[str, QueuedPod] = self.places.pods
        #: The pods of the scheduling cycle that began last: the one that was popped, and the members of its gang.
        self._attempted: list[QueuedPod] = []
        #: Equal sets of plugins that rejected pods are one object: many pods wait for the same reasons.
        self._plugin_sets: BoundedCache[frozenset[str], frozenset[str]] = BoundedCache(_MOST_PLUGIN_SETS)

    def counts(self) -> dict[Place, int]:
        """How many pods are in each place, and in flight."""
        return self.places.counts() | {Place.IN_FLIGHT: len(self.in_flight)}

    @property
    def has_work(self) -> bool:
        """Whether there are pods to pop, those of namespaces in debt included, or helped pods to move."""
        return self.moves.is_moving or self.places.has_ready(self._clock.monotonic())

    @property
    def is_empty(self) -> bool:
        """Whether no pod is queued or in flight."""
        return not self.pods and not self.in_flight

    def entity_counts(self) -> Counter[tuple[Place, str]]:
        """How many entities are in each place: of the kind ``pod``, or ``podgroup`` where groups are entities."""
        return Counter({(place, "pod"): count for place, count in self.places.counts().items()})

    def incomplete_count(self) -> int | None:
        """How many of the gated pods wait for the object of their group; None where groups are no entities."""
        return None

    def returned_count(self) -> int:
        """How many pods wait for the end of the attempt at their group, where groups are entities."""
        return 0

    def is_busy(self, since: float) -> bool:
        """Whether pods are ready, in flight, or back off, so that they are tried without an event.

        ``since`` is when the cluster changed last, in seconds of the clock.
        """
        counts = self.counts()
        return any(counts[place] for place in _BUSY)

    # -- pods from the watch -----------------------------------------------------------------------------------------

    def add(self, info: PodInfo) -> bool:
        """Queue a new pending pod; without effect if it is queued or in flight, or another scheduler's.

        Returns whether it is new and gated.
        """
        if info.uid in self.pods or info.uid in self.in_flight or info.spec.scheduler_name not in self._profiles:
            return False
        now = self._clock.monotonic()
        queued = QueuedPod(info, now)
        self.gating.enqueue(queued, UNSCHEDULABLE_POD_ADD.label, now)
        return bool(queued.gated_by)

    def update(self, old: PodInfo, new: PodInfo, events: Iterable[ClusterEvent]) -> None:
        """Update a pending pod; ``events`` name what changed about it (semantics 6.6)."""
        if new.uid in self.in_flight:
            for event in events:
                self.in_flight.keep(event, old, new)
            return
        queued = self.moves.settle(new.uid)
        if queued is None:
            self.add(new)
            return
        queued.info = new
        unschedulable = self.places.unschedulable
        if queued.place is Place.ACTIVE:
            self.places.push_active(queued)
        elif queued.place in (Place.UNSCHEDULABLE, Place.GATED):
            unschedulable.add(queued, is_held=unschedulable.is_held(new.uid))
            self._requeue_updated(queued, old, events)

    def _requeue_updated(self, queued: QueuedPod, old: PodInfo, events: Iterable[ClusterEvent]) -> None:
        """Requeue an unschedulable or gated pod if its own update may help it."""
        for event in events:
            decisions = self._hints.decisions(event, self._hints.matching(event), old, queued.info)
            if self.moves.requeue_if_helped(queued, decisions):
                break

    def delete(self, uid: str) -> None:
        """Remove a pod that was deleted or assigned. A pod in flight is left to its cycle."""
        queued = self.pods.get(uid)
        if queued is not None:
            self.places.remove(queued)

    # -- pods to and from the scheduling cycle -----------------------------------------------------------------------

    def pop(self) -> QueuedPod | None:
        """The next pod to schedule, in flight until :meth:`PodsInFlight.done`.

        Pods that events have helped are moved first, all of them. The scheduling loop pops only when none are left; it
        moves them in steps. Programs that drive a queue without that loop need not. None when no pod is ready, or only
        pods of namespaces in debt; :attr:`has_work` tells them apart.
        """
        while self.moves.is_moving:
            self.moves.continue_moving()
        now = self._clock.monotonic()
        return self._put_in_flight(self.places.pop(now), now)

    def pop_in_debt(self) -> QueuedPod | None:
        """The next pod of a namespace in debt, if no other pod is ready; as :meth:`pop`."""
        return self._put_in_flight(self.places.pop_in_debt(), self._clock.monotonic())

    def pop_pod(self, uid: str) -> QueuedPod | None:
        """A particular pod, as if it were the next.

        None if it is not queued or gated, or backs off after an error or an attempt that took too long.
        """
        queued = self.moves.settle(uid)
        if queued is None or self.error_backoff_end(uid) is not None:
            return None
        if queued.place is not Place.ACTIVE:
            self.gating.activate(queued, "ForceActivate", self._clock.monotonic())
        if queued.place is not Place.ACTIVE:
            return None
        return self._put_in_flight(queued, self._clock.monotonic(), within_attempt=True)

    def pop_members(self, first: QueuedPod, uids: Iterable[str]) -> list[QueuedPod]:
        """A pod that was popped and those of these uids that can be popped: a gang, in the order of its placement."""
        others = (self.pop_pod(uid) for uid in uids)
        members = [first, *(queued for queued in others if queued is not None)]
        return sorted(members, key=lambda queued: (-queued.info.priority, queued.initial_attempt or queued.timestamp))

    def drop_popped(self, queued: QueuedPod) -> None:
        """The pod that was popped needs no attempt."""
        self.in_flight.done(queued.info.uid)

    def end_group_attempt(self, outcome: GangOutcome | None) -> None:
        """The attempt at a gang has ended, None without an outcome. Where gangs are entities, the gang is requeued."""

    def _put_in_flight(self, queued: QueuedPod | None, now: float, *, within_attempt: bool = False) -> QueuedPod | None:
        """Begin an attempt with a pod, or take it into the attempt of a pod that was popped before, as with gangs."""
        if queued is None:
            return None
        if not within_attempt:
            self._attempted.clear()
        uid = queued.info.uid
        self.places.take(queued)
        queued.attempts += 1
        queued.attempt_began = now
        self.in_flight.add(uid)
        self._attempted.append(queued)
        self._observer.attempt_started(queued)
        return queued

    def charge(self, seconds: float, now: float) -> float:
        """The scheduling cycle that has ended ``now`` took too long: put its pods aside and their namespaces in debt.

        Returns when the pods that it has not placed may be tried again, in seconds of the clock. Pods that wait for an
        event stay where they are, and those on their way to a node wait if they return.
        """
        until = now + delay_after(seconds)
        self.places.debts.incur((queued.info.namespace for queued in self._attempted), until, now)
        for queued in self._attempted:
            queued.put_aside_until = until
            if queued.place in (Place.ACTIVE, Place.BACKOFF, Place.ERROR_BACKOFF) and queued.info.uid in self.pods:
                queued.backoff_expiration = max(queued.backoff_expiration, until)
                self.places.enter_error_backoff(queued)
        return until

    def hold_back(self, pod: str, until: float) -> list[QueuedPod]:
        """An attempt of a pod did not end: no pod of its namespace is tried until then, in seconds of the clock.

        The pod is named by namespace and name. Returns it if it is queued.
        """
        namespace = pod.partition("/")[0]
        self.places.debts.hold_back(namespace, until)
        return [queued for queued in self.pods.values() if queued.info.key == pod]

    def return_after_failure(
        self, queued: QueuedPod, *, rejectors: frozenset[str], pending_plugins: frozenset[str], now: float
    ) -> None:
        """Return a pod whose attempt failed ``now``: to wait among the unschedulable pods, or to back off.

        Without rejectors and pending plugins it backs off, whatever the events: after an error, if there are no nodes
        at all, and after a binding that failed (semantics 6.2, 6.8).
        """
        uid = queued.info.uid
        newer = self.pods.get(uid)
        if newer is not None:  # the pod was done, changed afterwards, and was queued again
            self.places.remove(newer)
        events = list(self.in_flight.since(uid))
        queued.rejectors, queued.pending_plugins = self._shared(rejectors), self._shared(pending_plugins)
        queued.timestamp = now
        self.places.early_tries.fail(queued, now)
        if rejectors or pending_plugins:
            queued.unschedulable_count += 1
            queued.consecutive_errors = 0
        else:
            queued.consecutive_errors += 1
        queued.backoff_expiration = self.places.backoff_policy.expiration(queued)
        queued.was_flushed = False
        self.in_flight.done(uid)
        self.places.add(queued)
        self.moves.requeue_with_strategy(queued, self._replay(queued, events), "ScheduleAttemptFailure", now)

    def _shared(self, plugins: frozenset[str]) -> frozenset[str]:
        """The set of equal plugins that other pods have already, else this one."""
        found = self._plugin_sets.get(plugins)
        return self._plugin_sets.put(plugins, plugins) if found is None else found

    def _replay(self, queued: QueuedPod, events: Iterable[InFlightEvent]) -> QueueingStrategy:
        """What the events during the pod's attempt mean for it."""
        if not queued.rejectors and not queued.pending_plugins:
            return QueueingStrategy.AFTER_BACKOFF
        found = QueueingStrategy.SKIP
        for kept in events:
            decisions = self._hints.decisions(kept.event, self._hints.matching(kept.event), kept.old, kept.new)
            decision = decisions.of(queued.info, rejectors=queued.rejectors, pending_plugins=queued.pending_plugins)
            if decision is QueueingStrategy.IMMEDIATELY:
                return decision
            if decision is QueueingStrategy.AFTER_BACKOFF:
                found = decision
        return found

    def postpone(self, queued: QueuedPod, until: float) -> None:
        """Return a pod that was popped without an attempt; it backs off until then, in seconds of the clock."""
        queued.attempts -= 1
        queued.backoff_expiration = max(queued.backoff_expiration, until)
        self.in_flight.done(queued.info.uid)
        self.places.add(queued)
        self.places.enter_error_backoff(queued)

    def return_unattempted(self, queued: QueuedPod) -> None:
        """Return a pod that was popped without an attempt, and ask PreEnqueue again."""
        now = self._clock.monotonic()
        queued.attempts -= 1
        self.in_flight.done(queued.info.uid)
        self.gating.enqueue(queued, "ScheduleAttemptFailure", now)

    def error_backoff_end(self, uid: str) -> float | None:
        """When a pod's backoff after an error, or after an attempt that took too long, ends; None when it has none."""
        queued = self.pods.get(uid)
        if queued is not None and queued.put_aside_until > self._clock.monotonic():
            return queued.put_aside_until
        if queued is None or queued.place is not Place.ERROR_BACKOFF:
            return None
        if not self.places.backoff_policy.is_backing_off(queued, self._clock.monotonic()):
            return None
        return queued.backoff_expiration

    # -- requests ----------------------------------------------------------------------------------------------------

    def activate(self, uids: Iterable[str]) -> None:
        """Move pods to activeQ whatever their backoff, unless their last attempt took too long.

        Pods in flight return after their attempt.
        """
        for uid in uids:
            queued = self.moves.settle(uid)
            if queued is None and uid in self.in_flight:
                self.in_flight.keep(EVERY_EVENT, only=uid)
            elif queued is not None and queued.place is not Place.ACTIVE:
                now = self._clock.monotonic()
                if queued.put_aside_until > now:
                    self.moves.requeue_with_strategy(queued, QueueingStrategy.AFTER_BACKOFF, "ForceActivate", now)
                else:
                    self.gating.activate(queued, "ForceActivate", now)

    def suggest_node(self, uid: str, node_name: str) -> None:
        """Have a queued pod tried on a node first, until its next attempt or update."""
        queued = self.moves.settle(uid)
        if queued is not None:
            queued.info = queued.info.nominated_to(node_name)

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
        self.in_flight.keep(event, old, new)
        self.moves.requeue_helped(event, old, new, among=among)

    def requeue_for_freed_nomination(self, pod: PodInfo, node_name: str | None) -> bool:
        """Requeue the pods that may use a node for which a pod is no longer nominated; whether there is such a node.

        Those are pods of no higher priority, because a nomination does not count for pods of higher priority. A pod
        that is on the node now releases nothing.
        """
        if not self._requeues_for_freed_nominations or not node_name or node_name == pod.spec.node_name:
            return False

        def may_use_node(other: PodInfo) -> bool:
            return other.priority <= pod.priority and other.uid != pod.uid

        self.move_all_to_active_or_backoff(ASSIGNED_POD_DELETE, pod.on(node_name), None, among=may_use_node)
        return True
