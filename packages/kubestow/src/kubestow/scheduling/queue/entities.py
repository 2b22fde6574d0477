"""Pod groups as entities of the queue, as since 1.37 (Behaviour.POD_GROUPS_ARE_QUEUED, semantics 6.11).

All queued pods of a group, or of a tree of groups, are in one place of the queue together: in activeQ, backing off, or
gated. The group has an order, a backoff and a number of attempts of its own. It is gated while any of its
pods is, and an event that helps one of them helps the group. After a failed attempt it backs off and is tried again
whatever happens; it does not wait for events. Pods that come while their group is in flight wait for its return.

The classes derive from those of the queue of single pods, which they leave as it is for all other pods: a
:class:`QueuedGroup` takes the place of a pod in the heaps, and its members have its place and ticket.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kubestow.cluster.changes.events import ClusterEvent
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.gang import GangOutcome, GangPlugin
from kubestow.framework.interface import PreEnqueuePlugin
from kubestow.framework.status import SUCCESS, Code, Status
from kubestow.scheduling.queue.gating import Gating, GatingAfterBackoff
from kubestow.scheduling.queue.moves import QueueMoves
from kubestow.scheduling.queue.places import PodHeap, QueuePlaces
from kubestow.scheduling.queue.scheduling_queue import SchedulingQueue
from kubestow.scheduling.queued_pod import NO_BACKOFF, Place, QueuedPod, QueueingStrategy

#: The places as the observer names them.
_ACTIVE, _BACKOFF, _UNSCHEDULABLE = "active", "backoff", "unschedulable"
_NAMES = {Place.ACTIVE: _ACTIVE, Place.BACKOFF: _BACKOFF, Place.ERROR_BACKOFF: _BACKOFF, Place.GATED: _UNSCHEDULABLE}
_WAITING = (Place.ACTIVE, Place.BACKOFF, Place.ERROR_BACKOFF)
_AFTER_ATTEMPT = "ScheduleAttemptFailure"


@dataclass(slots=True, eq=False)
class QueuedGroup(QueuedPod):
    """A group in the queue, or in flight, kube-scheduler's QueuedPodGroupInfo. ``info`` is that of one of its pods."""

    name: Hashable = None
    #: Its pods in the queue by uid; while it is in flight those that have returned or come since.
    members: OrderedDict[str, QueuedPod] = field(default_factory=OrderedDict)
    #: While it is gated: those that are known to fail PreEnqueue for reasons of their own, with the first's.
    blockers: OrderedDict[str, Status] = field(default_factory=OrderedDict)

    def in_order(self) -> list[QueuedPod]:
        """The members in the order in which they are placed: of higher priority, tried more often, waiting longer."""
        return sorted(
            self.members.values(),
            key=lambda queued: (-queued.info.priority, -queued.attempts, queued.timestamp, queued.info.name),
        )


class EntityPlaces(QueuePlaces):
    """The queued pods and groups by place. The pods of a group are listed in :attr:`pods` with the place of it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        #: The groups that are queued or in flight.
        self.groups: dict[Hashable, QueuedGroup] = {}
        self._group_of: dict[str, QueuedGroup] = {}
        #: The rejected groups. Unlike pods in backoffQ they are never tried early.
        self._rejected = PodHeap(Place.BACKOFF)
        self._backing_off.append(self._rejected)

    def group_of(self, uid: str) -> QueuedGroup | None:
        """The group of a queued pod; None for a pod that is queued by itself, or not at all."""
        return self._group_of.get(uid)

    # -- the members of groups ---------------------------------------------------------------------------------------

    def join(self, queued: QueuedPod, group: QueuedGroup) -> None:
        """Make a pod a member of a group, at the group's place."""
        uid = queued.info.uid
        self.unschedulable.remove(uid)
        queued.move = None
        group.put_aside_until = max(group.put_aside_until, queued.put_aside_until)
        self.groups[group.name] = group
        group.members[uid] = self.pods[uid] = queued
        self._group_of[uid] = group
        self._align(queued, group)

    def leave(self, queued: QueuedPod) -> None:
        """Take a pod out of its group, if it is in one; it remains in the queue. A group without pods is dropped."""
        group = self._group_of.pop(queued.info.uid, None)
        if group is None:
            return
        del group.members[queued.info.uid]
        group.blockers.pop(queued.info.uid, None)
        if group.members:
            group.info = next(iter(group.members.values())).info
        elif group.place is not Place.IN_FLIGHT:
            self.drop(group)

    def drop(self, group: QueuedGroup) -> None:
        """Remove a group without members."""
        del self.groups[group.name]
        group.ticket = 0

    def begin_attempt(self, group: QueuedGroup) -> list[QueuedPod]:
        """Take the members out of a group that was popped, to be put in flight; they are returned in their order."""
        members = group.in_order()
        group.place = Place.IN_FLIGHT
        group.members = OrderedDict()
        for queued in members:
            del self._group_of[queued.info.uid]
        return members

    def observe_joined(self, group: QueuedGroup, event: str) -> None:
        """Report that a pod has joined a group that is not in flight."""
        self._observer.group_joined(_NAMES[group.place], event)

    @staticmethod
    def _align(queued: QueuedPod, group: QueuedGroup) -> None:
        queued.place, queued.ticket = group.place, group.ticket
        queued.backoff_expiration, queued.put_aside_until = group.backoff_expiration, group.put_aside_until

    def _entered(self, group: QueuedGroup, place: str, event: str) -> None:
        for queued in group.members.values():
            self._align(queued, group)
        if event:
            self._observer.group_enqueued(place, event, len(group.members))
        self._on_change()

    # -- entering a place --------------------------------------------------------------------------------------------

    def add(self, queued: QueuedPod) -> None:
        if not isinstance(queued, QueuedGroup):  # its members are in the queue already
            super().add(queued)

    def enter_active(self, queued: QueuedPod, event: str, now: float) -> None:
        if not isinstance(queued, QueuedGroup):
            super().enter_active(queued, event, now)
            return
        for entity in (queued, *queued.members.values()):
            if entity.initial_attempt is None:
                entity.initial_attempt = now
        self.push_active(queued)
        self._entered(queued, _ACTIVE, event)

    def push_active(self, queued: QueuedPod) -> None:
        super().push_active(self._group_of.get(queued.info.uid, queued))

    def enter_backoff(self, queued: QueuedPod, event: str) -> None:
        if not isinstance(queued, QueuedGroup):
            super().enter_backoff(queued, event)
        elif queued.consecutive_errors or queued.put_aside_until >= queued.backoff_expiration:
            self.enter_error_backoff(queued, event)
        else:
            self._back_off_in(self._rejected, queued)
            self._entered(queued, _BACKOFF, event)

    def enter_error_backoff(self, queued: QueuedPod, event: str = "") -> None:
        if isinstance(queued, QueuedGroup):
            self._back_off_in(self._error_backoff, queued)
            self._entered(queued, _BACKOFF, event)
        elif queued.info.uid not in self._group_of:
            super().enter_error_backoff(queued, event)

    def enter_gated(self, queued: QueuedPod, event: str, *, is_held: bool) -> None:
        if not isinstance(queued, QueuedGroup):
            super().enter_gated(queued, event, is_held=is_held)
            return
        if queued.place is not Place.GATED:
            queued.place, queued.ticket = Place.GATED, next(self._tickets)
            self._entered(queued, _UNSCHEDULABLE, event)
        for member in queued.members.values():
            self.wait_at_gate(member, is_held=is_held)

    def wait_at_gate(self, queued: QueuedPod, *, is_held: bool = False) -> None:
        """Have a member of a gated group wait for an event that helps it."""
        queued.rejectors |= {queued.gated_by}
        self.unschedulable.add(queued, is_held=is_held)

    # -- leaving the queue -------------------------------------------------------------------------------------------

    def remove(self, queued: QueuedPod) -> None:
        super().remove(queued)
        self.leave(queued)


class EntityGating(Gating):
    """Lets pods and groups into activeQ and backoffQ, or gates them; pods of a group join it."""

    _places: EntityPlaces

    def group_name(self, pod: PodInfo) -> Hashable | None:
        """The group with which a pod is one entity; None for a pod that is queued by itself."""
        return self._profiles[pod.spec.scheduler_name].gangs.queued_group_of(pod)

    def enqueue(self, queued: QueuedPod, event: str, now: float) -> None:
        if not self.join_group(queued, event, now):
            super().enqueue(queued, event, now)

    def activate(self, queued: QueuedPod, event: str, now: float) -> None:
        group = self._places.group_of(queued.info.uid)
        if group is None or group.place is not Place.IN_FLIGHT:
            super().activate(queued if group is None else group, event, now)

    def join_group(self, queued: QueuedPod, event: str, now: float) -> bool:
        """Have a pod join its group, a new one if it is the first; False for a group, and for a pod without one."""
        if isinstance(queued, QueuedGroup) or (name := self.group_name(queued.info)) is None:
            return False
        group = self._places.groups.get(name)
        if group is None:
            self._begin_group(queued, name, event, now)
            return True
        self._places.join(queued, group)
        if group.place is Place.IN_FLIGHT:
            return True
        status = self._own_status(queued)
        if group.place is Place.GATED:
            self._gate_member(queued, group, status, event)
            return True
        if status.ok:
            status = self._status_of_group(group)
        if status.ok:
            if queued.initial_attempt is None and group.place is Place.ACTIVE:
                queued.initial_attempt = now
            queued.gated_by = queued.gate_message = ""
            self._places.observe_joined(group, event)
        else:
            self._gate(group, {queued.info.uid: status}, event, now)
        return True

    def _begin_group(self, queued: QueuedPod, name: Hashable, event: str, now: float) -> None:
        """Queue a group with its first pod. It backs off as the pod, which may come back from a failed binding."""
        group = QueuedGroup(
            queued.info,
            queued.timestamp,
            initial_attempt=queued.initial_attempt,
            backoff_expiration=queued.backoff_expiration,
            put_aside_until=queued.put_aside_until,
            name=name,
        )
        self._places.join(queued, group)
        if self._places.backoff_policy.is_backing_off(group, now):
            self.back_off(group, event, now)
        else:
            self.enqueue(group, event, now)

    def check(self, group: QueuedGroup, event: str, now: float, *, has_lost_blocker: bool) -> None:
        """Gate a group that has lost a pod, if the others are too few now; or admit it, if only that pod gated it."""
        if has_lost_blocker and not group.blockers:
            self.enqueue(group, event, now)
        elif group.place in _WAITING:
            status = self._status_of_group(group)
            if not status.ok:
                self._gate(group, {}, event, now, otherwise=status)

    # -- PreEnqueue --------------------------------------------------------------------------------------------------

    def _admit(self, queued: QueuedPod, event: str, now: float) -> bool:
        if not isinstance(queued, QueuedGroup):
            return super()._admit(queued, event, now)
        own = {uid: self._own_status(member) for uid, member in queued.members.items()}
        failed = {uid: status for uid, status in own.items() if not status.ok}
        of_group = self._status_of_group(queued)
        if failed or not of_group.ok:
            self._gate(queued, failed, event, now, otherwise=of_group)
            return False
        self._open(queued)
        return True

    def _open(self, group: QueuedGroup) -> None:
        group.gated_by = group.gate_message = ""
        group.blockers.clear()
        for uid, member in group.members.items():
            self._places.unschedulable.remove(uid)
            member.gated_by, member.gate_message, member.gates = "", "", None

    def _gates_of(self, queued: QueuedPod) -> Sequence[PreEnqueuePlugin]:
        """That of groups first: whatever else gates a pod without its group, it joins the group when that appears."""
        return sorted(super()._gates_of(queued), key=lambda gate: not isinstance(gate, GangPlugin))

    def _own_status(self, queued: QueuedPod) -> Status:
        """What the PreEnqueue plugins say of one pod, apart from that of its group."""
        return self._run(queued, [gate for gate in self._gates_of(queued) if not isinstance(gate, GangPlugin)])

    def _status_of_group(self, group: QueuedGroup) -> Status:
        """What the PreEnqueue plugin of groups says; it is the same for all pods."""
        first = next(iter(group.members.values()))
        return self._run(first, [gate for gate in self._gates_of(first) if isinstance(gate, GangPlugin)])

    def _run(self, queued: QueuedPod, gates: Sequence[PreEnqueuePlugin]) -> Status:
        if not gates:
            return SUCCESS
        return self._profiles[queued.info.spec.scheduler_name].queueing.run_pre_enqueue_plugins(queued.info, gates)

    def _gate(
        self,
        group: QueuedGroup,
        failed: dict[str, Status],
        event: str,
        now: float,
        *,
        otherwise: Status = SUCCESS,
    ) -> None:
        """Gate a group because pods of it failed PreEnqueue, or all of them for the reason ``otherwise``."""
        first = next(iter(failed.values()), otherwise)
        shared = first if otherwise.ok else otherwise
        for uid, member in group.members.items():
            status = failed.get(uid, shared)
            if uid in failed or not otherwise.ok:
                for listener in self._listeners:
                    listener.pod_gated(member.info, status)
            member.gated_by, member.gate_message = status.plugin, status.message
        group.gated_by, group.gate_message = first.plugin, first.message
        if any(status.code is Code.ERROR for status in (*failed.values(), otherwise)):
            for uid in group.members:
                self._places.unschedulable.remove(uid)
            group.blockers.clear()
            group.consecutive_errors += 1
            group.timestamp = now
            group.backoff_expiration = expiration_of(group, self._places)
            self._places.enter_error_backoff(group, event)
        else:
            group.blockers = OrderedDict(failed)
            self._places.enter_gated(group, event, is_held=self._is_held(group))

    def _is_held(self, group: QueuedGroup) -> bool:
        """Whether a group waits for its own preemption."""
        return any(self._is_gated_during_preemption(member, group.gated_by) for member in group.members.values())

    def _is_gated_during_preemption(self, queued: QueuedPod, plugin: str) -> bool:
        return any(gate.name == plugin and gate.gates_during_preemption for gate in self._gates_of(queued))

    def _gate_member(self, queued: QueuedPod, group: QueuedGroup, status: Status, event: str) -> None:
        """A pod has joined a gated group: it waits with it, for a reason of its own if it has one."""
        if not status.ok:
            group.blockers[queued.info.uid] = status
        self._places.observe_joined(group, event)
        self._wait_with_group(queued, group, status)

    def remains_gated(self, queued: QueuedPod, group: QueuedGroup) -> bool:
        """Whether a gated group stays gated though an event has helped a pod of it, which then waits again.

        It does while pods are known to fail PreEnqueue. Only the helped pod is checked: where thousands of pods of a
        group are ungated one by one, the whole group is checked once.
        """
        status = self._own_status(queued)
        if status.code is Code.ERROR or self.group_name(queued.info) != group.name:
            return False
        if status.ok:
            group.blockers.pop(queued.info.uid, None)
        else:
            group.blockers[queued.info.uid] = status
        if not group.blockers:
            return False
        first = next(iter(group.blockers.values()))
        group.gated_by, group.gate_message = first.plugin, first.message
        self._wait_with_group(queued, group, status)
        return True

    def _wait_with_group(self, queued: QueuedPod, group: QueuedGroup, status: Status) -> None:
        """Have a pod wait with its gated group, for a reason of its own, of all pods, or of another pod."""
        if status.ok:
            status = self._status_of_group(group)
        if status.ok:
            queued.gated_by, queued.gate_message = group.gated_by, group.gate_message
        else:
            for listener in self._listeners:
                listener.pod_gated(queued.info, status)
            queued.gated_by, queued.gate_message = status.plugin, status.message
        self._places.wait_at_gate(queued, is_held=self._is_gated_during_preemption(queued, group.gated_by))

    def preemption_ended(self, uids: Iterable[str]) -> None:
        uids = list(uids)
        super().preemption_ended(uids)
        for uid in uids:  # the gate that held them need not be asked about each of them
            group = self._places.group_of(uid)
            if group is not None:
                group.blockers.pop(uid, None)


class EntityGatingAfterBackoff(EntityGating, GatingAfterBackoff):
    """The same without the gate SchedulerPopFromBackoffQ."""

    def back_off(self, queued: QueuedPod, event: str, now: float) -> None:
        if isinstance(queued, QueuedGroup):
            self._open(queued)
            self._places.enter_backoff(queued, event)
        else:
            super().back_off(queued, event, now)


def expiration_of(group: QueuedGroup, places: QueuePlaces) -> float:
    """When the backoff of a group ends; the longest one grows with the square root of the number of its pods."""
    policy = places.backoff_policy
    size = max(1, len(group.members))
    return replace(policy, maximum=policy.maximum * math.sqrt(size)).expiration(group)


class EntityMoves(QueueMoves):
    """Moves pods and groups between places; a group is moved as soon as an event helps one of its pods."""

    _places: EntityPlaces
    _gating: EntityGating

    def requeue_with_strategy(self, queued: QueuedPod, strategy: QueueingStrategy, event: str, now: float) -> None:
        group = self._places.group_of(queued.info.uid)
        if group is not None:
            self._requeue_helped(queued, group, strategy, event, now)
        elif not self._gating.join_group(queued, event, now):
            super().requeue_with_strategy(queued, strategy, event, now)

    def _requeue_helped(
        self, queued: QueuedPod, group: QueuedGroup, strategy: QueueingStrategy, event: str, now: float
    ) -> None:
        """Requeue the group of a pod that an event has helped."""
        queued.requeue_when_ungated = True
        if group.place is Place.GATED and self._gating.remains_gated(queued, group):
            queued.move = None
            return
        if any(member.move is not None and member.move[0].outranks(strategy) for member in group.members.values()):
            strategy = QueueingStrategy.IMMEDIATELY
        for member in group.members.values():
            member.move, member.requeue_when_ungated = None, True
        if group.place is not Place.IN_FLIGHT:
            self.requeue_group(group, event, now, waits=strategy is QueueingStrategy.AFTER_BACKOFF)
        if group.place is not Place.GATED:
            for member in group.members.values():
                member.requeue_when_ungated = False

    def requeue_group(self, group: QueuedGroup, event: str, now: float, *, waits: bool) -> None:
        """Move a group to activeQ, or to backoffQ if it backs off and ``waits`` for that; or gate it.

        If its pods belong to another group now, or to none, they are queued anew.
        """
        if self._gating.group_name(group.info) != group.name:
            self.dissolve(group, event, now)
            return
        if group.put_aside_until > now:
            waits = True
            group.backoff_expiration = max(group.backoff_expiration, group.put_aside_until)
        if waits and self._places.backoff_policy.is_backing_off(group, now):
            self._gating.back_off(group, event, now)
        else:
            self._gating.enqueue(group, event, now)

    def dissolve(self, group: QueuedGroup, event: str, now: float) -> None:
        """Queue the pods of a group anew, each where it belongs now."""
        group.place = Place.UNSCHEDULABLE
        for member in list(group.members.values()):
            self._places.leave(member)
            self._places.unschedulable.remove(member.info.uid)
            member.place = Place.UNSCHEDULABLE
            self._gating.enqueue(member, event, now)


class EntityQueue(SchedulingQueue):
    """All pending pods of the profiles, those of pod groups as entities."""

    _kinds = EntityPlaces, EntityGating, EntityGatingAfterBackoff, EntityMoves
    places: EntityPlaces
    gating: EntityGating
    moves: EntityMoves
    #: The group of the attempt in progress, None for none; and whether the cycle has taken its pods.
    _popped: QueuedGroup | None = None
    _is_taken = False
    #: The members of the group whose attempt began last.
    _popped_members: frozenset[QueuedPod] = frozenset()

    def entity_counts(self) -> Counter[tuple[Place, str]]:
        groups, is_incomplete = self.places.groups.values(), self._is_incomplete
        single = (queued for uid, queued in self.pods.items() if self.places.group_of(uid) is None)
        counts = Counter((queued.place, "pod") for queued in single if not is_incomplete(queued))
        counts.update((group.place, "podgroup") for group in groups if group.members)
        return counts

    def incomplete_count(self) -> int | None:
        return sum(map(self._is_incomplete, self.pods.values()))

    def returned_count(self) -> int:
        return sum(len(group.members) for group in self.places.groups.values() if group.place is Place.IN_FLIGHT)

    def _is_incomplete(self, queued: QueuedPod) -> bool:
        """Whether a pod is gated because its group, or a composite one above it, does not exist."""
        if queued.place is not Place.GATED or self.places.group_of(queued.info.uid) is not None:
            return False
        plugin = self._profiles[queued.info.spec.scheduler_name].runtime.plugins.gang_source
        return plugin is not None and queued.gated_by == plugin.name and queued.info.spec.scheduling_group is not None

    def is_busy(self, since: float) -> bool:
        """The same, apart from groups that were rejected after ``since``: another attempt would end alike."""
        for queued in self.pods.values():
            entity = self.places.group_of(queued.info.uid) or queued
            is_rejected_group = isinstance(entity, QueuedGroup) and not entity.consecutive_errors
            if entity.place in _WAITING and not (
                is_rejected_group and entity.place is not Place.ACTIVE and entity.timestamp > since
            ):
                return True
        return bool(len(self.in_flight))

    # -- pods from the watch -----------------------------------------------------------------------------------------

    def update(self, old: PodInfo, new: PodInfo, events: Iterable[ClusterEvent]) -> None:
        group = self.places.group_of(new.uid)
        if group is not None and group.info.uid == new.uid:
            group.info = new
        super().update(old, new, events)

    def delete(self, uid: str) -> None:
        group = self.places.group_of(uid)
        is_blocker = group is not None and uid in group.blockers
        super().delete(uid)
        if group is not None and group.members:
            now = self._clock.monotonic()
            self.gating.check(group, "UnschedulablePodDelete", now, has_lost_blocker=is_blocker)

    # -- groups to and from the scheduling cycle -----------------------------------------------------------------------

    def _put_in_flight(self, queued: QueuedPod | None, now: float, *, within_attempt: bool = False) -> QueuedPod | None:
        """Begin an attempt with a pod, or with all pods of a group, of which the first is returned."""
        if not isinstance(queued, QueuedGroup):
            return super()._put_in_flight(queued, now, within_attempt=within_attempt)
        if self.gating.group_name(queued.info) != queued.name:
            self.moves.dissolve(queued, _AFTER_ATTEMPT, now)
            return self.pop()
        members = self.places.begin_attempt(queued)
        queued.attempts += 1
        queued.attempt_began = now
        self._popped, self._is_taken, self._popped_members = queued, False, frozenset(members)
        for number, member in enumerate(members):
            super()._put_in_flight(member, now, within_attempt=number > 0)
        return members[0]

    def pop_members(self, first: QueuedPod, uids: Iterable[str]) -> list[QueuedPod]:
        """The pods of the group that was popped; those of other uids, terminating or placed ones, leave the queue."""
        if self._popped is None or self._is_taken:
            return super().pop_members(first, uids)
        self._is_taken = True
        wanted = {first.info.uid, *uids}
        for queued in self._attempted:
            if queued.info.uid not in wanted:
                self.in_flight.done(queued.info.uid)
        return [queued for queued in self._attempted if queued.info.uid in wanted]

    def drop_popped(self, queued: QueuedPod) -> None:
        """The pod needs no attempt; the other pods of its group do."""
        super().drop_popped(queued)
        self.end_group_attempt(None)

    def return_unattempted(self, queued: QueuedPod) -> None:
        if self._popped is None:
            super().return_unattempted(queued)
            return
        queued.attempts -= 1
        self.in_flight.done(queued.info.uid)
        self.gating.enqueue(queued, _AFTER_ATTEMPT, self._clock.monotonic())

    def return_after_failure(
        self, queued: QueuedPod, *, rejectors: frozenset[str], pending_plugins: frozenset[str], now: float
    ) -> None:
        is_of_attempt = self._popped is not None and queued in self._popped_members
        super().return_after_failure(queued, rejectors=rejectors, pending_plugins=pending_plugins, now=now)
        group = self.places.group_of(queued.info.uid)
        if group is not None and not is_of_attempt:
            self._delay(group, self.places.backoff_policy.expiration(queued), now)

    def _delay(self, group: QueuedGroup, until: float, now: float) -> None:
        """A pod has come back from a binding that failed: its group is not tried before the pod's own backoff ends."""
        if until <= max(now, group.put_aside_until):
            return
        group.put_aside_until = until
        if group.place in _WAITING:
            group.backoff_expiration = max(group.backoff_expiration, until)
            self.places.enter_error_backoff(group)

    def end_group_attempt(self, outcome: GangOutcome | None) -> None:
        group, self._popped = self._popped, None
        if group is None:
            return
        now, is_tried = self._clock.monotonic(), self._is_taken
        if not is_tried:
            self._return_all(group)
        if not group.members:
            self.places.drop(group)
            return
        group.info = next(iter(group.members.values())).info
        if is_tried:
            self._count(group, outcome, now)
        group.was_flushed = False
        self.moves.requeue_group(group, _AFTER_ATTEMPT, now, waits=True)

    def _return_all(self, group: QueuedGroup) -> None:
        """Return the pods of a group that was popped without an attempt."""
        group.attempts -= 1
        for queued in self._attempted:
            if queued.info.uid in self.in_flight:
                queued.attempts -= 1
                self.in_flight.done(queued.info.uid)
                self.places.join(queued, group)

    def _count(self, group: QueuedGroup, outcome: GangOutcome | None, now: float) -> None:
        """Count an attempt. A group of which pods were placed is tried again at once, before those that came later."""
        if outcome is GangOutcome.SCHEDULED:
            has_failed = any(queued.info.uid in group.members for queued in self._attempted)
            if not has_failed:
                group.timestamp = now
            group.unschedulable_count = group.consecutive_errors = 0
            group.backoff_expiration = NO_BACKOFF
            return
        group.timestamp = now
        if outcome is None or outcome is GangOutcome.ERROR:
            group.consecutive_errors += 1
        else:
            group.unschedulable_count += 1
            group.consecutive_errors = 0
        group.backoff_expiration = expiration_of(group, self.places)

    def charge(self, seconds: float, now: float) -> float:
        until = super().charge(seconds, now)
        groups = {self.places.group_of(queued.info.uid) for queued in self._attempted}
        for group in groups:
            if group is not None:
                self._delay(group, until, now)
        return until
