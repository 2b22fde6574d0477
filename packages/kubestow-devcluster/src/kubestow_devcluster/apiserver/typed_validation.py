"""Validation of an applied configuration against the types of its schema, before it is merged.

Server-side apply does not decode a configuration as other writes do. It compares the values with the types of the
OpenAPI schema, which know scalars by their kind only. All problems are found, each with its path, and described as by
structured-merge-diff (sigs.k8s.io/structured-merge-diff/v6/typed), to which all numbers are floats.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from kubestow_devcluster.apiserver.managed_fields import child_field, child_fields, format_path, is_granular
from kubestow_devcluster.apiserver.schema.types import (
    ListMerge,
    ListOf,
    MapOf,
    Object,
    Quantity,
    Scalar,
    Struct,
    StructField,
    Time,
    Type,
)
from kubestow_devcluster.apiserver.statuses import go_text

_GO_TYPES = {str: "string", bool: "bool", dict: "map[string]interface {}", list: "[]interface {}"}


#: So many characters of problems are enough: each repeats its path, which a client can make long.
_MOST_TEXT = 64 * 1024


def type_problems(config: Object, struct: Struct) -> list[str]:
    """What is wrong with the values of a configuration: ``.spec.replicas: expected numeric (int or float), ...``.

    The list ends early where the problems become very long.
    """
    problems, size = [], 0
    for problem in _problems(config, struct, None):
        problems.append(problem)
        size += len(problem)
        if size > _MOST_TEXT:
            break
    return problems


def _problems(value: Any, type_: Type, field: StructField | None) -> Iterator[str]:
    """The problems with paths from this value on; the callers prepend their own parts."""
    if value is None:
        return
    if isinstance(type_, Struct | MapOf):
        if isinstance(value, dict):
            yield from _problems_in_map(value, type_)
        else:
            yield f": expected map, got &{{{_shown(value)}}}"
    elif isinstance(type_, ListOf):
        if isinstance(value, list):
            yield from _problems_in_list(value, type_, field)
        else:
            yield f": expected list, got &{{{_shown(value)}}}"
    elif isinstance(type_, Scalar):
        if problem := _scalar_problem(value, type_):
            yield f": {problem}"
    elif isinstance(type_, Quantity | Time) and isinstance(value, dict | list):
        yield f": expected any scalar, got &{{{_shown(value)}}}"


def _problems_in_map(value: Object, type_: Struct | MapOf) -> Iterator[str]:
    # An object without properties in its schema has any.
    is_closed = isinstance(type_, Struct) and bool(type_.fields) and not type_.preserves_unknown_fields
    for key, item in value.items():
        item_type, item_field = child_field(type_, key)
        if is_closed and item_field is None:
            yield f".{key}: field not declared in schema"
            continue
        for problem in _problems(item, item_type, item_field):
            yield f".{key}{problem}"


def _problems_in_list(value: list[Any], type_: ListOf, field: StructField | None) -> Iterator[str]:
    if field is None or field.merge is None or not is_granular(value, type_, field):
        for index, item in enumerate(value):
            for problem in _problems(item, type_.item, None):
                yield f"[{index}]{problem}"
        return
    found = set()
    for index, item in enumerate(value):
        if problem := _key_problem(item, field.merge):
            # Without a key, the place of further problems has no name.
            yield f": element {index}: {problem}"
            return
        [(element, *_)] = child_fields([item], type_, field)
        if element == "k:{}":
            keys = " ".join(f'"{key}"' for key in field.merge.map_keys)
            yield (
                f": element {index}: associative list with keys has an element that omits all key fields [{keys}]"
                " (and doesn't have default values for any key fields)"
            )
            return
        if element in found:
            yield f": duplicate entries for key {format_path((element,))}"
        found.add(element)
        for problem in _problems(item, type_.item, None):
            yield f"{format_path((element,))}{problem}"


def _key_problem(item: Any, merge: ListMerge) -> str:
    """Why an item of a list with keys, or of a set, cannot have a key; empty if it can."""
    if not merge.is_set:
        if item is None:
            return "associative list with keys may not have a null element"
        return "" if isinstance(item, dict) else "associative list with keys may not have non-map elements"
    if isinstance(item, dict):
        return "associative list without keys has an element that's a map type"
    if isinstance(item, list):
        return "not supported: associative list with lists as elements"
    return "associative list without keys has an element that's an explicit null" if item is None else ""


def _scalar_problem(value: Any, type_: Scalar) -> str:
    if type_.python is bool:
        return "" if isinstance(value, bool) else f"expected boolean, got &{{{_shown(value)}}}"
    if type_.python is str:
        return "" if isinstance(value, str) else f"expected string, got &value.valueUnstructured{{Value:{_go(value)}}}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return ""
    return f"expected numeric (int or float), got {_GO_TYPES[type(value)]}"


def _shown(value: Any) -> str:
    """A value as Go's format ``%v`` shows it."""
    return go_text(_with_floats(value))


def _go(value: Any) -> str:
    """A value as Go's format ``%#v`` shows it."""
    if isinstance(value, dict):
        items = (f"{msgspec.json.encode(key).decode()}:{_go(value[key])}" for key in sorted(value))
        return f"map[string]interface {{}}{{{', '.join(items)}}}"
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(map(_go, value))}}}"
    if isinstance(value, str):
        return msgspec.json.encode(value).decode()
    return "interface {}(nil)" if value is None else _shown(value)


def _with_floats(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_floats(item) for key, item in value.items()}
    if isinstance(value, list):
        return list(map(_with_floats, value))
    return float(value) if type(value) is int else value
