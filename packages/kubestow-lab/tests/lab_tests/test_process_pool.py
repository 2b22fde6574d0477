"""Calls in forks share what was made for them, and see nothing of each other."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool

import pytest

from kubestow_lab.process_pool import ForkingPool


def made(*numbers: int) -> list[int]:
    return list(numbers)


def appended(numbers: list[int], number: int) -> tuple[int, Sequence[int]]:
    numbers.append(number)
    return os.getpid(), numbers


def ended(numbers: list[int]) -> None:
    os._exit(len(numbers))


def failed(numbers: list[int], reason: str) -> None:
    raise ValueError(reason)


def refused(reason: str) -> None:
    raise ValueError(reason)


def test_each_call_has_what_was_made_as_it_was() -> None:
    with ForkingPool(2, made, 1, 2, preload=__name__) as pool:
        results = list(pool.map(appended, range(5)))
    assert [numbers for _, numbers in results] == [[1, 2, number] for number in range(5)]
    assert len({process for process, _ in results} | {os.getpid()}) == 6


def test_a_failure_ends_its_call_alone() -> None:
    with ForkingPool(1, made, 1, preload=__name__) as pool:
        with pytest.raises(RuntimeError, match="ValueError: for a reason"):
            pool.submit(failed, reason="for a reason").result()
        with pytest.raises(BrokenProcessPool, match="ended in the middle"):
            pool.submit(ended).result()
        assert pool.submit(appended, 2).result()[1] == [1, 2]


def test_calls_fail_with_what_the_common_part_has_failed_with() -> None:
    with ForkingPool(2, refused, "no cluster", preload=__name__) as pool:
        calls = [pool.submit(appended, number) for number in range(2)]
        for call in calls:
            with pytest.raises(BrokenProcessPool, match="no cluster"):
                call.result()
