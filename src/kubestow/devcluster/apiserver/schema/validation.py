"""Filling in and judging custom resources by their schema, with the API server's words.

Not judged: ``format``, ``uniqueItems`` and the CEL rules of ``x-kubernetes-validations``.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

from kubestow.devcluster.apiserver.field_errors import (
    Cause,
    invalid_value,
    required_value,
    too_long,
    too_many,
    unsupported_value,
)
from kubestow.devcluster.apiserver.schema.structural import Schema

__all__ = ["fill_in", "problems"]

_JSON_TYPES: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    dict: "object",
    list: "array",
    type(None): "null",
}


def fill_in(value: Any, schema: Schema) -> None:
    """Put the schema's defaults where nothing is said, in place."""
    if isinstance(value, dict):
        for name, below in (schema.get("properties") or {}).items():
            if "default" in below and (name not in value or (value[name] is None and not below.get("nullable"))):
                value[name] = copy.deepcopy(below["default"])
    for _, item, below in _inside(value, schema, ""):
        fill_in(item, below)


def problems(value: Any, schema: Schema, path: str = "") -> list[Cause]:
    """All that is wrong with ``value``. ``path`` is where it stands, in words of the API."""
    wrong_type = _type_problem(value, schema, path)
    if wrong_type is not None:
        return [wrong_type]
    if value is None:
        return []
    causes = [*_scalar_problems(value, schema, path), *_size_problems(value, schema, path)]
    if isinstance(value, dict):
        causes += [required_value(_below(path, name)) for name in schema.get("required") or () if name not in value]
    causes += _combined_problems(value, schema, path)
    for place, item, below in _inside(value, schema, path):
        causes += problems(item, below, place)
    return causes


def _inside(value: Any, schema: Schema, path: str) -> Iterator[tuple[str, Any, Schema]]:
    """The parts of an object or list that have a schema: place, part, schema."""
    if isinstance(value, dict):
        named, others = schema.get("properties") or {}, schema.get("additionalProperties")
        for key, item in value.items():
            below = named.get(key, others)
            if isinstance(below, dict):
                yield _below(path, key), item, below
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, item in enumerate(value):
            yield f"{path}[{index}]", item, schema["items"]


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _type_problem(value: Any, schema: Schema, path: str) -> Cause | None:
    found = _JSON_TYPES.get(type(value), "object")
    if value is None:
        if schema.get("nullable"):
            return None
    elif schema.get("x-kubernetes-int-or-string"):
        if found in ("integer", "string"):
            return None
        return invalid_value(path, found, f'{path} in body must be of type integer,string: "{found}"')
    wanted = schema.get("type", "")
    if not wanted or found == wanted or (wanted == "number" and found == "integer"):
        return None
    if wanted == "integer" and isinstance(value, float) and value.is_integer():
        return None
    return invalid_value(path, found, f'{path} in body must be of type {wanted}: "{found}"')


def _scalar_problems(value: Any, schema: Schema, path: str) -> Iterator[Cause]:
    allowed = schema.get("enum")
    if allowed and value not in allowed:
        yield unsupported_value(path, value, allowed)
    if isinstance(value, str):
        pattern = schema.get("pattern")
        if pattern and not _matches(pattern, value):
            yield invalid_value(path, value, f"{path} in body should match '{pattern}'")
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        least, most = schema.get("minimum"), schema.get("maximum")
        if least is not None and (value < least or (schema.get("exclusiveMinimum") and value == least)):
            yield invalid_value(
                path, value, f"{path} in body should be greater than {_or_equal(schema, 'Minimum')}{least:g}"
            )
        if most is not None and (value > most or (schema.get("exclusiveMaximum") and value == most)):
            yield invalid_value(
                path, value, f"{path} in body should be less than {_or_equal(schema, 'Maximum')}{most:g}"
            )
        step = schema.get("multipleOf")
        if step and value % step:
            yield invalid_value(path, value, f"{path} in body should be a multiple of {step:g}")


def _or_equal(schema: Schema, bound: str) -> str:
    return "" if schema.get(f"exclusive{bound}") else "or equal to "


def _matches(pattern: str, value: str) -> bool:
    """Patterns are Go's; one that Python cannot read judges nothing."""
    try:
        return re.search(pattern, value) is not None
    except re.error:
        return True


def _size_problems(value: Any, schema: Schema, path: str) -> Iterator[Cause]:
    for type_, noun, phrase in (
        (str, "Length", "be at least {} chars long"),
        (list, "Items", "have at least {} items"),
        (dict, "Properties", "have at least {} properties"),
    ):
        if not isinstance(value, type_):
            continue
        least, most = schema.get(f"min{noun}"), schema.get(f"max{noun}")
        if least is not None and len(value) < least:
            shown = value if type_ is str else len(value)
            yield invalid_value(path, shown, f"{path} in body should {phrase.format(least)}")
        if most is not None and len(value) > most:
            yield too_long(path, most) if type_ is str else too_many(path, len(value), most)


def _combined_problems(value: Any, schema: Schema, path: str) -> list[Cause]:
    """``allOf``, ``anyOf``, ``oneOf`` and ``not``."""
    causes = [cause for one in schema.get("allOf") or () for cause in problems(value, one, path)]
    for word, phrase in (
        ("anyOf", "must validate at least one schema (anyOf)"),
        ("oneOf", "must validate one and only one schema (oneOf)"),
    ):
        choices = schema.get(word)
        if choices:
            valid = sum(not problems(value, one, path) for one in choices)
            if valid == 0 or (word == "oneOf" and valid > 1):
                causes.append(invalid_value(path, "", f'"{path}" {phrase}'))
    if schema.get("not") is not None and not problems(value, schema["not"], path):
        causes.append(invalid_value(path, "", f'"{path}" must not validate the schema (not)'))
    return causes
