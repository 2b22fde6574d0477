"""Structural schemas: the OpenAPI v3 schema of a custom resource as types.

Reading prunes unspecified fields unless the schema preserves them. It does not validate: values that violate the schema
are rejected later with all their field errors (:mod:`validation`), as in kube-apiserver.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

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

__all__ = ["Schema", "StructuralType"]

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
