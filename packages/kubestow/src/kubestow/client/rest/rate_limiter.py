"""The client-side limit on requests to an API server, as ``clientConnection`` configures it: QPS and burst."""

from __future__ import annotations

from dataclasses import dataclass

from kubestow.scheduling.interfaces import Clock

__all__ = ["UNLIMITED", "RateLimit", "TokenBucketRateLimiter"]


@dataclass(frozen=True, slots=True)
class RateLimit:
    """``qps`` requests per second on average, up to ``burst`` at once; unlimited unless ``qps`` is positive."""

    qps: float = 0.0
    burst: int = 0


UNLIMITED = RateLimit()


class TokenBucketRateLimiter:
    """A token bucket on an injected clock. ``limit.qps`` must be positive."""

    def __init__(self, limit: RateLimit, *, clock: Clock) -> None:
        self._qps, self._burst, self._clock = limit.qps, max(limit.burst, 1), clock
        self._tokens, self._filled_at = float(self._burst), clock.monotonic()

    async def wait(self) -> None:
        """Take one token; sleep until there is one. Waiters are served in order of arrival."""
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._qps)
        self._filled_at = now
        self._tokens -= 1
        if self._tokens < 0:  # the deficit counts the tokens reserved by this waiter and those before it
            await self._clock.sleep(-self._tokens / self._qps)
