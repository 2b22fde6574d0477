"""The beta distribution."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubestow_contrib.trimaran.beta_distribution import cumulative, incomplete_beta, match_moments


def binomial_sum(alpha: int, beta: int, x: float) -> float:
    """The function for whole parameters: the probability of at least ``alpha`` successes."""
    n = alpha + beta - 1
    return sum(math.comb(n, k) * x**k * (1 - x) ** (n - k) for k in range(alpha, n + 1))


@given(st.integers(1, 40), st.integers(1, 40), st.floats(0, 1))
def test_it_equals_a_sum_of_binomials_for_whole_parameters(alpha: int, beta: int, x: float) -> None:
    assert incomplete_beta(alpha, beta, x) == pytest.approx(binomial_sum(alpha, beta, x), abs=1e-10)


@pytest.mark.parametrize(
    ("alpha", "beta", "x", "expected"),
    [(2, 2, 0.5, 0.5), (2, 2, 0, 0), (2, 2, 1, 1), (1, 1, 0.3, 0.3), (0.5, 1, 0.49, 0.7), (5000, 5000, 0.5, 0.5)],
)
def test_known_values(alpha: float, beta: float, x: float, expected: float) -> None:
    assert incomplete_beta(alpha, beta, x) == pytest.approx(expected, abs=1e-9)


def test_without_positive_parameters_it_is_not_defined() -> None:
    assert math.isnan(incomplete_beta(-1, 1, 0.5))


moments = st.tuples(st.floats(0, 1), st.floats(0, 0.6), st.floats(-0.1, 1.1))


@given(st.lists(moments, min_size=2, max_size=20))
def test_arrays_have_the_values_of_their_entries(entries: list[tuple[float, float, float]]) -> None:
    mean, deviation, threshold = (np.array(column) for column in zip(*entries, strict=True))
    together = cumulative(match_moments(mean, deviation), threshold)
    alone = [
        cumulative(match_moments(mean[i : i + 1], deviation[i : i + 1]), threshold[i : i + 1])[0]
        for i in range(len(entries))
    ]
    np.testing.assert_allclose(together, alone, atol=1e-9)


def test_moments_of_the_uniform_distribution() -> None:
    parameters = match_moments(np.array([0.5]), np.array([math.sqrt(1 / 12)]))
    assert (parameters.alpha[0], parameters.beta[0]) == pytest.approx((1, 1))


def test_load_without_deviation_is_constant() -> None:
    assert np.isnan(match_moments(np.array([0.5]), np.array([1e-4])).log_beta[0])


def test_no_distribution_has_a_deviation_above_the_maximum() -> None:
    assert np.isnan(match_moments(np.array([0.5, 0, 1]), np.array([0.5, 0, 0])).log_beta).all()
