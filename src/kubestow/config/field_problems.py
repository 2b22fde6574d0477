"""One mistake in a configuration, and the words for the usual ones.

A :class:`Problem` names the field by its path, says what is wrong with it in the words of Kubernetes' field errors, and
knows its line where the configuration was YAML. Problems are collected in lists; whoever was asked for a configuration
and has none turns them into one :class:`~kubestow.errors.ConfigurationError` (:func:`refusal`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import structs

from kubestow.api.duration import Duration
from kubestow.config.rendering import rendered
from kubestow.errors import ConfigurationError

__all__ = ["Problem", "child", "duplicate", "forbidden", "invalid", "refusal", "required", "unsupported"]


class Problem(msgspec.Struct, frozen=True):
    """A mistake: the path of the field (empty for the document as a whole), what is wrong, the line if known."""

    path: str
    text: str
    line: int | None = None

    def __str__(self) -> str:
        """One line: path, text, and the line number where there is one."""
        told = f"{self.path}: {self.text}" if self.path else self.text
        return f"{told} (line {self.line})" if self.line else told


def refusal(subject: str, problems: Iterable[Problem]) -> ConfigurationError:
    """The error that tells problems; ``subject`` is what it calls the configuration, such as the name of its file."""
    return ConfigurationError(subject, [(p.path, str(structs.replace(p, path=""))) for p in problems])


def child(path: str, name: str) -> str:
    """The path of a field of what is at ``path`` (empty: of the document)."""
    return f"{path}.{name}" if path else name


def invalid(path: str, value: Any, detail: str) -> Problem:
    """A value that breaks a rule."""
    return Problem(path, f"Invalid value: {_shown(value)}: {detail}")


def required(path: str, detail: str = "") -> Problem:
    """A value that is missing."""
    return Problem(path, f"Required value: {detail}" if detail else "Required value")


def duplicate(path: str, value: Any) -> Problem:
    """A value that stands somewhere else already."""
    return Problem(path, f"Duplicate value: {_shown(value)}")


def unsupported(path: str, value: Any, supported: Iterable[str]) -> Problem:
    """A value outside a fixed set."""
    choices = ", ".join(_shown(choice) for choice in supported)
    return Problem(path, f"Unsupported value: {_shown(value)}: supported values: {choices}")


def forbidden(path: str, detail: str) -> Problem:
    """A field that may not be given here."""
    return Problem(path, f"Forbidden: {detail}")


def _shown(value: Any) -> str:
    if isinstance(value, Duration):
        value = str(value)
    elif isinstance(value, (msgspec.Struct, list, tuple)):
        value = rendered(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
