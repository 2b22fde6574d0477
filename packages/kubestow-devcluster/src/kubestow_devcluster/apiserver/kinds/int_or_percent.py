"""IntOrString fields that are an integer or a percentage: ``maxUnavailable: 1``, ``minAvailable: 50%``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from kubestow_devcluster.apiserver.field_errors import FieldError, invalid_value

# At most nine digits, so that a percentage fits an int32.
_PERCENTAGE = re.compile(r"[0-9]{1,9}%")
_INVALID_PERCENTAGE = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%',"
    " regex used for validation is '[0-9]+%')"
)


def scaled_value(value: int | str, total: int, *, round_up: bool) -> int:
    """``value`` itself if it is an integer, else that percentage of ``total``."""
    if isinstance(value, int):
        return value
    share = int(value.rstrip("%")) * total
    return -(-share // 100) if round_up else share // 100


def is_zero(value: int | str | None) -> bool:
    """Whether the value is missing, 0 or 0%."""
    return value is None or scaled_value(value, 100, round_up=True) == 0


def validate_int_or_percent(
    obj: Mapping[str, Any], fields: Sequence[str], path: str, *, at_most_100_percent: Sequence[str] = ()
) -> list[FieldError]:
    """Validate these fields of the object at ``path``; those in ``at_most_100_percent`` cannot exceed 100%."""
    errors: list[FieldError] = []
    for field in fields:
        if (value := obj.get(field)) is None:
            continue
        field_path = f"{path}.{field}"
        if isinstance(value, bool) or not isinstance(value, (int, str)):
            errors.append(invalid_value(field_path, value, "must be an integer or percentage (e.g '5%')"))
        elif isinstance(value, int):
            if value < 0:
                errors.append(invalid_value(field_path, value, "must be greater than or equal to 0"))
        elif not isinstance(value, str) or not _PERCENTAGE.fullmatch(value):
            errors.append(invalid_value(field_path, value, _INVALID_PERCENTAGE))
        elif field in at_most_100_percent and int(value[:-1]) > 100:
            errors.append(invalid_value(field_path, value, "must not be greater than 100%"))
    return errors
