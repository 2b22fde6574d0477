"""The rounds of those who look after something: not at once, one after the other, and none while all is well."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import NoReturn

from tests.fault_simulation.server import Server

__all__ = ["make_rounds"]


async def make_rounds(server: Server, random: Random, look: Callable[[], bool]) -> NoReturn:
    """Look after things now and then; ``look`` says whether there is more to do, else the next change is waited for."""
    while True:
        await asyncio.sleep(random.uniform(0.2, 1.0))
        if not look():
            await server.change()
