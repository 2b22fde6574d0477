"""The file in which a cluster is kept: every object at its newest version, and the version of the last write.

SQLite with a write-ahead log. A transaction that was committed is on disk, whatever becomes of the process or the
machine; one that was not has never been. The file belongs to one process at a time. What is not ours, damaged, or of a
format to come is refused in one line and left as it is.

History is not kept: a watch from before a restart is told to begin anew, as it is by kube-apiserver.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import structs

from kubestow.devcluster.apiserver.storage.store import Store, Stored
from kubestow.errors import InputError

__all__ = ["Changes", "Database", "Layout"]

#: The objects a transaction writes, by resource and key; None for one that is gone.
Changes = Mapping[tuple[str, str], Stored | None]

_NAME = "kubestow.db"
#: "kbst": how SQLite files say whose they are.
_APPLICATION = 0x6B627374
#: Raised with every change of the tables, and of what they mean.
_FORMAT = 1
#: Seconds to wait for a process that is just ending to let go of the file.
_PATIENCE = 1.0
#: Pages the log grows to before they are brought into the file itself.
_LOG_PAGES = 4000

_TABLES = """
BEGIN EXCLUSIVE;
CREATE TABLE objects (
    resource TEXT NOT NULL, key TEXT NOT NULL, version INTEGER NOT NULL, data BLOB NOT NULL,
    labels TEXT NOT NULL, fields TEXT NOT NULL, PRIMARY KEY (resource, key)
);
CREATE TABLE state (version INTEGER NOT NULL, layouts TEXT NOT NULL);
INSERT INTO state VALUES (0, '{{}}');
PRAGMA application_id = {application};
PRAGMA user_version = {format};
COMMIT;
"""


class Layout(NamedTuple):
    """What ``Stored.fields`` of a resource holds: the names of the fields, and how to read them from an object."""

    names: tuple[str, ...]
    read: Callable[[bytes], tuple[str, ...]]


class Database:
    """An open file that is ours alone. Not safe for use by two threads at a time, but by one after the other."""

    def __init__(self, directory: Path) -> None:
        """Open the file in ``directory``; both are made when missing. Raises InputError."""
        self.path = directory / _NAME
        self._labels = msgspec.json.Decoder(dict[str, str])
        self._fields = msgspec.json.Decoder(tuple[str, ...])
        _make_private(directory, self.path)
        self._connection = sqlite3.connect(
            self.path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False, cached_statements=16
        )
        try:
            self._claim()
            #: The version of the last write that was committed.
            self.version: int = self._state("version")
        except sqlite3.Error as error:
            self._connection.close()
            raise self._refused(error) from None
        except InputError:
            self._connection.close()
            raise

    def load(self, layouts: Mapping[str, Layout] | None = None) -> Store:
        """A store with every object, its fields as ``layouts`` have them now. Raises InputError."""
        try:
            store = self._read()
            if layouts is not None:
                self._lay_out(store, layouts)
        except sqlite3.Error as error:
            self.close()
            raise self._refused(error) from None
        except msgspec.DecodeError as error:
            self.close()
            raise self._damaged(str(error)) from None
        except InputError:
            self.close()
            raise
        return store

    def _read(self) -> Store:
        store = Store(version=self.version)
        # Labels repeat endlessly across a cluster; equal ones are kept once.
        decode_labels, decode_fields = lru_cache(self._labels.decode), self._fields.decode
        rows = self._connection.execute("SELECT resource, key, version, data, labels, fields FROM objects")
        for resource, key, version, data, labels, fields in rows:
            stored = Stored(key, version, data, decode_labels(labels), decode_fields(fields))
            store.collection(resource).restore(stored)
        return store

    def _lay_out(self, store: Store, layouts: Mapping[str, Layout]) -> None:
        """Read the fields of resources anew that were kept by a version of kubestow with other selectable fields."""
        names = {resource: list(layout.names) for resource, layout in layouts.items()}
        kept = msgspec.json.decode(self._state("layouts"), type=dict[str, list[str]])
        if kept == names:
            return
        changes: dict[tuple[str, str], Stored | None] = {}
        for resource, layout in layouts.items():
            if kept.get(resource) != names[resource]:
                collection = store.collection(resource)
                for old in collection.snapshot():
                    new = structs.replace(old, fields=layout.read(old.data))
                    collection.restore(new)
                    changes[resource, new.key] = new
        self.write(changes, self.version)
        self._connection.execute("UPDATE state SET layouts = ?", (msgspec.json.encode(names).decode(),))
        self.commit(self.version)

    def write(self, changes: Changes, version: int) -> None:
        """Begin a transaction that brings the objects to ``version``. Raises sqlite3.Error."""
        gone = [place for place, stored in changes.items() if stored is None]
        kept = [(*place, *_columns(stored)) for place, stored in changes.items() if stored is not None]
        execute = self._connection.execute
        execute("BEGIN")
        if kept:
            self._connection.executemany("INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?, ?)", kept)
        if gone:
            self._connection.executemany("DELETE FROM objects WHERE resource = ? AND key = ?", gone)
        execute("UPDATE state SET version = ?", (version,))

    def commit(self, version: int) -> None:
        """Return when the transaction, up to ``version``, is on disk. Raises sqlite3.Error."""
        self._connection.execute("COMMIT")
        self.version = version

    def close(self) -> None:
        self._connection.close()

    def _claim(self) -> None:
        """Take the file for this process, see that it is whole and ours, and make a new one ready."""
        connection = self._connection
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
        application, version = self._pragma("application_id"), self._pragma("user_version")
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        connection.execute("COMMIT")
        if not (application or version or tables):
            connection.executescript(_TABLES.format(application=_APPLICATION, format=_FORMAT))
        elif application != _APPLICATION:
            raise InputError(str(self.path), "is the database of another program; name another directory")
        elif version != _FORMAT:
            raise InputError(str(self.path), f"has format {version}; this version of kubestow reads format {_FORMAT}")
        found = self._pragma("quick_check")
        if found != "ok":
            raise self._damaged(str(found))
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")

    def _state(self, column: str) -> Any:
        """Raises InputError when there is none."""
        row = self._connection.execute(f"SELECT {column} FROM state").fetchone()
        if row is None:
            raise self._damaged("it does not say what it holds")
        return row[0]

    def _pragma(self, name: str) -> int | str:
        value: int | str = self._connection.execute(f"PRAGMA {name}").fetchone()[0]
        return value

    def _refused(self, error: sqlite3.Error) -> InputError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return InputError(str(self.path), "is in use by another process; one cluster has one server")
        if code == sqlite3.SQLITE_NOTADB:
            return InputError(str(self.path), "is not a database; name another directory")
        if code == sqlite3.SQLITE_CORRUPT:
            return self._damaged(str(error))
        return InputError(str(self.path), f"cannot be used: {error}")

    def _damaged(self, how: str) -> InputError:
        return InputError(str(self.path), f"is damaged, and was left as it is: {' '.join(how.split())}")


def _columns(stored: Stored) -> tuple[int, bytes, str, str]:
    encode = msgspec.json.encode
    return stored.version, stored.data, encode(stored.labels).decode(), encode(stored.fields).decode()


def _make_private(directory: Path, path: Path) -> None:
    """An empty file for us alone, unless there is one: secrets are kept in it. Raises InputError."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise InputError(str(directory), f"cannot keep a cluster here: {error.strerror or error}") from None
