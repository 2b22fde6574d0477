"""Custom resources as their definitions describe them: a structural OpenAPI v3 schema as types.

Reading prunes what the schema does not mention, unless it says that unknown fields are preserved. It judges nothing:
values that break the schema are refused later with all their causes (:mod:`validation`), as the API server does.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from kubestow.devcluster.apiserver.schema.table import TypeEntry
from kubestow.devcluster.apiserver.schema.types import (
    ANYTHING,
    Field,
    ListOf,
    MapOf,
    Merge,
    Scalar,
    Struct,
    Type,
    struct_of,
)

__all__ = ["CustomStruct", "Schema"]

Schema = dict[str, Any]

_OPEN = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING = "x-kubernetes-int-or-string"
_SCALARS: dict[str, Type] = {
    "string": Scalar(str, "string"),
    "integer": Scalar(int, "int64"),
    "number": Scalar(float, "float64"),
    "boolean": Scalar(bool, "bool"),
}


class CustomStruct(Struct):
    """An object with properties. ``root`` is a whole resource, whose metadata is Kubernetes' own."""

    def __init__(self, schema: Schema, *, root: bool = False) -> None:
        super().__init__(TypeEntry("", ()), open_=bool(schema.get(_OPEN)))
        self.schema, self._root = schema, root
        self.go_name = "map[string]interface {}"
        self.atomic = schema.get("x-kubernetes-map-type") == "atomic"

    @cached_property
    def fields(self) -> dict[str, Field]:
        found = {name: _field(name, schema) for name, schema in (self.schema.get("properties") or {}).items()}
        if self._root or self.schema.get("x-kubernetes-embedded-resource"):
            for name in ("apiVersion", "kind"):
                found[name] = _field(name, {"type": "string"})
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
            elif self.open:
                result[key] = item
            else:
                unknown_fields.append(key)
        return result


class _CustomList(ListOf):
    def read(self, value: Any, unknown_fields: list[str]) -> Any:
        return [_read(self.item, item, unknown_fields) for item in value] if type(value) is list else value


class _CustomMap(MapOf):
    def read(self, value: Any, unknown_fields: list[str]) -> Any:
        if type(value) is not dict:
            return value
        return {key: _read(self.item, item, unknown_fields) for key, item in value.items()}


def _read(type_: Type, value: Any, unknown_fields: list[str]) -> Any:
    return value if isinstance(type_, Scalar) else type_.read(value, unknown_fields)


def _type(schema: Schema) -> Type:
    named = schema.get("type", "")
    values = schema.get("additionalProperties")
    if isinstance(values, dict):
        return _CustomMap(_type(values), atomic=schema.get("x-kubernetes-map-type") == "atomic")
    if schema.get(_INT_OR_STRING) or values is True or (schema.get(_OPEN) and not schema.get("properties")):
        return ANYTHING
    if named == "array":
        items = schema.get("items")
        return _CustomList(_type(items) if isinstance(items, dict) else ANYTHING)
    if named == "object":
        return CustomStruct(schema)
    return _SCALARS.get(named, ANYTHING)


def _field(name: str, schema: Schema) -> Field:
    type_ = _type(schema)
    return Field(
        name=name,
        type_=type_,
        required=False,
        description=schema.get("description", ""),
        merge=_merge(schema),
        scalar=None,
        omit_empty=False,
        atomic=type_.atomic and type_ is not ANYTHING,
        present=False,
    )


def _merge(schema: Schema) -> Merge | None:
    kind = schema.get("x-kubernetes-list-type")
    if kind == "set":
        return Merge(is_set=True)
    return Merge(keys=tuple(schema.get("x-kubernetes-list-map-keys") or ())) if kind == "map" else None
