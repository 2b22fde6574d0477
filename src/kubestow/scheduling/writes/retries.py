"""What is tried again after a failure, and when: growing pauses on an injected clock, with a random share each.

Two ways to be patient with an API server. A request that does no harm when it is made twice is made *briefly*: a few
times, soon one after another (semantics 1.8). Of a request that may have taken effect or not, whoever has to know asks
the server for the state of things *until it answers*. Delays are in seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import TypeVar

from kubestow.errors import APIError, Unreachable
from kubestow.scheduling.ports import Clock

__all__ = ["Backoff", "Retries", "is_refusal", "jittered"]

_log = logging.getLogger(__name__)

T = TypeVar("T")


def jittered(seconds: float, jitter: float, random: Random) -> float:
    """The delay, longer by a random share of it: up to ``jitter`` times."""
    return seconds * (1 + jitter * random.random())


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays that grow: the first is ``initial``, each next one ``factor`` times as long, none longer than ``limit``.

    Every delay is then made longer by a random share of at most ``jitter``, so that clients of a server that comes back
    do not all arrive at once.
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


#: client-go's default for conflicts: four tries within a third of a second (semantics 1.8).
_BRIEF = Backoff(initial=0.010, factor=5.0, jitter=0.1)
_TRIES = 4
_RETRIABLE = frozenset({409, 429, 500, 503})
#: Between two questions of which one needs the answer.
_PERSISTENT = Backoff(initial=0.1, factor=2.0, jitter=0.1, limit=5.0)


def is_refusal(error: APIError | Unreachable) -> bool:
    """Whether a server has said no, and not merely failed, fallen silent or asked for patience."""
    return isinstance(error, APIError) and not error.in_doubt and error.code != 429


class Retries:
    """Makes requests again that failed."""

    def __init__(self, clock: Clock, random: Random) -> None:
        self._clock, self._random = clock, random

    def pauses(self) -> Iterator[float]:
        """The pauses between the tries of one request that is made briefly."""
        return islice(_BRIEF.delays(self._random), _TRIES - 1)

    @staticmethod
    def pause_after(error: APIError | Unreachable, pauses: Iterator[float]) -> float | None:
        """The pause before a request that failed is made again, None when it is not.

        A server that says when to come back is not asked before that; over HTTP the transport has heeded it already,
        up to a limit of its own.
        """
        if isinstance(error, Unreachable):
            return next(pauses, None)
        if error.code not in _RETRIABLE or (pause := next(pauses, None)) is None:
            return None
        return max(pause, error.retry_after or 0.0)

    async def briefly(self, request: Callable[[], Awaitable[T]]) -> T:
        """Make a request, up to four times. Raises the last APIError or Unreachable."""
        pauses = self.pauses()
        while True:
            try:
                return await request()
            except (APIError, Unreachable) as error:
                pause = self.pause_after(error, pauses)
                if pause is None:
                    raise
            await self._clock.sleep(pause)

    async def retry_until_answered(self, subject: str, read: Callable[[], Awaitable[T]]) -> T:
        """What a question brings in the end, however long the server takes. Raises APIError when it refuses to say."""
        pauses = _PERSISTENT.delays(self._random)
        while True:
            try:
                return await read()
            except (APIError, Unreachable) as error:
                if is_refusal(error):
                    raise
                _log.debug("%s may have been changed or not: %s", subject, error)
            await self._clock.sleep(next(pauses))
