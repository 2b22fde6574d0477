"""Change notifier: conditions on the cluster that are evaluated again after every change.

A binding cycle that waits for a volume to be bound polls the same condition over and over. It is evaluated after the
watch has shown a change instead; many changes in one turn of the event loop cause one evaluation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class ChangeNotifier:
    """The conditions that binding cycles wait for."""

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
