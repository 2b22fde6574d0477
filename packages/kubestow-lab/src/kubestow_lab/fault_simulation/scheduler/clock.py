"""The clock of one machine: its wall clock can jump, and its monotonic clock has an arbitrary origin."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from datetime import datetime, timedelta
from random import Random

from kubestow.testing.virtual_time import VirtualClock

_DAY = 86_400.0


class JumpingClock:
    """Implements the scheduler's ``Clock`` on virtual time with a wall clock offset."""

    def __init__(self, true: VirtualClock, random: Random) -> None:
        self._true, self._random = true, random
        self._origin = random.uniform(0.0, _DAY)
        self._offset = timedelta()
        #: The seconds by which the clock is ahead of true time, while its process is frozen.
        self.ahead: Callable[[], float] = lambda: 0.0

    def now(self) -> datetime:
        """The wall clock time."""
        return self._true.now() + self._offset + timedelta(seconds=self.ahead())

    def monotonic(self) -> float:
        """Seconds of the monotonic clock."""
        return self._true.monotonic() + self._origin + self.ahead()

    async def sleep(self, seconds: float) -> None:
        """Sleep in virtual time."""
        await self._true.sleep(seconds)

    def never_ahead(self) -> JumpingClock:
        """The clock as another thread of the machine reads it while the process is frozen."""
        other = copy(self)
        other.ahead = lambda: 0.0
        return other

    def jump(self) -> None:
        """Set the wall clock to a new offset between zero and a thousand days."""
        self.set_offset(self._random.choice((0.0, 1.0, 600.0, _DAY, 1000 * _DAY)) * self._random.uniform(-1, 1))

    def set_offset(self, seconds: float) -> None:
        """Set the wall clock to true time plus an offset."""
        self._offset = timedelta(seconds=seconds)
