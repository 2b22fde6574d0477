"""List and watch of one collection, with everything that can happen to a watch.

Events of one object keep their order; those of different objects may overtake each other, events may come late or
twice, and at any moment the watch may break, which loses what was under way and brings a new list.
"""

from __future__ import annotations

import asyncio
from typing import NoReturn

from kubestow.scheduling.ports import Resource, Subscriber
from tests.fault_simulation.faults import Fault, Faults
from tests.fault_simulation.server import Change, Key, Server

__all__ = ["Watch"]


class Watch:
    """Keeps one subscriber in step with one collection."""

    def __init__(self, server: Server, resource: Resource, subscriber: Subscriber, faults: Faults) -> None:
        self._server, self._resource, self._subscriber, self._faults = server, resource, subscriber, faults
        self._history = server.history[resource]
        self._news = asyncio.Event()
        self._position = 0
        self._pending: list[Change] = []
        self._delivered: dict[Key, Change] = {}

    async def run(self) -> NoReturn:
        """List, follow, and list again when the watch breaks."""
        self._server.watchers[self._resource].append(self._news)
        try:
            while True:
                await self._list()
                while not await self._breaks():
                    await self._deliver()
                await asyncio.sleep(self._faults.random.uniform(0.0, 3.0))
        finally:
            self._server.watchers[self._resource].remove(self._news)

    async def _list(self) -> None:
        self._position, objects = len(self._history), self._server.listed(self._resource)
        self._pending, self._delivered = [], {}
        await asyncio.sleep(self._faults.random.uniform(0.0, 0.1))
        self._subscriber.replace(self._resource, objects)

    async def _breaks(self) -> bool:
        """Wait for something to deliver; whether the watch broke meanwhile."""
        self._pending += self._history[self._position :]
        self._position = len(self._history)
        if self._pending:
            return self._faults.strikes(Fault.EXPIRY) and self._faults.random.random() < 0.1
        self._news.clear()
        try:
            async with asyncio.timeout(20.0 if self._faults.active else None):
                await self._news.wait()
        except TimeoutError:
            return self._faults.strikes(Fault.EXPIRY)
        return False

    async def _deliver(self) -> None:
        if not self._pending:
            return
        if self._faults.strikes(Fault.DELAY):
            await asyncio.sleep(self._faults.random.expovariate(1.0))
        elif self._faults.strikes(Fault.DUPLICATE):
            self._again()
        else:
            self._tell(self._pending.pop(self._next()))
            await asyncio.sleep(0)

    def _next(self) -> int:
        """The first pending event, or the first of another object."""
        if not self._faults.strikes(Fault.REORDER):
            return 0
        position = self._faults.random.randrange(len(self._pending))
        return next(i for i, change in enumerate(self._pending) if change.key == self._pending[position].key)

    def _again(self) -> None:
        """Repeat what was last said of some object."""
        if self._delivered:
            self._tell(self._delivered[self._faults.random.choice(list(self._delivered))])

    def _tell(self, change: Change) -> None:
        self._delivered[change.key] = change
        self._subscriber.apply(self._resource, change.type, change.obj)
