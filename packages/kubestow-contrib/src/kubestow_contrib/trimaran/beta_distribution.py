"""The beta distribution: how probable it is that a load, of which mean and deviation are known, is below a threshold.

The regularized incomplete beta function is evaluated by its continued fraction with Lentz's method (Numerical Recipes,
6.4), for one value and for arrays. NumPy does not have it, and SciPy would be a large dependency for a single function.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: A smaller deviation counts as none. The fraction converges in about the square root of the larger parameter, which
#: grows with the inverse square of the deviation.
LEAST_DEVIATION = 1e-3
_MOST_ITERATIONS = 2000
_PRECISION = 1e-10
_TINY = 1e-300


class BetaParameters(NamedTuple):
    """Parameters of beta distributions, float64, NaN where there is none, and the logarithm of the beta function."""

    alpha: Floats
    beta: Floats
    log_beta: Floats

    def at(self, rows: slice | NDArray[np.intp]) -> BetaParameters:
        """Those of some entries."""
        return BetaParameters(self.alpha[rows], self.beta[rows], self.log_beta[rows])


def match_moments(mean: Floats, deviation: Floats) -> BetaParameters:
    """The distributions on [0, 1] with these means and deviations.

    NaN where there is none, and for deviations below ``LEAST_DEVIATION``.
    """
    variance, limit = deviation * deviation, mean * (1 - mean)
    valid = (mean > 0) & (mean < 1) & (deviation >= LEAST_DEVIATION) & (variance < limit)
    size = np.full(len(mean), math.nan)
    np.divide(limit, variance, out=size, where=valid)
    size -= 1
    alpha, beta = mean * size, (1 - mean) * size
    log_beta = np.fromiter(map(_log_beta, alpha.tolist(), beta.tolist()), np.float64, len(mean))
    return BetaParameters(alpha, beta, log_beta)


def _log_beta(alpha: float, beta: float) -> float:
    if not (alpha > 0 and beta > 0):
        return math.nan
    return math.lgamma(alpha) + math.lgamma(beta) - math.lgamma(alpha + beta)


def cumulative(parameters: BetaParameters, threshold: Floats) -> Floats:
    """The probability that a value is at most ``threshold`` (0 to 1), float64; NaN where there is no distribution."""
    found = np.full(len(threshold), math.nan)
    inside = (threshold > 0) & (threshold < 1) & ~np.isnan(parameters.log_beta)
    rows = np.flatnonzero(inside)
    edges = ~np.isnan(parameters.log_beta) & ~inside
    found[edges] = (threshold[edges] >= 1).astype(np.float64)
    found[rows] = _incomplete_betas(parameters.at(rows), threshold[rows])
    return found


def incomplete_beta(alpha: float, beta: float, x: float) -> float:
    """The regularized incomplete beta function; NaN unless both parameters are positive."""
    return cumulative_of_one(alpha, beta, _log_beta(alpha, beta), x)


def cumulative_of_one(alpha: float, beta: float, log_beta: float, x: float) -> float:
    """As :func:`cumulative`, for one distribution by its parameters."""
    if math.isnan(log_beta) or not 0 < x < 1:
        return math.nan if math.isnan(log_beta) else float(x >= 1)
    front = math.exp(alpha * math.log(x) + beta * math.log1p(-x) - log_beta)
    if x < (alpha + 1) / (alpha + beta + 2):
        return front * _continued_fraction(alpha, beta, x) / alpha
    return 1 - front * _continued_fraction(beta, alpha, 1 - x) / beta


def _continued_fraction(alpha: float, beta: float, x: float) -> float:
    total = alpha + beta
    d = 1 / (1 - total * x / (alpha + 1))
    c, result = 1.0, d
    for m in range(1, _MOST_ITERATIONS):
        double = alpha + 2 * m
        term = m * (beta - m) * x / ((double - 1) * double)
        d = 1 / (1 + term * d or _TINY)
        c = 1 + term / c or _TINY
        result *= d * c
        term = -(alpha + m) * (total + m) * x / (double * (double + 1))
        d = 1 / (1 + term * d or _TINY)
        c = 1 + term / c or _TINY
        step = d * c
        result *= step
        if abs(step - 1) < _PRECISION:
            break
    return result


def _incomplete_betas(parameters: BetaParameters, x: Floats) -> Floats:
    alpha, beta, log_beta = parameters
    front = np.exp(alpha * np.log(x) + beta * np.log1p(-x) - log_beta)
    direct = x < (alpha + 1) / (alpha + beta + 2)
    first, second = np.where(direct, alpha, beta), np.where(direct, beta, alpha)
    tail = front * _continued_fractions(first, second, np.where(direct, x, 1 - x)) / first
    return np.where(direct, tail, 1 - tail)


def _continued_fractions(alpha: Floats, beta: Floats, x: Floats) -> Floats:
    total = alpha + beta
    d = 1 / (1 - total * x / (alpha + 1))
    c, result = np.ones(len(x)), d.copy()
    for m in range(1, _MOST_ITERATIONS):
        double = alpha + 2 * m
        term = m * (beta - m) * x / ((double - 1) * double)
        d, c = 1 / _nonzero(1 + term * d), _nonzero(1 + term / c)
        result *= d * c
        term = -(alpha + m) * (total + m) * x / (double * (double + 1))
        d, c = 1 / _nonzero(1 + term * d), _nonzero(1 + term / c)
        step = d * c
        result *= step
        if not (np.abs(step - 1) >= _PRECISION).any():
            break
    return result


def _nonzero(values: Floats) -> Floats:
    return np.where(values == 0, _TINY, values)
