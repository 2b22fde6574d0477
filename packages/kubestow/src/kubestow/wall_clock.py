"""The time of this machine, as the scheduler's clock port expects it."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

__all__ = ["WallClock"]


class WallClock:
    """Implements :class:`kubestow.scheduling.interfaces.Clock` on the system's clocks."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    monotonic = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
