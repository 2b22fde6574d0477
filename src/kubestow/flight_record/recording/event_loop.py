"""The event loop of a recorded scheduler: it reports the scheduler's steps and timers to the journal.

In all other respects it is the loop that it is derived from. Only methods of asyncio's public interface are overridden,
so callbacks may run in any order: a replay runs them in the recorded one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import TypeVarTuple

from kubestow.flight_record.recording.journal import recorded_by

__all__ = ["RecordedLoop", "RecordedSelectorLoop"]

Ts = TypeVarTuple("Ts")


class RecordedLoop(asyncio.BaseEventLoop):
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
    """The event loop of a process with a recorded scheduler."""
