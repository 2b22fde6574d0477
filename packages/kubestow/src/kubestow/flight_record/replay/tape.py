"""The tape: the streams of a segment as a replay consumes them, loaded chunk by chunk."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from kubestow.errors import InputError
from kubestow.flight_record.entries import Entry
from kubestow.flight_record.files.segment import Chunk, Segment

__all__ = ["Tape"]


class Tape:
    """Entries, clock readings and the order of steps.

    A stream that is read beyond its end sets :attr:`overrun`; the reading is then the last one.
    """

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._chunks: Iterator[Chunk] = segment.chunks()
        self._entries: deque[Entry] = deque()
        self._monotonic: deque[float] = deque()
        self._wall: deque[int] = deque()
        self._order: deque[int] = deque()
        #: What is wrong with the file after its last readable chunk; None while nothing is.
        self.damage: InputError | None = None
        self._is_complete = False
        #: The stream that was read beyond its end; empty if none was.
        self.overrun = ""
        #: The newest reading of the monotonic clock, in seconds, and how many there were.
        self.now = segment.header.monotonic
        self.readings = 0

    @property
    def is_cut(self) -> bool:
        """Whether the file has ended before the scheduler did."""
        end = self._segment.end
        return self.damage is not None or (end is not None and bool(end.reason or end.next_file))

    def peek(self) -> Entry | None:
        """The next entry; None at the end."""
        while not self._entries:
            if not self._load():
                return None
        return self._entries[0]

    def take(self) -> Entry:
        """The next entry, which is consumed."""
        return self._entries.popleft()

    def next_step(self) -> int | None:
        """The callback that runs next; None at the end."""
        while not self._order:
            if not self._load():
                return None
        return self._order.popleft()

    def monotonic(self) -> float:
        """The next reading of the monotonic clock."""
        self.readings += 1
        while not self._monotonic:
            if not self._load():
                self.overrun = self.overrun or "the monotonic clock"
                return self.now
        self.now = self._monotonic.popleft()
        return self.now

    def wall(self) -> int:
        """The next reading of the date and time, in microseconds since the epoch."""
        while not self._wall:
            if not self._load():
                self.overrun = self.overrun or "the date and time"
                return 0
        return self._wall.popleft()

    def _load(self) -> bool:
        if self._is_complete:
            return False
        try:
            chunk = next(self._chunks, None)
        except InputError as error:
            self.damage, chunk = error, None
        if chunk is None:
            self._is_complete = True
            return False
        self._entries.extend(chunk.entries)
        self._monotonic.extend(chunk.monotonic)
        self._wall.extend(chunk.wall)
        self._order.extend(chunk.order)
        return True
