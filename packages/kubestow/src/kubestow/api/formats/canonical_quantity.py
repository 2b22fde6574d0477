"""The canonical form of a quantity, which kube-apiserver returns for ``0.1``, ``1000m`` or ``1024Ki``.

The canonical form has no fraction and the largest possible suffix, in the notation (decimal, binary, exponent) that the
client used. Binary notation becomes decimal when the value is not a whole number or is less than 1024.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache

from kubestow.api.formats import quantity
from kubestow.errors import InvalidQuantity

#: kube-apiserver's message for a string that is not a quantity.
SYNTAX_PROBLEM = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"

_DECIMAL = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"]
_BINARY = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]


@lru_cache(maxsize=65536)
def canonical(text: str) -> str:
    """The canonical form of ``text``. Raises InvalidQuantity with kube-apiserver's message."""
    try:
        value = quantity.parse(text)
    except InvalidQuantity:
        raise InvalidQuantity(SYNTAX_PROBLEM) from None
    return _formatted(value, like=text)


def total(quantities: Iterable[quantity.Quantity]) -> str:
    """The sum of valid quantities, in the notation of the first that is not zero."""
    nonzero = [text for text in quantities if quantity.nanos(text)]
    return _formatted(sum(map(quantity.parse, nonzero), Fraction()), like=str(nonzero[0]) if nonzero else "")


def _formatted(value: Fraction, *, like: str) -> str:
    """The canonical form of a value in the notation of ``like``."""
    if value == 0:
        return "0"
    if like.endswith("i") and value.denominator == 1 and abs(value) >= 1024:
        return _with_suffix(value, _BINARY, 1024, 0)
    if "e" in like or ("E" in like and not like.endswith("E")):
        mantissa, exponent = value * 10**9, -9
        while mantissa.numerator % 1000 == 0:  # exponents are multiples of three, like suffixes
            mantissa /= 1000
            exponent += 3
        return f"{mantissa.numerator}e{exponent}" if exponent else f"{mantissa.numerator}"
    return _with_suffix(value, _DECIMAL, 1000, -3)


def _with_suffix(value: Fraction, suffixes: list[str], base: int, lowest: int) -> str:
    mantissa = value / Fraction(base) ** lowest
    step = 0
    while step + 1 < len(suffixes) and mantissa.numerator % base == 0:
        mantissa /= base
        step += 1
    return f"{mantissa.numerator}{suffixes[step]}"
