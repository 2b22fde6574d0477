"""The environment of a replayed scheduler: the record as a tape, its event loop, and what its interfaces return."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextvars import Context
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar, TypeVarTuple

import msgspec

from kubestow.errors import InputError
from kubestow.flight_record.entries import Answered, Called, Entry, Output
from kubestow.flight_record.interfaces import Method, exception_of
from kubestow.flight_record.segment import Chunk, Segment
from kubestow.scheduling.interfaces import Resource, Subscriber

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

#: Callbacks that run after the end of a replay, at most.
_MAX_CALLBACKS = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Tape:
    """Entries, clock readings and the order of steps.

    Reading a stream beyond its end sets :attr:`overrun` and returns the last reading.
    """

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._chunks: Iterator[Chunk] = segment.chunks()
        self._entries: deque[Entry] = deque()
        self._monotonic: deque[float] = deque()
        self._wall: deque[int] = deque()
        self._order: deque[int] = deque()
        #: What is wrong with the file after its last readable chunk; None while nothing is.
        self.damage: InputError | None = None
        self._is_complete = False
        #: The stream that was read beyond its end; empty if none was.
        self.overrun = ""
        #: The newest reading of the monotonic clock, in seconds, and how many there were.
        self.now = segment.header.monotonic
        self.readings = 0

    @property
    def is_cut(self) -> bool:
        """Whether the file has ended before the scheduler did."""
        end = self._segment.end
        return self.damage is not None or (end is not None and bool(end.reason or end.next_file))

    def peek(self) -> Entry | None:
        """The next entry; None at the end."""
        return self._entries[0] if self._load(self._entries) else None

    def take(self) -> Entry:
        """Take the next entry, which :meth:`peek` has seen."""
        return self._entries.popleft()

    def take_step(self) -> int | None:
        """Take the number of the callback that runs next; None at the end."""
        return self._order.popleft() if self._load(self._order) else None

    def read_monotonic(self) -> float:
        """Take the next reading of the monotonic clock."""
        self.readings += 1
        if self._load(self._monotonic):
            self.now = self._monotonic.popleft()
        else:
            self.overrun = self.overrun or "the monotonic clock"
        return self.now

    def read_wall(self) -> int:
        """Take the next reading of the date and time, in microseconds since the epoch."""
        if self._load(self._wall):
            return self._wall.popleft()
        self.overrun = self.overrun or "the date and time"
        return 0

    def _load(self, stream: deque[Any]) -> bool:
        """Read chunks until a stream has something; False at the end of the record."""
        while not stream and not self._is_complete:
            try:
                chunk = next(self._chunks, None)
            except InputError as error:
                self.damage, chunk = error, None
            if chunk is None:
                self._is_complete = True
                return False
            self._entries.extend(chunk.entries)
            self._monotonic.extend(chunk.monotonic)
            self._wall.extend(chunk.wall)
            self._order.extend(chunk.order)
        return bool(stream)


class ReplayLoop(asyncio.AbstractEventLoop):
    """Runs the scheduler's callbacks one by one, in the recorded order.

    It runs only callbacks that the replay selects. There are no sockets, threads or processes, and timers fire at their
    recorded positions. Code that needs more, such as a plugin that connects to a server, gets NotImplementedError from
    the base class. Callbacks and timers are numbered from one, as in the record. ``read_time`` gives :meth:`time`, in
    seconds.
    """

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

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.unhandled.append(context)


class _Answer(asyncio.Future[Any]):
    """The result of a call, which is recorded also if the call was cancelled."""

    kind: Any

    def cancel(self, msg: Any = None) -> bool:
        return not self.done()


class ReplayBoundary:
    """Implements :class:`~kubestow.flight_record.interfaces.Boundary` with recorded results, delivered by the replay.

    ``produce`` is called with each call of the scheduler. The ``subscriber`` is None until the scheduler subscribes.
    """

    def __init__(self, tape: Tape, produce: Callable[[Output], None], loop: ReplayLoop) -> None:
        self._tape, self._produce, self._loop = tape, produce, loop
        self.resources: Sequence[Resource] = ()
        self.subscriber: Subscriber | None = None
        self._calls = 0
        self._pending: dict[int, _Answer] = {}
        self._is_closed = False

    async def call(
        self, method: Method, implementation: Any, arguments: tuple[Any, ...], keywords: Mapping[str, Any]
    ) -> Any:
        """The recorded result, once :meth:`end_call` has it."""
        if method.name == "subscribe":
            self.resources, self.subscriber = arguments
        self._calls += 1
        self._produce(Called(self._calls, method.name, method.describe(arguments, keywords)))
        answer = self._pending[self._calls] = _Answer(loop=self._loop)
        answer.kind = method.value
        if self._is_closed:
            asyncio.Future.cancel(answer)
        return await answer

    def notify(self, implementation: Any, arguments: tuple[Any, ...]) -> None:
        """Nothing is written in a replay."""

    def read(self, kind: type[Any], implementation: Any) -> Any:
        """The recorded reading."""
        if kind is datetime:
            return _EPOCH + timedelta(microseconds=self._tape.read_wall())
        return kind(self._tape.read_monotonic())

    def close(self) -> None:
        """Cancel all calls, also those that are yet to start."""
        self._is_closed = True
        for answer in self._pending.values():
            asyncio.Future.cancel(answer)

    def end_call(self, answered: Answered) -> bool:
        """End a call; False if there is none of this number. Raises msgspec.ValidationError."""
        answer = self._pending.pop(answered.call, None)
        if answer is None:
            return False
        error = None if answered.failure is None else exception_of(answered.failure)
        if error is None:
            self._loop.run_at_once(partial(answer.set_result, msgspec.convert(answered.value, answer.kind)))
        elif isinstance(error, asyncio.CancelledError):
            self._loop.run_at_once(partial(asyncio.Future.cancel, answer))
        else:
            self._loop.run_at_once(partial(answer.set_exception, error))
        return True
