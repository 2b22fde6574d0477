"""Virtual time in which nothing may rely on the order of what is ready: a seeded random source shuffles it.

asyncio runs callbacks in the order in which they became ready. On a real machine that order is decided by networks and
other processes, so here it is drawn; what holds under every order holds under the real one.
"""

from __future__ import annotations

from random import Random
from typing import Any

from kubestow.testing.virtual_time import VirtualTimeLoop

__all__ = ["Livelock", "ShuffledLoop"]

#: Rounds of the loop at one instant of virtual time before it is taken to go in circles.
_MOST_ROUNDS = 20_000


class Livelock(AssertionError):
    """Something is always ready to run, and time stands still."""


class ShuffledLoop(VirtualTimeLoop):
    """An event loop whose clock jumps and whose ready callbacks run in a drawn order."""

    _ready: Any

    def __init__(self, random: Random) -> None:
        self._random = random
        self._rounds = 0
        super().__init__()

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._rounds = 0
        super().advance(seconds)

    def _run_once(self) -> None:
        self._rounds += 1
        if self._rounds > _MOST_ROUNDS:
            raise Livelock(f"{_MOST_ROUNDS} rounds at {self.time():.3f} s")
        if len(self._ready) > 1:
            self._random.shuffle(self._ready)
        super()._run_once()  # type: ignore[misc]  # asyncio keeps its one step to itself
