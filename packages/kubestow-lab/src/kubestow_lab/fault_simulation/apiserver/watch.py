"""List and watch of one collection as objects, with the faults of a watch.

Events of one object keep their order; events of different objects can overtake each other, be delayed or be repeated.
The watch can break at any moment, which loses the pending events and causes a new list.
"""

from __future__ import annotations

import asyncio
from typing import NoReturn

from kubestow.scheduling.interfaces import Resource, Subscriber
from kubestow_lab.fault_simulation.apiserver.outages import Outages
from kubestow_lab.fault_simulation.apiserver.server import Key, SimulatedServer, WatchEvent
from kubestow_lab.fault_simulation.faults import Fault, Faults
from kubestow_lab.fault_simulation.marks import Mark, Marks


class UnreliableWatch:
    """Delivers one collection to one subscriber."""

    def __init__(
        self,
        server: SimulatedServer,
        resource: Resource,
        subscriber: Subscriber,
        faults: Faults,
        outages: Outages,
        marks: Marks,
    ) -> None:
        self._server, self._resource, self._subscriber = server, resource, subscriber
        self._faults, self._outages, self._marks = faults, outages, marks
        self._restarts = 0
        self._history = server.history[resource]
        self._changed = asyncio.Event()
        self._position = 0
        self._pending: list[WatchEvent] = []
        self._delivered: dict[Key, WatchEvent] = {}

    async def run(self) -> NoReturn:
        """List, watch, and list again when the watch breaks."""
        self._server.watchers[self._resource].append(self._changed)
        try:
            while True:
                await self._list()
                while not await self._breaks():
                    await self._deliver()
                await asyncio.sleep(self._faults.random.uniform(0.0, 3.0))
        finally:
            self._server.watchers[self._resource].remove(self._changed)

    async def _list(self) -> None:
        self._position, objects = len(self._history), self._server.listed(self._resource)
        self._pending, self._delivered, self._restarts = [], {}, self._outages.restarts
        await asyncio.sleep(self._faults.random.uniform(0.0, 0.1))
        self._subscriber.replace(self._resource, objects)

    async def _breaks(self) -> bool:
        """Wait for pending events; whether the watch broke instead."""
        if self._restarts != self._outages.restarts:
            return True
        self._pending += self._history[self._position :]
        self._position = len(self._history)
        if self._pending:
            return self._faults.occurs(Fault.EXPIRY) and self._faults.random.random() < 0.1
        self._changed.clear()
        try:
            async with asyncio.timeout(20.0 if self._faults.active else None):
                await self._changed.wait()
        except TimeoutError:
            return self._faults.occurs(Fault.EXPIRY)
        return False

    async def _deliver(self) -> None:
        if not self._pending:
            return
        await self._outages.delay_event()
        if self._faults.occurs(Fault.DELAY):
            await asyncio.sleep(self._faults.random.expovariate(1.0))
        elif self._faults.occurs(Fault.DUPLICATE):
            self._repeat()
        else:
            self._notify(self._pending.pop(self._next()))
            await asyncio.sleep(0)

    def _next(self) -> int:
        """The first pending event, or the first of another object."""
        if not self._faults.occurs(Fault.REORDER):
            return 0
        position = self._faults.random.randrange(len(self._pending))
        first = next(i for i, change in enumerate(self._pending) if change.key == self._pending[position].key)
        if first:
            self._marks.reach(Mark.EVENT_OVERTAKEN)
        return first

    def _repeat(self) -> None:
        """Repeat the last event of some object."""
        if self._delivered:
            self._marks.reach(Mark.EVENT_REPEATED)
            self._notify(self._delivered[self._faults.random.choice(list(self._delivered))])

    def _notify(self, change: WatchEvent) -> None:
        self._delivered[change.key] = change
        self._subscriber.apply(self._resource, change.type, change.obj)
