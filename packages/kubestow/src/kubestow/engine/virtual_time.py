"""An event loop with virtual time.

When no task is ready, the loop does not sleep; its clock jumps to the next timer. An hour of backoff takes
milliseconds, and runs are deterministic. If no timer is left, the loop raises :class:`Deadlock` instead of blocking.
There are no sockets: connecting raises OSError. Work for a thread is done at once, in no virtual time.
"""

from __future__ import annotations

import asyncio
import errno
import math
import selectors
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""The time at which virtual time starts, unless another is given."""


def resolution(now: float) -> float:
    """The resolution of a clock of virtual time, in seconds: asyncio makes calls that are due within that of its clock.

    It is that of the system's clock, and no less than the distance of numbers: else no call would be due any more after
    half a year.
    """
    return max(1e-9, math.ulp(now))


class Deadlock(AssertionError):
    """All tasks wait and no timer is scheduled."""


class _NoSleep(selectors.SelectSelector):
    """Never blocks: advances the loop's clock by the timeout instead."""

    loop: VirtualTimeLoop | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock("all tasks wait and no timer is scheduled")
        if timeout > 0:
            assert self.loop is not None
            self.loop.advance(timeout)
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop with a virtual clock that starts at 0."""

    def __init__(self) -> None:
        self._virtual_now = 0.0
        selector = _NoSleep()
        super().__init__(selector)
        selector.loop = self
        self._clock_resolution = resolution(0.0)  # asyncio's

    def time(self) -> float:
        """The virtual time, in seconds."""
        return self._virtual_now

    def advance(self, seconds: float) -> None:
        """Advance the virtual time."""
        self._virtual_now += seconds
        self._clock_resolution = resolution(self._virtual_now)

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """Call the function; another thread would take real time."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        """Raises OSError."""
        raise _no_network()

    async def sock_connect(self, sock: Any, address: Any) -> None:
        """Raises OSError."""
        raise _no_network()


def _no_network() -> OSError:
    return OSError(errno.ENETUNREACH, "there is no network in virtual time")


class Time(Protocol):
    """Virtual time."""

    def time(self) -> float:
        """Seconds since the start."""


class VirtualClock:
    """The scheduler's clock on a virtual-time loop, or in turns; its time starts at ``epoch``."""

    def __init__(self, loop: Time, epoch: datetime = EPOCH) -> None:
        self._loop = loop
        self._epoch = epoch
        #: Seconds since the start of the loop.
        self.monotonic = loop.time

    def now(self) -> datetime:
        """The current time."""
        return self._epoch + timedelta(seconds=self._loop.time())

    async def sleep(self, seconds: float) -> None:
        """Sleep in virtual time."""
        await asyncio.sleep(seconds)


def run(program: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to completion in virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(program)
