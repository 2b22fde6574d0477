"""Faults of concurrency and protocol, planted into the scheduler one at a time, and how many seeds find each.

``python -m tests.fault_simulation.find_planted_faults --limit 500`` runs the seeds of each fault until a rule is
broken, and prints the table of benchmarks/PLANTED_FAULTS.md. A fault that no seed finds is a rule that is missing, or
does no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from kubestow.cluster.cache import Cluster
from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.placed_pods import PlacedPods
from kubestow.cluster.resource_claims import ResourceClaimTracker
from kubestow.plugins.default_preemption import dry_run
from kubestow.plugins.dynamic_resources.dynamic_resources import DynamicResourcesWithoutScore
from kubestow.plugins.volume_binding.volume_binding import VolumeBinding
from kubestow.rules.minors import DEFAULT_MINOR
from kubestow.scheduling.api_calls import dispatcher
from kubestow.scheduling.api_calls.dispatcher import Dispatcher, PodBinder
from kubestow.scheduling.background_work import BackgroundTasks
from kubestow.scheduling.cycle.binding_confirmation import UnconfirmedBindings
from kubestow.scheduling.cycle.binding_context import BindingContext
from kubestow.scheduling.cycle.failure_handler import FailureHandler
from kubestow.scheduling.events.handlers import EventHandlers
from kubestow.scheduling.events.pod_store import PodStore
from kubestow.scheduling.gangs.barrier import GangBarrier
from kubestow.scheduling.preemption.evictions import Evictions, PreemptionsInProgress
from kubestow.scheduling.queue.gating import Gating
from kubestow.scheduling.queue.moves import QueueMoves
from kubestow.scheduling.queue.places import BackoffPolicy, PodsInFlight, QueuePlaces
from kubestow.scheduling.queue.queueing_hints import EventDecisions
from kubestow.scheduling.queue.scheduling_queue import SchedulingQueue
from kubestow.scheduling.queue.unschedulable import UnschedulablePods
from kubestow.scheduling.queued_pod import NO_BACKOFF, QueueingStrategy
from kubestow.scheduling.scheduler import Scheduler
from kubestow.scheduling.scheduler.scheduler import _SchedulerWatchListener
from kubestow.scheduling.waiting_pods import WaitingPods
from kubestow_lab.fault_simulation.apiserver.server import SimulatedServer
from kubestow_lab.fault_simulation.apiserver.watch_view import WatchView
from kubestow_lab.fault_simulation.scenario import Part, Scenario, draw
from kubestow_lab.fault_simulation.shrinking import rule_of
from kubestow_lab.fault_simulation.simulation import run_scenario

Plant = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class PlantedFault:
    """A fault: what is wrong, and what plants it.

    ``required`` are the parts without which it cannot show. ``flushes``: pods are tried again after five minutes, which
    hides that they were not requeued. Without it no pod has constraints on others, whose hints are incomplete.
    """

    name: str
    plant: Plant
    required: tuple[Part, ...] = ()
    flushes: bool = False

    def scenario(self, seed: int) -> Scenario:
        """The scenario of a seed."""
        scenario, _ = draw(seed, self.required)
        if self.flushes:
            return scenario
        return replace(scenario, flushes=False, pod_constraints=False, minor=str(DEFAULT_MINOR))


def _nothing(*_: Any, **__: Any) -> None:
    return None


async def _nothing_async(*_: Any, **__: Any) -> None:
    return None


def _left_out(owner: Any, *methods: str) -> Plant:
    """Methods that do nothing."""

    @contextmanager
    def plant() -> Iterator[None]:
        with ExitStack() as stack:
            for method in methods:
                stack.enter_context(patch.object(owner, method, _nothing))
            yield

    return plant


def _replaced(owner: Any, method: str, substitute: Any) -> Plant:
    return lambda: patch.object(owner, method, substitute)


def _around(owner: Any, method: str, wrap: Callable[[Any], Any]) -> Plant:
    """A method in place of which there is what ``wrap`` makes of it."""
    return lambda: patch.object(owner, method, wrap(getattr(owner, method)))


@contextmanager
def _both(first: Plant, second: Plant) -> Iterator[None]:
    with first(), second():
        yield


def _lost_event(resource: EventResource, action: Action) -> Plant:
    """A cluster event that the handlers do not hand to the queue."""

    def wrap(move: Any) -> Any:
        def lossy(self: EventHandlers, event: Any, old: Any, new: Any) -> None:
            if event.resource is not resource or not event.action & action:
                move(self, event, old, new)

        return lossy

    return _around(EventHandlers, "_move", wrap)


def _every(count: int, wrap_call: Callable[[Any, tuple[Any, ...]], Any]) -> Callable[[Any], Any]:
    """Every so many calls are made by ``wrap_call``, the others as they are."""

    def wrap(method: Any) -> Any:
        calls = [0]

        def changed(*arguments: Any, **keywords: Any) -> Any:
            calls[0] += 1
            if calls[0] % count == 0:
                return wrap_call(method, arguments)
            return method(*arguments, **keywords)

        return changed

    return wrap


def _forget_confirmed(self: Cluster, uid: str) -> None:
    placed = self._placed_pods.by_uid.get(uid)
    if placed is not None:
        self._placed_pods.remove(placed)


def _assumed_twice_forgotten(unreserve: Any) -> Any:
    def changed(self: BindingContext, cluster: Cluster) -> None:
        unreserve(self, cluster)
        _forget_confirmed(cluster, self.info.uid)

    return changed


def _without_forget(self: BindingContext, cluster: Cluster) -> None:
    self.runtime.run_unreserve_plugins(self.state, self.info, self.node_name)


def _without_unreserve(self: BindingContext, cluster: Cluster) -> None:
    cluster.forget(self.info.uid)


def _never_read(post: Any) -> Any:
    async def changed(self: PodBinder, pod: Any, node_name: str) -> None:
        dispatcher.require_lease(self._leadership)
        await self._environment.api.bind(pod, node_name)

    return changed


def _errors_are_successes(post: Any) -> Any:
    async def changed(self: PodBinder, pod: Any, node_name: str) -> None:
        try:
            await post(self, pod, node_name)
        except Exception:
            return

    return changed


def _bound_elsewhere_confirms(put: Any) -> Any:
    def changed(self: Cluster, info: Any) -> None:
        placed = self._placed_pods.by_uid.get(info.uid)
        if placed is not None and placed.assumed and placed.node_name != info.spec.node_name:
            self._placed_pods.confirm(placed, info)
            return
        put(self, info)

    return changed


def _stale_removal(remove: Any) -> Any:
    """A pod's deletion frees the node only if the pod was confirmed."""

    def changed(self: Cluster, uid: str) -> None:
        if not self.is_assumed(uid):
            remove(self, uid)

    return changed


def _lies(bind: Any, arguments: tuple[Any, ...]) -> None:
    """The server says success and does nothing."""


def _dropped(apply: Any, arguments: tuple[Any, ...]) -> None:
    """The watch drops an event."""


def _binding_failed_silently(self: FailureHandler, context: Any, status: Any, *, nomination: str | None) -> None:
    from kubestow.scheduling.cycle.failure_handler import SchedulingFailure

    context.unreserve_and_forget(self._cluster)
    self.attempt_failed(context.queued, SchedulingFailure.of_status(status, nomination=nomination))


def _without_nomination(attempt_failed: Any) -> Any:
    def changed(self: FailureHandler, queued: Any, failure: Any) -> None:
        attempt_failed(self, queued, replace(failure, nomination=None))

    return changed


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


def _all_are_victims(*arguments: Any) -> Any:
    import numpy as np

    return np.ones(len(arguments[3].slots), np.bool_)


def _equal_priority_too(may_evict: Any) -> Any:
    def changed(priority: int) -> Any:
        return may_evict(priority + 1)

    return changed


FAULTS = [
    # -- lost events -----------------------------------------------------------------------------------------------
    PlantedFault("a new node requeues no pod", _lost_event(EventResource.NODE, Action.ADD)),
    PlantedFault("more allocatable requeues no pod", _lost_event(EventResource.NODE, Action.UPDATE_NODE_ALLOCATABLE)),
    PlantedFault("a taint that is removed requeues no pod", _lost_event(EventResource.NODE, Action.UPDATE_NODE_TAINT)),
    PlantedFault("a relabelled node requeues no pod", _lost_event(EventResource.NODE, Action.UPDATE_NODE_LABEL)),
    PlantedFault("a pod that leaves its node requeues no pod", _lost_event(EventResource.ASSIGNED_POD, Action.DELETE)),
    PlantedFault(
        "a new claim requeues no pod",
        _lost_event(EventResource.PERSISTENT_VOLUME_CLAIM, Action.ADD),
        required=(Part.VOLUMES,),
    ),
    PlantedFault(
        "a new volume requeues no pod",
        _lost_event(EventResource.PERSISTENT_VOLUME, Action.ADD),
        required=(Part.VOLUMES,),
    ),
    PlantedFault(
        "a released device claim requeues no pod",
        _lost_event(EventResource.RESOURCE_CLAIM, Action.UPDATE),
        required=(Part.DEVICES,),
    ),
    PlantedFault(
        "new devices requeue no pod", _lost_event(EventResource.RESOURCE_SLICE, Action.ADD), required=(Part.DEVICES,)
    ),
    PlantedFault(
        "a new pod group requeues no pod", _lost_event(EventResource.POD_GROUP, Action.ADD), required=(Part.GANGS,)
    ),
    PlantedFault("events during an attempt are not kept", _left_out(PodsInFlight, "keep")),
    PlantedFault(
        "of several rejecting plugins only the first requeues a pod",
        _around(SchedulingQueue, "return_after_failure", _without_rejectors),
    ),
    PlantedFault("no deletion helps a cohort", _around(EventDecisions, "of_all_like", _never_helped)),
    PlantedFault(
        "pods behind one whose binding failed are not requeued",
        _replaced(FailureHandler, "binding_failed", _binding_failed_silently),
    ),
    PlantedFault(
        "a freed nomination requeues no pod",
        _replaced(SchedulingQueue, "requeue_for_freed_nomination", lambda *_: False),
    ),
    # -- the queue ---------------------------------------------------------------------------------------------------
    PlantedFault("an update of a pending pod is not applied", _left_out(SchedulingQueue, "update"), flushes=True),
    PlantedFault("a deleted pod stays queued", _left_out(SchedulingQueue, "delete"), flushes=True),
    PlantedFault("a pod stays in flight", _left_out(PodsInFlight, "done"), flushes=True),
    PlantedFault("backoff ends never", _replaced(QueuePlaces, "pop_backed_off", _nothing), flushes=True),
    PlantedFault("there is no backoff", _replaced(BackoffPolicy, "expiration", lambda *_: NO_BACKOFF), flushes=True),
    PlantedFault(
        "a pod that leaves the unschedulable ones stays in its cohort",
        _left_out(UnschedulablePods, "remove"),
        flushes=True,
    ),
    PlantedFault(
        "pods that an event helps are not moved after the first step",
        _replaced(QueueMoves, "continue_moving", _nothing),
    ),
    PlantedFault("a gated pod is not looked at again after its preemption", _left_out(Gating, "preemption_ended")),
    PlantedFault("activation requeues no pod", _left_out(SchedulingQueue, "activate")),
    # -- assume, confirm, forget -------------------------------------------------------------------------------------
    PlantedFault(
        "a failed pod is not forgotten",
        _replaced(BindingContext, "unreserve_and_forget", _without_forget),
        flushes=True,
    ),
    PlantedFault(
        "a failed pod is not unreserved",
        _replaced(BindingContext, "unreserve_and_forget", _without_unreserve),
        flushes=True,
    ),
    PlantedFault(
        "an assumed pod is forgotten twice",
        _around(BindingContext, "unreserve_and_forget", _assumed_twice_forgotten),
        flushes=True,
    ),
    PlantedFault("a confirmed pod is forgotten", _replaced(Cluster, "forget", _forget_confirmed), flushes=True),
    PlantedFault("a placed pod is not assumed", _left_out(Cluster, "assume"), flushes=True),
    PlantedFault("the watch does not confirm an assumed pod", _left_out(PlacedPods, "confirm"), flushes=True),
    PlantedFault(
        "a pod bound elsewhere confirms the assumption",
        _around(Cluster, "put_pod", _bound_elsewhere_confirms),
        flushes=True,
    ),
    PlantedFault(
        "a pod that was deleted while assumed keeps its node",
        _around(Cluster, "remove_pod", _stale_removal),
        flushes=True,
    ),
    PlantedFault(
        "the deletion of an assumed pod is not noticed",
        _left_out(_SchedulerWatchListener, "assumed_pod_deleted"),
        flushes=True,
    ),
    PlantedFault(
        "a pod deleted during its decision is placed",
        _replaced(PodStore, "wants_node", lambda *_: True),
        required=(Part.EXTENDERS,),
        flushes=True,
    ),
    PlantedFault("a pod that left its node keeps its resources", _left_out(Cluster, "remove_pod"), flushes=True),
    PlantedFault("a changed node keeps its old state", _left_out(Cluster, "update_node"), flushes=True),
    # -- bindings ----------------------------------------------------------------------------------------------------
    PlantedFault(
        "a binding whose answer was lost counts as failed", _around(PodBinder, "_post", _never_read), flushes=True
    ),
    PlantedFault(
        "a binding that failed counts as made, and is not confirmed",
        lambda: _both(_around(PodBinder, "_post", _errors_are_successes), _left_out(UnconfirmedBindings, "add")),
        flushes=True,
    ),
    PlantedFault(
        "the server says success and does nothing, and bindings are not confirmed",
        lambda: _both(_around(SimulatedServer, "bind", _every(7, _lies)), _left_out(UnconfirmedBindings, "add")),
        flushes=True,
    ),
    PlantedFault("the watch drops an event", _around(WatchView, "apply", _every(50, _dropped)), flushes=True),
    PlantedFault(
        "a list does not show deletions", _replaced(EventHandlers, "_known_keys", lambda *_: []), flushes=True
    ),
    PlantedFault(
        "writes do not ask for the lease",
        _replaced(dispatcher, "require_lease", _nothing),
        required=(Part.STALLS, Part.ELECTION),
        flushes=True,
    ),
    PlantedFault("status patches of bound pods are kept", _left_out(Dispatcher, "pod_settled"), flushes=True),
    PlantedFault("status patches are not sent", _left_out(Dispatcher, "patch_status"), flushes=True),
    PlantedFault(
        "background tasks are not stopped at shutdown",
        _replaced(BackgroundTasks, "__iter__", lambda self: iter(())),
        flushes=True,
    ),
    PlantedFault("shutdown waits for no work", _replaced(Scheduler, "_drain", _nothing_async), flushes=True),
    # -- preemption and nominations ----------------------------------------------------------------------------------
    PlantedFault("a nomination is kept", _left_out(Cluster, "drop_nomination"), flushes=True),
    PlantedFault(
        "a preemptor is not nominated", _around(FailureHandler, "attempt_failed", _without_nomination), flushes=True
    ),
    PlantedFault("nominated pods do not count", _replaced(Cluster, "nominated_pods", lambda *_: ()), flushes=True),
    PlantedFault("a preemption does not end", _left_out(Evictions, "_forget"), flushes=True),
    PlantedFault("a preemptor stays gated", _left_out(Evictions, "_let_go"), flushes=True),
    PlantedFault("a preemptor whose victims are gone is not requeued", _left_out(Evictions, "_activate")),
    PlantedFault("evictions do not watch their victims", _left_out(Evictions, "victim_changed"), flushes=True),
    PlantedFault(
        "a preemptor is never gated", _replaced(PreemptionsInProgress, "is_preempting", lambda *_: False), flushes=True
    ),
    PlantedFault("no victim is reprieved", _replaced(dry_run, "_not_reprieved", _all_are_victims), flushes=True),
    PlantedFault(
        "a pod on Permit is not stopped but stays there",
        _replaced(WaitingPods, "preempt", lambda *_: True),
        required=(Part.PLUGIN,),
        flushes=True,
    ),
    PlantedFault(
        "a pod that waited on Permit stays listed",
        _left_out(WaitingPods, "remove"),
        required=(Part.PLUGIN,),
        flushes=True,
    ),
    # -- gangs, claims, volumes --------------------------------------------------------------------------------------
    PlantedFault(
        "a gang is bound although it was rejected",
        _replaced(GangBarrier, "rejection", _nothing),
        required=(Part.GANGS,),
        flushes=True,
    ),
    PlantedFault(
        "a member that will not be bound stays expected",
        _left_out(GangBarrier, "leave"),
        required=(Part.GANGS,),
        flushes=True,
    ),
    PlantedFault(
        "devices are not reserved until the claim is written",
        _left_out(ResourceClaimTracker, "signal_pending_allocation"),
        required=(Part.DEVICES,),
        flushes=True,
    ),
    PlantedFault(
        "reserved devices are kept",
        _left_out(ResourceClaimTracker, "remove_pending_allocation"),
        required=(Part.DEVICES,),
        flushes=True,
    ),
    PlantedFault(
        "an allocation is not unreserved",
        _left_out(DynamicResourcesWithoutScore, "unreserve"),
        required=(Part.DEVICES,),
        flushes=True,
    ),
    PlantedFault(
        "assumed volumes are kept", _left_out(VolumeBinding, "unreserve"), required=(Part.VOLUMES,), flushes=True
    ),
    PlantedFault(
        "a pod is bound before its volumes",
        _replaced(VolumeBinding, "pre_bind", _nothing_async),
        required=(Part.VOLUMES,),
        flushes=True,
    ),
    PlantedFault(
        "a pod is bound before its devices",
        _replaced(DynamicResourcesWithoutScore, "pre_bind", _nothing_async),
        required=(Part.DEVICES,),
        flushes=True,
    ),
]


@dataclass(frozen=True)
class Found:
    """How many seeds found a fault, None if none did, and the rule that was broken."""

    name: str
    seeds: int | None
    rule: str = ""


def find(number: int, limit: int) -> Found:
    """Run the seeds of a fault, by its position, until a rule is broken."""
    fault = FAULTS[number]
    with fault.plant():
        for seed in range(1, limit + 1):
            try:
                violations = run_scenario(fault.scenario(seed)).violations
            except Exception as error:  # what a planted fault leads to may stop the simulation itself
                violations = [f"the simulation fails: {type(error).__name__}: {error}"]
            if violations:
                return Found(fault.name, seed, rule_of(violations[0]))
    return Found(fault.name, None)
