"""Periods in which the whole server misbehaves: it is slow, restarts, or rejects every request.

Other faults concern single requests and events. An outage concerns all of them at once, and that is when clients retry
too often, do not notice that it is over, or lose what they were doing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import StrEnum
from random import Random

from kubestow.errors import APIError, KubestowError, Unreachable
from kubestow_lab.fault_simulation.trace import Steps, Trace


class Outage(StrEnum):
    """What is wrong with the server."""

    SLOW = "is slow"
    RESTART = "restarts"
    THROTTLING = "responds with 429"
    THROTTLING_WITH_DELAY = "responds with 429 and Retry-After"


#: How long each kind lasts at least and at most, in seconds.
_SECONDS = {
    Outage.SLOW: (10.0, 40.0),
    Outage.RESTART: (0.0, 10.0),
    Outage.THROTTLING: (60.0, 60.0),
    Outage.THROTTLING_WITH_DELAY: (60.0, 60.0),
}


class Outages:
    """Draws one outage after the other while :meth:`run` runs; ``on_restart`` is called when connections break."""

    def __init__(self, random: Random, trace: Trace, steps: Steps, on_restart: Callable[[], None]) -> None:
        self._random, self._trace, self._steps, self._on_restart = random, trace, steps, on_restart
        self._current: Outage | None = None
        #: How often all connections have broken: when the server restarts, and often when it rejects every request.
        self.restarts = 0

    async def run(self, is_active: Callable[[], bool]) -> None:
        """Outages with pauses between them, until the end of the one in which ``is_active`` becomes False.

        The first is a restart within seconds, in the middle of the initial lists.
        """
        await asyncio.sleep(self._random.expovariate(5.0))
        outage = Outage.RESTART
        while is_active():
            if not self._steps.takes(f"server: {outage}"):
                await asyncio.sleep(self._random.expovariate(0.2))
                continue
            self._trace.note("server", outage)
            self._current = outage
            if outage is Outage.RESTART or (outage is not Outage.SLOW and self._random.random() < 0.5):
                self.restarts += 1
                self._on_restart()
            await asyncio.sleep(self._random.uniform(*_SECONDS[outage]))
            self._trace.note("server", "is well")
            self._current = None
            await asyncio.sleep(self._random.expovariate(0.2))
            outage = self._random.choice(list(Outage))

    async def admit(self) -> None:
        """What happens to a request when it reaches the server. Raises APIError and Unreachable."""
        match self._current:
            case Outage.SLOW:
                await asyncio.sleep(self._random.uniform(0.5, 5.0))
            case Outage.RESTART:
                raise self._random.choice(_STARTING)()
            case Outage.THROTTLING:
                raise APIError(429, "TooManyRequests", "injected throttling")
            case Outage.THROTTLING_WITH_DELAY:
                seconds = self._random.choice((1.0, 5.0, 60.0))
                raise APIError(429, "TooManyRequests", "injected throttling", retry_after=seconds)

    async def delay_event(self) -> None:
        """What happens to a watch event before it is delivered."""
        if self._current is Outage.SLOW:
            await asyncio.sleep(self._random.expovariate(1.0))

    def check_connection(self, restarts: int) -> None:
        """Raises Unreachable if the server has restarted since a connection was opened."""
        if restarts != self.restarts:
            raise _reset()


def _reset() -> KubestowError:
    return Unreachable("server", "connection reset by peer")


#: The responses of a server that is not ready.
_STARTING: tuple[Callable[[], KubestowError], ...] = (
    lambda: Unreachable("server", "connection refused"),
    lambda: APIError(503, "ServiceUnavailable", "the server is starting"),
    lambda: APIError(429, "TooManyRequests", "storage is (re)initializing", retry_after=1.0),
)
