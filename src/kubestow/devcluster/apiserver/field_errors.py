"""What is wrong with a field, as the API server words it: the causes of a Status that says 422 Invalid.

One function per reason, named like the reason. The texts are kube-apiserver's own, as in
:mod:`kubestow.devcluster.apiserver.statuses`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

__all__ = ["Cause"]


@dataclass(frozen=True, slots=True)
class Cause:
    """One field error: ``reason`` such as FieldValueInvalid, ``message`` without the field, ``field`` its path."""

    reason: str
    message: str
    field: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


def invalid_value(field: str, value: object, problem: str) -> Cause:
    return Cause("FieldValueInvalid", f"Invalid value: {_shown(value)}: {problem}", field)


def invalid_values(field: str, value: object, faults: Sequence[str]) -> list[Cause]:
    """A cause for each fault of one value."""
    return [invalid_value(field, value, fault) for fault in faults]


def required_value(field: str, problem: str = "") -> Cause:
    return Cause("FieldValueRequired", f"Required value: {problem}" if problem else "Required value", field)


def forbidden_value(field: str, problem: str) -> Cause:
    return Cause("FieldValueForbidden", f"Forbidden: {problem}", field)


def unsupported_value(field: str, value: object, supported: Sequence[str]) -> Cause:
    choices = ", ".join(f'"{choice}"' for choice in supported)
    return Cause("FieldValueNotSupported", f"Unsupported value: {_shown(value)}: supported values: {choices}", field)


def duplicate_value(field: str, value: object) -> Cause:
    return Cause("FieldValueDuplicate", f"Duplicate value: {_shown(value)}", field)


def too_long(field: str, limit: int) -> Cause:
    return Cause("FieldValueTooLong", f"Too long: may not be more than {limit} bytes", field)


def too_many(field: str, count: int, limit: int) -> Cause:
    return Cause("FieldValueTooMany", f"Too many: {count}: must have at most {limit} items", field)


def _shown(value: object) -> str:
    return msgspec.json.encode(value).decode()
