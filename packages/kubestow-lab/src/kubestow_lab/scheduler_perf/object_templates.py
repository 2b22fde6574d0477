"""Templates of Kubernetes objects: YAML with the expressions of Go's text/template that workload files use.

An expression is ``{{ .Index }}``, ``{{ .Count }}``, a template parameter, a literal, or a call such as
``{{ DivideInt .Index 10 }}`` of one of scheduler_perf's functions; calls nest with parentheses. Actions such as ``if``
and ``range`` are not supported.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kubestow.api.formats.yaml_documents import load_yaml
from kubestow.errors import InputError
from kubestow.files import read_file

Object = dict[str, Any]
"""A Kubernetes object as plain data."""

_EXPRESSION = re.compile(r"\{\{(-?)\s*(.*?)\s*(-?)\}\}", re.DOTALL)
_TOKEN = re.compile(r'\s*([()]|"[^"]*"|[^\s()]+)')
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?$")
#: Fields whose keys are data. All other keys are fields of Kubernetes, which begin in lower case.
_MAPS = frozenset(
    {"annotations", "labels", "matchLabels", "nodeSelector", "selector", "data", "stringData", "attributes"}
    | {"allocatable", "capacity", "limits", "requests", "counters", "overhead", "parameters"}
)

#: The fields of a selector, whose keys are fields even where maps are expected.
_SELECTOR = ("matchLabels", "matchExpressions")

#: Versions whose objects have the form of another one, which every API server of this minor version serves.
_EQUIVALENT_VERSIONS = {"resource.k8s.io/v1beta2": "resource.k8s.io/v1"}

_FUNCTIONS: dict[str, Callable[..., float]] = {
    "AddFloat": lambda *numbers: sum(numbers),
    "AddInt": lambda *numbers: int(sum(numbers)),
    "SubtractFloat": lambda one, other: one - other,
    "SubtractInt": lambda one, other: int(one - other),
    "MultiplyFloat": lambda *numbers: math.prod(numbers),
    "MultiplyInt": lambda *numbers: int(math.prod(numbers)),
    "DivideFloat": lambda one, other: one / other,
    "DivideInt": lambda one, other: int(one / other),
    "Mod": lambda one, other: int(math.fmod(int(one), int(other))),
}


class ObjectTemplate:
    """A template of an object; ``subject`` (its file) is named in errors."""

    def __init__(self, text: str, subject: str) -> None:
        self._text, self._subject = text, subject
        self._has_expressions = "{{" in text
        #: The object of a template without expressions, parsed when it is first needed.
        self._fixed: Object | None = None

    @classmethod
    def read(cls, file: Path) -> ObjectTemplate:
        """Raises InputError if the file cannot be read."""
        try:
            return cls(read_file(file).decode(), str(file))
        except UnicodeDecodeError as error:
            raise InputError(str(file), f"invalid UTF-8: {error.reason} at byte {error.start}") from None

    def object(self, index: int, count: int, parameters: Mapping[str, Any] | None = None) -> Object:
        """The object number ``index`` of ``count``. Raises InputError."""
        if self._has_expressions:
            return self._parse(self._substitute({"Index": index, "Count": count, **(parameters or {})}))
        if self._fixed is None:
            self._fixed = self._parse(self._text)
        return copy.deepcopy(self._fixed)

    def _substitute(self, values: Mapping[str, Any]) -> str:
        def value(match: re.Match[str]) -> str:
            line = self._text.count("\n", 0, match.start()) + 1
            try:
                found, rest = _call(_TOKEN.findall(match[2]), values)
                if rest:
                    raise _Problem(f"unexpected {rest[0]!r}")
            except _Problem as problem:
                raise InputError(self._subject, str(problem), place=f"line {line}: {match[0]}") from None
            if isinstance(found, bool):
                return str(found).lower()
            return str(int(found)) if isinstance(found, float) and found.is_integer() else str(found)

        return _EXPRESSION.sub(value, self._text)

    def _parse(self, text: str) -> Object:
        data = load_yaml(text, self._subject)
        if not isinstance(data, dict) or not isinstance(data.get("metadata", {}), dict):
            raise InputError(self._subject, "expected a Kubernetes object")
        version = data.get("apiVersion", "")
        if not isinstance(version, str):
            raise InputError(self._subject, "expected a Kubernetes object, whose apiVersion is text")
        if version in _EQUIVALENT_VERSIONS:
            data["apiVersion"] = _EQUIVALENT_VERSIONS[version]
        obj: Object = _with_field_names(data)
        return obj


class _Problem(Exception):
    """An expression cannot be evaluated."""


def _call(tokens: Sequence[str], values: Mapping[str, Any]) -> tuple[Any, Sequence[str]]:
    """The value of a call or operand at the start of the tokens, and the tokens after it."""
    if not tokens:
        raise _Problem("expected an expression such as .Index")
    if tokens[0] not in _FUNCTIONS:
        return _operand(tokens, values)
    name, rest = tokens[0], tokens[1:]
    arguments = []
    while rest and rest[0] != ")":
        argument, rest = _operand(rest, values)
        try:
            arguments.append(float(argument))
        except (TypeError, ValueError):
            raise _Problem(f"expected a number, got {argument!r}") from None
    try:
        return _FUNCTIONS[name](*arguments), rest
    except TypeError:
        raise _Problem(f"{name} does not take {len(arguments)} arguments") from None
    except OverflowError:
        raise _Problem(f"the result of {name} is infinite") from None
    except (ZeroDivisionError, ValueError):
        raise _Problem("division by zero") from None


def _operand(tokens: Sequence[str], values: Mapping[str, Any]) -> tuple[Any, Sequence[str]]:
    first, rest = tokens[0], tokens[1:]
    if first == "(":
        value, rest = _call(rest, values)
        if not rest or rest[0] != ")":
            raise _Problem("expected a closing parenthesis")
        return value, rest[1:]
    if first[0] == "." and first[1:] in values:
        return values[first[1:]], rest
    if first[0] == '"':
        return first[1:-1], rest
    if _NUMBER.match(first):
        return (float(first) if "." in first else int(first)), rest
    known = ", ".join(f".{name}" for name in values)
    raise _Problem(f"unknown {first!r}, expected {known}, a literal or one of {', '.join(_FUNCTIONS)}")


def _with_field_names(value: Any) -> Any:
    """The object with the spelling of its fields: Go accepts ``NodeAffinityPolicy`` for ``nodeAffinityPolicy``."""
    if isinstance(value, list):
        return [_with_field_names(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        str(key)[:1].lower() + str(key)[1:]: item
        if key in _MAPS and isinstance(item, dict) and item.keys().isdisjoint(_SELECTOR)
        else _with_field_names(item)
        for key, item in value.items()
    }
