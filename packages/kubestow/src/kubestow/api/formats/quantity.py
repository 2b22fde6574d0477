"""Kubernetes resource quantities: ``100m``, ``1.5Gi``, ``2e3``.

Scheduling computes with whole numbers only: CPU in millicores, everything else in whole units (bytes, counts), both
rounded up (semantics 7.5). The same quantities recur throughout a cluster, so parsed values are cached.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from math import ceil

from kubestow.errors import InvalidQuantity

#: The type of a quantity in a manifest: a string, or a bare JSON number.
Quantity = str | int | float

#: Nano units in one unit; a nano unit is the precision of a quantity.
NANOS = 10**9

_SYNTAX = re.compile(r"([+-]?)([0-9]+\.?[0-9]*|\.[0-9]+)(?:([eE][+-]?[0-9]+)|([numkMGTPE]|[KMGTPE]i)?)")
_SCALE = {
    suffix: Fraction(1000) ** power
    for power, suffix in enumerate(("n", "u", "m", "", "k", "M", "G", "T", "P", "E"), -3)
}
_SCALE |= {suffix: Fraction(1024) ** power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)}
_MAX = 2**63 - 1
#: Larger exponents always saturate; the bound keeps a malicious "1e999999999" cheap.
_MAX_EXPONENT = 40
#: Characters of the longest quantity; kube-apiserver stores none with more than 30.
_MAX_LENGTH = 256


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
    value = min(ceil(Fraction(digits) * scale * NANOS), _MAX * NANOS)
    return -value if sign == "-" else value


def nanos(quantity: Quantity) -> int:
    """The value in nano units, rounded away from zero and limited to 2^63 - 1 units as in Kubernetes.

    Raises InvalidQuantity.
    """
    text = quantity if isinstance(quantity, str) else repr(quantity)
    if len(text) > _MAX_LENGTH:  # to be neither parsed nor cached
        problem = f"{len(text)} characters are no resource quantity, at most {_MAX_LENGTH} are allowed"
        raise InvalidQuantity(f'"{text[:20]}…" of {problem}')
    return _parse(text)


def parse(quantity: Quantity) -> Fraction:
    """The value with a precision of one nano unit, rounded away from zero. Raises InvalidQuantity."""
    return Fraction(nanos(quantity), NANOS)


def whole(nano: int, step: int) -> int:
    """An amount in nano units as a number of steps, rounded away from zero and limited to 64 bits."""
    return max(-_MAX, min(_MAX, -(-nano // step) if nano >= 0 else nano // step))


def millis(quantity: Quantity) -> int:
    """The value in thousandths (millicores for CPU), rounded away from zero. Raises InvalidQuantity."""
    return whole(nanos(quantity), NANOS // 1000)


def units(quantity: Quantity) -> int:
    """The value in whole units (bytes, counts), rounded away from zero. Raises InvalidQuantity."""
    return whole(nanos(quantity), NANOS)
