"""An event loop in virtual time that shuffles its ready callbacks with a seeded random source.

asyncio runs callbacks in the order in which they became ready. On a real machine that order depends on networks and
other processes, so here it is drawn; what holds for every order holds for the real one.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any, TypeVar, TypeVarTuple

from kubestow.flight_record.journal import RecordedLoop
from kubestow.testing.virtual_time import VirtualTimeLoop

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

#: Iterations of the loop at one instant of virtual time that count as a livelock.
_MAX_ITERATIONS = 20_000


class Freeze:
    """Whether the callbacks of a process run."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._until = 0.0
        self._cause = ""

    @property
    def cause(self) -> str:
        """Namespace and name of the pod that the process is frozen by, "" if it is not."""
        return self._cause if self.left else ""

    @property
    def left(self) -> float:
        """The seconds for which the process is frozen."""
        return max(0.0, self._until - self._loop.time())

    def has_been_within(self, seconds: float) -> bool:
        """Whether the process is frozen, or was so many seconds ago: 0 while it runs its first callbacks after that."""
        return self._until > 0.0 and self._loop.time() <= self._until + seconds

    def stall(self, seconds: float, cause: str) -> None:
        """Freeze the process for so many seconds, from the end of the stall that it is in."""
        self._cause = cause
        self._until = self._loop.time() + self.left + seconds
        self._loop.call_at(self._until, lambda: None, context=Context())


frozen_with: ContextVar[Freeze | None] = ContextVar("frozen_with", default=None)
"""What freezes the process that the running code belongs to; None for code that no stall concerns."""


async def run_frozen_with(freeze: Freeze | None, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that only ``freeze`` stops, or nothing; its result arrives when nothing stops the caller."""
    context = copy_context()
    context.run(frozen_with.set, freeze)
    return await asyncio.get_running_loop().create_task(work, context=context)


class Livelock(AssertionError):
    """Callbacks are always ready, so that virtual time does not advance."""


class ShuffledLoop(VirtualTimeLoop):
    """A virtual-time event loop whose ready callbacks run in random order."""

    _ready: Any
    _scheduled: Any

    def __init__(self, random: Random) -> None:
        self._random = random
        #: The callbacks of processes that are frozen.
        self._parked: list[Any] = []
        #: Whether a process has ever been frozen.
        self.freezes = False
        self._iterations = 0
        super().__init__()

    def advance(self, seconds: float) -> None:
        """Advance virtual time."""
        self._iterations = 0
        super().advance(seconds)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Set a timer. For a process that is frozen, it is the end of the stall already."""
        freeze = frozen_with.get() if context is None else context.get(frozen_with)
        when += 0.0 if freeze is None else freeze.left
        return super().call_at(when, callback, *args, context=context)

    def _run_once(self) -> None:
        self._iterations += 1
        if self._iterations > _MAX_ITERATIONS:
            raise Livelock(f"{_MAX_ITERATIONS} iterations at {self.time():.3f} s")
        if self.freezes:
            self._park()
        if len(self._ready) > 1:
            self._random.shuffle(self._ready)
        super()._run_once()  # type: ignore[misc]  # private in asyncio

    def _park(self) -> None:
        """Leave the callbacks of frozen processes out, and advance virtual time until another is ready."""
        self._ready.extend(self._parked)
        self._parked = []
        while True:
            while self._scheduled and self._scheduled[0].when() <= self.time():
                handle = heapq.heappop(self._scheduled)
                handle._scheduled = False
                self._ready.append(handle)
            parked = [handle for handle in self._ready if _is_frozen(handle)]
            self._parked += parked
            if parked:
                ready = [handle for handle in self._ready if not _is_frozen(handle)]
                self._ready.clear()
                self._ready.extend(ready)
            if self._ready or not self._scheduled:
                return
            self.advance(max(0.0, self._scheduled[0].when() - self.time()))
            self._ready.extend(self._parked)
            self._parked = []


def _is_frozen(handle: Any) -> bool:
    freeze = handle._context.get(frozen_with)
    return freeze is not None and freeze.left > 0.0


class RecordedShuffledLoop(RecordedLoop, ShuffledLoop):
    """The same for recorded schedulers."""
