"""Waiting for the cluster to change: questions that are asked again whenever there is news.

A binding cycle that waits for a volume to be bound asks one question over and over. Rather than look once a second, it
is asked again after the watch has told of anything; many events in one turn of the event loop are one piece of news.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["ChangeNotifier"]

T = TypeVar("T")


class ChangeNotifier:
    """The open questions of a scheduler."""

    def __init__(self) -> None:
        self._open: dict[asyncio.Future[Any], Callable[[], Any]] = {}
        self._soon: asyncio.Handle | None = None

    def happened(self) -> None:
        """Something has changed: the open questions are asked again before long."""
        if self._open and self._soon is None:
            self._soon = asyncio.get_running_loop().call_soon(self._ask)

    async def wait_for(self, answer: Callable[[], T | None], seconds: float) -> T | None:
        """The first answer that is not None; None when there is none in so many seconds. What it raises is raised."""
        found = answer()
        if found is not None:
            return found
        waiting: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._open[waiting] = answer
        try:
            async with asyncio.timeout(seconds):
                return await waiting
        except TimeoutError:
            return None
        finally:
            del self._open[waiting]

    def _ask(self) -> None:
        self._soon = None
        for waiting, answer in list(self._open.items()):
            if waiting.done():
                continue
            try:
                found = answer()
            except Exception as error:
                waiting.set_exception(error)
            else:
                if found is not None:
                    waiting.set_result(found)
