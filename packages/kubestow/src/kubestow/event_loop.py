"""The event loop of a process that serves or schedules: uvloop's if it is installed, else asyncio's.

uvloop comes with ``kubestow[speed]``; docs/performance.md has what it saves. A scheduler whose steps are recorded runs
on a loop derived from the same (:mod:`kubestow.flight_record.journal`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["new_event_loop", "run"]

_T = TypeVar("_T")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A new event loop, for ``asyncio.Runner(loop_factory=…)``; the caller closes it."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def run(program: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine to its end on a new event loop, as :func:`asyncio.run` does."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(program)
