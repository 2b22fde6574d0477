"""Periodic work: what plugins do in the background as long as the scheduler runs, such as reading metrics."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from kubestow.errors import APIError, Unreachable
from kubestow.log_fields import fields
from kubestow.scheduling.interfaces import Clock

__all__ = ["PeriodicWork"]

_log = logging.getLogger(__name__)


class PeriodicWork:
    """Work that is repeated, each piece in a task of its own. Nothing runs before :meth:`start`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._added: list[tuple[float, Callable[[], Awaitable[None]]]] = []
        self._tasks: list[asyncio.Task[None]] = []

    def add(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        """Have work repeated so many seconds after each end of it."""
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
        while True:
            try:
                await work()
            except (APIError, Unreachable) as error:
                _log.warning("%s", error, extra=fields(err=str(error)))
            except (Exception, SystemExit):  # not even sys.exit() in a plugin ends the scheduler
                _log.exception(
                    "periodic work of a plugin failed", extra=fields(work=getattr(work, "__qualname__", str(work)))
                )
            await self._clock.sleep(seconds)
