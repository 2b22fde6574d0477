"""The event loop of a recorded scheduler: it reports the scheduler's steps and timers to the journal.

In all other respects it is the loop that it is derived from, of asyncio or uvloop. Only methods of asyncio's public
interface are overridden, so callbacks may run in any order: a replay runs them in the recorded one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import TypeVarTuple

from kubestow.flight_record.recording.journal import recorded_by

__all__ = ["RecordedLoop", "RecordedSelectorLoop", "new_recorded_loop"]

Ts = TypeVarTuple("Ts")


class RecordedLoop(asyncio.AbstractEventLoop):
    """Derive from this and an event loop of asyncio. Callbacks outside of a recorded scheduler are not affected."""

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        journal = recorded_by.get() if context is None else context.get(recorded_by)
        if journal is None:
            return super().call_soon(callback, *args, context=context)
        return super().call_soon(journal.run_step, journal.next_callback(), callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        journal = recorded_by.get() if context is None else context.get(recorded_by)
        if journal is None:
            return super().call_at(when, callback, *args, context=context)
        return super().call_at(when, journal.fire_timer, journal.next_timer(), callback, *args, context=context)


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
            return super().call_later(delay, journal.fire_timer, journal.next_timer(), callback, *args, context=context)

        def call_at(
            self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
        ) -> asyncio.TimerHandle:
            return self.call_later(when - self.time(), callback, *args, context=context)

    return RecordedUVLoop()
