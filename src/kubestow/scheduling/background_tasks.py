"""Background tasks: work that nothing awaits, tracked so that shutdown can wait for it or cancel it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from typing import Any

from kubestow.errors import APIError, Unreachable

__all__ = ["BackgroundTasks"]

_log = logging.getLogger(__name__)


class BackgroundTasks:
    """A set of running tasks; a task leaves it when it ends."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        return iter(list(self._tasks))

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run work that handles its own failures."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work; whatever it raises is logged."""
        self.start(_logged(work))


async def _logged(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except (APIError, Unreachable) as error:
        _log.warning("%s", error)
    except Exception:
        _log.exception("background work failed")
