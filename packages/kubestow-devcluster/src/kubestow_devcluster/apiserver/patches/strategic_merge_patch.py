"""Strategic merge patch: a merge patch in which the schema defines how lists merge, and directives override it.

Directives are ``$patch``, ``$retainKeys``, ``$setElementOrder/<list>`` and ``$deleteFromPrimitiveList/<list>``.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.schema.types import ANY, ListMerge, ListOf, MapOf, Object, Struct, StructField, Type

__all__ = ["strategic_merge_patch"]

_ELEMENT_ORDER = "$setElementOrder/"
_DELETE_FROM_LIST = "$deleteFromPrimitiveList/"


def strategic_merge_patch(original: Object, patch: Object, type_: Type) -> Object:
    """Merge ``patch`` into ``original``, which has this type. Raises a 400 StatusError for an invalid directive."""
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise statuses.bad_request(f"unknown patch type found: {directive}")
    result = dict(original)
    element_orders: dict[str, list[Any]] = {}
    for key, value in patch.items():
        if key.startswith("$") and key != "$patch" and not isinstance(value, list):
            raise statuses.bad_request(f"{key} expects a list")
        if key.startswith(_ELEMENT_ORDER):
            element_orders[key.removeprefix(_ELEMENT_ORDER)] = value
        elif key.startswith(_DELETE_FROM_LIST):
            name = key.removeprefix(_DELETE_FROM_LIST)
            result[name] = [item for item in result.get(name) or [] if item not in value]
        elif key not in ("$patch", "$retainKeys"):
            _merge_field(result, key, value, type_)
    for key, order in element_orders.items():
        field = _field(type_, key)
        if key in result and field is not None and field.merge is not None:
            result[key] = _sort_elements(result[key], order, original.get(key) or [], field.merge.patch_key)
    if "$retainKeys" in patch:
        result = {key: value for key, value in result.items() if key in patch["$retainKeys"]}
    return result


def _merge_field(result: Object, key: str, value: Any, type_: Type) -> None:
    field, child = _field(type_, key), _child_type(type_, key)
    before = result.get(key)
    if value is None:
        result.pop(key, None)
    elif isinstance(value, dict) and field is not None and field.patch_strategy == "replace":
        result[key] = value
    elif isinstance(value, dict):
        merged = strategic_merge_patch(before if isinstance(before, dict) else {}, value, child)
        if merged or value.get("$patch") != "delete":
            result[key] = merged
        else:
            result.pop(key, None)
    elif isinstance(value, list) and field is not None and field.merge and isinstance(before, list):
        result[key] = _merge_list(before, value, field.merge, child)
    elif isinstance(value, list):
        result[key] = _without_directives(value)
    else:
        result[key] = value


def _merge_list(original: list[Any], patch: list[Any], merge: ListMerge, type_: Type) -> list[Any]:
    if merge.patch_by_value:
        if any(isinstance(item, (dict, list)) for item in patch):
            raise statuses.bad_request("expected list of primitives in a list merged as a set")
        merged = list(dict.fromkeys([*original, *patch]))
        return _sort_elements(merged, patch, original, "")
    key = merge.patch_key
    if not key:
        return _without_directives(patch)
    if not all(isinstance(item, dict) for item in patch):
        raise statuses.bad_request("expected list of maps in a list merged by key")
    if any(item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if "$patch" not in item]
    deleted = {_merge_key(item, key) for item in patch if item.get("$patch") == "delete"}
    changes = [item for item in patch if "$patch" not in item]
    merged = [item for item in original if _merge_key(item, key) not in deleted]
    _merge_items(merged, changes, key, type_.item if isinstance(type_, ListOf) else ANY)
    return _sort_elements(merged, changes, original, key)


def _merge_items(merged: list[Any], changes: list[Object], key: str, item_type: Type) -> None:
    """Merge each change into the first item with the same key, or append it."""
    positions: dict[Any, int] = {}
    for index, item in enumerate(merged):
        positions.setdefault(_merge_key(item, key), index)
    for change in changes:
        if key not in change:
            raise statuses.bad_request(f"map: {change} does not contain declared merge key: {key}")
        position = positions.setdefault(_merge_key(change, key), len(merged))
        if position == len(merged):
            merged.append({})
        merged[position] = strategic_merge_patch(merged[position], change, item_type)


def _merge_key(item: Any, key: str) -> Any:
    """The value of an item's merge key; without a key the item itself."""
    value = item.get(key) if key and isinstance(item, dict) else item
    return str(value) if isinstance(value, (dict, list)) else value


def _sort_elements(merged: list[Any], patch: list[Any], original: list[Any], key: str) -> list[Any]:
    """Items in the order of the patch, interleaved with the other items in the order of the original.

    An item that is only in the patch comes before the other items that it is compared with.
    """
    patch_order = {_merge_key(item, key): index for index, item in enumerate(patch)}
    original_order = {_merge_key(item, key): index for index, item in enumerate(original)}
    others = [item for item in merged if _merge_key(item, key) not in patch_order]
    others.sort(key=lambda item: original_order.get(_merge_key(item, key), len(original_order)))
    patched = [item for item in merged if _merge_key(item, key) in patch_order]
    patched.sort(key=lambda item: patch_order[_merge_key(item, key)])
    result: list[Any] = []
    left, right = deque(others), deque(patched)
    while left and right:
        other, item = original_order.get(_merge_key(left[0], key)), original_order.get(_merge_key(right[0], key))
        is_before = other is not None and item is not None and other < item
        result.append(left.popleft() if is_before else right.popleft())
    return [*result, *left, *right]


def _without_directives(value: list[Any]) -> list[Any]:
    return [item for item in value if not (isinstance(item, dict) and "$patch" in item)]


def _field(type_: Type, key: str) -> StructField | None:
    return type_.fields.get(key) if isinstance(type_, Struct) else None


def _child_type(type_: Type, key: str) -> Type:
    if isinstance(type_, MapOf):
        return type_.item
    field = _field(type_, key)
    return field.type_ if field is not None else ANY
