"""Long computations of plugins: each ends after a time that is drawn, while everything else goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

#: The longest time of a computation, in seconds.
_LONGEST = 5.0


class DelayedComputing:
    """Implements :class:`~kubestow.scheduling.interfaces.Computing`; ``note`` is called when a computation ends."""

    def __init__(self, random: Random, note: Callable[[], None]) -> None:
        self._random, self._note = random, note

    async def run(self, computation: Callable[[], object]) -> None:
        """Run a computation at once or after a while."""
        if self._random.random() < 0.7:
            await asyncio.sleep(self._random.uniform(0.0, _LONGEST))
        computation()
        self._note()
