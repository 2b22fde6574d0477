"""What is to be reconciled: each object once, now or at a time to come."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["Work"]

Item = TypeVar("Item", bound=Hashable)

#: Seconds until a reconciliation that failed is tried again; doubled with each failure in a row.
FIRST_RETRY, LAST_RETRY = 1.0, 60.0


class Work(Generic[Item]):
    """Objects to reconcile in the order they came, without repetition. Time is the running event loop's."""

    def __init__(self) -> None:
        self._ready: dict[Item, None] = {}
        self._due: list[tuple[float, int, Item]] = []
        self._earliest: dict[Item, float] = {}
        self._resting: dict[Item, float] = {}
        self._order = itertools.count()
        #: How long objects that failed had to wait the last time.
        self._waits: dict[Item, float] = {}

    def add(self, item: Item) -> None:
        """Reconcile as soon as possible, which is when it has had its rest."""
        until = self._resting.get(item, 0.0)
        if until > asyncio.get_running_loop().time():
            self._at(item, until)
        else:
            self._ready[item] = None

    def rest(self, item: Item, seconds: float) -> None:
        """Do not reconcile again for so long, however often it is named: what costs much is done less often."""
        self._resting[item] = asyncio.get_running_loop().time() + seconds

    def later(self, item: Item, delay: float) -> None:
        """Reconcile after so many seconds; an earlier time that is set already stands."""
        self._at(item, asyncio.get_running_loop().time() + delay)

    def _at(self, item: Item, when: float) -> None:
        if self._earliest.get(item, when + 1) <= when:
            return
        self._earliest[item] = when
        heapq.heappush(self._due, (when, next(self._order), item))

    def take(self) -> Item | None:
        """The next object to reconcile, None when there is nothing to do now."""
        now = asyncio.get_running_loop().time()
        while self._due and self._due[0][0] <= now:
            when, _, item = heapq.heappop(self._due)
            if self._earliest.get(item) == when:
                del self._earliest[item]
                self.add(item)
        if not self._ready:
            return None
        first = next(iter(self._ready))
        del self._ready[first]
        self._resting.pop(first, None)
        return first

    @property
    def next_time(self) -> float | None:
        """When there is something to do, in the loop's time; a time gone by means now."""
        if self._ready:
            return 0.0
        return self._due[0][0] if self._due else None

    def failed(self, item: Item) -> None:
        """Try again, later each time."""
        wait = self._waits[item] = min(2 * self._waits.get(item, FIRST_RETRY / 2), LAST_RETRY)
        self.later(item, wait)

    def succeeded(self, item: Item) -> None:
        self._waits.pop(item, None)
