"""A plugin for processes under test: PreBind that takes a minute."""

from __future__ import annotations

import asyncio
import logging

from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import PreBindPlugin
from kubestow.framework.status import Status


class Slow(PreBindPlugin):
    name = "Slow"
    events_to_register = ()

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        logging.getLogger("kubestow.slow").warning("PreBind begins")
        await asyncio.sleep(60)
        return None
