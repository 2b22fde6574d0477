"""When the client may speak: the clock of this machine, and a limit on requests a second.

:class:`RateLimit` is arithmetic on an injected clock; only :class:`WallClock` touches real time. Delays are in seconds
throughout. What is tried again after a failure, and how soon, is in :mod:`kubestow.scheduling.writes.retries`.
"""

from __future__ import annotations

from kubestow.scheduling.ports import Clock

__all__ = ["RateLimit"]


class RateLimit:
    """A token bucket: ``qps`` requests a second in the long run, ``burst`` at once."""

    def __init__(self, *, qps: float, burst: int, clock: Clock) -> None:
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
