"""Validation errors of configuration fields, in the wording of apimachinery's ``field.Error``.

A :class:`FieldError` has the path of the field, the message, and its position in the text, if there is one. Functions
of this package return lists of them; :func:`configuration_error` combines a list into one
:class:`~kubestow.errors.ConfigurationError`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import inspect, structs

from kubestow.api.formats.duration import Duration
from kubestow.config.rendering import rendered
from kubestow.errors import ConfigurationError
from kubestow.rules.minors import DEFAULT_MINOR, Behaviour, Minor


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


@dataclass(frozen=True, slots=True)
class Wording:
    """How a minor version words the errors that show a value, and those about names."""

    minor: Minor = DEFAULT_MINOR

    def invalid(self, path: str, value: Any, detail: str) -> FieldError:
        """A value that violates a rule (``field.Invalid``)."""
        return FieldError(path, f"Invalid value: {self._shown(value)}: {detail}")

    def invalid_resource_name(self, path: str, name: str, detail: str) -> FieldError:
        """A name of a resource that violates a rule: a type of its own in Go, with its own way to be shown."""
        shown = self._shown(name) if self.minor.has(Behaviour.INVALID_VALUES_ARE_JSON) else name
        return FieldError(path, f"Invalid value: {shown}: {detail}")

    def duplicate(self, path: str, value: Any) -> FieldError:
        """A value that must be unique and is not (``field.Duplicate``)."""
        return FieldError(path, f"Duplicate value: {self._shown(value)}")

    def name_errors(self, errors: Iterable[str]) -> list[str]:
        """The errors of :mod:`kubestow.api.formats.names` about qualified names and label values."""
        if self.minor.has(Behaviour.NAMES_OF_RESOURCES_ARE_LABEL_KEYS):
            return list(errors)
        return [_BYTES.sub("characters", error.replace("a valid label key", "a qualified name")) for error in errors]

    def _shown(self, value: Any) -> str:
        return _as_json(value) if self.minor.has(Behaviour.INVALID_VALUES_ARE_JSON) else _in_go_syntax(value)


def invalid(path: str, value: Any, detail: str) -> FieldError:
    """A value that violates a rule, in the wording of the default minor version."""
    return Wording().invalid(path, value, detail)


def required(path: str, detail: str = "") -> FieldError:
    """A missing value (``field.Required``)."""
    return FieldError(path, f"Required value: {detail}" if detail else "Required value")


def unsupported(path: str, value: Any, supported: Iterable[str]) -> FieldError:
    """A value outside an enumeration (``field.NotSupported``)."""
    choices = ", ".join(_as_json(choice) for choice in supported)
    return FieldError(path, f"Unsupported value: {_as_json(value)}: supported values: {choices}")


def forbidden(path: str, detail: str) -> FieldError:
    """A field that must not be set here (``field.Forbidden``)."""
    return FieldError(path, f"Forbidden: {detail}")


_BYTES = re.compile(r"(?<=\d )bytes$")


def _as_json(value: Any) -> str:
    if isinstance(value, Duration):
        value = str(value)
    elif isinstance(value, (msgspec.Struct, list, tuple)):
        value = rendered(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _in_go_syntax(value: Any) -> str:
    """A value as ``%#v`` prints it; numbers, strings and durations plainly. Plain data, of no type in Go, is JSON."""
    match value:
        case Duration():
            return str(value)
        case None:  # the only values that can be missing are those of a requirement
            return "[]string(nil)"
        case msgspec.Struct():
            fields = (f"{_in_go(f.encode_name)}:{_field_in_go_syntax(value, f)}" for f in structs.fields(value))
            return f"{_go_type(type(value))}{{{', '.join(fields)}}}"
        case [msgspec.Struct(), *_]:
            return f"[]{_go_type(type(value[0]))}{{{', '.join(map(_in_go_syntax, value))}}}"
        case [str(), *_]:
            return f"[]string{{{', '.join(map(_as_json, value))}}}"
        case []:
            return "[]config.UtilizationShapePoint{}"
    return _as_json(value)


def _field_in_go_syntax(struct: msgspec.Struct, field: structs.FieldInfo) -> str:
    value = getattr(struct, field.name)
    if value == () and isinstance(kind := inspect.type_info(field.type), inspect.VarTupleType):
        item = kind.item_type
        return f"[]{_go_type(item.cls) if isinstance(item, inspect.StructType) else 'string'}(nil)"
    return "0" if value is None else _in_go_syntax(value)


def _go_type(kind: type[msgspec.Struct]) -> str:
    return f"config.{_GO_TYPES.get(kind.__name__, kind.__name__)}"


#: The types whose name in Go is another.
_GO_TYPES = {"PluginEntry": "Plugin"}


def _in_go(name: str) -> str:
    return name[:1].upper() + name[1:]
