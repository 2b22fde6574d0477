"""The rate-limiting work queue of the controllers, with the semantics of client-go's workqueue.

An item is queued once, however often it is added, and may be added for later. Failed items are retried with exponential
back-off. Items that are expensive to reconcile can be throttled. Single-threaded: no item is processed concurrently.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["WorkQueue"]

Item = TypeVar("Item", bound=Hashable)

#: Back-off of failed items in seconds, doubled with each failure in a row.
INITIAL_BACK_OFF, MAX_BACK_OFF = 1.0, 60.0


class WorkQueue(Generic[Item]):
    """Items in the order they were added, in the running event loop's time."""

    def __init__(self) -> None:
        self._ready: dict[Item, None] = {}
        self._delayed: list[tuple[float, int, Item]] = []
        #: When each delayed item is due; entries of the heap with another time are stale.
        self._due: dict[Item, float] = {}
        self._throttled_until: dict[Item, float] = {}
        self._sequence = itertools.count()
        #: The last back-off of each item that failed.
        self._back_offs: dict[Item, float] = {}

    def add(self, item: Item) -> None:
        """Queue the item, or delay it until its throttling ends."""
        until = self._throttled_until.get(item, 0.0)
        if until > asyncio.get_running_loop().time():
            self._add_at(item, until)
        else:
            self._ready[item] = None

    def add_after(self, item: Item, delay: float) -> None:
        """Queue the item in ``delay`` seconds, unless it is already delayed for less."""
        self._add_at(item, asyncio.get_running_loop().time() + delay)

    def add_rate_limited(self, item: Item) -> None:
        """Queue an item that failed, after its back-off."""
        back_off = self._back_offs[item] = min(2 * self._back_offs.get(item, INITIAL_BACK_OFF / 2), MAX_BACK_OFF)
        self.add_after(item, back_off)

    def forget(self, item: Item) -> None:
        """Reset the back-off of an item that succeeded."""
        self._back_offs.pop(item, None)

    def throttle(self, item: Item, seconds: float) -> None:
        """Do not process the item again for this long, even if it is added."""
        self._throttled_until[item] = asyncio.get_running_loop().time() + seconds

    def get(self) -> Item | None:
        """Remove and return the first item that is ready; None if there is none."""
        now = asyncio.get_running_loop().time()
        while self._delayed and self._delayed[0][0] <= now:
            when, _, item = heapq.heappop(self._delayed)
            if self._due.get(item) == when:
                del self._due[item]
                self.add(item)
        if not self._ready:
            return None
        first = next(iter(self._ready))
        del self._ready[first]
        self._throttled_until.pop(first, None)
        return first

    @property
    def next_deadline(self) -> float | None:
        """When the next item is ready, in the loop's time; a past time means now, None: there are no items."""
        if self._ready:
            return 0.0
        return self._delayed[0][0] if self._delayed else None

    def _add_at(self, item: Item, when: float) -> None:
        if self._due.get(item, when + 1) <= when:
            return
        self._due[item] = when
        heapq.heappush(self._delayed, (when, next(self._sequence), item))
