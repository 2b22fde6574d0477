"""Background work: tasks that nothing awaits, and what plugins repeat as long as the scheduler runs.

The tasks are tracked, so that shutdown can wait for them or cancel them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, TypeVar

from kubestow.errors import APIError, Unreachable
from kubestow.log_fields import fields
from kubestow.scheduling.environment import ASYNCIO, Concurrency
from kubestow.scheduling.interfaces import Clock

_log = logging.getLogger(__name__)

T = TypeVar("T")


class BackgroundTasks:
    """The running tasks, in the order in which they were started; a task leaves them when it ends."""

    def __init__(self, concurrency: Concurrency = ASYNCIO) -> None:
        self._concurrency = concurrency
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        return iter(list(self._tasks))

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run work that handles its own failures."""
        task = self._concurrency.start(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work; whatever it raises is logged."""
        task = self.start(_logged(work, "background work"))
        task.add_done_callback(lambda _: work.close())  # one cancelled before its first step has not awaited it


class PeriodicWork:
    """Work that is repeated, each piece in a task of its own. Nothing runs before :meth:`start`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._added: list[tuple[float, Callable[[], Awaitable[None]]]] = []
        self._tasks: list[asyncio.Task[None]] = []

    def add(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        """Have work repeated so many seconds after each end of it. Whatever it raises is logged."""
        self._added.append((seconds, work))

    @property
    def longest_pause(self) -> float:
        """The longest pause between two runs of a piece of work, in seconds; 0 if there is no work."""
        return max((seconds for seconds, _ in self._added), default=0.0)

    def start(self) -> None:
        """Begin, with a first run of everything."""
        self._tasks = [asyncio.create_task(self._repeat(seconds, work)) for seconds, work in self._added]

    def stop(self) -> list[asyncio.Task[None]]:
        """Cancel everything; the tasks that are ending are returned."""
        for task in self._tasks:
            task.cancel()
        return self._tasks

    async def _repeat(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        name = getattr(work, "__qualname__", str(work))
        while True:
            await _logged(_called(work), "periodic work of a plugin", name)
            await self._clock.sleep(seconds)


async def _called(work: Callable[[], Awaitable[None]]) -> None:
    """Call work where its failure is logged, even if it fails before its first await."""
    await work()


async def _logged(work: Coroutine[Any, Any, None], what: str, name: str = "") -> None:
    try:
        await work
    except (APIError, Unreachable) as error:
        _log.warning("%s", error, extra=fields(err=str(error)))
    except (Exception, SystemExit):  # not even sys.exit() in a plugin ends the scheduler
        _log.exception("%s failed", what, extra=fields(work=name or getattr(work, "__qualname__", str(work))))


class ChangeNotifier:
    """The conditions that binding cycles wait for, evaluated again after the watch has shown a change.

    Many changes in one turn of the event loop cause one evaluation.
    """

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[Any], Callable[[], Any]] = {}
        self._scheduled: asyncio.Handle | None = None

    def changed(self) -> None:
        """The cluster has changed: evaluate the conditions soon."""
        if self._waiting and self._scheduled is None:
            self._scheduled = asyncio.get_running_loop().call_soon(self._evaluate)

    async def wait_for(self, condition: Callable[[], T | None], seconds: float) -> T | None:
        """The first result of a condition that is not None; None after so many seconds. Raises what it raises."""
        result = condition()
        if result is not None:
            return result
        waiting: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting[waiting] = condition
        try:
            async with asyncio.timeout(seconds):
                return await waiting
        except TimeoutError:
            return None
        finally:
            del self._waiting[waiting]

    def _evaluate(self) -> None:
        self._scheduled = None
        for waiting, condition in list(self._waiting.items()):
            if waiting.done():
                continue
            try:
                result = condition()
            except (Exception, SystemExit, asyncio.CancelledError) as error:
                can_be_set = isinstance(error, Exception) and not isinstance(error, StopIteration)
                waiting.set_exception(error if can_be_set else RuntimeError(f"{type(error).__name__}: {error}"))
            else:
                if result is not None:
                    waiting.set_result(result)
