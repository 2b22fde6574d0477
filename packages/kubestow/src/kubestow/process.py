"""What a process runs on: its event loop, the clock of the machine, and its child processes.

The event loop of a process that serves or schedules is uvloop's if it is installed, else asyncio's. uvloop comes with
``kubestow[speed]``; docs/performance.md has what it saves. A scheduler whose steps are recorded runs on a loop derived
from the same (:mod:`kubestow.flight_record.journal`).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any, TypeVar

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


class WallClock:
    """Implements :class:`kubestow.scheduling.interfaces.Clock` on the system's clocks."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    monotonic = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def stop_process(process: asyncio.subprocess.Process, seconds: float) -> bool:
    """Terminate a process and wait for its end; False if it had to be killed, because it took more than ``seconds``."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
    try:
        async with asyncio.timeout(seconds):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
        return False
    return True
