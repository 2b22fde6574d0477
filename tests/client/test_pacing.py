"""Delays that grow, and random shares of them."""

from __future__ import annotations

from itertools import islice
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubestow.client.pacing import RateLimit
from kubestow.scheduling.retrying import Backoff, jittered

from .clocks import LeapingClock


def test_delays_grow_by_their_factor_up_to_the_limit() -> None:
    backoff = Backoff(initial=0.5, factor=3, jitter=0, limit=10)
    assert list(islice(backoff.delays(Random(1)), 5)) == [0.5, 1.5, 4.5, 10, 10]


@given(st.floats(0, 1e6), st.floats(0, 2), st.integers())
def test_jitter_only_lengthens_and_by_no_more_than_its_share(seconds: float, jitter: float, seed: int) -> None:
    assert seconds <= jittered(seconds, jitter, Random(seed)) <= seconds * (1 + jitter) * 1.000001


@given(st.floats(0.5, 1000), st.integers(1, 50), st.lists(st.floats(0, 5), max_size=60))
async def test_no_window_ever_passes_more_than_burst_and_rate_allow(
    qps: float, burst: int, pauses: list[float]
) -> None:
    clock = LeapingClock()
    limit = RateLimit(qps=qps, burst=burst, clock=clock)
    passed = []
    for pause in pauses:
        clock.seconds += pause
        await limit.wait()
        passed.append(clock.seconds)
    for first in range(len(passed)):
        for last in range(first, len(passed)):
            allowed = burst + (passed[last] - passed[first]) * qps
            assert last - first + 1 <= allowed + 1 + 1e-6


async def test_tokens_do_not_pile_up_beyond_the_burst(clock: LeapingClock) -> None:
    limit = RateLimit(qps=1, burst=2, clock=clock)
    clock.seconds += 1000
    for _ in range(3):
        await limit.wait()
    assert clock.slept == [pytest.approx(1.0)]
