"""Clocks under the control of a test."""

from __future__ import annotations

import asyncio
import heapq
from datetime import UTC, datetime, timedelta

from core_tests.hang_limit import HANG_LIMIT

START = datetime(2026, 1, 1, tzinfo=UTC)


class AutoAdvancingClock:
    """A clock that advances by the duration of every sleep at once; ``slept`` lists the durations."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.slept: list[float] = []

    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.seconds += seconds
        await asyncio.sleep(0)


class ManualClock:
    """A clock that advances only in :meth:`advance`."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self._sleepers: list[tuple[float, int, asyncio.Event]] = []
        self._count = 0
        self._sleep_started = asyncio.Event()

    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.Event()
        self._count += 1
        heapq.heappush(self._sleepers, (self.seconds + seconds, self._count, woken))
        self._sleep_started.set()
        await woken.wait()

    async def wait_for_sleepers(self, count: int) -> None:
        """Return once ``count`` tasks sleep."""
        async with asyncio.timeout(HANG_LIMIT):
            while len(self._sleepers) < count:
                self._sleep_started.clear()
                await self._sleep_started.wait()

    async def advance_to_next_sleeper(self) -> float:
        """Wake the task that is due first; the seconds that it had left to sleep."""
        seconds = self._sleepers[0][0] - self.seconds
        await self.advance(seconds + 1e-6)
        return seconds

    async def advance(self, seconds: float) -> None:
        """Advance the time and wake the sleepers that are due, in order."""
        end = self.seconds + seconds
        while self._sleepers and self._sleepers[0][0] <= end:
            self.seconds, _, woken = heapq.heappop(self._sleepers)
            woken.set()
            for _ in range(10):
                await asyncio.sleep(0)
        self.seconds = end
