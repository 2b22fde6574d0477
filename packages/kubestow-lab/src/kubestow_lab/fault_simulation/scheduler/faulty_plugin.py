"""A plugin that raises, rejects, hangs and makes pods wait at many extension points, and records its reservations.

Beside it is one that has pods wait on Permit for a node that is being provisioned, and that only new nodes concern.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import Invalidation, on
from kubestow.framework.interface import (
    FilterPlugin,
    Handle,
    Permission,
    PermitPlugin,
    Plugin,
    PostBindPlugin,
    PreBindPlugin,
    ReservePlugin,
    ScorePlugin,
    Scores,
)
from kubestow.framework.status import Code, Status
from kubestow_lab.fault_simulation.faults import Fault, Faults
from kubestow_lab.fault_simulation.recording import RecordedFaults, ReplayedFaults

NAME = "FaultyPlugin"
WAITS_ON_PERMIT = "example.org/waits-on-permit"
"""The label of pods that wait on Permit whatever the faults, with the seconds; a flight record keeps no annotation."""
WAITS_FOR_NODE = "example.org/waits-for-node"
"""The label of pods that wait on Permit unless a node of this name exists."""

#: The time limit of the plugin in seconds, and how long a hanging call takes.
_TIME_LIMIT, _HANG = 45.0, 1e6
#: The seconds after which the wait for a node times out. A node that comes before lets the next attempt succeed.
_LONGEST_WAIT = 5.0


class InjectedError(Exception):  # not a KubestowError
    """Raised by the faulty plugin on purpose."""


@dataclass
class ReservationLedger:
    """The node of each pod that Reserve was called for and Unreserve was not, or was, and the pods of PostBind."""

    reserved: dict[str, str] = field(default_factory=dict)
    released: dict[str, str] = field(default_factory=dict)
    bound: set[str] = field(default_factory=set)


def faulty_plugin(faults: Faults | RecordedFaults | ReplayedFaults, ledger: ReservationLedger) -> type[Plugin]:
    """The plugin class for one scheduler process."""

    def maybe_raise(point: str) -> None:
        if faults.occurs(Fault.RAISES) and faults.random.random() < 0.3:
            raise InjectedError(point)

    def rejection() -> Status | None:
        if not faults.occurs(Fault.REJECTS):
            return None
        return Status(faults.random.choice((Code.UNSCHEDULABLE, Code.PENDING, Code.ERROR)), ("injected",))

    class FaultyPlugin(FilterPlugin, ScorePlugin, ReservePlugin, PermitPlugin, PreBindPlugin, PostBindPlugin):
        name = NAME
        time_limit = _TIME_LIMIT

        def __init__(self, args: Any, handle: Handle) -> None:
            super().__init__(args, handle)

        def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> None:
            maybe_raise("Filter")

        def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
            maybe_raise("Score")
            return nodes.pod_count * 0

        def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
            ledger.reserved[pod.uid] = node_name
            ledger.released.pop(pod.uid, None)
            maybe_raise("Reserve")
            return rejection()

        def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
            ledger.reserved.pop(pod.uid, None)
            ledger.released[pod.uid] = node_name
            maybe_raise("Unreserve")

        def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Permission:
            maybe_raise("Permit")
            if (rejected := rejection()) is not None:
                return Permission(rejected)
            if (seconds := pod.metadata.labels.get(WAITS_ON_PERMIT)) is not None:
                return Permission(Status(Code.WAIT), float(seconds))
            if faults.occurs(Fault.DELAYS):
                return Permission(Status(Code.WAIT), faults.random.choice((0.0, 0.5, 5.0, 60.0)))
            return Permission()

        def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
            maybe_raise("PreBindPreFlight")
            return Status(Code.SUCCESS) if faults.occurs(Fault.DELAYS) else Status.skip()

        async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
            await asyncio.sleep(_HANG if faults.occurs(Fault.HANGS) else faults.random.expovariate(0.2))
            maybe_raise("PreBind")
            return rejection()

        async def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
            ledger.bound.add(pod.uid)
            maybe_raise("PostBind")

    return FaultyPlugin


class ProvisioningPlugin(PermitPlugin):
    """Has pods wait on Permit for a node; it looks for the node in each attempt, and not while a pod waits."""

    name = "ProvisioningPlugin"
    events_to_register = (on(EventResource.NODE, Action.ADD, invalidates=Invalidation.NOTHING),)

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Permission:
        awaited = pod.metadata.labels.get(WAITS_FOR_NODE)
        if awaited is None or awaited in self.handle.cluster.nodes.rows:
            return Permission()
        return Permission(Status(Code.WAIT), _LONGEST_WAIT)
