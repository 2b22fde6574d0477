"""Structural schemas: the OpenAPI v3 schema of a custom resource as types, its defaults and its validation.

Reading prunes unspecified fields unless the schema preserves them. It does not validate: values that violate the schema
are rejected later with all their field errors and kube-apiserver's messages. Patterns are regular expressions of RE2,
as in kube-apiserver: matching takes time linear in the length of the value. Not implemented: ``format`` and
``uniqueItems``.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import Any

import re2

from kubestow_devcluster.apiserver.schema.type_table import TypeEntry
from kubestow_devcluster.apiserver.schema.types import (
    ANY,
    ListMerge,
    ListOf,
    MapOf,
    Scalar,
    Struct,
    StructField,
    Type,
    struct_of,
)
from kubestow_devcluster.apiserver.statuses import (
    FieldError,
    invalid_type,
    invalid_value,
    required_value,
    too_long,
    too_many,
    unsupported_value,
)

Schema = dict[str, Any]

_PRESERVE_UNKNOWN_FIELDS = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING = "x-kubernetes-int-or-string"
_SCALARS: dict[str, Type] = {
    "string": Scalar(str, "string"),
    "integer": Scalar(int, "int64"),
    "number": Scalar(float, "float64"),
    "boolean": Scalar(bool, "bool"),
}


class StructuralType(Struct):
    """An object with properties. With ``root`` it is a whole resource, whose metadata has the built-in schema."""

    def __init__(self, schema: Schema, *, root: bool = False) -> None:
        super().__init__(TypeEntry("", ()), preserves_unknown_fields=bool(schema.get(_PRESERVE_UNKNOWN_FIELDS)))
        self.schema, self._root = schema, root
        self.go_name = "map[string]interface {}"
        self.atomic = schema.get("x-kubernetes-map-type") == "atomic"

    @cached_property
    def fields(self) -> dict[str, StructField]:
        found = {name: _field(schema) for name, schema in (self.schema.get("properties") or {}).items()}
        if self._root or self.schema.get("x-kubernetes-embedded-resource"):
            for name in ("apiVersion", "kind"):
                found[name] = _field({"type": "string"})
            found["metadata"] = struct_of("").fields["metadata"]
        return found

    def read(self, value: Any, unknown_fields: list[str]) -> Any:
        if type(value) is not dict:
            return value
        fields, result = self.fields, {}
        for key, item in value.items():
            field = fields.get(key)
            if field is not None:
                result[key] = item if isinstance(field.type_, Scalar) else field.type_.read(item, unknown_fields)
            elif self.preserves_unknown_fields:
                result[key] = item
            else:
                unknown_fields.append(key)
        return result


class _StructuralList(ListOf):
    def read(self, value: Any, unknown_fields: list[str]) -> Any:
        return [_read(self.item, item, unknown_fields) for item in value] if type(value) is list else value


class _StructuralMap(MapOf):
    def read(self, value: Any, unknown_fields: list[str]) -> Any:
        if type(value) is not dict:
            return value
        return {key: _read(self.item, item, unknown_fields) for key, item in value.items()}


def _read(type_: Type, value: Any, unknown_fields: list[str]) -> Any:
    return value if isinstance(type_, Scalar) else type_.read(value, unknown_fields)


def _type(schema: Schema) -> Type:
    name = schema.get("type", "")
    values = schema.get("additionalProperties")
    if isinstance(values, dict):
        return _StructuralMap(_type(values), atomic=schema.get("x-kubernetes-map-type") == "atomic")
    is_schemaless = values is True or (schema.get(_PRESERVE_UNKNOWN_FIELDS) and not schema.get("properties"))
    if schema.get(_INT_OR_STRING) or is_schemaless:
        return ANY
    if name == "array":
        items = schema.get("items")
        return _StructuralList(_type(items) if isinstance(items, dict) else ANY)
    if name == "object":
        return StructuralType(schema)
    return _SCALARS.get(name, ANY)


def _field(schema: Schema) -> StructField:
    type_ = _type(schema)
    return StructField(
        type_=type_,
        required=False,
        description=schema.get("description", ""),
        merge=_list_merge(schema),
        omit_empty=False,
        atomic=type_.atomic and type_ is not ANY,
        in_empty=False,
    )


def _list_merge(schema: Schema) -> ListMerge | None:
    list_type = schema.get("x-kubernetes-list-type")
    if list_type == "set":
        return ListMerge(is_set=True)
    if list_type == "map":
        return ListMerge(map_keys=tuple(schema.get("x-kubernetes-list-map-keys") or ()))
    return None


_JSON_TYPES: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    dict: "object",
    list: "array",
    type(None): "null",
}


def apply_defaults(value: Any, schema: Schema) -> None:
    """Set the schema's defaults in fields that are missing, in place."""
    if isinstance(value, dict):
        for name, child in (schema.get("properties") or {}).items():
            if "default" in child and (name not in value or (value[name] is None and not child.get("nullable"))):
                value[name] = copy.deepcopy(child["default"])
    for _, item, child in _children(value, schema, ""):
        apply_defaults(item, child)


def has_defaults(schema: Schema) -> bool:
    """Whether the schema of any field has a default."""
    return any("default" in child for _, child in subschemas(schema, ""))


def validate(value: Any, schema: Schema, path: str = "") -> list[FieldError]:
    """The field errors of ``value``, which is at ``path``."""
    type_error = _type_error(value, schema, path)
    if type_error is not None:
        return [type_error]
    if value is None:
        return []
    errors = [*_scalar_errors(value, schema, path), *_size_errors(value, schema, path)]
    if isinstance(value, dict):
        errors += [
            required_value(_child_path(path, name)) for name in schema.get("required") or () if name not in value
        ]
    errors += _combined_errors(value, schema, path)
    for item_path, item, child in _children(value, schema, path):
        errors += validate(item, child, item_path)
    return errors


def _children(value: Any, schema: Schema, path: str) -> Iterator[tuple[str, Any, Schema]]:
    """The fields or items that have a schema: path, value, schema."""
    if isinstance(value, dict):
        named, others = schema.get("properties") or {}, schema.get("additionalProperties")
        for key, item in value.items():
            child = named.get(key, others)
            if isinstance(child, dict):
                yield _child_path(path, key), item, child
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, item in enumerate(value):
            yield f"{path}[{index}]", item, schema["items"]


def _child_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _type_error(value: Any, schema: Schema, path: str) -> FieldError | None:
    found = _JSON_TYPES.get(type(value), "object")
    if value is None:
        if schema.get("nullable"):
            return None
    elif schema.get("x-kubernetes-int-or-string"):
        if found in ("integer", "string"):
            return None
        return invalid_type(path, found, f'{path} in body must be of type integer,string: "{found}"')
    expected = schema.get("type", "")
    if not expected or found == expected or (expected == "number" and found == "integer"):
        return None
    if expected == "integer" and isinstance(value, float) and value.is_integer():
        return None
    return invalid_type(path, found, f'{path} in body must be of type {expected}: "{found}"')


def _scalar_errors(value: Any, schema: Schema, path: str) -> Iterator[FieldError]:
    allowed = schema.get("enum")
    if allowed and value not in allowed:
        yield unsupported_value(path, value, allowed)
    if isinstance(value, str):
        # A definition that was stored before patterns were validated may contain an invalid one.
        pattern = schema.get("pattern")
        if pattern and not isinstance(compiled := _compile(pattern), str) and compiled.search(value) is None:
            yield invalid_value(path, value, f"{path} in body should match '{pattern}'")
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        low, high = schema.get("minimum"), schema.get("maximum")
        if low is not None and (value < low or (schema.get("exclusiveMinimum") and value == low)):
            yield invalid_value(
                path, value, f"{path} in body should be greater than {_or_equal(schema, 'Minimum')}{low:g}"
            )
        if high is not None and (value > high or (schema.get("exclusiveMaximum") and value == high)):
            yield invalid_value(
                path, value, f"{path} in body should be less than {_or_equal(schema, 'Maximum')}{high:g}"
            )
        step = schema.get("multipleOf")
        if step and value % step:
            yield invalid_value(path, value, f"{path} in body should be a multiple of {step:g}")


def _or_equal(schema: Schema, bound: str) -> str:
    return "" if schema.get(f"exclusive{bound}") else "or equal to "


def pattern_error(pattern: str) -> str:
    """Why a pattern is not a regular expression of RE2; empty if it is one."""
    compiled = _compile(pattern)
    return compiled if isinstance(compiled, str) else ""


@lru_cache(maxsize=256)
def _compile(pattern: str) -> Any:
    """The compiled pattern, or its error."""
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        return error.args[0].decode(errors="replace")


def subschemas(schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    """A schema and all schemas in it, each with its path."""
    yield path, schema
    for name, child in (schema.get("properties") or {}).items():
        yield from subschemas(child, f"{path}.properties[{name}]")
    for keyword in ("items", "additionalProperties", "not"):
        if isinstance(child := schema.get(keyword), dict):
            yield from subschemas(child, f"{path}.{keyword}")
    for keyword in ("allOf", "anyOf", "oneOf"):
        for index, child in enumerate(schema.get(keyword) or ()):
            yield from subschemas(child, f"{path}.{keyword}[{index}]")


def _size_errors(value: Any, schema: Schema, path: str) -> Iterator[FieldError]:
    for type_, noun, phrase in (
        (str, "Length", "be at least {} chars long"),
        (list, "Items", "have at least {} items"),
        (dict, "Properties", "have at least {} properties"),
    ):
        if not isinstance(value, type_):
            continue
        low, high = schema.get(f"min{noun}"), schema.get(f"max{noun}")
        if low is not None and len(value) < low:
            shown = value if type_ is str else len(value)
            yield invalid_value(path, shown, f"{path} in body should {phrase.format(low)}")
        if high is not None and len(value) > high:
            yield too_long(path, high) if type_ is str else too_many(path, len(value), high)


def _combined_errors(value: Any, schema: Schema, path: str) -> list[FieldError]:
    errors = [error for one in schema.get("allOf") or () for error in validate(value, one, path)]
    for keyword, phrase in (
        ("anyOf", "must validate at least one schema (anyOf)"),
        ("oneOf", "must validate one and only one schema (oneOf)"),
    ):
        choices = schema.get(keyword)
        if choices:
            valid = sum(not validate(value, one, path) for one in choices)
            if valid == 0 or (keyword == "oneOf" and valid > 1):
                errors.append(invalid_value(path, "", f'"{path}" {phrase}'))
    if schema.get("not") is not None and not validate(value, schema["not"], path):
        errors.append(invalid_value(path, "", f'"{path}" must not validate the schema (not)'))
    return errors
