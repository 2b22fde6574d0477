"""The event loop of a replay: it runs the scheduler's callbacks one by one, in the recorded order.

It does nothing on its own. There are no sockets, threads or processes, and timers fire when the record says so. Code
that needs more, such as a plugin that calls a server by itself, gets NotImplementedError from the base class.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple

__all__ = ["ReplayLoop"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

#: Callbacks that run after the end of a replay, at most.
_MAX_CALLBACKS = 1_000_000


class ReplayLoop(asyncio.AbstractEventLoop):
    """Callbacks and timers are numbered from one, as in the record. ``read_time`` gives :meth:`time`, in seconds."""

    def __init__(self, read_time: Callable[[], float]) -> None:
        self._read_time = read_time
        self._callbacks = self._timers = 0
        self._ready: dict[int, asyncio.Handle] = {}
        self._set: dict[int, asyncio.TimerHandle] = {}
        #: The numbers of the timers that are set, by the identity of their handles.
        self._numbers: dict[int, int] = {}
        self._is_closed = False
        #: Callbacks that are to run at once, without a number; None unless such are collected.
        self._at_once: list[asyncio.Handle] | None = None
        #: The reported failures that nothing handled.
        self.unhandled: list[dict[str, Any]] = []

    # -- what the replay does --------------------------------------------------------------------------------------

    def run_step(self, number: int) -> bool:
        """Run a callback; False if it is not ready."""
        handle = self._ready.pop(number, None)
        if handle is None or handle.cancelled():
            return False
        handle._run()
        return True

    def fire_timer(self, number: int) -> bool:
        """Run the callback of a timer; False if it is not set."""
        handle = self._set.pop(number, None)
        if handle is None:
            return False
        del self._numbers[id(handle)]
        handle._run()
        return True

    def run_at_once(self, trigger: Callable[[], object]) -> None:
        """Call something, and run the callbacks that it schedules, which are no steps of the scheduler."""
        handles: list[asyncio.Handle] = []
        self._at_once = handles
        try:
            trigger()
        finally:
            self._at_once = None
        for handle in handles:
            handle._run()

    def run_until_done(self, task: asyncio.Task[Any]) -> None:
        """Run callbacks, and timers when no callback is ready, until a task has ended and nothing else is ready."""
        for _ in range(_MAX_CALLBACKS):
            if self._ready:
                self.run_step(next(iter(self._ready)))
            elif self._set and not task.done():
                self.fire_timer(min(self._set, key=lambda number: self._set[number].when()))
            else:
                break

    # -- the event loop's interface ----------------------------------------------------------------------------------

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if self._at_once is not None:
            self._at_once.append(handle)
            return handle
        self._callbacks += 1
        self._ready[self._callbacks] = handle
        return handle

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        self._timers += 1
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._set[self._timers] = handle
        self._numbers[id(handle)] = self._timers
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Called when a timer is cancelled."""
        number = self._numbers.pop(id(handle), None)
        if number is not None:
            del self._set[number]

    def time(self) -> float:
        return self._read_time()

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]  # generators that are no coroutines are not supported
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None, **options: Any
    ) -> asyncio.Task[T]:
        return asyncio.Task(coro, loop=self, name=name, context=context, **options)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self._is_closed

    def is_closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        self._ready.clear()
        self._set.clear()
        self._is_closed = True

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.unhandled.append(context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.unhandled.append(context)
