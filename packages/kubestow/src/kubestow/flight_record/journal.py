"""The journal: what is recorded while the scheduler runs, in memory, until a chunk is complete; and its event loop.

A scheduler is recorded exactly if it gets the same inputs at the same points of its execution. Its execution is the
sequence of callbacks that the event loop runs for it, here called steps. The scheduler's tasks and callbacks run in
contexts in which :data:`recorded_by` is set, so the event loop knows its steps and timers among those of the client,
the server and the observers, and reports them to the journal. In all other respects it is the loop that it is derived
from, of asyncio or uvloop. Only methods of asyncio's public interface are overridden, so callbacks may run in any
order: a replay runs them in the recorded one. The journal is used on the event loop only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import Protocol, TypeVarTuple

from kubestow.flight_record.entries import Entry, TimerFired
from kubestow.flight_record.segment import Chunk

Ts = TypeVarTuple("Ts")

recorded_by: ContextVar[Journal | None] = ContextVar("recorded_by", default=None)
"""The journal of the scheduler that the running code is a part of; None outside of any recorded scheduler."""

#: A chunk is complete with this many entries, or with this many steps.
_ENTRIES, _STEPS = 512, 8192


class ChunkSink(Protocol):
    """Where complete chunks go."""

    def accept(self, chunk: Chunk) -> bool:
        """Take a chunk; False if it is dropped, and all that follow. Never blocks."""


class Journal:
    """Collects entries, clock readings and steps, and hands them over in chunks."""

    def __init__(self, sink: ChunkSink) -> None:
        self._sink = sink
        self._chunk = Chunk()
        self._order, self._monotonic = self._chunk.order, self._chunk.monotonic
        self._steps_before = self._readings_before = 0
        self._callbacks = self._timers = 0
        self._is_open = True
        #: The entries that were not recorded.
        self.dropped = 0

    # -- contexts --------------------------------------------------------------------------------------------------

    def inside(self) -> Context:
        """A copy of the current context for code of the scheduler."""
        context = copy_context()
        context.run(recorded_by.set, self)
        return context

    @staticmethod
    def outside() -> Context:
        """A copy of the current context for code that does not belong to the scheduler."""
        context = copy_context()
        context.run(recorded_by.set, None)
        return context

    # -- what the event loop reports -------------------------------------------------------------------------------

    def number_callback(self) -> int:
        """Number a callback that is scheduled."""
        self._callbacks += 1
        return self._callbacks

    def run_step(self, number: int, callback: Callable[[*Ts], object], /, *arguments: *Ts) -> None:
        """Run a callback of the scheduler."""
        self._order.append(number)
        callback(*arguments)

    def number_timer(self) -> int:
        """Number a timer that is set."""
        self._timers += 1
        return self._timers

    def fire_timer(self, number: int, callback: Callable[[*Ts], object], /, *arguments: *Ts) -> None:
        """Run the callback of a timer."""
        self.append(TimerFired(self.steps, self.readings, number))
        callback(*arguments)

    # -- clocks ----------------------------------------------------------------------------------------------------

    def read_monotonic(self, seconds: float) -> None:
        """The scheduler has read its monotonic clock."""
        self._monotonic.append(seconds)

    def read_wall(self, microseconds: int) -> None:
        """The scheduler has read the date and time, in microseconds since the epoch."""
        self._chunk.wall.append(microseconds)

    # -- entries ---------------------------------------------------------------------------------------------------

    @property
    def steps(self) -> int:
        """How many steps have begun."""
        return self._steps_before + len(self._order)

    @property
    def readings(self) -> int:
        """How often the monotonic clock has been read."""
        return self._readings_before + len(self._monotonic)

    def append(self, entry: Entry) -> None:
        """Record an entry."""
        entries = self._chunk.entries
        entries.append(entry)
        if len(entries) >= _ENTRIES or len(self._order) >= _STEPS:
            self.flush()

    def flush(self) -> None:
        """Hand over what has been recorded since the last chunk."""
        chunk = self._chunk
        if not (chunk.entries or chunk.order or chunk.monotonic or chunk.wall):
            return
        self._steps_before, self._readings_before = self.steps, self.readings
        self._chunk = Chunk()
        self._order, self._monotonic = self._chunk.order, self._chunk.monotonic
        if self._is_open and not self._sink.accept(chunk):
            self.dropped += len(chunk.entries)

    def close(self) -> None:
        """Hand over the rest, and record nothing more."""
        self.flush()
        self._is_open = False


class RecordedLoop(asyncio.AbstractEventLoop):
    """Derive from this and an event loop of asyncio. Callbacks outside of a recorded scheduler are not affected."""

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        journal = recorded_by.get() if context is None else context.get(recorded_by)
        if journal is None:
            return super().call_soon(callback, *args, context=context)
        return super().call_soon(journal.run_step, journal.number_callback(), callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        journal = recorded_by.get() if context is None else context.get(recorded_by)
        if journal is None:
            return super().call_at(when, callback, *args, context=context)
        return super().call_at(when, journal.fire_timer, journal.number_timer(), callback, *args, context=context)


class RecordedSelectorLoop(RecordedLoop, asyncio.SelectorEventLoop):
    """asyncio's event loop for a process with a recorded scheduler."""


def new_recorded_loop() -> asyncio.AbstractEventLoop:
    """A new event loop for a process with a recorded scheduler: uvloop's if it is installed, else asyncio's."""
    try:
        import uvloop
    except ImportError:
        return RecordedSelectorLoop()

    class RecordedUVLoop(RecordedLoop, uvloop.Loop):  # type: ignore[misc]  # uvloop is not installed everywhere
        """uvloop sets all timers with ``call_later``."""

        def call_later(
            self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
        ) -> asyncio.TimerHandle:
            journal = recorded_by.get() if context is None else context.get(recorded_by)
            if journal is None:
                return super().call_later(delay, callback, *args, context=context)
            return super().call_later(
                delay, journal.fire_timer, journal.number_timer(), callback, *args, context=context
            )

        def call_at(
            self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
        ) -> asyncio.TimerHandle:
            return self.call_later(when - self.time(), callback, *args, context=context)

    return RecordedUVLoop()
