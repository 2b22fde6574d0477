"""Confidence intervals: textbook values, coverage, and the cases in which there is none."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kubestow.errors import InputError
from kubestow_lab.metrics.intervals import IntervalMethod, estimate, paired_difference


def test_the_t_interval_of_a_textbook() -> None:
    found = estimate([4.0, 5.0, 6.0])  # standard error 1/sqrt(3), quantile of t with 2 degrees of freedom 4.303
    assert (found.mean, found.count) == (5.0, 3)
    assert found.half_width == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)
    assert found.low == pytest.approx(5 - found.half_width)


def test_the_bootstrap_gives_the_same_bounds_each_time() -> None:
    values = [1.0, 2.0, 4.0, 8.0, 16.0, 3.0]
    found = estimate(values, method="bootstrap")
    assert found == estimate(values, method=IntervalMethod.BOOTSTRAP)
    assert min(values) < found.low < found.mean < found.high < max(values)


def test_a_t_interval_covers_the_mean_as_often_as_it_says() -> None:
    random = np.random.default_rng(7)
    covered = 0
    for _ in range(400):
        found = estimate(random.normal(3.0, 1.0, 5).tolist(), level=0.9)
        covered += found.low <= 3.0 <= found.high
    assert 0.86 < covered / 400 < 0.94


def test_one_value_has_no_interval_and_equal_ones_a_point() -> None:
    assert estimate([2.0]).as_json() == {"mean": 2.0, "low": None, "high": None, "count": 1}
    assert not estimate([2.0]).excludes_zero
    assert estimate([0.1, 0.1, 0.1]).as_json() == {"mean": 0.1, "low": 0.1, "high": 0.1, "count": 3}


def test_pairs_cancel_what_seeds_have_in_common() -> None:
    found = paired_difference([11.0, 21.0, 31.5], [10.0, 20.0, 30.0])
    assert found.mean == pytest.approx(3.5 / 3)
    assert found.excludes_zero
    with pytest.raises(InputError, match="expected pairs of values, got 1 and 2"):
        paired_difference([1.0], [1.0, 2.0])


@pytest.mark.parametrize(("values", "level", "message"), [([], 0.95, "no values"), ([1.0], 1.0, "between 0 and 1")])
def test_bad_input_is_an_error(values: list[float], level: float, message: str) -> None:
    with pytest.raises(InputError, match=message):
        estimate(values, level=level)
