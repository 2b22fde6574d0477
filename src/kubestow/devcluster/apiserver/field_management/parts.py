"""How objects divide into fields that can be owned one by one.

Structs and maps divide by key, lists that merge by their items' keys or values; everything else, and what the API
calls atomic, is one field. A step of a path is written as in ``fieldsV1``: ``f:name``, ``k:{"name":"c"}``, ``v:"x"``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from kubestow.devcluster.apiserver.schema import Field, ListOf, MapOf, Struct, Type
from kubestow.devcluster.apiserver.schema.types import ANYTHING

__all__ = ["UNOWNED", "Object", "Path", "child", "is_granular", "owned_metadata", "parts"]

Object = dict[str, Any]
Path = tuple[str, ...]

#: Never owned by anyone.
UNOWNED = frozenset({"apiVersion", "kind"})
_UNOWNED_METADATA = frozenset(
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
#: Key fields that may be left out of a list item, with what they default to.
_KEY_DEFAULTS = {"protocol": "TCP"}


def child(struct: Type, key: str) -> tuple[Type, Field | None]:
    if isinstance(struct, Struct):
        found = struct.fields.get(key)
        return (ANYTHING, None) if found is None else (found.type_, found)
    return (struct.item, None) if isinstance(struct, MapOf) else (ANYTHING, None)


def is_granular(value: object, type_: Type, field_: Field | None) -> bool:
    """Whether the parts of this value are owned one by one. Schemaless maps are; lists only where they merge."""
    if isinstance(value, dict):
        return type_ is ANYTHING or not (field_.atomic if field_ is not None else type_.atomic)
    if isinstance(value, list):
        return field_ is not None and field_.merge is not None and (field_.merge.is_set or bool(field_.merge.keys))
    return False


def parts(value: Any, type_: Type, field_: Field | None) -> Iterator[tuple[str, Any, Type, Field | None]]:
    """The parts of a granular value as (path step, part, type, field)."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield f"f:{key}", item, *child(type_, key)
    elif field_ is not None and field_.merge is not None and field_.merge.is_set:
        for item in value:
            yield f"v:{msgspec.json.encode(item).decode()}", item, ANYTHING, None
    elif field_ is not None and field_.merge is not None:
        item_type = type_.item if isinstance(type_, ListOf) else ANYTHING
        for item in value:
            yield _key_step(item, field_.merge.keys), item, item_type, None


def _key_step(item: Any, keys: tuple[str, ...]) -> str:
    found = {key: item.get(key, _KEY_DEFAULTS.get(key)) for key in sorted(keys) if key in item or key in _KEY_DEFAULTS}
    return "k:" + msgspec.json.encode(found).decode()


def owned_metadata(metadata: Any) -> Object:
    """Metadata without what the server decides."""
    return {key: value for key, value in metadata.items() if key not in _UNOWNED_METADATA}
