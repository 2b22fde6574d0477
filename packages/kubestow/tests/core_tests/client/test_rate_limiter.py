"""The token bucket rate limiter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_tests.client.clocks import AutoAdvancingClock
from kubestow.client.rest.transport import RateLimit, TokenBucketRateLimiter


@given(st.floats(0.5, 1000), st.integers(1, 50), st.lists(st.floats(0, 5), max_size=60))
async def test_no_window_contains_more_requests_than_burst_and_qps_allow(
    qps: float, burst: int, pauses: list[float]
) -> None:
    clock = AutoAdvancingClock()
    limiter = TokenBucketRateLimiter(RateLimit(qps, burst), clock=clock)
    passed = []
    for pause in pauses:
        clock.seconds += pause
        await limiter.wait()
        passed.append(clock.seconds)
    for first in range(len(passed)):
        for last in range(first, len(passed)):
            allowed = burst + (passed[last] - passed[first]) * qps
            assert last - first + 1 <= allowed + 1 + 1e-6


async def test_tokens_do_not_accumulate_beyond_the_burst(clock: AutoAdvancingClock) -> None:
    limiter = TokenBucketRateLimiter(RateLimit(1, 2), clock=clock)
    clock.seconds += 1000
    for _ in range(3):
        await limiter.wait()
    assert clock.slept == [pytest.approx(1.0)]
