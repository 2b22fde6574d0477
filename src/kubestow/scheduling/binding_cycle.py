"""The binding cycle: what happens to a pod after it has been placed (semantics 4.6, 4.7).

One asyncio task per pod, many at once. The placement has been assumed, reserved and permitted by the scheduling cycle;
here its volumes and devices are made ready, and it is bound. This module asks the plugins; what follows from their
answers (undoing a placement, sending a pod back to the queue) is the scheduler's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import PreBindPlugin
from kubestow.framework.profile import Profile
from kubestow.framework.status import Status
from kubestow.scheduling.gangs.barrier import GangBarrier
from kubestow.scheduling.queue.queued_pod import QueuedPod

__all__ = ["BindingContext", "BindingCycle"]


@dataclass(frozen=True, slots=True)
class BindingContext:
    """A placed pod on its way to be bound.

    ``waits`` names the plugins that hold it back, with the seconds each may take; at the ``barrier`` it waits for the
    rest of its gang before it is bound.
    """

    queued: QueuedPod
    info: PodInfo
    node_name: str
    state: CycleState
    profile: Profile
    waits: Mapping[str, float]
    barrier: GangBarrier | None = None
    #: The node that it had been promised, where nobody has been told yet that this is over.
    promised: str | None = None


class BindingCycle:
    """The steps of one pod's binding cycle that plugins take part in."""

    def __init__(self, reserved: BindingContext) -> None:
        self._runtime = reserved.profile.runtime
        self._pod = reserved.state, reserved.info, reserved.node_name
        self._working: Sequence[PreBindPlugin] = ()
        self._cancellation: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def pre_flight(self) -> Status:
        """Which PreBind plugins have work to do; a skip when none has."""
        status, self._working = self._runtime.run_pre_bind_pre_flights(*self._pod)
        return status

    async def pre_bind(self) -> Status:
        """Run the PreBind plugins that have work to do."""
        return await self._runtime.run_pre_bind_plugins(self._working, *self._pod, self._cancellation)

    def cancel_binding(self, why: str) -> bool:
        """End PreBind with an error, so that the pod is tried again; False when that has been done already."""
        if self._cancellation.done():
            return False
        self._cancellation.set_result(why)
        return True

    async def bind(self) -> Status:
        """Ask the Bind plugins until one does not skip."""
        return await self._runtime.run_bind_plugins(*self._pod)

    async def post_bind(self) -> None:
        """Tell the PostBind plugins; the pod is bound whatever they make of it."""
        await self._runtime.run_post_bind_plugins(*self._pod)
