"""Requests of which nobody knows whether they took effect.

When an answer is lost, or the server fails, what was asked may have been done all the same. Whoever has to know asks
the server for the state of things, again and again until it answers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from kubestow.errors import APIError, Unreachable

__all__ = ["until_answered"]

_log = logging.getLogger(__name__)

#: Seconds between two questions: the first pause, and the longest.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0

T = TypeVar("T")


async def until_answered(subject: str, read: Callable[[], Awaitable[T]]) -> T:
    """What a question brings in the end, however long the server takes. Raises APIError when it refuses to say."""
    pause = _FIRST_PAUSE
    while True:
        try:
            return await read()
        except (APIError, Unreachable) as error:
            if not error.in_doubt and not (isinstance(error, APIError) and error.code == 429):
                raise
            _log.debug("%s may have been changed or not: %s", subject, error)
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
