"""The canonical text of a quantity: what the API server answers when a client writes ``0.1``, ``1000m`` or ``1024Ki``.

Canonical means no fraction and the largest suffix that allows it, in the notation (decimal, binary, exponent) the
client chose; binary falls back to decimal where the value is no whole number of bytes or less than 1024.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

from kubestow.api import quantity
from kubestow.errors import InvalidQuantity

__all__ = ["SYNTAX_PROBLEM", "canonical"]

#: The API server's own words for a text that is no quantity.
SYNTAX_PROBLEM = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"

_DECIMAL = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"]
_BINARY = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]


@lru_cache(maxsize=65536)
def canonical(text: str) -> str:
    """Raises InvalidQuantity with the API server's wording."""
    try:
        value = quantity.parse(text)
    except InvalidQuantity:
        raise InvalidQuantity(SYNTAX_PROBLEM) from None
    if value == 0:
        return "0"
    if text.endswith("i") and value.denominator == 1 and abs(value) >= 1024:
        return _scaled(value, _BINARY, 1024, 0)
    if "e" in text or ("E" in text and not text.endswith("E")):
        return _exponent(value)
    return _scaled(value, _DECIMAL, 1000, -3)


def _scaled(value: Fraction, suffixes: list[str], base: int, lowest: int) -> str:
    mantissa = value / Fraction(base) ** lowest
    step = 0
    while step + 1 < len(suffixes) and mantissa.numerator % base == 0:
        mantissa /= base
        step += 1
    return f"{mantissa.numerator}{suffixes[step]}"


def _exponent(value: Fraction) -> str:
    """Exponents are multiples of three, as suffixes are."""
    mantissa, exponent = value * 10**9, -9
    while mantissa.numerator % 1000 == 0:
        mantissa /= 1000
        exponent += 3
    return f"{mantissa.numerator}e{exponent}" if exponent else f"{mantissa.numerator}"
