"""The normalizations that several plugins of scheduler-plugins use: the range of the scores becomes 0 to 100."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kubestow.framework.interface import MAX_SCORE


def normalized_range(scores: NDArray[np.int64]) -> NDArray[np.int64]:
    """0 for the lowest score, 100 for the highest, rounded down between them; all 0 if they are equal."""
    if not len(scores):
        return scores
    lowest, highest = int(scores.min()), int(scores.max())
    if lowest == highest:
        return np.zeros_like(scores)
    return (scores - lowest) * MAX_SCORE // (highest - lowest)


def inverted_range(costs: NDArray[np.int64]) -> NDArray[np.int64]:
    """100 for the lowest cost, 0 for the highest; all 0 if nothing costs anything, all 100 if the costs are equal."""
    if not costs.any():
        return costs
    lowest, highest = float(costs.min()), float(costs.max())
    if lowest == highest:
        return np.full_like(costs, MAX_SCORE)
    return MAX_SCORE - (MAX_SCORE * (costs - lowest) / (highest - lowest)).astype(np.int64)
