"""The division of objects into fields that managers own separately.

Structs and maps are divided by key, lists that merge by the keys or values of their items; all other values, and those
with an atomic type, are one field. Path elements are those of ``fieldsV1``: ``f:name``, ``k:{"name":"c"}``, ``v:"x"``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from kubestow_devcluster.apiserver.schema import ListOf, MapOf, Object, Struct, StructField, Type
from kubestow_devcluster.apiserver.schema.types import ANY

__all__ = ["TYPE_META", "FieldPath", "child_field", "child_fields", "is_granular", "manageable_metadata"]

FieldPath = tuple[str, ...]

#: Top-level fields that no manager owns.
TYPE_META = frozenset({"apiVersion", "kind"})
_SYSTEM_METADATA = frozenset(
    [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "generation",
        "managedFields",
        "resourceVersion",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ]
)
#: Defaults of key fields that list items can omit.
_KEY_DEFAULTS = {"protocol": "TCP"}


def child_field(type_: Type, key: str) -> tuple[Type, StructField | None]:
    """The type of the value under ``key``, and the struct field that declares it."""
    if isinstance(type_, Struct):
        found = type_.fields.get(key)
        return (ANY, None) if found is None else (found.type_, found)
    return (type_.item, None) if isinstance(type_, MapOf) else (ANY, None)


def is_granular(value: object, type_: Type, field: StructField | None) -> bool:
    """Whether the parts of a value are separate fields: not atomic maps, and not lists that do not merge."""
    if isinstance(value, dict):
        return type_ is ANY or not (field.atomic if field is not None else type_.atomic)
    if isinstance(value, list):
        return field is not None and field.merge is not None and (field.merge.is_set or bool(field.merge.map_keys))
    return False


def child_fields(
    value: Any, type_: Type, field: StructField | None
) -> Iterator[tuple[str, Any, Type, StructField | None]]:
    """The fields of a granular value: path element, value, type, struct field."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield f"f:{key}", item, *child_field(type_, key)
    elif field is not None and field.merge is not None and field.merge.is_set:
        for item in value:
            yield f"v:{msgspec.json.encode(item).decode()}", item, ANY, None
    elif field is not None and field.merge is not None:
        item_type = type_.item if isinstance(type_, ListOf) else ANY
        for item in value:
            yield _key_element(item, field.merge.map_keys), item, item_type, None


def _key_element(item: Any, keys: tuple[str, ...]) -> str:
    found = {key: item.get(key, _KEY_DEFAULTS.get(key)) for key in sorted(keys) if key in item or key in _KEY_DEFAULTS}
    return "k:" + msgspec.json.encode(found).decode()


def manageable_metadata(metadata: Any) -> Object:
    """Metadata without the fields that the server sets, which no manager owns."""
    return {key: value for key, value in metadata.items() if key not in _SYSTEM_METADATA}
