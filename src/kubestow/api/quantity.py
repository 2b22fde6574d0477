"""Kubernetes resource quantities: ``100m``, ``1.5Gi``, ``2e3``.

Scheduling needs whole numbers only: CPU in millicores, everything else in whole units (bytes, counts), both rounded up
(semantics 7.5). Quantities repeat endlessly in a cluster, so parsed texts are remembered.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from kubestow.errors import InvalidQuantity

__all__ = ["NANOS", "Quantity", "millis", "nanos", "parse", "round_up", "units"]

#: What a manifest may carry where a quantity is expected: a string, or a bare JSON number.
Quantity = str | int | float

#: Nano units in one unit: the finest step a quantity can express.
NANOS = 10**9

_SYNTAX = re.compile(r"([+-]?)([0-9]+\.?[0-9]*|\.[0-9]+)(?:([eE][+-]?[0-9]+)|([numkMGTPE]|[KMGTPE]i)?)")
_SCALE = {
    suffix: Fraction(1000) ** power
    for power, suffix in enumerate(("n", "u", "m", "", "k", "M", "G", "T", "P", "E"), -3)
}
_SCALE |= {suffix: Fraction(1024) ** power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)}
_MAX = 2**63 - 1
#: Exponents past this only ever saturate; bounding them keeps a hostile "1e999999999" cheap.
_MAX_EXPONENT = 40


@lru_cache(maxsize=65536)
def _parse(text: str) -> int:
    match = _SYNTAX.fullmatch(text)
    if match is None:
        raise InvalidQuantity(f'"{text}" is not a resource quantity (expected a number such as "2", "500m" or "1.5Gi")')
    sign, digits, exponent, suffix = match.groups()
    if exponent:
        scale = Fraction(10) ** max(-_MAX_EXPONENT, min(_MAX_EXPONENT, int(exponent[1:])))
    else:
        scale = _SCALE[suffix or ""]
    value = round_up(Fraction(digits) * scale * NANOS)
    return -value if sign == "-" else value


def round_up(value: Fraction | int) -> int:
    """The nearest whole number away from zero."""
    return -(-value.numerator // value.denominator) if value >= 0 else value.numerator // value.denominator


def nanos(quantity: Quantity) -> int:
    """The exact value in nano units, finer fractions rounded up as Kubernetes does. Raises InvalidQuantity."""
    return _parse(quantity if isinstance(quantity, str) else repr(quantity))


def parse(quantity: Quantity) -> Fraction:
    """The exact value, finer fractions than nano rounded up. Raises InvalidQuantity."""
    return Fraction(nanos(quantity), NANOS)


def _whole(nano: int, step: int) -> int:
    return max(-_MAX, min(_MAX, round_up(Fraction(nano, step))))


def millis(quantity: Quantity) -> int:
    """The quantity in thousandths, rounded away from zero: millicores for CPU. Raises InvalidQuantity."""
    return _whole(nanos(quantity), NANOS // 1000)


def units(quantity: Quantity) -> int:
    """The quantity in whole units, rounded away from zero: bytes, or a count. Raises InvalidQuantity."""
    return _whole(nanos(quantity), NANOS)
