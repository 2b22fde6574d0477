"""Field errors: the causes of a 422 Invalid Status, with kube-apiserver's own texts.

One function per reason, named after it. Wire recordings of kube-apiserver hold the texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec


@dataclass(frozen=True, slots=True)
class FieldError:
    """One invalid field: ``reason`` such as FieldValueInvalid, ``message`` without the path, ``field`` the path."""

    reason: str
    message: str
    field: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


def invalid_value(field: str, value: object, problem: str) -> FieldError:
    return FieldError("FieldValueInvalid", f"Invalid value: {_json(value)}: {problem}", field)


def invalid_without_value(field: str, problem: str) -> FieldError:
    """As :func:`invalid_value`, for a value that is too large to show."""
    return FieldError("FieldValueInvalid", f"Invalid value: {problem}", field)


def invalid_type(field: str, value: object, problem: str) -> FieldError:
    return FieldError("FieldValueTypeInvalid", f"Invalid value: {_json(value)}: {problem}", field)


def invalid_values(field: str, value: object, problems: Sequence[str]) -> list[FieldError]:
    """One error for each problem of the same value."""
    return [invalid_value(field, value, problem) for problem in problems]


def required_value(field: str, problem: str = "") -> FieldError:
    return FieldError("FieldValueRequired", f"Required value: {problem}" if problem else "Required value", field)


def forbidden_value(field: str, problem: str) -> FieldError:
    return FieldError("FieldValueForbidden", f"Forbidden: {problem}", field)


def unsupported_value(field: str, value: object, supported: Sequence[str]) -> FieldError:
    choices = ", ".join(f'"{choice}"' for choice in supported)
    message = f"Unsupported value: {_json(value)}: supported values: {choices}"
    return FieldError("FieldValueNotSupported", message, field)


def duplicate_value(field: str, value: object) -> FieldError:
    return FieldError("FieldValueDuplicate", f"Duplicate value: {_json(value)}", field)


def too_long(field: str, limit: int) -> FieldError:
    return FieldError("FieldValueTooLong", f"Too long: may not be more than {limit} bytes", field)


def too_many(field: str, count: int, limit: int) -> FieldError:
    return FieldError("FieldValueTooMany", f"Too many: {count}: must have at most {limit} items", field)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
