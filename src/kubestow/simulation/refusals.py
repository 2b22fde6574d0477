"""Whether two refusals of a configuration are about the same fields.

The reference names fields in three ways: by their path before a field error, by a quoted path where a field does not
exist, and by Go's struct and path without indices where a value has the wrong type. Where its text names none (a bad
duration, an unknown kind), there is nothing to agree on but the refusal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["names_same_fields"]

_FIELD = r"[A-Za-z]+(?:\[\d+\])?(?:\.[A-Za-z]+(?:\[\d+\])*)*"
_RULE = r"(?:Invalid value|Required value|Duplicate value|Unsupported value|Forbidden)\b"
_FIELD_ERROR = re.compile(rf"({_FIELD})(?:\[[^\]]*\])?: {_RULE}")
_ARGS = re.compile(r"decoding \.(profiles\[\d+\]\.pluginConfig\[\d+\]): (.*?)(?=decoding \.profiles|$)")
_UNKNOWN = re.compile(r'(?:unknown|duplicate) field "([^"]+)"')
_MISMATCH = re.compile(r"Go struct field \w+\.(\S+) of type")
_EMBEDDED = "DebuggingConfiguration."


def names_same_fields(problems: Iterable[tuple[str, str]], recorded: str) -> bool:
    """Whether problems, each a path and a text, name the fields that a recorded refusal names."""
    told = list(problems)
    ours = {path for path, _ in told if path} | {path for _, text in told for path in _FIELD_ERROR.findall(text)}
    ours = {re.sub(r"\[[^\]\d][^\]]*\]$", "", path) for path in ours}
    theirs = _named(recorded)
    if _MISMATCH.search(recorded):
        return _without_indices(theirs) <= _without_indices(ours)
    return not theirs or theirs == ours


def _named(recorded: str) -> set[str]:
    """The paths in the reference's text, those in arguments of plugins completed to paths from the top."""
    names = set(_FIELD_ERROR.findall(recorded))
    for place, text in _ARGS.findall(recorded):
        names |= {f"{place}.args.{path}" for path in _quoted(text)}
    return names | _quoted(_ARGS.sub("", recorded))


def _quoted(text: str) -> set[str]:
    return {path.removeprefix(_EMBEDDED) for path in (*_UNKNOWN.findall(text), *_MISMATCH.findall(text))}


def _without_indices(paths: set[str]) -> set[str]:
    return {re.sub(r"\[\d+\]", "", path) for path in paths}
