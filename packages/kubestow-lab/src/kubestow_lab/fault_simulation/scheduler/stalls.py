"""Stalls: a plugin that blocks the event loop of its process for seconds or minutes, while all others go on.

A process can also be suspended, as with the machine that it runs on; then its leader election stops with it.

All processes of a simulation share one event loop, so a plugin cannot really block. Instead its process is frozen: the
call returns at once, the clock of the process shows the end of the stall, and the loop leaves out the callbacks of the
process until then (:class:`kubestow_lab.fault_simulation.event_loop.ShuffledLoop`). What belongs to a thread of its
own, or to the network, runs outside of the frozen context; the thread of the election has one that only suspensions
freeze.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import Plugin, PreFilterPlugin
from kubestow.scheduling.environment import Leadership
from kubestow_lab.fault_simulation.event_loop import Freeze, run_frozen_with

NAME = "StallingPlugin"
LABEL = "stalls"
"""The label of pods that stall a scheduler, with the seconds once the faults have ended."""

#: The seconds of a stall while there are faults; the scheduling loop is let go after 45.
_SECONDS = (5.0, 20.0, 40.0, 60.0, 300.0)


class ElectionBeside:
    """Implements :class:`~kubestow.scheduling.environment.Leadership` by one that only ``suspension`` freezes."""

    def __init__(self, election: Leadership, suspension: Freeze) -> None:
        self._election, self._suspension = election, suspension

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
        return await run_frozen_with(self._suspension, self._election.acquire())

    async def hold(self) -> None:
        await run_frozen_with(self._suspension, self._election.hold())

    async def release(self) -> None:
        await run_frozen_with(self._suspension, self._election.release())


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
