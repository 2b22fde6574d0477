"""The writer: a thread that redacts, encodes, compresses and writes chunks, so that the event loop never waits for it.

Each start of a scheduler has a file of its own, which is replayed from its beginning. The folder is bounded: the oldest
files are deleted to make space, and a file that reaches the limit by itself ends there. The buffer between event loop
and thread is bounded too: if the disk is slow, full or gone, the scheduler goes on, nothing more is recorded, and the
end of the file says why and how many entries are missing.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from kubestow.api.formats.quantity import units
from kubestow.errors import InputError, InvalidQuantity
from kubestow.flight_record.entries import End, Header
from kubestow.flight_record.files.encoder import SegmentEncoder
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
    """Writes one file, with mode 0600 and at most ``max_bytes``. It is created when the header is written.

    Implements :class:`kubestow.flight_record.recording.recorder.SegmentSink`. Constructing it raises InputError if
    there is such a file, or if its folder cannot be written.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        if path.exists():
            raise InputError(str(path), "already exists")
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise InputError(str(path.parent), "cannot be written")
        self.path, self._max_bytes = path, max_bytes
        #: Whether older files of the folder count, and are deleted to make space.
        self._is_one_of_many = False
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
        name = f"{_PREFIX}{datetime.now(UTC).strftime('%Y%m%dT%H%M%S.%fZ')}{_SUFFIX}"
        writer = cls(folder / name, max_bytes)
        writer._is_one_of_many = True
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
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
                self._file = os.fdopen(os.open(self.path, flags, 0o600), "wb", buffering=0)
                self._delete_oldest()
                self._append(self._encoder.beginning(item))
            case Chunk() if self._file is not None and not self._has_gap:
                data = self._encoder.chunk(item)
                if self._size + len(data) + _RESERVED > self._max_bytes:
                    raise OSError(27, f"it has reached the limit of {self._max_bytes:,} bytes")
                if self._older + self._size + len(data) > self._max_bytes:
                    self._delete_oldest(len(data))
                self._append(data)
            case End() if self._file is not None:
                reason = item.reason or self._problem
                self._append(self._encoder.end(End(reason=reason, dropped=item.dropped)))
                self._file.close()

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
