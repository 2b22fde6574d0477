"""When the client may speak and when it must wait: the clock it sleeps on, backoff after failures, a rate limit.

Everything here is arithmetic on an injected clock and random source; only :class:`WallClock` touches real time. Delays
are in seconds throughout.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Protocol

from kubestow.scheduling.ports import Clock

__all__ = ["Backoff", "RateLimit", "SleepingClock", "WallClock", "jittered"]


class SleepingClock(Clock, Protocol):
    """A clock that can also be waited on."""

    async def sleep(self, seconds: float) -> None:
        """Return once that many seconds have passed on this clock."""


class WallClock:
    """The time of this machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    monotonic = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


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


class RateLimit:
    """A token bucket: ``qps`` requests a second in the long run, ``burst`` at once."""

    def __init__(self, *, qps: float, burst: int, clock: SleepingClock) -> None:
        self._qps, self._burst, self._clock = qps, max(burst, 1), clock
        self._tokens, self._filled_at = float(self._burst), clock.monotonic()

    async def wait(self) -> None:
        """Take one token; sleep first while there is none. Those who wait are served in the order they came."""
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._qps)
        self._filled_at = now
        self._tokens -= 1
        if self._tokens < 0:  # a debt: the tokens that those before us and we are still to be given
            await self._clock.sleep(-self._tokens / self._qps)
