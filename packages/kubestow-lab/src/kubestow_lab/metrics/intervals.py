"""Means over seeds with confidence intervals, and the difference of two policies that ran with the same seeds.

Student's t interval assumes that the means are about normal, which those of simulations mostly are; the bootstrap
(bias-corrected and accelerated: Efron, "Better Bootstrap Confidence Intervals", JASA 1987) does not, but is too narrow
for less than about ten seeds. Both need SciPy (``kubestow-lab[experiment]``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from kubestow.errors import InputError

#: The resamples of the bootstrap, and the seed that they are drawn with.
_RESAMPLES, _SEED = 9_999, 0


class IntervalMethod(StrEnum):
    """How the bounds of an interval are found."""

    T = "t"
    BOOTSTRAP = "bootstrap"


@dataclass(frozen=True, slots=True)
class Estimate:
    """The mean of ``count`` values, and the confidence interval around it; NaN bounds for a single value."""

    mean: float
    low: float
    high: float
    count: int

    @property
    def half_width(self) -> float:
        """How far the bounds are from the mean, the greater of the two distances."""
        return max(self.mean - self.low, self.high - self.mean)

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval lies on one side of 0: the sign of a difference is certain at its level."""
        return self.low > 0 or self.high < 0

    def as_json(self) -> dict[str, Any]:
        """Plain data; None for bounds that do not exist."""
        bounds = {
            name: None if math.isnan(value) else value for name, value in (("low", self.low), ("high", self.high))
        }
        return {"mean": self.mean, **bounds, "count": self.count}


def estimate(
    values: Sequence[float], *, level: float = 0.95, method: IntervalMethod | str = IntervalMethod.T
) -> Estimate:
    """The mean of some values with its confidence interval. Raises InputError without SciPy, and without values."""
    if not values:
        raise InputError("interval", "there are no values")
    if not 0 < level < 1:
        raise InputError("interval", f"expected a level between 0 and 1, got {level:g}")
    sample = np.asarray(values, dtype=float)
    mean = float(sample.mean())
    if len(values) == 1:
        return Estimate(mean, math.nan, math.nan, 1)
    if np.ptp(sample) == 0:  # no spread: neither method is defined, and there is nothing to be unsure of
        return Estimate(float(sample[0]), float(sample[0]), float(sample[0]), len(values))
    try:
        from scipy import stats
    except ModuleNotFoundError:
        raise InputError("interval", "needs SciPy, install kubestow-lab[experiment]") from None
    if IntervalMethod(method) is IntervalMethod.T:
        half = float(stats.t.ppf((1 + level) / 2, len(values) - 1) * stats.sem(sample))
        return Estimate(mean, mean - half, mean + half, len(values))
    bounds = stats.bootstrap(
        (sample,), np.mean, confidence_level=level, n_resamples=_RESAMPLES, rng=np.random.default_rng(_SEED)
    ).confidence_interval
    return Estimate(mean, float(bounds.low), float(bounds.high), len(values))


def paired_difference(
    values: Sequence[float],
    baseline: Sequence[float],
    *,
    level: float = 0.95,
    method: IntervalMethod | str = IntervalMethod.T,
) -> Estimate:
    """The mean difference from the baseline, seed by seed: what both runs of a seed have in common cancels out.

    Raises InputError unless both have as many values, and as :func:`estimate`.
    """
    if len(values) != len(baseline):
        raise InputError("interval", f"expected pairs of values, got {len(values)} and {len(baseline)}")
    return estimate(
        [value - before for value, before in zip(values, baseline, strict=True)], level=level, method=method
    )
