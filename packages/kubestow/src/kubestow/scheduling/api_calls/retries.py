"""Retries of requests to the API server: growing delays with jitter, on an injected clock.

A request that can be repeated without harm is retried *briefly*: a few times in quick succession (semantics 1.8). After
a request that may or may not have taken effect, the server is read *until it answers*. Delays are in seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import TypeVar

from kubestow.errors import APIError, Unreachable
from kubestow.log_fields import fields
from kubestow.scheduling.interfaces import Clock

_log = logging.getLogger(__name__)

T = TypeVar("T")


def jittered(seconds: float, jitter: float, random: Random) -> float:
    """The delay plus a random share of it, at most ``jitter`` times the delay."""
    return seconds * (1 + jitter * random.random())


@dataclass(frozen=True, slots=True)
class Backoff:
    """Growing delays: the first is ``initial``, each next one ``factor`` times as long, none longer than ``limit``.

    Each delay is extended by a random share of at most ``jitter``, so that clients of a recovering server do not all
    return at once.
    """

    initial: float
    factor: float
    jitter: float
    limit: float = float("inf")

    def delays(self, random: Random) -> Iterator[float]:
        """The delays one after the other, without end."""
        delay = self.initial
        while True:
            yield jittered(delay, self.jitter, random)
            delay = min(delay * self.factor, self.limit)


#: client-go's backoff for conflicts: four tries within a third of a second (semantics 1.8).
_BRIEF = Backoff(initial=0.010, factor=5.0, jitter=0.1)
_TRIES = 4
#: client-go's other default, for writes whose caller reads the object again.
_CONFLICT = Backoff(initial=0.010, factor=1.0, jitter=0.1)
_RETRIABLE_CODES = frozenset({409, 429, 500, 503})
#: Between two reads of which one has to be answered.
_PERSISTENT = Backoff(initial=0.1, factor=2.0, jitter=0.1, limit=5.0)


def is_refusal(error: APIError | Unreachable) -> bool:
    """Whether the server has refused a request, and has not merely failed, timed out or throttled it."""
    return isinstance(error, APIError) and not error.in_doubt and error.code != 429


class Retries:
    """Retries failed requests."""

    def __init__(self, clock: Clock, random: Random) -> None:
        self._clock, self._random = clock, random

    def pauses(self) -> Iterator[float]:
        """The delays between the tries of one request that is retried briefly."""
        return islice(_BRIEF.delays(self._random), _TRIES - 1)

    @staticmethod
    def pause_after(error: APIError | Unreachable, pauses: Iterator[float]) -> float | None:
        """The delay before a failed request is retried; None when it is not.

        Retry-After is a lower bound. Over HTTP the transport has honoured it already, up to a limit of its own.
        """
        if isinstance(error, Unreachable):
            return next(pauses, None)
        if error.code not in _RETRIABLE_CODES or (pause := next(pauses, None)) is None:
            return None
        return max(pause, error.retry_after or 0.0)

    async def pause_after_conflict(self) -> None:
        """Wait before a write that conflicted with another client's is computed and sent again."""
        await self._clock.sleep(next(_CONFLICT.delays(self._random)))

    async def retry_briefly(
        self, request: Callable[[], Awaitable[T]], *, is_wanted: Callable[[], bool] = lambda: True
    ) -> T:
        """Send a request up to four times, as long as it ``is_wanted``. Raises the last APIError or Unreachable."""
        pauses = self.pauses()
        while True:
            try:
                return await request()
            except (APIError, Unreachable) as error:
                pause = self.pause_after(error, pauses)
                if pause is None:
                    raise
                await self._clock.sleep(pause)
                if not is_wanted():
                    raise

    async def retry_until_answered(self, subject: str, read: Callable[[], Awaitable[T]]) -> T:
        """Repeat a read until the server answers. Raises APIError when it refuses to."""
        pauses = _PERSISTENT.delays(self._random)
        while True:
            try:
                return await read()
            except (APIError, Unreachable) as error:
                if is_refusal(error):
                    raise
                _log.debug(
                    "%s may or may not have been changed: %s",
                    subject,
                    error,
                    extra=fields(call=str(subject), err=str(error)),
                )
            await self._clock.sleep(next(pauses))
