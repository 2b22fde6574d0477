"""Callbacks by deadline, in the running event loop's time.

Unlike ``loop.call_later``, expired callbacks run only when the watch loop pops them.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable

__all__ = ["Timers"]


class Timers:
    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = itertools.count()

    def call_later(self, delay: float, callback: Callable[[], None]) -> None:
        """Schedule ``callback`` in ``delay`` seconds; callbacks with the same deadline keep their order."""
        deadline = asyncio.get_running_loop().time() + max(delay, 0.0)
        heapq.heappush(self._heap, (deadline, next(self._sequence), callback))

    def pop_expired(self) -> Callable[[], None] | None:
        """Remove and return the first callback whose deadline has passed; None if there is none."""
        if not self._heap or self._heap[0][0] > asyncio.get_running_loop().time():
            return None
        return heapq.heappop(self._heap)[2]

    @property
    def next_deadline(self) -> float | None:
        return self._heap[0][0] if self._heap else None
