"""The writer: a thread that redacts, encodes, compresses and writes chunks, so that the event loop never waits for it.

A folder is bounded: the record of one run goes on in a new file when one is large enough, and the oldest files are
deleted to make space. The first file of a run is replayed exactly from its beginning, the start of the scheduler. A
later one begins with a snapshot of the cluster, from which it can be decided again. The buffer between event loop and
thread is bounded too: if the disk is slow, full or gone, the scheduler goes on, nothing more is recorded, and the end
of the file says why and how many entries are missing.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO

from msgspec import structs

from kubestow.api.formats.quantity import units
from kubestow.errors import InputError, InvalidQuantity
from kubestow.flight_record.entries import End, Header
from kubestow.flight_record.files.encoder import SegmentEncoder
from kubestow.flight_record.files.known_objects import KnownObjects
from kubestow.flight_record.files.segment import Chunk
from kubestow.log_fields import fields

__all__ = ["DEFAULT_SIZE", "SegmentWriter", "parse_size", "segment_paths"]

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


class SegmentWriter:
    """Writes a file with mode 0600 and at most ``max_bytes``, which is created when the header is written.

    :meth:`in_folder` writes files of at most ``max_bytes`` together instead.

    Implements :class:`kubestow.flight_record.recording.recorder.SegmentSink`. Constructing it raises InputError if
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
        self._known = KnownObjects()
        #: The size from which the record goes on in another file.
        self._full = max_bytes
        self._file: BinaryIO | None = None
        self._encoder = SegmentEncoder()
        self._queue: queue.Queue[Chunk | Header | End] = queue.Queue(_QUEUED_CHUNKS)
        self._size = 0
        #: The bytes of older files, as of the last look.
        self._older = 0
        #: Why nothing more is recorded; empty while it is.
        self._problem = ""
        #: Whether a chunk could not be written, so that those in the queue cannot follow.
        self._has_gap = False
        self._thread = threading.Thread(target=self._write_all, name="flight record", daemon=True)
        self._thread.start()

    @classmethod
    def in_folder(cls, folder: Path, max_bytes: int) -> SegmentWriter:
        """A writer of a new file in a folder whose files have at most ``max_bytes`` together. Raises InputError."""
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(str(folder), f"cannot be created: {error.strerror or error}") from None
        writer = cls(_new_path(folder), max_bytes)
        writer._is_one_of_many, writer._full = True, int(max_bytes * _FIRST_SHARE)
        return writer

    def begin_segment(self, header: Header) -> None:
        self._queue.put(header)

    def accept(self, chunk: Chunk) -> bool:
        if not self._problem:
            try:
                self._queue.put_nowait(chunk)
            except queue.Full:
                self._fail("the disk is too slow")
        return not self._problem

    def close(self, dropped: int = 0, timeout: float = 10.0) -> None:
        """Write what is queued and the end of the record, within ``timeout`` seconds."""
        try:
            self._queue.put(End(reason=self._problem, dropped=dropped), timeout=timeout)
        except queue.Full:
            return
        self._thread.join(timeout)

    def _fail(self, problem: str) -> None:
        if not self._problem:
            self._problem = problem
            extra = fields(file=str(self.path), err=problem)
            _log.warning("The flight record %s ends: %s", self.path, problem, extra=extra)

    # -- the thread ------------------------------------------------------------------------------------------------

    def _write_all(self) -> None:
        while True:
            item = self._queue.get()
            try:
                self._write(item)
            except Exception as error:  # recording must never end scheduling
                text = (error.strerror if isinstance(error, OSError) else None) or f"{type(error).__name__}: {error}"
                self._has_gap = True
                self._fail(text)
            if isinstance(item, End):
                return

    def _write(self, item: Chunk | Header | End) -> None:
        match item:
            case Header():
                self._header, self._known = item, KnownObjects(item.resources)
                self._open(item)
            case Chunk() if self._file is not None and not self._has_gap:
                data = self._encoder.chunk(item)
                if self._is_one_of_many and self._size + len(data) > self._full and self._known.resources:
                    self._go_on_in_new_file()
                    data = self._encoder.chunk(item)
                self._append_chunk(data)
                if self._is_one_of_many:
                    self._known.follow(item.entries)
            case End() if self._file is not None:
                self._close(End(reason=item.reason or self._problem, dropped=item.dropped))

    def _open(self, header: Header) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        self._file = os.fdopen(os.open(self.path, flags, 0o600), "wb", buffering=0)
        self._encoder, self._size = SegmentEncoder(), 0
        self._delete_oldest()
        self._append(self._encoder.beginning(header))

    def _close(self, end: End) -> None:
        assert self._file is not None
        self._append(self._encoder.end(end))
        self._file.close()
        self._file = None

    def _go_on_in_new_file(self) -> None:
        """End the file, and begin another one with the objects that exist."""
        assert self._header is not None
        path, header, snapshot = _new_path(self.path.parent), self._header, self._known.entries()
        self._close(End(next_file=path.name))
        self.path = path
        elapsed = timedelta(seconds=self._known.time - header.monotonic)
        self._open(
            structs.replace(
                header,
                began=(datetime.fromisoformat(header.began) + elapsed).isoformat(),
                monotonic=self._known.time,
                resources=self._known.resources,
                snapshot=len(snapshot),
                random=[],
            )
        )
        for start in range(0, len(snapshot), _SNAPSHOT_ENTRIES):
            self._append_chunk(self._encoder.chunk(Chunk(snapshot[start : start + _SNAPSHOT_ENTRIES])))
        # At least half of a file is what has happened, also if the limit is small for the cluster.
        self._full = max(int(self._max_bytes * _LATER_SHARE), 2 * self._size)
        _log.info("The flight record goes on in %s", path, extra=fields(file=str(path)))

    def _append_chunk(self, data: bytes) -> None:
        if self._size + len(data) + _RESERVED > self._max_bytes:
            raise OSError(27, f"it has reached the limit of {self._max_bytes:,} bytes")
        if self._older + self._size + len(data) > self._max_bytes:
            self._delete_oldest(len(data))
        self._append(data)

    def _append(self, data: bytes) -> None:
        """Write a whole frame; a part of one is removed again, so that the end can follow."""
        assert self._file is not None
        try:
            position = 0
            while position < len(data):
                position += self._file.write(data[position:])
        except OSError:
            self._file.truncate(self._size)
            self._file.seek(self._size)
            raise
        self._size += len(data)

    def _delete_oldest(self, needed: int = 0) -> None:
        """Delete older files until there is space for this one."""
        if not self._is_one_of_many:
            return
        older = {path: path.stat().st_size for path in segment_paths(self.path.parent) if path != self.path}
        self._older = sum(older.values())
        for path, size in older.items():
            if self._older + self._size + needed <= self._max_bytes:
                break
            path.unlink(missing_ok=True)
            self._older -= size


def _new_path(folder: Path) -> Path:
    return folder / f"{_PREFIX}{datetime.now(UTC).strftime('%Y%m%dT%H%M%S.%fZ')}{_SUFFIX}"
