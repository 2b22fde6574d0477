"""An event loop in virtual time that shuffles its ready callbacks with a seeded random source.

asyncio runs callbacks in the order in which they became ready. On a real machine that order depends on networks and
other processes, so here it is drawn; what holds for every order holds for the real one.
"""

from __future__ import annotations

from random import Random
from typing import Any

from kubestow.flight_record.journal import RecordedLoop
from kubestow.testing.virtual_time import VirtualTimeLoop

#: Iterations of the loop at one instant of virtual time that count as a livelock.
_MAX_ITERATIONS = 20_000


class Livelock(AssertionError):
    """Callbacks are always ready, so that virtual time does not advance."""


class ShuffledLoop(VirtualTimeLoop):
    """A virtual-time event loop whose ready callbacks run in random order."""

    _ready: Any

    def __init__(self, random: Random) -> None:
        self._random = random
        self._iterations = 0
        super().__init__()

    def advance(self, seconds: float) -> None:
        """Advance virtual time."""
        self._iterations = 0
        super().advance(seconds)

    def _run_once(self) -> None:
        self._iterations += 1
        if self._iterations > _MAX_ITERATIONS:
            raise Livelock(f"{_MAX_ITERATIONS} iterations at {self.time():.3f} s")
        if len(self._ready) > 1:
            self._random.shuffle(self._ready)
        super()._run_once()  # type: ignore[misc]  # private in asyncio


class RecordedShuffledLoop(RecordedLoop, ShuffledLoop):
    """The same for recorded schedulers."""
