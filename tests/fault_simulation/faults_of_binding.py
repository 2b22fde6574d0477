"""Faults of the cache and of bindings: pods on nodes, what is assumed, what is written, and how a scheduler ends."""

from __future__ import annotations

from typing import Any

from kubestow.cluster.cache import Cluster
from kubestow.cluster.changes.events import Action, ClusterEvent, EventResource
from kubestow.cluster.changes.journal import Journal
from kubestow.cluster.placed_pods import _ADDED, _DELETED, PlacedPods
from kubestow.cluster.simulation import Simulation
from kubestow.cluster.topology.counters import Counters
from kubestow.framework.runtime.binding_runtime import BindingRuntime
from kubestow.scheduling.api_calls import dispatcher
from kubestow.scheduling.api_calls.dispatcher import Dispatcher, PodBinder
from kubestow.scheduling.api_calls.pod_reports import PodReports
from kubestow.scheduling.background_work import BackgroundTasks
from kubestow.scheduling.cycle.binding_confirmation import BindingConfirmations, UnconfirmedBindings
from kubestow.scheduling.cycle.binding_context import BindingContext
from kubestow.scheduling.events.pod_store import PodStore
from kubestow.scheduling.scheduler import Scheduler, scheduler
from kubestow.scheduling.scheduler.scheduler import _SchedulerWatchListener
from kubestow_lab.fault_simulation.apiserver.server import SimulatedServer
from kubestow_lab.fault_simulation.faults import Fault
from kubestow_lab.fault_simulation.scenario import Part
from tests.fault_simulation.planting import (
    PlantedFault,
    around,
    both,
    errors_ignored,
    every,
    left_out,
    nothing,
    nothing_async,
    replaced,
    unless,
)

_NODE_CHANGED = ClusterEvent(EventResource.NODE, Action.UPDATE_NODE_ALLOCATABLE).bits


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


def _bound_elsewhere_confirms(put: Any) -> Any:
    def changed(self: Cluster, info: Any) -> None:
        placed = self._placed_pods.by_uid.get(info.uid)
        if placed is not None and placed.assumed and placed.node_name != info.spec.node_name:
            self._placed_pods.confirm(placed, info)
            return
        put(self, info)

    return changed


def _is_confirmed(cluster: Cluster, info: Any) -> bool:
    placed = cluster.placed_pod(info.uid)
    return placed is not None and not placed.assumed


def _forget_pods_of_node(self: PlacedPods, row: int, node_name: str) -> None:
    for info in list(self._nodes.pods[row].values()):
        self.remove(self.by_uid[info.uid])


def _never_read(post: Any) -> Any:
    async def changed(self: PodBinder, pod: Any, node_name: str) -> None:
        dispatcher.require_lease(self._leadership)
        await self._environment.api.bind(pod, node_name)

    return changed


def _keeps_tasks(init: Any) -> Any:
    def changed(self: BindingConfirmations, *arguments: Any, **keywords: Any) -> None:
        init(self, *arguments, **keywords)
        self.tasks = BackgroundTasks()

    return changed


def _released_first(drain: Any) -> Any:
    async def changed(self: Scheduler) -> None:
        await self.leadership.release()
        await drain(self)

    return changed


CACHE = [
    PlantedFault("a failed pod is not forgotten", replaced(BindingContext, "unreserve_and_forget", _without_forget)),
    PlantedFault(
        "a failed pod is not unreserved", replaced(BindingContext, "unreserve_and_forget", _without_unreserve)
    ),
    PlantedFault(
        "an assumed pod is forgotten twice",
        around(BindingContext, "unreserve_and_forget", _assumed_twice_forgotten),
        often=(Fault.BOUND_FIRST,),
    ),
    PlantedFault(
        "a confirmed pod is forgotten", replaced(Cluster, "forget", _forget_confirmed), often=(Fault.BOUND_FIRST,)
    ),
    PlantedFault("a placed pod is not assumed", left_out(Cluster, "assume")),
    PlantedFault("the watch does not confirm an assumed pod", left_out(PlacedPods, "confirm")),
    PlantedFault(
        "a pod bound elsewhere confirms the assumption",
        around(Cluster, "put_pod", _bound_elsewhere_confirms),
        often=(Fault.BOUND_FIRST,),
    ),
    PlantedFault(
        "the deletion of an assumed pod is not noticed", left_out(_SchedulerWatchListener, "assumed_pod_deleted")
    ),
    PlantedFault(
        "a pod deleted during its decision is placed",
        replaced(PodStore, "wants_node", lambda *_: True),
        required=(Part.EXTENDERS,),
    ),
    PlantedFault(
        "a pod that was replaced under its name counts as the same",
        replaced(PodStore, "named", lambda *_: None),
        often=(Fault.EXPIRY,),
    ),
    PlantedFault("a pod that left its node keeps its resources", left_out(Cluster, "remove_pod")),
    PlantedFault("an update of a bound pod is not applied", around(Cluster, "put_pod", unless(_is_confirmed))),
    PlantedFault("a changed node keeps its old state", left_out(Cluster, "update_node")),
    PlantedFault("the pods of a lost node are forgotten", replaced(PlacedPods, "node_removed", _forget_pods_of_node)),
    PlantedFault("pods are not counted in their topology", left_out(Counters, "count")),
    PlantedFault(
        "a placed pod leaves cached results valid",
        around(Journal, "write", unless(lambda journal, row, bits: bits == _ADDED)),
    ),
    PlantedFault(
        "a pod that leaves its node leaves cached results valid",
        around(Journal, "write", unless(lambda journal, row, bits: bits == _DELETED)),
    ),
    PlantedFault(
        "more allocatable leaves cached results valid",
        around(Journal, "write", unless(lambda journal, row, bits: bool(bits & _NODE_CHANGED))),
    ),
    PlantedFault("what a gang's preemption has tried is not undone", left_out(Simulation, "__exit__"), (Part.GANGS,)),
]

BINDINGS = [
    PlantedFault(
        "a binding whose answer was lost counts as failed",
        around(PodBinder, "_post", _never_read),
        required=(Part.PLUGIN,),
        often=(Fault.RESPONSE_LOST,),
    ),
    PlantedFault(
        "a binding that failed counts as made, and is not confirmed",
        both(around(PodBinder, "_post", errors_ignored()), left_out(UnconfirmedBindings, "add")),
    ),
    PlantedFault(
        "the server says success and does nothing, and bindings are not confirmed",
        both(around(SimulatedServer, "bind", every(7)), left_out(UnconfirmedBindings, "add")),
    ),
    PlantedFault(
        "writes do not ask for the lease",
        replaced(dispatcher, "require_lease", nothing),
        required=(Part.STALLS, Part.ELECTION),
    ),
    PlantedFault("status patches of bound pods are kept", left_out(Dispatcher, "pod_settled")),
    PlantedFault("status patches are not sent", left_out(Dispatcher, "patch_status")),
    PlantedFault("a failed attempt is not reported", left_out(PodReports, "record_failure")),
    PlantedFault("a binding is not reported", left_out(PodReports, "record_binding")),
    PlantedFault(
        "PostBind is not called",
        replaced(BindingRuntime, "run_post_bind_plugins", nothing_async),
        required=(Part.PLUGIN,),
    ),
]

SHUTDOWN = [
    PlantedFault("background tasks are not stopped", replaced(BackgroundTasks, "__iter__", lambda self: iter(()))),
    PlantedFault("tasks are not cancelled at shutdown", replaced(scheduler, "_cancel", nothing_async)),
    PlantedFault("confirmations outlive their scheduler", around(BindingConfirmations, "__init__", _keeps_tasks)),
    PlantedFault(
        "status patches go on after shutdown", left_out(Dispatcher, "close"), often=(Fault.SLOW, Fault.STOPPED)
    ),
    PlantedFault("shutdown waits for no work", replaced(Scheduler, "_drain", nothing_async)),
    PlantedFault(
        "the lease is released before work in progress has ended",
        around(Scheduler, "_drain", _released_first),
        required=(Part.ELECTION, Part.PLUGIN),
        often=(Fault.DELAYS, Fault.STOPPED),
    ),
]
