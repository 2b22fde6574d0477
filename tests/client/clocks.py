"""Clocks that do not pass by themselves."""

from __future__ import annotations

import asyncio
import heapq
from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 1, tzinfo=UTC)


class LeapingClock:
    """Time leaps forward at once whenever somebody sleeps; ``slept`` says how long, in order."""

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


class HeldClock:
    """Time passes only in :meth:`advance`; sleepers wait for it."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self._sleepers: list[tuple[float, int, asyncio.Event]] = []
        self._count = 0
        self._someone_sleeps = asyncio.Event()

    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.Event()
        self._count += 1
        heapq.heappush(self._sleepers, (self.seconds + seconds, self._count, woken))
        self._someone_sleeps.set()
        await woken.wait()

    async def until_sleeping(self, count: int) -> None:
        """Wait until that many wait for time to pass."""
        async with asyncio.timeout(10):
            while len(self._sleepers) < count:
                self._someone_sleeps.clear()
                await self._someone_sleeps.wait()

    async def advance(self, seconds: float) -> None:
        """Let time pass, waking everybody whose time it is, in order."""
        end = self.seconds + seconds
        while self._sleepers and self._sleepers[0][0] <= end:
            self.seconds, _, woken = heapq.heappop(self._sleepers)
            woken.set()
            for _ in range(10):
                await asyncio.sleep(0)
        self.seconds = end
