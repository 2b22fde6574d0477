"""Faults of the queue: events that requeue no pod, pods that stay or get lost, and the order of attempts."""

from __future__ import annotations

from typing import Any

from kubestow.cluster.cache import Cluster
from kubestow.cluster.changes.events import Action, ClusterEvent, EventResource
from kubestow.scheduling.cycle.failure_handler import FailureHandler, SchedulingFailure
from kubestow.scheduling.events import handlers
from kubestow.scheduling.events.handlers import EventHandlers
from kubestow.scheduling.queue.entities import EntityGating, EntityPlaces, EntityQueue
from kubestow.scheduling.queue.gating import Gating
from kubestow.scheduling.queue.moves import QueueMoves
from kubestow.scheduling.queue.places import BackoffPolicy, PodsInFlight, QueuePlaces
from kubestow.scheduling.queue.queueing_hints import EventDecisions
from kubestow.scheduling.queue.scheduling_queue import SchedulingQueue
from kubestow.scheduling.queue.unschedulable import UnschedulablePods
from kubestow.scheduling.queued_pod import Place, QueueingStrategy
from kubestow.scheduling.scheduler.scheduler import _Alarm
from kubestow_lab.fault_simulation.faults import Fault
from kubestow_lab.fault_simulation.scenario import Part
from tests.fault_simulation.planting import Plant, PlantedFault, around, left_out, nothing, of_units, replaced, unless


def _lost_event(resource: EventResource, action: Action) -> Plant:
    """A cluster event that the handlers do not hand to the queue."""

    def is_lost(handlers: EventHandlers, event: ClusterEvent, old: Any, new: Any) -> bool:
        return event.resource is resource and bool(event.action & action)

    return around(EventHandlers, "_move", unless(is_lost))


def _binding_failed_silently(self: FailureHandler, context: Any, status: Any, *, nomination: str | None) -> None:
    context.unreserve_and_forget(self._cluster)
    self.attempt_failed(context.queued, SchedulingFailure.of_status(status, nomination=nomination))


def _without_rejectors(return_after: Any) -> Any:
    def changed(self: SchedulingQueue, queued: Any, *, rejectors: Any, pending_plugins: Any, now: float) -> None:
        first = frozenset(sorted(rejectors)[:1])
        return_after(self, queued, rejectors=first, pending_plugins=pending_plugins, now=now)

    return changed


def _never_helped(of_all_like: Any) -> Any:
    def changed(self: EventDecisions, *arguments: Any, **keywords: Any) -> QueueingStrategy:
        decision: QueueingStrategy = of_all_like(self, *arguments, **keywords)
        is_delete = bool(self.event.action & Action.DELETE)
        return QueueingStrategy.SKIP if is_delete else decision

    return changed


def _asked_once(queues: Any) -> Any:
    def changed(self: EventDecisions, pod: Any, plugin: str, signature: Any, registrations: Any) -> bool:
        same: bool = queues(self, pod, plugin, None if signature is None else (), registrations)
        return same

    return changed


def _first_only(events: Any) -> Any:
    return lambda *arguments: list(events(*arguments))[:1]


def _stale_after_failure(attempt_failed: Any) -> Any:
    def changed(self: FailureHandler, queued: Any, failure: Any) -> None:
        before = queued.info
        attempt_failed(self, queued, failure)
        if queued.info.uid in self._queue.pods:
            queued.info = before

    return changed


def _short(expiration: Any) -> Any:
    return lambda self, queued: min(expiration(self, queued), queued.timestamp + 0.01)


def _keeps_events(self: PodsInFlight, uid: str) -> None:
    self._popped_at.pop(uid, None)


def _ungated(self: Gating, queued: Any, event: str, now: float) -> bool:
    self._places.unschedulable.remove(queued.info.uid)
    queued.gated_by, queued.gate_message, queued.gates = "", "", None
    return True


def _asleep(init: Any) -> Any:
    def changed(self: QueuePlaces, *arguments: Any, **keywords: Any) -> None:
        init(self, *arguments, **keywords | {"on_change": nothing})

    return changed


def _group_is_lost(self: EntityQueue, outcome: Any) -> None:
    self._popped = None


def _comes_during_attempt(places: EntityPlaces, queued: Any, group: Any) -> bool:
    return group.place is Place.IN_FLIGHT


EVENTS = [
    PlantedFault("a new node requeues no pod", _lost_event(EventResource.NODE, Action.ADD), flushes=False),
    PlantedFault(
        "more allocatable requeues no pod",
        _lost_event(EventResource.NODE, Action.UPDATE_NODE_ALLOCATABLE),
        flushes=False,
    ),
    PlantedFault(
        "a taint that is removed requeues no pod",
        _lost_event(EventResource.NODE, Action.UPDATE_NODE_TAINT),
        flushes=False,
    ),
    PlantedFault(
        "a relabelled node requeues no pod", _lost_event(EventResource.NODE, Action.UPDATE_NODE_LABEL), flushes=False
    ),
    PlantedFault(
        "a pod that leaves its node requeues no pod",
        _lost_event(EventResource.ASSIGNED_POD, Action.DELETE),
        flushes=False,
    ),
    PlantedFault(
        "a new claim requeues no pod",
        _lost_event(EventResource.PERSISTENT_VOLUME_CLAIM, Action.ADD),
        required=(Part.VOLUMES,),
        flushes=False,
    ),
    PlantedFault(
        "a new volume requeues no pod",
        _lost_event(EventResource.PERSISTENT_VOLUME, Action.ADD),
        required=(Part.VOLUMES,),
        flushes=False,
    ),
    PlantedFault(
        "a new device claim requeues no pod",
        _lost_event(EventResource.RESOURCE_CLAIM, Action.ADD),
        required=(Part.DEVICES,),
        flushes=False,
    ),
    PlantedFault(
        "a released device claim requeues no pod",
        _lost_event(EventResource.RESOURCE_CLAIM, Action.UPDATE),
        required=(Part.DEVICES,),
        flushes=False,
    ),
    PlantedFault(
        "new devices requeue no pod",
        _lost_event(EventResource.RESOURCE_SLICE, Action.ADD),
        required=(Part.DEVICES,),
        flushes=False,
    ),
    PlantedFault(
        "a new pod group requeues no pod",
        _lost_event(EventResource.POD_GROUP, Action.ADD),
        required=(Part.GANGS,),
        flushes=False,
    ),
    PlantedFault(
        "a pod that joins a gang requeues no other",
        replaced(Cluster, "observe_pod", lambda self, info: self.pod_groups.put(info) and False),
        required=(Part.GANGS,),
        flushes=False,
    ),
    PlantedFault("a pod's own update does not requeue it", left_out(QueueMoves, "requeue_if_helped"), flushes=False),
    PlantedFault(
        "of several events of one update only the first counts",
        around(handlers, "node_events", _first_only),
        flushes=False,
    ),
    PlantedFault(
        "events during an attempt are not kept",
        left_out(PodsInFlight, "keep"),
        flushes=False,
        required=(Part.PLUGIN,),
    ),
    PlantedFault(
        "of several rejecting plugins only the first requeues a pod",
        around(SchedulingQueue, "return_after_failure", _without_rejectors),
        flushes=False,
    ),
    PlantedFault(
        "a hint is called for one pod in place of all", around(EventDecisions, "_queues", _asked_once), flushes=False
    ),
    PlantedFault("no deletion helps a cohort", around(EventDecisions, "of_all_like", _never_helped), flushes=False),
    PlantedFault(
        "pods behind one whose binding failed are not requeued",
        replaced(FailureHandler, "binding_failed", _binding_failed_silently),
        flushes=False,
        required=(Part.PLUGIN,),
    ),
    PlantedFault(
        "a freed nomination requeues no pod",
        replaced(SchedulingQueue, "requeue_for_freed_nomination", lambda *_: False),
        flushes=False,
    ),
    PlantedFault(
        "activation requeues no pod",
        left_out(SchedulingQueue, "activate"),
        often=(Fault.PROTECTED,),
        flushes=False,
        is_crowded=True,
    ),
]

QUEUE = [
    PlantedFault("an update of a pending pod is not applied", left_out(SchedulingQueue, "update")),
    PlantedFault("a deleted pod stays queued", left_out(SchedulingQueue, "delete")),
    PlantedFault("a pod stays in flight", left_out(PodsInFlight, "done")),
    PlantedFault(
        "a pod in flight is queued again",
        replaced(PodsInFlight, "__contains__", lambda *_: False),
        required=(Part.EXTENDERS,),
        often=(Fault.SLOW,),
    ),
    PlantedFault("the events of attempts that have ended are kept", replaced(PodsInFlight, "done", _keeps_events)),
    PlantedFault(
        "a pod returns as it was before its attempt",
        around(FailureHandler, "attempt_failed", _stale_after_failure),
        required=(Part.PLUGIN,),
        often=(Fault.DELAYS,),
    ),
    PlantedFault("a backoff never ends", left_out(QueuePlaces, "pop_backed_off")),
    PlantedFault("a backoff takes a hundredth of a second", around(BackoffPolicy, "expiration", _short)),
    PlantedFault("a pod that becomes ready does not wake the loop", around(QueuePlaces, "__init__", _asleep)),
    PlantedFault("the end of a backoff does not wake the loop", left_out(_Alarm, "set"), flushes=False),
    PlantedFault("a pod that stops waiting stays in its cohort", left_out(UnschedulablePods, "remove")),
    PlantedFault(
        "pods that an event helps are not moved after the first step",
        left_out(QueueMoves, "continue_moving"),
        flushes=False,
    ),
    PlantedFault("gates are not looked at", replaced(Gating, "_admit", _ungated)),
    PlantedFault(
        "a gated pod is not looked at again after its preemption", left_out(Gating, "preemption_ended"), flushes=False
    ),
    PlantedFault("debts do not end", left_out(QueuePlaces, "end_debts"), required=(Part.STALLS, Part.ELECTION)),
    PlantedFault(
        "an attempt over its budget is not charged",
        replaced(SchedulingQueue, "charge", lambda self, seconds, now: now),
        required=(Part.STALLS,),
    ),
    PlantedFault(
        "the next leader tries the pod at once that has cost the last one its lease",
        replaced(SchedulingQueue, "hold_back", lambda *_: []),
        required=(Part.STALLS, Part.ELECTION),
    ),
]

GROUPS = [
    of_units("a group without pods stays queued", left_out(EntityPlaces, "drop")),
    of_units("a group is lost after its attempt", replaced(EntityQueue, "end_group_attempt", _group_is_lost)),
    of_units(
        "a pod that comes during the attempt of its group is lost",
        around(EntityPlaces, "join", unless(_comes_during_attempt)),
    ),
    of_units("the pods of a group are not where the group is", replaced(EntityPlaces, "_align", staticmethod(nothing))),
    of_units("a group that loses the pod that gated it stays gated", left_out(EntityGating, "check")),
]
