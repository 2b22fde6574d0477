"""Group commit: writes are applied in memory at once and persisted in groups.

While one group is being committed in a worker thread, the next one accumulates. Every response, including those to
reads and watches, waits in :meth:`GroupCommit.wait_durable` for all earlier writes. So a client never sees state that a
crash could lose: no acknowledged write is lost, and no resourceVersion is used twice. A store without a database does
not wait.

When the disk fails, memory and disk have diverged permanently: all further requests fail with 500, and
:meth:`GroupCommit.wait_for_failure` raises :class:`StorageFailed` so that the process exits.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from kubestow.errors import KubestowError
from kubestow.log_fields import fields
from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.storage.database import Database
from kubestow_devcluster.apiserver.storage.store import Store, StoredObject, WatchEvent

_log = logging.getLogger(__name__)


class StorageFailed(KubestowError):
    """A write could not be persisted. All writes acknowledged before it are on disk."""


@dataclass(slots=True)
class _Group:
    """Writes that are committed in one transaction; of several writes to one object, the last."""

    writes: dict[tuple[str, str], StoredObject | None] = field(default_factory=dict)
    resource_version: int = 0
    done: asyncio.Event = field(default_factory=asyncio.Event)


class GroupCommit:
    """Persists the writes of ``store`` in ``database``, on the event loop that :meth:`start` runs on."""

    def __init__(self, store: Store, database: Database) -> None:
        self._store, self._database = store, database
        self._pending = _Group()
        self._committing = self._pending
        self._committer: asyncio.Task[None] | None = None
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="kubestow-storage")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failure: StorageFailed | None = None
        self._failed = asyncio.Event()
        store.on_write = self._on_write

    def start(self) -> None:
        """Commit the writes so far in one transaction; later writes are committed as they happen.

        Raises StorageFailed.
        """
        self._loop = asyncio.get_running_loop()
        self._flush()

    async def wait_durable(self) -> None:
        """Wait until every write before the call is on disk. Raises a 500 StatusError when the disk failed."""
        if self._database.resource_version < self._store.resource_version:
            # The newest write is in the pending group, unless that is empty and the last group is being committed.
            await (self._pending if self._pending.writes else self._committing).done.wait()
        if self._failure is not None:
            raise statuses.internal_error(str(self._failure))

    async def wait_for_failure(self) -> None:
        """Block until a commit fails, then raise StorageFailed."""
        await self._failed.wait()
        assert self._failure is not None
        raise self._failure

    async def stop(self) -> None:
        """Commit the pending writes if started, and close the database. Raises StorageFailed."""
        if self._committer is not None:
            await self._committer
        try:
            if self._loop is not None and self._failure is None:
                self._flush()
        finally:
            self._loop = None
            self._writer.shutdown()
            self._database.close()

    def _on_write(self, resource: str, event: WatchEvent) -> None:
        group, stored = self._pending, event.object
        group.writes[resource, stored.key] = None if event.type == "DELETED" else stored
        group.resource_version = stored.resource_version
        if self._committer is None and self._loop is not None:
            self._committer = self._loop.create_task(self._commit_groups(self._loop))

    async def _commit_groups(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._pending.writes and self._failure is None:
            group = self._next_group()
            try:
                # Filling the transaction needs the GIL and stays on this thread; waiting for the disk does not.
                self._database.write(group.writes, group.resource_version)
                await loop.run_in_executor(self._writer, self._database.commit, group.resource_version)
            except sqlite3.Error as error:
                self._fail(error)
            except Exception as error:
                _log.exception(
                    "committing to %s failed", self._database.path, extra=fields(file=str(self._database.path))
                )
                self._fail(error)
            group.done.set()
        self._committer = None

    def _flush(self) -> None:
        """Commit the pending group on this thread. Raises StorageFailed."""
        if not self._pending.writes:
            return
        group = self._next_group()
        try:
            self._database.write(group.writes, group.resource_version)
            self._database.commit(group.resource_version)
        except sqlite3.Error as error:
            raise self._fail(error) from None
        group.done.set()

    def _next_group(self) -> _Group:
        group, self._pending = self._pending, _Group()
        self._committing = group
        return group

    def _fail(self, error: Exception) -> StorageFailed:
        self._failure = StorageFailed(f"{self._database.path}: write failed, later writes are not persisted: {error}")
        self._pending.done.set()
        self._failed.set()
        return self._failure
