"""Nothing leaves the server before it is on disk.

Writes go to the store at once and to the disk in groups: while one group is being committed, beside the event loop, the
next one gathers. Answers of every kind wait in :meth:`Durability.settled` for all that happened before them, reads and
watches too, so what a client has ever seen is there after a crash: no write that was answered is lost, and no resource
version is given out twice. A store in memory alone waits for nothing.

When the disk fails, memory and disk no longer agree and cannot be made to: requests are refused from then on, and
:meth:`Durability.failed` tells whoever runs the server, who ends it.
"""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from kubestow.devcluster.apiserver import statuses
from kubestow.devcluster.apiserver.storage.database import Database
from kubestow.devcluster.apiserver.storage.store import Event, Store, Stored
from kubestow.errors import KubestowError

__all__ = ["Durability", "StorageFailed"]


class StorageFailed(KubestowError):
    """The disk did not take a write. What was answered before is kept."""


@dataclass(slots=True)
class _Group:
    """Writes that are committed together. Of several to one object the last counts."""

    changes: dict[tuple[str, str], Stored | None] = field(default_factory=dict)
    version: int = 0
    done: asyncio.Event = field(default_factory=asyncio.Event)


class Durability:
    """Keeps a store in a database, on the event loop it is started on."""

    def __init__(self, store: Store, database: Database) -> None:
        self._store, self._database = store, database
        self._gathering = _Group()
        self._committing = self._gathering
        self._committer: asyncio.Task[None] | None = None
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="kubestow-storage")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failure: StorageFailed | None = None
        self._broken = asyncio.Event()
        store.recorder = self._record

    def start(self) -> None:
        """Commit what was written so far, all of it or nothing, and from now on whatever is. Raises StorageFailed."""
        self._loop = asyncio.get_running_loop()
        self._flush()

    async def settled(self) -> None:
        """Return when everything written before the call is on disk. Raises a 500 Failure when it will not be."""
        if self._database.version < self._store.version:
            # The newest write is among those that gather, unless they are all being committed.
            await (self._gathering if self._gathering.changes else self._committing).done.wait()
        if self._failure is not None:
            raise statuses.internal_error(str(self._failure))

    async def failed(self) -> None:
        """Wait until the disk fails, then raise StorageFailed."""
        await self._broken.wait()
        assert self._failure is not None
        raise self._failure

    async def stop(self) -> None:
        """Commit the rest, if it was ever started, and let go of the file. Raises StorageFailed."""
        if self._committer is not None:
            await self._committer
        try:
            if self._loop is not None and self._failure is None:
                self._flush()
        finally:
            self._loop = None
            self._writer.shutdown()
            self._database.close()

    def _record(self, resource: str, event: Event) -> None:
        group, written = self._gathering, event.object
        group.changes[resource, written.key] = None if event.type == "DELETED" else written
        group.version = written.version
        if self._committer is None and self._loop is not None:
            self._committer = self._loop.create_task(self._commit_groups(self._loop))

    async def _commit_groups(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._gathering.changes and self._failure is None:
            group = self._take_group()
            try:
                # Filling a transaction takes the interpreter, so it is done here; the disk is waited for elsewhere.
                self._database.write(group.changes, group.version)
                await loop.run_in_executor(self._writer, self._database.commit, group.version)
            except sqlite3.Error as error:
                self._fail(error)
            group.done.set()
        self._committer = None

    def _flush(self) -> None:
        """Commit what has gathered at once."""
        if not self._gathering.changes:
            return
        group = self._take_group()
        try:
            self._database.write(group.changes, group.version)
            self._database.commit(group.version)
        except sqlite3.Error as error:
            raise self._fail(error) from None
        group.done.set()

    def _take_group(self) -> _Group:
        group, self._gathering = self._gathering, _Group()
        self._committing = group
        return group

    def _fail(self, error: sqlite3.Error) -> StorageFailed:
        self._failure = StorageFailed(f"{self._database.path}: a write failed, and nothing after it is kept: {error}")
        self._gathering.done.set()
        self._broken.set()
        return self._failure
