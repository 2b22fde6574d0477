"""An event loop whose clock jumps to the next timer whenever there is nothing else to do."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

__all__ = ["VirtualLoop", "run"]


class _Selector(selectors.DefaultSelector):
    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout:
            self.loop.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time passes only while everybody waits."""

    EPOCH = datetime(2026, 1, 1, tzinfo=UTC)

    def __init__(self) -> None:
        self.now = 0.0
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now

    def wall(self) -> datetime:
        """A wall clock that goes with the loop's."""
        return self.EPOCH + timedelta(seconds=self.now)


def run(loop: VirtualLoop, main: Coroutine[Any, Any, None]) -> None:
    try:
        loop.run_until_complete(main)
    finally:
        loop.close()
