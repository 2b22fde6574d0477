"""The writer: a thread that redacts, encodes, compresses and writes chunks, so that the event loop never waits for it.

A folder is bounded: the record of a run continues in a new file when a file has reached its size, and the oldest files
are deleted. The first file of a run is replayed exactly from its beginning, the start of the scheduler. A later file
begins with a snapshot of the cluster, from which its pods can be scheduled again. The buffer between event loop and
thread is bounded too: if the disk is too slow, the scheduler continues, recording stops, and the end of the file has
the reason and the number of missing entries. The same applies if the disk is full or fails, but then the record
continues in a new file as soon as the disk can be written.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec import structs

from kubestow.api.formats.quantity import units
from kubestow.errors import InputError, InvalidQuantity
from kubestow.flight_record.entries import Called, Changed, End, Entry, Header, Listed
from kubestow.flight_record.segment import Chunk, SegmentEncoder
from kubestow.log_fields import fields

_log = logging.getLogger(__name__)

DEFAULT_SIZE = 256 * 2**20
"""The limit of a flight record, in bytes, unless another is given."""

_MIN_SIZE = 2**20
_PREFIX, _SUFFIX = "flight-", ".bin"
#: Chunks that wait for the thread; each has about 500 entries.
_QUEUED_CHUNKS = 256
#: Bytes that are kept free for the end of a file.
_RESERVED = 4096
#: The largest share of a folder's limit for the file from the start of a scheduler, and for each that goes on with it.
_FIRST_SHARE, _LATER_SHARE = 1 / 2, 1 / 8
#: After a failure, another attempt to write is made after so many seconds.
_RETRY_SECONDS = 10.0
#: Entries of a snapshot that are encoded at once, so that the event loop gets its turns.
_SNAPSHOT_ENTRIES = 512


def parse_size(text: str, subject: str) -> int:
    """The limit of a record, in bytes, given as a quantity such as ``256Mi``. Raises InputError naming ``subject``."""
    try:
        size = units(text)
    except InvalidQuantity:
        size = 0
    if size < _MIN_SIZE:
        raise InputError(subject, f'invalid argument "{text}": expected a quantity of at least 1Mi, such as 256Mi')
    return size


def segment_paths(folder: Path) -> list[Path]:
    """The files of a flight record, oldest first."""
    return sorted(folder.glob(f"{_PREFIX}*{_SUFFIX}"))


def create_folder(folder: Path) -> None:
    """Create the folder of a flight record unless it exists. Raises InputError."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(str(folder), f"cannot be created: {error.strerror or error}") from None


class SegmentWriter:
    """Writes a file with mode 0600 and at most ``max_bytes``, which is created when the header is written.

    :meth:`in_folder` writes several files of at most ``max_bytes`` in total, and continues after a failure as soon as
    the disk can be written again.

    Implements :class:`kubestow.flight_record.recording.SegmentSink`. Constructing it raises InputError if
    there is such a file, or if its folder cannot be written.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        if path.exists():
            raise InputError(str(path), "already exists")
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise InputError(str(path.parent), "cannot be written")
        self.path, self._max_bytes = path, max_bytes
        #: Whether the record goes on in further files, and older ones of the folder count and are deleted.
        self._is_one_of_many = False
        self._header: Header | None = None
        self._known = _KnownObjects()
        #: The size from which the record goes on in another file.
        self._full = max_bytes
        self._file: _SegmentFile | None = None
        self._queue: queue.Queue[Chunk | Header | End] = queue.Queue(_QUEUED_CHUNKS)
        #: The bytes of older files, as of the last look.
        self._older = 0
        #: Why nothing more is accepted; empty while chunks are.
        self._refusal = ""
        #: Why nothing is written; empty while chunks are. The thread's own, as the following.
        self._problem = ""
        #: The entries that have not been written for that reason, and when to try again (``time.monotonic``).
        self._dropped, self._next_try = 0, 0.0
        self._thread = threading.Thread(target=self._write_all, name="flight record", daemon=True)
        self._thread.start()

    @classmethod
    def in_folder(cls, folder: Path, max_bytes: int) -> SegmentWriter:
        """A writer of a new file in a folder whose files have at most ``max_bytes`` together. Raises InputError."""
        create_folder(folder)
        writer = cls(_new_path(folder), max_bytes)
        writer._is_one_of_many, writer._full = True, int(max_bytes * _FIRST_SHARE)
        return writer

    def begin_segment(self, header: Header) -> None:
        self._queue.put(header)

    def accept(self, chunk: Chunk) -> bool:
        if not self._refusal:
            try:
                self._queue.put_nowait(chunk)
            except queue.Full:
                self._refuse("the disk is too slow")
        return not self._refusal

    def close(self, dropped: int = 0, timeout: float = 10.0) -> None:
        """Write what is queued and the end of the record, within ``timeout`` seconds."""
        try:
            self._queue.put(End(reason=self._refusal, dropped=dropped), timeout=timeout)
        except queue.Full:
            return
        self._thread.join(timeout)

    def _refuse(self, problem: str) -> None:
        if not self._refusal:
            self._refusal = problem
            extra = fields(file=str(self.path), err=problem)
            _log.warning("The flight record %s ends: %s", self.path, problem, extra=extra)

    # -- the thread ------------------------------------------------------------------------------------------------

    def _write_all(self) -> None:
        while True:
            item = self._queue.get()
            try:
                self._write(item)
            except Exception as error:  # recording must never end scheduling
                self._failed(
                    (error.strerror if isinstance(error, OSError) else None) or f"{type(error).__name__}: {error}"
                )
            if isinstance(item, End):
                return

    def _failed(self, problem: str) -> None:
        """Write nothing more, or nothing until the next attempt, for a reason."""
        self._problem, self._next_try = problem, time.monotonic() + _RETRY_SECONDS
        if not self._is_one_of_many:
            self._refuse(problem)
            return
        extra = fields(file=str(self.path), err=problem)
        _log.warning("The flight record %s is interrupted: %s", self.path, problem, extra=extra)

    def _write(self, item: Chunk | Header | End) -> None:
        match item:
            case Header():
                self._header, self._known = item, _KnownObjects(item.resources)
                self._delete_oldest(self.path)
                self._file = _SegmentFile(self.path, item)
            case Chunk():
                self._write_chunk(item)
            case End() if self._file is not None:
                self._file.end(End(reason=item.reason or self._problem, dropped=item.dropped + self._dropped))

    def _write_chunk(self, chunk: Chunk) -> None:
        written = False
        try:
            if not self._problem or self._try_to_resume():
                assert self._file is not None
                data = self._file.encoder.chunk(chunk)
                if self._is_one_of_many and self._file.size + len(data) > self._full and self._known.resources:
                    self._go_on_in_new_file()
                    data = self._file.encoder.chunk(chunk)
                self._append(self._file, data)
                written = True
        finally:
            if not written:
                self._dropped += len(chunk.entries)
            if self._is_one_of_many:
                self._known.follow(chunk.entries)

    def _try_to_resume(self) -> bool:
        """Try to go on in a new file after a failure, now and then; whether that has worked."""
        if not self._is_one_of_many or not self._known.resources or time.monotonic() < self._next_try:
            return False
        self._next_try = time.monotonic() + _RETRY_SECONDS
        try:
            self._go_on_in_new_file()
        except OSError:
            return False
        self._problem, self._dropped = "", 0
        return True

    def _go_on_in_new_file(self) -> None:
        """Begin another file with the objects that exist, and end this one, which names it."""
        assert self._header is not None
        header, snapshot, previous = self._header, self._known.entries(), self._file
        elapsed = timedelta(seconds=self._known.time - header.monotonic)
        path = _new_path(self.path.parent)
        self._delete_oldest(path)
        file = _SegmentFile(
            path,
            structs.replace(
                header,
                began=(datetime.fromisoformat(header.began) + elapsed).isoformat(),
                monotonic=self._known.time,
                resources=self._known.resources,
                snapshot=len(snapshot),
                random=[],
            ),
        )
        try:
            for start in range(0, len(snapshot), _SNAPSHOT_ENTRIES):
                self._append(file, file.encoder.chunk(Chunk(snapshot[start : start + _SNAPSHOT_ENTRIES])))
        except OSError:
            file.discard()
            raise
        if previous is not None:
            with suppress(OSError):  # the file is readable without its end
                previous.end(End(reason=self._problem, dropped=self._dropped, next_file=file.path.name))
        self._file, self.path = file, file.path
        # At least half of a file is what has happened, also if the limit is small for the cluster.
        self._full = max(int(self._max_bytes * _LATER_SHARE), 2 * file.size)
        _log.info("The flight record goes on in %s", file.path, extra=fields(file=str(file.path)))

    def _append(self, file: _SegmentFile, data: bytes) -> None:
        if file.size + len(data) + _RESERVED > self._max_bytes:
            raise OSError(27, f"it has reached the limit of {self._max_bytes:,} bytes")
        if self._older + file.size + len(data) > self._max_bytes:
            self._delete_oldest(file.path, file.size + len(data))
        file.append(data)

    def _delete_oldest(self, current: Path, needed: int = 0) -> None:
        """Delete older files until there is space for the current one."""
        if not self._is_one_of_many:
            return
        older = {path: path.stat().st_size for path in segment_paths(current.parent) if path != current}
        self._older = sum(older.values())
        for path, size in older.items():
            if self._older + needed <= self._max_bytes:
                break
            path.unlink(missing_ok=True)
            self._older -= size


class _SegmentFile:
    """A file that is being written; ``size`` is in bytes. Raises OSError."""

    def __init__(self, path: Path, header: Header) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        self._file = os.fdopen(os.open(path, flags, 0o600), "wb", buffering=0)
        self.path, self.size = path, 0
        self.encoder = SegmentEncoder()
        try:
            self.append(self.encoder.beginning(header))
        except OSError:
            self.discard()
            raise

    def append(self, data: bytes) -> None:
        """Write a whole frame; a part of one is removed again, so that the end can follow."""
        try:
            position = 0
            while position < len(data):
                position += self._file.write(data[position:])
        except OSError:
            self._file.truncate(self.size)
            self._file.seek(self.size)
            raise
        self.size += len(data)

    def end(self, end: End) -> None:
        with self._file:
            self.append(self.encoder.end(end))

    def discard(self) -> None:
        self._file.close()
        self.path.unlink(missing_ok=True)


class _KnownObjects:
    """The objects of a cluster as of the last entry of a record, with which the next file begins.

    Holds references to the scheduler's objects, not copies.
    """

    def __init__(self, resources: Iterable[tuple[str, str, str]] = ()) -> None:
        #: The resources that are watched, once that is known; entries name them by position.
        self.resources = list(resources)
        #: The time of the last entry that has one, in seconds.
        self.time = 0.0
        self._objects: dict[int, dict[tuple[str, str], Any]] = {}

    def follow(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if isinstance(entry, Changed):
                self.time = entry.time
                known = self._objects.setdefault(entry.resource, {})
                if entry.type == "DELETED":
                    known.pop(_key(entry.object), None)
                else:
                    known[_key(entry.object)] = entry.object
            elif isinstance(entry, Listed):
                self.time = entry.time
                self._objects[entry.resource] = {_key(obj): obj for obj in entry.objects}
            elif isinstance(entry, Called) and entry.method == "subscribe":
                self.resources = list(entry.arguments)

    def entries(self) -> list[Entry]:
        """An entry for each object, as if it was new."""
        return [
            Changed(0, 0, self.time, resource, "ADDED", obj)
            for resource, known in self._objects.items()
            for obj in known.values()
        ]


def _key(obj: Any) -> tuple[str, str]:
    return obj.metadata.namespace, obj.metadata.name


def _new_path(folder: Path) -> Path:
    return folder / f"{_PREFIX}{datetime.now(UTC).strftime('%Y%m%dT%H%M%S.%fZ')}{_SUFFIX}"
