"""Validation errors of configuration fields, in the wording of apimachinery's ``field.Error``.

A :class:`FieldError` has the path of the field, the message, and its position in the text, if there is one. Functions
of this package return lists of them; :func:`configuration_error` combines a list into one
:class:`~kubestow.errors.ConfigurationError`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import structs

from kubestow.api.formats.duration import Duration
from kubestow.config.rendering import rendered
from kubestow.errors import ConfigurationError


class FieldError(msgspec.Struct, frozen=True):
    """An error at a field: its path (empty for the whole document), a message, and its position, if known.

    Line and column count from 1.
    """

    path: str
    message: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        """``path: message (line n)``, without the parts that are unknown."""
        text = f"{self.path}: {self.message}" if self.path else self.message
        return f"{text} (line {self.line})" if self.line else text


def configuration_error(subject: str, errors: Iterable[FieldError]) -> ConfigurationError:
    """The exception for field errors; ``subject`` names the configuration, for example its file."""
    return ConfigurationError(subject, [(error.path, str(structs.replace(error, path=""))) for error in errors])


def child(path: str, name: str) -> str:
    """The path of the field ``name`` below ``path``; an empty ``path`` is the document."""
    return f"{path}.{name}" if path else name


def invalid(path: str, value: Any, detail: str) -> FieldError:
    """A value that violates a rule (``field.Invalid``)."""
    return FieldError(path, f"Invalid value: {_quoted(value)}: {detail}")


def required(path: str, detail: str = "") -> FieldError:
    """A missing value (``field.Required``)."""
    return FieldError(path, f"Required value: {detail}" if detail else "Required value")


def duplicate(path: str, value: Any) -> FieldError:
    """A value that must be unique and is not (``field.Duplicate``)."""
    return FieldError(path, f"Duplicate value: {_quoted(value)}")


def unsupported(path: str, value: Any, supported: Iterable[str]) -> FieldError:
    """A value outside an enumeration (``field.NotSupported``)."""
    choices = ", ".join(_quoted(choice) for choice in supported)
    return FieldError(path, f"Unsupported value: {_quoted(value)}: supported values: {choices}")


def forbidden(path: str, detail: str) -> FieldError:
    """A field that must not be set here (``field.Forbidden``)."""
    return FieldError(path, f"Forbidden: {detail}")


def _quoted(value: Any) -> str:
    if isinstance(value, Duration):
        value = str(value)
    elif isinstance(value, (msgspec.Struct, list, tuple)):
        value = rendered(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
