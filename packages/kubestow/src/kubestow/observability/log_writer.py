"""A log handler that never waits for the reader of the log: a thread writes from a bounded queue.

A write to a pipe whose reader stalls blocks, and with it the event loop would: health checks, the lease, signals. Here
only the thread is blocked. Lines that do not fit into the queue meanwhile are dropped and counted, and the log
says how many when writing resumes.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import select
import threading
from collections import deque
from typing import TextIO
from weakref import WeakSet

from kubestow.log_fields import fields

#: The text that waits to be written at most, in characters.
_MAX_QUEUED = 8 * 2**20
#: The text that is written at once, in characters, unless a line is longer.
_WRITTEN_AT_ONCE = 2**16
#: How long a flush waits for a reader that reads nothing, in seconds.
_FLUSH_SECONDS = 2.0


class QueuedHandler(logging.Handler):
    """Writes to a stream from a thread, which starts with the first line.

    Characters beyond ``max_queued`` are not kept for a reader that is too slow: their lines are dropped.
    """

    def __init__(self, stream: TextIO, *, max_queued: int = _MAX_QUEUED) -> None:
        super().__init__()
        self._stream, self._max_queued = stream, max_queued
        self._start_anew()
        _handlers.add(self)

    def _start_anew(self) -> None:
        """Begin with an empty queue and no thread, at the start and in a child process after a fork."""
        self._lines: deque[str] = deque()
        #: The characters in the queue, and those of them that are being written.
        self._queued = self._taken = 0
        self._changed = threading.Condition()
        self._is_writing = False
        self._thread: threading.Thread | None = None
        #: The lines dropped so far, and how many of them the log mentions.
        self.dropped = self._mentioned = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a line, or drop it."""
        try:
            line = self.format(record) + "\n"
        except Exception:
            self.handleError(record)
            return
        with self._changed:
            if self._queued + len(line) > self._max_queued:
                self.dropped += 1
                return
            self._lines.append(line)
            self._queued += len(line)
            if self._thread is None:
                self._thread = threading.Thread(target=self._write_queued, name="log writer", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self) -> None:
        """Wait until everything is written, while the reader reads; if it does not, discard all further output.

        Nothing that is printed at the end of a process can wait for the reader then.
        """
        with self._changed:
            while self._lines or self._is_writing:
                waiting = self._queued, self._is_writing
                if not self._changed.wait(_FLUSH_SECONDS) and waiting == (self._queued, self._is_writing):
                    self.dropped += len(self._lines)
                    self._lines.clear()
                    self._queued = self._taken
                    break
            else:
                return
        self._discard_output()

    def _discard_output(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            discarding = os.open(os.devnull, os.O_WRONLY)
            os.dup2(discarding, self._stream.fileno())
            os.close(discarding)

    # -- the thread --------------------------------------------------------------------------------------------------

    def _write_queued(self) -> None:
        while True:
            with self._changed:
                while not self._lines and self.dropped == self._mentioned:
                    self._changed.wait()
                text = self._next_text()
                self._is_writing, dropped = True, self.dropped - self._mentioned
                self._mentioned += dropped
            if dropped:
                text += self._mention(dropped)
            try:
                self._write(text)
            except (OSError, ValueError):  # the reader has gone, or the stream is closed
                with self._changed:
                    lost = text.count("\n")
                    self.dropped += lost
                    self._mentioned += lost
            finally:
                with self._changed:
                    self._queued -= self._taken
                    self._is_writing = False
                    self._changed.notify_all()

    def _next_text(self) -> str:
        """Take the next lines from the queue; a piece that is not too large shows that the reader reads."""
        taken, size = [], 0
        while self._lines and size < _WRITTEN_AT_ONCE:
            taken.append(self._lines.popleft())
            size += len(taken[-1])
        self._taken = size
        return "".join(taken)

    def _mention(self, dropped: int) -> str:
        text = "%d log lines were dropped, because the reader of the log did not read"
        extra = fields(lines=dropped)
        record = _log.makeRecord(_log.name, logging.WARNING, __file__, 0, text, (dropped,), None, extra=extra)
        return self.format(record) + "\n"

    def _write(self, text: str) -> None:
        try:
            file = self._stream.fileno()
        except io.UnsupportedOperation:  # not a file
            self._stream.write(text)
            self._stream.flush()
            return
        # Without the lock of the stream's buffer: an interpreter that ends while a thread holds it is aborted.
        rest = memoryview(text.encode(errors="backslashreplace"))
        while rest:
            try:
                rest = rest[os.write(file, rest) :]
            except BlockingIOError:  # a pipe that another process has made non-blocking
                select.select([], [file], [])


_log = logging.getLogger(__name__)
_handlers: WeakSet[QueuedHandler] = WeakSet()


def dropped_lines() -> int:
    """How many log lines of this process have been dropped."""
    return sum(handler.dropped for handler in _handlers)


def _start_all_anew() -> None:
    for handler in _handlers:
        handler._start_anew()


if hasattr(os, "register_at_fork"):  # not on every platform
    os.register_at_fork(after_in_child=_start_all_anew)
