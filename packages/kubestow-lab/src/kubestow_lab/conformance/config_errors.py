"""Comparison of configuration errors with recorded ones by the fields that they name.

kube-scheduler names fields in three ways: the path before a field error, a quoted path for an unknown field, and Go's
struct name and a path without indices for a type error. If its message names no field (an invalid duration, an unknown
kind), any error agrees.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["report_same_fields"]

_FIELD = r"[A-Za-z]+(?:\[\d+\])?(?:\.[A-Za-z]+(?:\[\d+\])*)*"
_RULE = r"(?:Invalid value|Required value|Duplicate value|Unsupported value|Forbidden)\b"
_FIELD_ERROR = re.compile(rf"({_FIELD})(?:\[[^\]]*\])?: {_RULE}")
_ARGS = re.compile(r"decoding \.(profiles\[\d+\]\.pluginConfig\[\d+\]): (.*?)(?=decoding \.profiles|$)")
_UNKNOWN = re.compile(r'(?:unknown|duplicate) field "([^"]+)"')
_TYPE_ERROR = re.compile(r"Go struct field \w+\.(\S+) of type")
_EMBEDDED_STRUCT = "DebuggingConfiguration."


def report_same_fields(errors: Iterable[tuple[str, str]], recorded: str) -> bool:
    """Whether errors, as (path, message), name the same fields as a recorded error message."""
    errors = list(errors)
    fields = {path for path, _ in errors if path}
    fields |= {path for _, message in errors for path in _FIELD_ERROR.findall(message)}
    fields = {re.sub(r"\[[^\]\d][^\]]*\]$", "", path) for path in fields}
    recorded_fields = _fields(recorded)
    if _TYPE_ERROR.search(recorded):
        return _without_indices(recorded_fields) <= _without_indices(fields)
    return not recorded_fields or recorded_fields == fields


def _fields(recorded: str) -> set[str]:
    """The field paths in a recorded message; paths in plugin arguments are made absolute."""
    fields = set(_FIELD_ERROR.findall(recorded))
    for config_path, message in _ARGS.findall(recorded):
        fields |= {f"{config_path}.args.{path}" for path in _decoding_errors(message)}
    return fields | _decoding_errors(_ARGS.sub("", recorded))


def _decoding_errors(message: str) -> set[str]:
    paths = (*_UNKNOWN.findall(message), *_TYPE_ERROR.findall(message))
    return {path.removeprefix(_EMBEDDED_STRUCT) for path in paths}


def _without_indices(paths: set[str]) -> set[str]:
    return {re.sub(r"\[\d+\]", "", path) for path in paths}
