"""A plugin that takes part at every point it can: it raises, refuses, dawdles, makes pods wait, and keeps books."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
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
from tests.fault_simulation.faults import Fault, Faults

__all__ = ["Books", "Mischief", "meddling"]

NAME = "Meddler"

#: Seconds that it may take at a time, and many more than that.
_PATIENCE, _FOR_EVER = 45.0, 1e6


class Mischief(Exception):  # raised on purpose, not an error of the project's
    """Raised by a plugin on purpose."""


@dataclass
class Books:
    """What Reserve was told and Unreserve has not taken back: pods by uid. ``bound`` are those of PostBind."""

    reserved: dict[str, str] = field(default_factory=dict)
    bound: set[str] = field(default_factory=set)


def meddling(faults: Faults, books: Books) -> type[Plugin]:
    """The plugin, for one scheduler process."""

    def trip(point: str) -> None:
        if faults.strikes(Fault.RAISES) and faults.random.random() < 0.3:
            raise Mischief(point)

    def refusal() -> Status | None:
        if not faults.strikes(Fault.REFUSES):
            return None
        return Status(faults.random.choice((Code.UNSCHEDULABLE, Code.PENDING, Code.ERROR)), ("mischief",))

    class Meddler(FilterPlugin, ScorePlugin, ReservePlugin, PermitPlugin, PreBindPlugin, PostBindPlugin):
        name = NAME
        time_limit = _PATIENCE

        def __init__(self, args: Any, handle: Handle) -> None:
            super().__init__(args, handle)

        def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> None:
            trip("Filter")

        def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
            trip("Score")
            return nodes.pod_count * 0

        def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
            books.reserved[pod.uid] = node_name
            trip("Reserve")
            return refusal()

        def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
            books.reserved.pop(pod.uid, None)
            trip("Unreserve")

        def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Permission:
            trip("Permit")
            if (refused := refusal()) is not None:
                return Permission(refused)
            if faults.strikes(Fault.DAWDLES):
                return Permission(Status(Code.WAIT), faults.random.choice((0.0, 0.5, 5.0, 60.0)))
            return Permission()

        def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
            trip("PreBindPreFlight")
            return Status(Code.SUCCESS) if faults.strikes(Fault.DAWDLES) else Status.skip()

        async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
            await asyncio.sleep(_FOR_EVER if faults.strikes(Fault.HANGS) else faults.random.expovariate(0.2))
            trip("PreBind")
            return refusal()

        async def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
            books.bound.add(pod.uid)
            trip("PostBind")

    return Meddler
