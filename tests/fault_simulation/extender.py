"""An extender that is slow, fails, refuses, scores absurdly, spares victims that are not there, and may bind."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from kubestow import config
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import APIError, ExtenderError, Unreachable
from kubestow.framework.interface import Victims
from kubestow.scheduling.extenders.port import ExtenderFilterResponse, ExtenderVictims
from kubestow.scheduling.ports import ClusterAPI, reference
from tests.fault_simulation.faults import Fault, Faults

__all__ = ["WaywardExtender"]


class WaywardExtender:
    """Implements :class:`kubestow.scheduling.extenders.port.Extender`; at rest it lets everything pass."""

    def __init__(self, api: ClusterAPI, faults: Faults, *, ignorable: bool, binds: bool) -> None:
        self._api, self._faults = api, faults
        self.settings = config.Extender(
            url_prefix="http://wayward",
            filter_verb="filter",
            prioritize_verb="prioritize",
            preempt_verb="preempt",
            bind_verb="bind" if binds else "",
            weight=1,
            ignorable=ignorable,
        )

    async def _trip(self, verb: str) -> None:
        if self._faults.strikes(Fault.SLOW):
            await asyncio.sleep(self._faults.random.expovariate(1.0))
        if self._faults.strikes(Fault.REFUSED):
            raise ExtenderError(self.settings.url_prefix, verb, "mischief")

    async def filter(self, pod: PodInfo, names: Sequence[str]) -> ExtenderFilterResponse:
        await self._trip("filter")
        refused = {name: "mischief" for name in names if self._faults.strikes(Fault.REFUSES)}
        elsewhere = {"nowhere": "mischief"} if self._faults.strikes(Fault.RAISES) else {}
        return ExtenderFilterResponse([name for name in names if name not in refused], refused, elsewhere)

    async def prioritize(self, pod: PodInfo, names: Sequence[str]) -> Sequence[tuple[str, int]]:
        await self._trip("prioritize")
        return [(name, self._faults.random.choice((0, 10, 2**62, -1))) for name in (*names, "nowhere")]

    async def preempt(self, pod: PodInfo, offers: Mapping[str, Victims]) -> Mapping[str, ExtenderVictims]:
        await self._trip("preempt")
        spared = {
            name: ExtenderVictims([victim.uid for victim in victims.pods if not self._faults.strikes(Fault.REFUSES)])
            for name, victims in offers.items()
            if not self._faults.strikes(Fault.REFUSES)
        }
        return spared | ({"nowhere": ExtenderVictims(["nobody"])} if self._faults.strikes(Fault.RAISES) else {})

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        try:
            await self._api.bind(reference(pod), node_name)
        except (APIError, Unreachable) as error:
            raise ExtenderError(self.settings.url_prefix, "bind", str(error)) from None
        await self._trip("bind")
