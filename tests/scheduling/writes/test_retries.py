"""Delays that grow, random shares of them, and what is tried again after them."""

from __future__ import annotations

import asyncio
from itertools import islice
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubestow.errors import APIError, KubestowError
from kubestow.scheduling.writes.retries import Backoff, Retries, jittered
from kubestow.testing.virtual_time import VirtualClock, run
from tests.scheduling.harness import busy, silence


def test_delays_grow_by_their_factor_up_to_the_limit() -> None:
    backoff = Backoff(initial=0.5, factor=3, jitter=0, limit=10)
    assert list(islice(backoff.delays(Random(1)), 5)) == [0.5, 1.5, 4.5, 10, 10]


@given(st.floats(0, 1e6), st.floats(0, 2), st.integers())
def test_jitter_only_lengthens_and_by_no_more_than_its_share(seconds: float, jitter: float, seed: int) -> None:
    assert seconds <= jittered(seconds, jitter, Random(seed)) <= seconds * (1 + jitter) * 1.000001


class Asked:
    """A request that fails as often as it is told to; ``at`` are the seconds at which it was made."""

    def __init__(self, *failures: KubestowError) -> None:
        self._failures = list(failures)
        self.at: list[float] = []

    async def __call__(self) -> str:
        self.at.append(asyncio.get_running_loop().time())
        if self._failures:
            raise self._failures.pop(0)
        return "answered"

    @property
    def pauses(self) -> list[float]:
        """The seconds between two tries."""
        return [later - earlier for earlier, later in zip(self.at, self.at[1:], strict=False)]


def retries() -> Retries:
    return Retries(VirtualClock(asyncio.get_running_loop()), Random(1))


def briefly(asked: Asked) -> str:
    async def told() -> str:
        return await retries().briefly(asked)

    return run(told())


def retry_until_answered(asked: Asked) -> str:
    async def told() -> str:
        return await retries().retry_until_answered("pod p", asked)

    return run(told())


def test_a_request_is_made_briefly_four_times_with_growing_pauses() -> None:
    asked = Asked(busy(409), busy(500), silence())
    assert briefly(asked) == "answered"
    for pause, least in zip(asked.pauses, [0.010, 0.050, 0.250], strict=True):
        assert least <= pause <= 1.1 * least


def test_the_fourth_failure_is_final() -> None:
    asked = Asked(*[busy(503)] * 3, busy(500), busy(409))
    with pytest.raises(APIError, match="refused with 500"):
        briefly(asked)
    assert len(asked.at) == 4


@pytest.mark.parametrize("code", [400, 401, 403, 404, 410, 422])
def test_what_would_be_refused_again_is_not_tried_again(code: int) -> None:
    asked = Asked(busy(code))
    with pytest.raises(APIError, match=f"refused with {code}"):
        briefly(asked)
    assert asked.at == [0.0]


@pytest.mark.parametrize("code", [429, 503])
def test_a_server_that_says_when_to_come_back_is_not_asked_before(code: int) -> None:
    asked = Asked(busy(code, retry_after=7.0))
    assert briefly(asked) == "answered"
    assert asked.at == [0.0, 7.0]


def test_a_server_that_is_busy_without_saying_for_how_long_is_asked_again_soon() -> None:
    asked = Asked(busy(429))
    assert briefly(asked) == "answered"
    assert 0.010 <= asked.at[1] <= 0.011


def test_what_has_to_be_known_is_asked_until_there_is_an_answer() -> None:
    asked = Asked(*[silence(), busy(500), busy(429)] * 10)
    assert retry_until_answered(asked) == "answered"
    assert len(asked.at) == 31
    assert max(asked.pauses) <= 5.5


def test_a_question_that_is_refused_has_no_answer() -> None:
    asked = Asked(silence(), busy(403))
    with pytest.raises(APIError, match="refused with 403"):
        retry_until_answered(asked)
