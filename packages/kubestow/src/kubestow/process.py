"""What a process runs on: its event loops, the clock of the machine, its limit of open files, and its child processes.

The event loop of a process that serves or schedules is uvloop's if it is installed, else asyncio's. uvloop comes with
``kubestow[speed]``; docs/performance.md has what it saves. A scheduler whose steps are recorded runs on a loop derived
from the same (:mod:`kubestow.flight_record.journal`).

A scheduling cycle is synchronous, and a plugin may take long. What must go on meanwhile, the Lease and the health
checks, runs on a :class:`LoopThread`. Its loop gets its turn every few milliseconds while the other one runs Python
code; code of a C extension that keeps the interpreter's lock delays it. By a :class:`Heartbeat` it knows whether the
other loop is alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from datetime import UTC, datetime
from typing import Any, NoReturn, Self, TypeVar

_T = TypeVar("_T")

#: Assumed where the operating system has no limit on open files.
_UNLIMITED = 2**20

#: How long the event loop of a scheduler may show no sign of life before its Lease is let go and its liveness check
#: fails, in seconds. The decision about an object at the limit of 1.5 MB takes less.
LOOP_ALLOWANCE = 45.0
HEARTBEAT_PERIOD = 1.0
"""Seconds between two signs of life of an event loop."""


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


class LoopThread:
    """An event loop in a thread of its own. Use as ``async with``; ``name`` is that of the thread."""

    def __init__(self, name: str) -> None:
        self.loop = new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)

    async def __aenter__(self) -> Self:
        self._thread.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        await asyncio.to_thread(self._thread.join)
        self.loop.close()

    async def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """The result of a coroutine that runs in the thread."""
        return await run_on(self.loop, work)


async def run_on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, _T]) -> _T:
    """The result of a coroutine that runs on the event loop of another thread; it is cancelled together with this."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))


async def stream_from(loop: asyncio.AbstractEventLoop, stream: AsyncGenerator[_T, None]) -> AsyncGenerator[_T, None]:
    """The parts of a stream that belongs to the event loop of another thread, where it is closed at the end."""
    reading: asyncio.Task[_T | None] | None = None

    async def read() -> _T | None:
        nonlocal reading
        reading = asyncio.current_task()
        return await anext(stream, None)

    async def close() -> None:
        if reading is not None:
            reading.cancel()
            await asyncio.wait((reading,))
        await stream.aclose()

    try:
        while (part := await run_on(loop, read())) is not None:
            yield part
    finally:
        await run_on(loop, close())


class Heartbeat:
    """The signs of life of an event loop: written by that loop and read in other threads, without a lock.

    ``monotonic`` is the clock, in seconds.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._last = monotonic()
        self.count = 0

    @property
    def silence(self) -> float:
        """Seconds since the last sign of life."""
        return self._monotonic() - self._last

    def beat(self) -> None:
        """Show a sign of life."""
        self.count += 1
        self._last = self._monotonic()

    async def run(self, sleep: Callable[[float], Awaitable[None]]) -> NoReturn:
        """Show signs of life until cancelled; run this on the loop that is to be supervised."""
        while True:
            self.beat()
            await sleep(HEARTBEAT_PERIOD)


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
