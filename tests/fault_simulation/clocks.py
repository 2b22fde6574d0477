"""The clock of one machine: its hands may be set at any moment, and its seconds begin anywhere."""

from __future__ import annotations

from datetime import datetime, timedelta
from random import Random

from kubestow.testing.virtual_time import VirtualClock

__all__ = ["UnsteadyClock"]

_DAY = 86_400.0


class UnsteadyClock:
    """Time passes as everywhere; what the clock shows is another matter. Implements the scheduler's ``Clock``."""

    def __init__(self, true: VirtualClock, random: Random) -> None:
        self._true, self._random = true, random
        self._origin = random.uniform(0.0, _DAY)
        self._off = timedelta()

    def now(self) -> datetime:
        """What the clock shows."""
        return self._true.now() + self._off

    def monotonic(self) -> float:
        """Seconds since this machine was started."""
        return self._true.monotonic() + self._origin

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        await self._true.sleep(seconds)

    def jump(self) -> None:
        """Somebody sets the clock: a little, by hours, or far into the future or the past."""
        self._off = timedelta(
            seconds=self._random.choice((0.0, 1.0, 600.0, _DAY, 1000 * _DAY)) * self._random.uniform(-1, 1)
        )
