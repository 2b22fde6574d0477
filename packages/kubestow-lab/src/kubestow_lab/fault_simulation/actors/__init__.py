"""What acts on the API server beside schedulers: users and tenants, and controllers, which share one control loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import NoReturn

from kubestow_lab.fault_simulation.apiserver.server import SimulatedServer


async def run_control_loop(server: SimulatedServer, random: Random, reconcile: Callable[[], bool]) -> NoReturn:
    """Call ``reconcile`` with random delays; while it returns False, wait for the next write before the next call."""
    while True:
        await asyncio.sleep(random.uniform(0.2, 1.0))
        if not reconcile():
            await server.change()
