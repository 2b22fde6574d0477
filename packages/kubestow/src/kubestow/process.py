"""What a process runs on: its event loop, the clock of the machine, its limit of open files, and its child processes.

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

#: Assumed where the operating system has no limit on open files.
_UNLIMITED = 2**20


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


def open_file_limit() -> int:
    """How many files, sockets included, this process may open (RLIMIT_NOFILE)."""
    try:
        import resource
    except ImportError:  # not on every platform
        return _UNLIMITED
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft


def raise_open_file_limit() -> None:
    """Raise the limit as far as the process may, as programs written in Go do; where that fails, it stays as it is."""
    try:
        import resource
    except ImportError:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):  # a limit above that of the kernel, or a system that has another rule
        return


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
