"""Amounts that are either a number or a percentage of something: ``maxUnavailable: 1``, ``minAvailable: 50%``.

What may be written there, in the API server's words, and what it comes to in a given case.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from kubestow.devcluster.apiserver.field_errors import Cause, invalid_value

__all__ = ["comes_to_nothing", "scaled", "validate"]

# More digits than these are no amount of anything.
_PERCENTAGE = re.compile(r"[0-9]{1,9}%")
_NO_PERCENTAGE = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%',"
    " regex used for validation is '[0-9]+%')"
)


def scaled(amount: int | str, whole: int, *, up: bool) -> int:
    """The amount in pieces of ``whole``; a share that is no whole number is rounded ``up`` or down."""
    if isinstance(amount, int):
        return amount
    share = int(amount.rstrip("%")) * whole
    return -(-share // 100) if up else share // 100


def comes_to_nothing(amount: int | str | None) -> bool:
    """Whether it is absent, 0 or 0%."""
    return amount is None or scaled(amount, 100, up=True) == 0


def validate(
    within: Mapping[str, Any], fields: Sequence[str], path: str, *, at_most_whole: Sequence[str] = ()
) -> list[Cause]:
    """What is wrong with the amounts in these fields of an object at ``path``.

    A percentage in a field of ``at_most_whole`` may not be more than 100%.
    """
    causes: list[Cause] = []
    for field in fields:
        if (amount := within.get(field)) is None:
            continue
        here = f"{path}.{field}"
        if isinstance(amount, bool) or not isinstance(amount, (int, str)):
            causes.append(invalid_value(here, amount, "must be an integer or percentage (e.g '5%')"))
        elif isinstance(amount, int):
            if amount < 0:
                causes.append(invalid_value(here, amount, "must be greater than or equal to 0"))
        elif not isinstance(amount, str) or not _PERCENTAGE.fullmatch(amount):
            causes.append(invalid_value(here, amount, _NO_PERCENTAGE))
        elif field in at_most_whole and int(amount[:-1]) > 100:
            causes.append(invalid_value(here, amount, "must not be greater than 100%"))
    return causes
