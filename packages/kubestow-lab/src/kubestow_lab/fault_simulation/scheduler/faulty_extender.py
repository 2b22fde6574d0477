"""An extender that takes time, fails, rejects nodes, returns invalid scores, nodes and victims, and can bind pods."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from kubestow import config
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import APIError, ExtenderError, Unreachable
from kubestow.framework.interface import Victims
from kubestow.scheduling.extenders.stages import ExtenderFilterResponse, ExtenderVictims
from kubestow.scheduling.interfaces import ClusterAPI, reference
from kubestow_lab.fault_simulation.faults import Fault, Faults
from kubestow_lab.fault_simulation.marks import Mark, Marks


class FaultyExtender:
    """Implements :class:`kubestow.scheduling.extenders.stages.Extender`; without faults it accepts everything."""

    def __init__(self, api: ClusterAPI, faults: Faults, marks: Marks, *, ignorable: bool, binds: bool) -> None:
        self._api, self._faults, self._marks = api, faults, marks
        self.settings = config.Extender(
            url_prefix="http://faulty",
            filter_verb="filter",
            prioritize_verb="prioritize",
            preempt_verb="preempt",
            bind_verb="bind" if binds else "",
            weight=1,
            ignorable=ignorable,
        )

    async def _inject_faults(self, verb: str) -> None:
        await asyncio.sleep(self._faults.random.uniform(0.0, 0.02))
        if self._faults.occurs(Fault.SLOW):
            await asyncio.sleep(self._faults.random.expovariate(1.0))
        if self._faults.occurs(Fault.REJECTED):
            raise ExtenderError(self.settings.url_prefix, verb, "injected")

    async def filter(self, pod: PodInfo, names: Sequence[str]) -> ExtenderFilterResponse:
        await self._inject_faults("filter")
        rejected = {name: "injected" for name in names if self._faults.occurs(Fault.REJECTS)}
        unknown = {"nowhere": "injected"} if self._faults.occurs(Fault.RAISES) else {}
        return ExtenderFilterResponse([name for name in names if name not in rejected], rejected, unknown)

    async def prioritize(self, pod: PodInfo, names: Sequence[str]) -> Sequence[tuple[str, int]]:
        await self._inject_faults("prioritize")
        return [(name, self._faults.random.choice((0, 10, 2**62, -1))) for name in (*names, "nowhere")]

    async def preempt(self, pod: PodInfo, candidates: Mapping[str, Victims]) -> Mapping[str, ExtenderVictims]:
        await self._inject_faults("preempt")
        accepted = {
            name: ExtenderVictims([victim.uid for victim in victims.pods if not self._faults.occurs(Fault.REJECTS)])
            for name, victims in candidates.items()
            if not self._faults.occurs(Fault.REJECTS)
        }
        return accepted | ({"nowhere": ExtenderVictims(["unknown"])} if self._faults.occurs(Fault.RAISES) else {})

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        try:
            await self._api.bind(reference(pod), node_name)
        except (APIError, Unreachable) as error:
            raise ExtenderError(self.settings.url_prefix, "bind", str(error)) from None
        try:
            await self._inject_faults("bind")
        except ExtenderError:
            self._marks.reach(Mark.EXTENDER_BOUND_AND_FAILED)
            raise
