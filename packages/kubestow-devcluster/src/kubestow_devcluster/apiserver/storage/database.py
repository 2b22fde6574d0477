"""The SQLite file of a persistent cluster (every object at its newest version), and the commits of writes in groups.

The file uses a write-ahead log with full synchronisation, so a committed transaction survives a crash of the process or
the machine. One process at a time can open it. A file of another program, a damaged file, or one of a later format is
rejected with one line and left unchanged.

SQLite has no checksums of pages, and takes a damaged frame of the log for the end of it, as after a crash: all later
commits would be lost silently. So each row has a checksum, the state has the sum of them, which finds rows that are
missing or old, and a second file has the resourceVersion of the last commit that was acknowledged. It is written after
each commit and without synchronisation: after a crash of the machine it may be behind the database, never ahead. A
database that ends before it is rejected. The watch history is not persisted: after a restart, a watch from an earlier
resourceVersion gets 410 Expired and the client lists again, as with kube-apiserver.

Writes are applied in memory at once and persisted in groups: while one is being committed in a worker thread, the next
accumulates. Every response, those to reads and watches too, waits in :meth:`GroupCommit.wait_durable` for all earlier
writes, so a client never sees state that a crash could lose. When the disk fails, memory and disk have diverged: all
further requests fail with 500, and :meth:`GroupCommit.wait_for_failure` raises :class:`StorageFailed`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import structs

from kubestow.errors import InputError, KubestowError
from kubestow.log_fields import fields
from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.storage.store import Store, StoredObject, WatchEvent

#: The objects a transaction writes, by resource and key; None for a deleted one.
Writes = Mapping[tuple[str, str], StoredObject | None]

_FILE_NAME = "kubestow.db"
#: The file with the resourceVersion of the last acknowledged commit, and the CRC-32 of its digits.
_ACKNOWLEDGED_NAME = "kubestow.db-acknowledged"
_ACKNOWLEDGED = "{:020d} {:08x}\n"
#: SQLite's application_id of our files: "kbst".
_APPLICATION_ID = 0x6B627374
#: The user_version of our files; incremented with every change to the tables or their meaning.
_FORMAT = 2
#: The same of files without checksums, which are converted when they are opened.
_FORMAT_WITHOUT_CHECKSUMS = 1
#: Seconds to wait for a terminating process to release the file.
_BUSY_TIMEOUT = 1.0
#: Pages the write-ahead log grows to before a checkpoint.
_CHECKPOINT_PAGES = 4000

_TABLES = """
BEGIN EXCLUSIVE;
CREATE TABLE objects (
    resource TEXT NOT NULL, key TEXT NOT NULL, version INTEGER NOT NULL, data BLOB NOT NULL,
    labels TEXT NOT NULL, fields TEXT NOT NULL, checksum INTEGER NOT NULL, PRIMARY KEY (resource, key)
);
CREATE TABLE state (version INTEGER NOT NULL, layouts TEXT NOT NULL, total INTEGER NOT NULL);
INSERT INTO state VALUES (0, '{{}}', {total});
PRAGMA application_id = {application};
PRAGMA user_version = {format};
COMMIT;
"""
#: Adds the columns of checksums to a file without; their values follow.
_ADD_CHECKSUMS = """
ALTER TABLE objects ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
ALTER TABLE state ADD COLUMN total INTEGER NOT NULL DEFAULT 0;
"""


class SelectableFields(NamedTuple):
    """The selectable fields of one resource: their paths, and a function that reads their values from an object."""

    paths: tuple[str, ...]
    read: Callable[[bytes], tuple[str, ...]]


class Database:
    """An open database file, locked by this process. Not thread-safe; use it from one thread at a time."""

    def __init__(self, directory: Path) -> None:
        """Open the file in ``directory``, and create both if missing. Raises InputError."""
        self.path = directory / _FILE_NAME
        self._acknowledged = directory / _ACKNOWLEDGED_NAME
        self._labels = msgspec.json.Decoder(dict[str, str])
        self._fields = msgspec.json.Decoder(tuple[str, ...])
        self._create(directory)
        self._check_unchanged()
        self._connection = sqlite3.connect(
            self.path, timeout=_BUSY_TIMEOUT, isolation_level=None, check_same_thread=False, cached_statements=16
        )
        try:
            self._initialize()
            #: The resourceVersion of the last committed write.
            self.resource_version: int = self._state("version")
            #: The sum of the checksums of all rows; the file has it with the checksum of the version added.
            self._total: int = self._state("total") - _crc(str(self.resource_version))
            self._acknowledgement = os.open(self._acknowledged, os.O_WRONLY | os.O_CREAT, 0o600)
            self._acknowledge()
            os.fsync(self._acknowledgement)
        except OSError as error:
            self._connection.close()
            raise InputError(str(self._acknowledged), f"cannot be written: {error.strerror or error}") from None
        except sqlite3.Error as error:
            self._connection.close()
            raise self._input_error(error) from None
        except InputError:
            self._connection.close()
            raise

    def load(self, selectable: Mapping[str, SelectableFields]) -> Store:
        """A store with every object, its fields in the order of ``selectable``. Raises InputError."""
        try:
            store = Store(resource_version=self.resource_version)
            # Many objects have equal labels; the cache shares one dict among them.
            decode_labels, decode_fields = lru_cache(self._labels.decode), self._fields.decode
            total = 0
            for resource, key, version, data, labels, values, checksum in self._connection.execute(_ROWS):
                if checksum != _checksum(resource, key, version, data, labels, values):
                    raise self._damaged(f"the object {resource} {key} does not match its checksum")
                total += checksum
                stored = StoredObject(key, version, data, decode_labels(labels), decode_fields(values))
                store.collection(resource).load(stored)
            if total != self._total:
                problem = "objects are missing or old: the sum of their checksums is not the recorded one"
                raise self._damaged(problem)
            self._reindex(store, selectable)
        except sqlite3.Error as error:
            self.close()
            raise self._input_error(error) from None
        except (msgspec.DecodeError, TypeError, ValueError) as error:  # values of another type as well
            self.close()
            raise self._damaged(str(error)) from None
        except InputError:
            self.close()
            raise
        return store

    def _reindex(self, store: Store, selectable: Mapping[str, SelectableFields]) -> None:
        """Recompute the fields of resources that were written by a kubestow with other selectable fields."""
        paths = {resource: list(selected.paths) for resource, selected in selectable.items()}
        persisted = msgspec.json.decode(self._state("layouts"), type=dict[str, list[str]])
        if persisted == paths:
            return
        writes: dict[tuple[str, str], StoredObject | None] = {}
        for resource, selected in selectable.items():
            if persisted.get(resource) != paths[resource]:
                collection = store.collection(resource)
                for old in collection.snapshot():
                    new = structs.replace(old, fields=selected.read(old.data))
                    collection.load(new)
                    writes[resource, new.key] = new
        self.write(writes, self.resource_version)
        self._connection.execute("UPDATE state SET layouts = ?", (msgspec.json.encode(paths).decode(),))
        self.commit(self.resource_version)

    def write(self, writes: Writes, resource_version: int) -> None:
        """Begin a transaction with the writes up to ``resource_version``. Raises sqlite3.Error."""
        deleted = [place for place, stored in writes.items() if stored is None]
        rows = [_row(place, stored) for place, stored in writes.items() if stored is not None]
        execute = self._connection.execute
        execute("BEGIN")
        total = self._total + sum(row[-1] for row in rows)
        for place in writes:
            if replaced := execute("SELECT checksum FROM objects WHERE resource = ? AND key = ?", place).fetchone():
                total -= replaced[0]
        if rows:
            self._connection.executemany("INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        if deleted:
            self._connection.executemany("DELETE FROM objects WHERE resource = ? AND key = ?", deleted)
        execute("UPDATE state SET version = ?, total = ?", (resource_version, total + _crc(str(resource_version))))
        self._total = total

    def commit(self, resource_version: int) -> None:
        """Commit the transaction; return when it is on disk. Raises sqlite3.Error."""
        self._connection.execute("COMMIT")
        self.resource_version = resource_version
        self._acknowledge()

    def close(self) -> None:
        self._connection.close()
        os.close(self._acknowledgement)

    def _acknowledge(self) -> None:
        """Record the last committed write; the record is one sector, which is written as a whole or not at all."""
        digits = f"{self.resource_version:020d}"
        os.pwrite(self._acknowledgement, _ACKNOWLEDGED.format(self.resource_version, _crc(digits)).encode(), 0)

    def _last_acknowledged(self) -> int | None:
        """The resourceVersion of the last acknowledged write; None if there is no record. Raises InputError."""
        try:
            record = self._acknowledged.read_bytes() if self._acknowledged.exists() else b""
        except OSError as error:
            raise InputError(str(self._acknowledged), f"cannot be read: {error.strerror or error}") from None
        if not record:
            return None
        digits = record[:20].decode("ascii", "replace")
        if not digits.isdigit() or record != _ACKNOWLEDGED.format(int(digits), _crc(digits)).encode():
            problem = f"is damaged, expected the number of the last write; {self._remedy}"
            raise InputError(str(self._acknowledged), problem)
        return int(digits)

    @property
    def _remedy(self) -> str:
        return f"restore the directory from a backup, or remove {self._acknowledged.name} to accept the loss of writes"

    def _create(self, directory: Path) -> None:
        """Create the directory and the file, with mode 0600: it holds secrets. Raises InputError.

        The file appears with its tables, or not at all; so an empty one has lost its content.
        """
        temporary = directory / f".{_FILE_NAME}.{os.getpid()}"
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.path.exists():
                return
            if self._last_acknowledged():
                raise InputError(str(self.path), f"is missing, and had acknowledged writes; {self._remedy}")
            temporary.unlink(missing_ok=True)
            os.close(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            connection = sqlite3.connect(temporary, isolation_level=None)
            try:
                connection.executescript(_TABLES.format(application=_APPLICATION_ID, format=_FORMAT, total=_crc("0")))
            finally:
                connection.close()
            with contextlib.suppress(FileExistsError):  # of another process that starts; one of the two gets the lock
                os.link(temporary, self.path)
            temporary.unlink()
            entries = os.open(directory, os.O_RDONLY)
            os.fsync(entries)
            os.close(entries)
        except sqlite3.Error as error:
            raise self._input_error(error) from None
        except OSError as error:
            raise InputError(str(directory), f"cannot store a cluster here: {error.strerror or error}") from None

    def _check_unchanged(self) -> None:
        """Check format, integrity and the last write without changing anything. Raises InputError.

        A connection that may write would truncate the log when it is closed, and with it what is left to repair.
        """
        if not self.path.stat().st_size:
            raise InputError(str(self.path), "is empty, expected a database; remove it to start an empty cluster")
        acknowledged = self._last_acknowledged()
        location = f"{self.path.absolute().as_uri()}?mode=ro"
        connection = sqlite3.connect(location, uri=True, timeout=_BUSY_TIMEOUT, isolation_level=None)
        try:
            application, version = (_pragma(connection, name) for name in ("application_id", "user_version"))
            if application != _APPLICATION_ID:
                raise InputError(str(self.path), "is the database of another program; name another directory")
            if version not in (_FORMAT, _FORMAT_WITHOUT_CHECKSUMS):
                problem = f"has format {version}; this version of kubestow reads format {_FORMAT}"
                raise InputError(str(self.path), problem)
            result = _pragma(connection, "quick_check")
            if result != "ok":
                raise self._damaged(str(result))
            row = connection.execute("SELECT version FROM state").fetchone()
            if row is None or not isinstance(row[0], int):
                raise self._damaged("the state table is empty")
            if acknowledged is not None and row[0] < acknowledged:
                problem = f"it ends at write {row[0]}, and write {acknowledged} was acknowledged; {self._remedy}"
                raise self._damaged(problem)
        except sqlite3.Error as error:
            raise self._input_error(error) from None
        finally:
            connection.close()

    def _initialize(self) -> None:
        """Lock the file, and add checksums to one without."""
        connection = self._connection
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
        if _pragma(connection, "user_version") == _FORMAT_WITHOUT_CHECKSUMS:
            self._add_checksums()
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")

    def _state(self, column: str) -> Any:
        """A column of the only row of ``state``. Raises InputError when the row is missing."""
        row = self._connection.execute(f"SELECT {column} FROM state").fetchone()
        if row is None:
            raise self._damaged("the state table is empty")
        return row[0]

    def _add_checksums(self) -> None:
        """Convert a file of the format without checksums, in the current transaction."""
        connection = self._connection
        for statement in _ADD_CHECKSUMS.split(";"):
            connection.execute(statement)
        total = 0
        for *columns, _ in connection.execute(_ROWS).fetchall():
            checksum = _checksum(*columns)
            total += checksum
            place = (checksum, *columns[:2])
            connection.execute("UPDATE objects SET checksum = ? WHERE resource = ? AND key = ?", place)
        connection.execute("UPDATE state SET total = ?", (total + _crc(str(self._state("version"))),))
        connection.execute(f"PRAGMA user_version = {_FORMAT}")

    def _input_error(self, error: sqlite3.Error) -> InputError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return InputError(str(self.path), "is in use by another process; one cluster has one server")
        if code == sqlite3.SQLITE_NOTADB:
            return InputError(str(self.path), "is not a database; name another directory")
        if code == sqlite3.SQLITE_CORRUPT:
            return self._damaged(str(error))
        return InputError(str(self.path), f"cannot be used: {error}")

    def _damaged(self, problem: str) -> InputError:
        return InputError(str(self.path), f"is damaged and left unchanged: {' '.join(problem.split())}")


_ROWS = "SELECT resource, key, version, data, labels, fields, checksum FROM objects"


def _pragma(connection: sqlite3.Connection, name: str) -> int | str:
    value: int | str = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return value


def _row(place: tuple[str, str], stored: StoredObject) -> tuple[str, str, int, bytes, str, str, int]:
    """The columns of an object."""
    encode = msgspec.json.encode
    labels, values = encode(stored.labels).decode(), encode(stored.fields).decode()
    columns = (*place, stored.resource_version, stored.data, labels, values)
    return (*columns, _checksum(*columns))


def _checksum(resource: str, key: str, version: int, data: bytes, labels: str, values: str) -> int:
    """The CRC-32 of a row."""
    texts = "\0".join((resource, key, str(version), labels, values))
    return zlib.crc32(data, _crc(texts))


def _crc(text: str) -> int:
    return zlib.crc32(text.encode())


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
            except (sqlite3.Error, OSError) as error:
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
        except (sqlite3.Error, OSError) as error:
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
