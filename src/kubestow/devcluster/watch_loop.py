"""Following the store inside the server: what changed is seen, then what is due is done, over and over.

Simulated nodes and controllers are followers. They read the history of the resources they follow as any watcher would,
sleep until one of these changes or something falls due, so an idle cluster costs nothing, and begin again from what is
there when more has happened than the history holds. One task runs each of them.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from typing import ClassVar

from kubestow.devcluster.apiserver.storage.store import Cursor, Event, Expired, Store, Stored

__all__ = ["Follower"]

_log = logging.getLogger(__name__)


class Follower(ABC):
    """Begins with :meth:`begin`, then takes turns: every change is observed, then :meth:`act` does some of the work."""

    #: Who it is, in the log; in the plural.
    title: ClassVar[str]

    def __init__(self, store: Store) -> None:
        self._store = store
        self._changed = asyncio.Event()
        self._cursors: dict[str, Cursor] = {}
        self._seen = 0

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            try:
                await self._follow()
            except Expired:
                _log.warning("%s fell behind and start over from the current state", self.title)

    @abstractmethod
    def begin(self) -> None:
        """Forget everything, :meth:`follow` what matters, and take note of what is there."""

    @abstractmethod
    def observe(self, resource: str, event: Event) -> None:
        """Take note of a change."""

    @abstractmethod
    def act(self) -> None:
        """Do some of what is due; not all when that is much, since nothing else runs in the meantime."""

    @property
    @abstractmethod
    def next_time(self) -> float | None:
        """When there is something to do, in the running loop's time; past times mean now, None: after some change."""

    def follow(self, resource: str) -> list[Stored]:
        """Observe the changes of a resource from here on. Returns the objects that are there, none of them observed."""
        collection = self._store.collection(resource)
        self._cursors[resource] = collection.cursor(self._store.version)
        return collection.snapshot()

    def is_following(self, resource: str) -> bool:
        return resource in self._cursors

    def catch_up(self) -> None:
        """Observe everything that has happened. Raises Expired when some of it is no longer known."""
        if self._seen == self._store.version:
            return
        self._seen = self._store.version
        for resource, cursor in self._cursors.items():
            if cursor.has_more:
                self._take(resource, cursor)

    def _take(self, resource: str, cursor: Cursor) -> None:
        for event in cursor.take():
            self.observe(resource, event)

    async def _follow(self) -> None:
        self._cursors = {}
        self._seen = self._store.version
        self.begin()
        while True:
            self.catch_up()
            self.act()
            await self._wait()

    async def _wait(self) -> None:
        """Return when something has changed or is due; others have their turn in any case."""
        loop, due = asyncio.get_running_loop(), self.next_time
        if self._seen != self._store.version or (due is not None and due <= loop.time()):
            await asyncio.sleep(0)
            return
        changed, wake = self._changed, self._changed.set
        changed.clear()
        for resource in self._cursors:
            self._store.collection(resource).wake(wake)
        timer = None if due is None else loop.call_at(due, wake)
        try:
            await changed.wait()
        finally:
            if timer is not None:
                timer.cancel()
