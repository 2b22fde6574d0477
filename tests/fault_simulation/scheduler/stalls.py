"""Stalls: a plugin that blocks the event loop of its process for seconds or minutes, while all others go on.

All processes of a simulation share one event loop, so a plugin cannot really block. Instead its process is frozen: the
call returns at once, the clock of the process shows the end of the stall, and the loop leaves out the callbacks of the
process until then (:class:`tests.fault_simulation.event_loop.ShuffledLoop`). What belongs to a thread of its own, or to
the network, runs outside of the frozen context.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from random import Random
from typing import Any, TypeVar

from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import Plugin, PreFilterPlugin
from kubestow.scheduling.environment import Leadership
from tests.fault_simulation.event_loop import Freeze, frozen_with

T = TypeVar("T")

NAME = "StallingPlugin"
LABEL = "stalls"
"""The label of pods that stall a scheduler, with the seconds once the faults have ended."""

#: The seconds of a stall while there are faults; the scheduling loop is let go after 45.
_SECONDS = (5.0, 20.0, 40.0, 60.0, 300.0)


def unfrozen() -> Context:
    """A copy of the current context for what goes on while the process is frozen."""
    context = copy_context()
    context.run(frozen_with.set, None)
    return context


async def run_unfrozen(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that goes on while the process is frozen; its result arrives when the process is not."""
    return await asyncio.get_running_loop().create_task(work, context=unfrozen())


class ElectionBeside:
    """Implements :class:`~kubestow.scheduling.environment.Leadership` by one that is never frozen."""

    def __init__(self, election: Leadership) -> None:
        self._election = election

    @property
    def is_leader(self) -> bool:
        return self._election.is_leader

    @property
    def holds_lease(self) -> bool:
        return self._election.holds_lease

    @property
    def overdue(self) -> float:
        return self._election.overdue

    async def acquire(self) -> dict[str, float]:
        return await run_unfrozen(self._election.acquire())

    async def hold(self) -> None:
        await run_unfrozen(self._election.hold())

    async def release(self) -> None:
        await run_unfrozen(self._election.release())


def stalling_plugin(freeze: Freeze, random: Random, is_faulty: Callable[[], bool]) -> type[Plugin]:
    """The plugin class for one start of a process."""

    class StallingPlugin(PreFilterPlugin):
        name = NAME
        events_to_register = ()

        def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> None:
            seconds = pod.labels.get(LABEL)
            if seconds is None:
                return
            if not is_faulty():
                freeze.stall(float(seconds), pod.key)
            elif random.random() < 0.3:
                freeze.stall(random.choice(_SECONDS), pod.key)

    return StallingPlugin
