"""Kubernetes resource quantities: ``100m``, ``1.5Gi``, ``2e3``.

Scheduling needs whole numbers only: CPU in millicores, everything else in whole units (bytes, counts), both rounded up
(reference section 7.5). Quantities repeat endlessly in a cluster, so parsed texts are remembered.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from kubestow.errors import InvalidQuantity

__all__ = ["Quantity", "millis", "parse", "units"]

#: What a manifest may carry where a quantity is expected: a string, or a bare JSON number.
Quantity = str | int | float

_SYNTAX = re.compile(r"([+-]?)(\d+\.?\d*|\.\d+)(?:([eE][+-]?\d+)|([numkMGTPE]|[KMGTPE]i)?)")
_SCALE = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}
_MAX = 2**63 - 1
_NANO = 10**9
#: Exponents past this only ever saturate; bounding them keeps a hostile "1e999999999" cheap.
_MAX_EXPONENT = 40


@lru_cache(maxsize=65536)
def parse(text: str) -> Fraction:
    """The exact value of a quantity, rounded up to nano units as Kubernetes does.

    Raises InvalidQuantity, naming the text, when it is not a quantity.
    """
    match = _SYNTAX.fullmatch(text)
    if match is None:
        raise InvalidQuantity(f'"{text}" is not a resource quantity (expected a number such as "2", "500m" or "1.5Gi")')
    sign, digits, exponent, suffix = match.groups()
    value = Fraction(digits)
    if exponent:
        value *= Fraction(10) ** max(-_MAX_EXPONENT, min(_MAX_EXPONENT, int(exponent[1:])))
    elif suffix:
        value *= _SCALE[suffix]
    nanos = -(-value.numerator * _NANO // value.denominator)
    return Fraction(-nanos if sign == "-" else nanos, _NANO)


@lru_cache(maxsize=65536)
def _scaled(text: str, factor: int) -> int:
    value = parse(text) * factor
    whole = -(-abs(value.numerator) // value.denominator)
    return max(-_MAX, min(_MAX, -whole if value < 0 else whole))


def _text(quantity: Quantity) -> str:
    return quantity if isinstance(quantity, str) else repr(quantity)


def millis(quantity: Quantity) -> int:
    """The quantity in thousandths, rounded away from zero: millicores for CPU. Raises InvalidQuantity."""
    return _scaled(_text(quantity), 1000)


def units(quantity: Quantity) -> int:
    """The quantity in whole units, rounded away from zero: bytes, or a count. Raises InvalidQuantity."""
    return _scaled(_text(quantity), 1)
