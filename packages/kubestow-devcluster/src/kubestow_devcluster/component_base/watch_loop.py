"""List-and-watch inside the server: handle each change of the store, then process what is pending, in a loop.

The simulated kubelets and the controller manager each are one :class:`WatchLoop` and run as one task. A loop reads the
history of its resources with cursors, as any watch does. It sleeps until one of them changes or a timer expires, so an
idle cluster costs nothing, and relists when the history no longer reaches back to its cursor.

:class:`Timers` are callbacks by deadline. Unlike with ``loop.call_later``, expired callbacks run only when the watch
loop pops them.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import ClassVar

from kubestow.log_fields import fields
from kubestow_devcluster.apiserver.storage.store import Cursor, Expired, Store, StoredObject, WatchEvent

_log = logging.getLogger(__name__)


class WatchLoop(ABC):
    """Calls :meth:`relist`, then repeats: :meth:`handle_event` for every change, :meth:`process_pending`, sleep."""

    #: The component's name in log messages.
    name: ClassVar[str]

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cursors: dict[str, Cursor] = {}
        #: The watched resources with changes that have not been delivered.
        self._changed: set[str] = set()
        #: One for each resource: a collection adds the same one only once, so relisting does not add more and more.
        self._listeners: dict[str, Callable[[], None]] = {}
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            try:
                self._cursors, self._changed = {}, set()
                self.relist()
                while True:
                    self.deliver_events()
                    self.process_pending()
                    await self._sleep()
            except Expired:
                _log.warning("%s: watch history expired, relisting", self.name, extra=fields(loop=self.name))

    @abstractmethod
    def relist(self) -> None:
        """Drop all cached state, :meth:`list_and_watch` each resource, and rebuild the state from the lists."""

    @abstractmethod
    def handle_event(self, resource: str, event: WatchEvent) -> None:
        """Update the cached state for one change, and schedule what has to be done about it."""

    @abstractmethod
    def process_pending(self) -> None:
        """Do one piece of the pending work, if there is any: requests are served between two pieces.

        A request needs several turns of the event loop, and waits in each of them until this returns.
        """

    @property
    @abstractmethod
    def next_deadline(self) -> float | None:
        """When there is work again, in the running loop's time. A past time means now, None after the next change."""

    def list_and_watch(self, resource: str) -> list[StoredObject]:
        """List a resource and watch it from there on. No event is delivered for the objects returned."""
        collection = self._store.collection(resource)
        self._cursors[resource] = collection.cursor(self._store.resource_version)
        self._listeners.setdefault(resource, partial(self._mark_changed, resource))
        collection.notify_once(self._listeners[resource])
        return collection.snapshot()

    def _mark_changed(self, resource: str) -> None:
        self._changed.add(resource)
        self._wake.set()

    def is_watching(self, resource: str) -> bool:
        return resource in self._cursors

    def deliver_events(self) -> None:
        """Handle every change up to now. Raises Expired when the history has dropped some of them."""
        if not self._changed:
            return
        changed, self._changed = self._changed, set()
        for resource in [one for one in self._cursors if one in changed]:
            self._store.collection(resource).notify_once(self._listeners[resource])
            for event in self._cursors[resource].take():
                self.handle_event(resource, event)

    async def _sleep(self) -> None:
        """Return at the next change or deadline; yields to other tasks even if there is work already."""
        loop, deadline = asyncio.get_running_loop(), self.next_deadline
        if self._changed or (deadline is not None and deadline <= loop.time()):
            await asyncio.sleep(0)
            return
        self._wake.clear()
        timer = None if deadline is None else loop.call_at(deadline, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            if timer is not None:
                timer.cancel()


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
