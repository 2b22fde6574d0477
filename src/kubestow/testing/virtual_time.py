"""Virtual time: an event loop on which waiting costs nothing.

When nothing is ready to run, the loop does not sleep: its clock jumps to the next timer. An hour of backoff passes in
milliseconds, and the same program runs the same way every time. A program that waits for something that can never
happen ends with an error instead of hanging. No sockets, no threads.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

__all__ = ["Deadlock", "VirtualClock", "VirtualTimeLoop", "run"]

T = TypeVar("T")

_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class Deadlock(AssertionError):
    """Everybody waits, and no timer will ever wake anybody."""


class _NoSleep(selectors.BaseSelector):
    """Never waits: reports how long the loop meant to sleep, so that its clock can jump instead."""

    def __init__(self) -> None:
        self.loop: VirtualTimeLoop | None = None
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, fileobj if isinstance(fileobj, int) else fileobj.fileno(), events, data)
        self._keys[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock("every task waits and no timer is set")
        if timeout > 0:
            assert self.loop is not None
            self.loop.advance(timeout)
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps. Time starts at 0."""

    def __init__(self) -> None:
        self._virtual_now = 0.0
        selector = _NoSleep()
        super().__init__(selector)
        selector.loop = self

    def time(self) -> float:
        """Seconds of virtual time."""
        return self._virtual_now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._virtual_now += seconds


class VirtualClock:
    """The clock of a virtual-time loop, as the scheduler's port wants it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def now(self) -> datetime:
        """The present moment: 2026 begins when the loop does."""
        return _EPOCH + timedelta(seconds=self._loop.time())

    def monotonic(self) -> float:
        """Seconds since the loop began."""
        return self._loop.time()

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds)


def run(program: Coroutine[Any, Any, T]) -> T:
    """Run a program to its end in virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(program)
