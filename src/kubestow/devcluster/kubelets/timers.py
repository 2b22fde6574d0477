"""Deeds by the time at which they fall due, in the running event loop's time."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable

__all__ = ["Timetable"]


class Timetable:
    def __init__(self) -> None:
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def after(self, delay: float, deed: Callable[[], None]) -> None:
        """Have a deed done after ``delay`` seconds; those of one moment in the order in which they were asked for."""
        when = asyncio.get_running_loop().time() + max(delay, 0.0)
        heapq.heappush(self._due, (when, next(self._order), deed))

    def take(self) -> Callable[[], None] | None:
        """A deed that is due, if there is one."""
        if not self._due or self._due[0][0] > asyncio.get_running_loop().time():
            return None
        return heapq.heappop(self._due)[2]

    @property
    def next_time(self) -> float | None:
        """When the next deed falls due, in the loop's time."""
        return self._due[0][0] if self._due else None
