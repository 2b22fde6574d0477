"""Whole numbers in 64 bits."""

from __future__ import annotations

import numpy as np
import pytest

from kubestow.api.formats.int64 import MOST, as_int64, exact_sum, saturated


@pytest.mark.parametrize(
    ("number", "wrapped", "nearest"),
    [
        (0, 0, 0),
        (MOST, MOST, MOST),
        (-MOST, -MOST, -MOST),
        (MOST + 1, -MOST - 1, MOST),
        (-MOST - 1, -MOST - 1, -MOST),
        (-MOST - 2, MOST, -MOST),
        (3 * 2**63 + 5, -MOST - 1 + 5, MOST),
    ],
)
def test_numbers_beyond_64_bits_wrap_around_or_saturate(number: int, wrapped: int, nearest: int) -> None:
    assert (as_int64(number), saturated(number)) == (wrapped, nearest)


@pytest.mark.parametrize("count", [1, 256, 257, 1000])
@pytest.mark.parametrize("amounts", [[1], [2**40, -3], [MOST], [-MOST], [-MOST, 1], [MOST, -1], [2**62, 1]])
def test_a_sum_is_exact_beyond_64_bits(amounts: list[int], count: int) -> None:
    numbers = (amounts * count)[:count]
    assert exact_sum(np.array(numbers, dtype=np.int64)) == sum(numbers)


def test_the_sum_of_nothing_is_zero() -> None:
    assert exact_sum(np.zeros(0, dtype=np.int64)) == 0
