"""Background tasks: work that nothing awaits, tracked so that shutdown can wait for it or cancel it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from typing import Any

from kubestow.errors import APIError, Unreachable
from kubestow.log_fields import fields

__all__ = ["BackgroundTasks"]

_log = logging.getLogger(__name__)


class BackgroundTasks:
    """The running tasks, in the order in which they were started; a task leaves them when it ends."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        return iter(list(self._tasks))

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run work that handles its own failures."""
        task = asyncio.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work; whatever it raises is logged."""
        self.start(_logged(work))


async def _logged(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except (APIError, Unreachable) as error:
        _log.warning("%s", error, extra=fields(err=str(error)))
    except (Exception, SystemExit):  # not even sys.exit() in a plugin ends the scheduler
        _log.exception("background work failed", extra=fields(work=getattr(work, "__qualname__", str(work))))
