"""Whole numbers in 64 bits: those that wrap around as in Go, and those that saturate."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_LIMIT = 2**63

#: The largest number.
MOST = _LIMIT - 1

#: Sums and percentages of a few amounts from 0 to this one are exact in 64 bits: 9 PB, or so many millicores.
ORDINARY = 2**53

#: In place of larger amounts, where only whether one exceeds an ordinary amount counts; sums of a few are exact, too.
BEYOND_ORDINARY = ORDINARY + 1


def as_int64(number: int) -> int:
    """The number itself, or what it wraps around to beyond 2**63."""
    if -_LIMIT <= number < _LIMIT:
        return number
    return (number + _LIMIT) % (2 * _LIMIT) - _LIMIT


def saturated(number: int) -> int:
    """The number itself, or the nearest of -(2**63 - 1) and 2**63 - 1."""
    return max(-MOST, min(number, MOST))


#: Up to this many numbers are added faster one by one than by array operations that look for an overflow first.
_FEW = 256


def exact_sum(amounts: NDArray[np.int64]) -> int:
    """The sum of int64 amounts, which may need more than 64 bits."""
    if len(amounts) <= _FEW:
        return sum(amounts.tolist())
    largest = max(int(amounts.max()), -int(amounts.min()))
    return int(amounts.sum()) if largest * len(amounts) <= MOST else sum(amounts.tolist())
