"""Whole numbers in 64 bits, as in Go."""

from __future__ import annotations

_LIMIT = 2**63


def as_int64(number: int) -> int:
    """The number itself, or what it wraps around to beyond 2**63."""
    if -_LIMIT <= number < _LIMIT:
        return number
    return (number + _LIMIT) % (2 * _LIMIT) - _LIMIT
