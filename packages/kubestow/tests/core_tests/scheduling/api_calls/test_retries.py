"""Backoff with jitter, and which errors are retried."""

from __future__ import annotations

import asyncio
from itertools import islice
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_tests.scheduling.api_calls.harness import api_error, unreachable
from kubestow.errors import APIError, KubestowError
from kubestow.scheduling.api_calls.retries import Backoff, Retries, jittered
from kubestow.testing.virtual_time import VirtualClock, run


def test_delays_grow_by_their_factor_up_to_the_limit() -> None:
    backoff = Backoff(initial=0.5, factor=3, jitter=0, limit=10)
    assert list(islice(backoff.delays(Random(1)), 5)) == [0.5, 1.5, 4.5, 10, 10]


@given(st.floats(0, 1e6), st.floats(0, 2), st.integers())
def test_jitter_lengthens_a_delay_by_at_most_its_factor(seconds: float, jitter: float, seed: int) -> None:
    assert seconds <= jittered(seconds, jitter, Random(seed)) <= seconds * (1 + jitter) * 1.000001


class ScriptedRequest:
    """A request with scripted failures; ``at`` lists the seconds of its attempts."""

    def __init__(self, *failures: KubestowError) -> None:
        self._failures = list(failures)
        self.at: list[float] = []

    async def __call__(self) -> str:
        self.at.append(asyncio.get_running_loop().time())
        if self._failures:
            raise self._failures.pop(0)
        return "answered"

    @property
    def delays(self) -> list[float]:
        """The seconds between consecutive attempts."""
        return [later - earlier for earlier, later in zip(self.at, self.at[1:], strict=False)]


def retries() -> Retries:
    return Retries(VirtualClock(asyncio.get_running_loop()), Random(1))


def briefly(request: ScriptedRequest) -> str:
    async def scenario() -> str:
        return await retries().retry_briefly(request)

    return run(scenario())


def retry_until_answered(request: ScriptedRequest) -> str:
    async def scenario() -> str:
        return await retries().retry_until_answered("pod p", request)

    return run(scenario())


def test_a_write_is_attempted_four_times_with_growing_delays() -> None:
    request = ScriptedRequest(api_error(409), api_error(500), unreachable())
    assert briefly(request) == "answered"
    for delay, shortest in zip(request.delays, [0.010, 0.050, 0.250], strict=True):
        assert shortest <= delay <= 1.1 * shortest


def test_the_fourth_failure_is_final() -> None:
    request = ScriptedRequest(*[api_error(503)] * 3, api_error(500), api_error(409))
    with pytest.raises(APIError, match="rejected with 500"):
        briefly(request)
    assert len(request.at) == 4


@pytest.mark.parametrize("code", [400, 401, 403, 404, 410, 422])
def test_final_errors_are_not_retried(code: int) -> None:
    request = ScriptedRequest(api_error(code))
    with pytest.raises(APIError, match=f"rejected with {code}"):
        briefly(request)
    assert request.at == [0.0]


@pytest.mark.parametrize("code", [429, 503])
def test_retry_after_is_honoured(code: int) -> None:
    request = ScriptedRequest(api_error(code, retry_after=7.0))
    assert briefly(request) == "answered"
    assert request.at == [0.0, 7.0]


def test_too_many_requests_without_retry_after_is_retried_soon() -> None:
    request = ScriptedRequest(api_error(429))
    assert briefly(request) == "answered"
    assert 0.010 <= request.at[1] <= 0.011


def test_a_read_is_retried_until_the_server_answers() -> None:
    request = ScriptedRequest(*[unreachable(), api_error(500), api_error(429)] * 10)
    assert retry_until_answered(request) == "answered"
    assert len(request.at) == 31
    assert max(request.delays) <= 5.5


def test_a_read_that_is_forbidden_fails() -> None:
    request = ScriptedRequest(unreachable(), api_error(403))
    with pytest.raises(APIError, match="rejected with 403"):
        retry_until_answered(request)
