"""Three of the four patch types: JSON patch, JSON merge patch and strategic merge patch.

Each is a pure function of (object, patch) to a new object; the fourth, server-side apply, needs to know who owns which
field and lives in :mod:`kubestow.devcluster.apiserver.field_management`. Inputs are never changed, outputs may share parts with them.
"""

from __future__ import annotations

import copy
from collections import deque
from typing import Any

import msgspec

from kubestow.devcluster.apiserver import statuses
from kubestow.devcluster.apiserver.schema import Field, ListOf, MapOf, Merge, Struct, Type
from kubestow.devcluster.apiserver.schema.types import ANYTHING

__all__ = ["json_patch", "merge_patch", "strategic_merge"]

Object = dict[str, Any]

#: More operations than this in one JSON patch are refused, as the API server does.
MAX_OPERATIONS = 10_000
#: Bytes, as JSON, that the copy operations of one JSON patch may add; more are refused, as the API server does.
MAX_COPIED = 3 * 1024 * 1024


def json_patch(original: Object, operations: Any) -> Object:
    """RFC 6902. Raises a Failure: 400 for what is no patch, 422 for one that does not apply."""
    if not isinstance(operations, list):
        raise statuses.bad_request("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    if len(operations) > MAX_OPERATIONS:
        message = f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}"
        raise statuses.StatusError(413, "RequestEntityTooLarge", message)
    document: Any = copy.deepcopy(original)
    copied = 0
    for operation in operations:
        if not isinstance(operation, dict):
            raise statuses.bad_request("json: cannot unmarshal into Go value of type jsonpatch.Operation")
        try:
            if operation["op"] == "copy":
                copied += len(msgspec.json.encode(_get(document, _pointer(operation["from"]))))
                _check_copies(copied)
            document = _operate(document, operation)
        except (KeyError, IndexError, ValueError, TypeError):
            raise statuses.rejected() from None
    if not isinstance(document, dict):
        raise statuses.rejected()
    return document


def _check_copies(copied: int) -> None:
    """Copies of copies double with every operation. Raises a 413 Failure."""
    if copied > MAX_COPIED:
        message = (
            "Request entity too large: Unable to complete the copy, the accumulated size increase of copy is"
            f" {copied}, exceeding the limit {MAX_COPIED}"
        )
        raise statuses.StatusError(413, "RequestEntityTooLarge", message)


def _operate(document: Any, operation: Object) -> Any:
    path = _pointer(operation["path"])
    match operation["op"]:
        case "add":
            return _add(document, path, operation["value"])
        case "remove":
            return _remove(document, path)[0]
        case "replace":
            if not path:
                return operation["value"]
            document, _ = _remove(document, path)
            return _add(document, path, operation["value"])
        case "move":
            document, value = _remove(document, _pointer(operation["from"]))
            return _add(document, path, value)
        case "copy":
            return _add(document, path, copy.deepcopy(_get(document, _pointer(operation["from"]))))
        case "test":
            if _get(document, path, missing_is_null=True) != operation.get("value"):
                raise ValueError("test failed")
            return document
    raise ValueError("unknown operation")


def _pointer(text: Any) -> list[str]:
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise ValueError("not a JSON pointer")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _get(document: Any, path: list[str], *, missing_is_null: bool = False) -> Any:
    for part in path:
        if isinstance(document, list):
            document = document[_index(document, part)]
        elif missing_is_null and isinstance(document, dict):
            document = document.get(part)
        else:
            document = document[part]
    return document


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent, last = _get(document, path[:-1]), path[-1]
    if isinstance(parent, list):
        parent.insert(len(parent) if last == "-" else _index(parent, last, end=True), value)
    else:
        parent[last] = value
    return document


def _remove(document: Any, path: list[str]) -> tuple[Any, Any]:
    parent, last = _get(document, path[:-1]), path[-1]
    if isinstance(parent, list):
        return document, parent.pop(_index(parent, last))
    if not isinstance(parent, dict):
        raise TypeError("neither an object nor a list")
    return document, parent.pop(last)


def _index(items: list[Any], part: str, *, end: bool = False) -> int:
    if not part.isdigit():
        raise ValueError("not an index")
    index = int(part)
    if index >= len(items) + end:
        raise IndexError(part)
    return index


def merge_patch(original: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(original) if isinstance(original, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def strategic_merge(original: Object, patch: Object, struct: Type) -> Object:
    """A merge patch that knows which lists merge by key. Raises a 400 Failure for a bad directive."""
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise statuses.bad_request(f"unknown patch type found: {directive}")
    result = dict(original)
    orders: dict[str, list[Any]] = {}
    for key, value in patch.items():
        if key.startswith("$") and key != "$patch" and not isinstance(value, list):
            raise statuses.bad_request(f"{key} expects a list")
        if key.startswith("$setElementOrder/"):
            orders[key.partition("/")[2]] = value
        elif key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            result[name] = [item for item in result.get(name) or [] if item not in value]
        elif key not in ("$patch", "$retainKeys"):
            _merge_field(result, key, value, struct, orders=patch)
    for key, order in orders.items():
        field = _field(struct, key)
        if key in result and field is not None and field.merge is not None:
            result[key] = _in_order(result[key], order, original.get(key) or [], field.merge.patch_key)
    if "$retainKeys" in patch:
        result = {key: value for key, value in result.items() if key in patch["$retainKeys"]}
    return result


def _merge_field(result: Object, key: str, value: Any, struct: Type, *, orders: Object) -> None:
    field, child = _field(struct, key), _child(struct, key)
    before = result.get(key)
    if value is None:
        result.pop(key, None)
    elif isinstance(value, dict):
        merged = strategic_merge(before if isinstance(before, dict) else {}, value, child)
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


def _merge_list(original: list[Any], patch: list[Any], merge: Merge, list_type: Type) -> list[Any]:
    if merge.patch_set:
        if any(isinstance(item, (dict, list)) for item in patch):
            raise statuses.bad_request("expected list of primitives in a list merged as a set")
        merged = list(dict.fromkeys([*original, *patch]))
        return _in_order(merged, patch, original, "")
    key = merge.patch_key
    if not key:
        return _without_directives(patch)
    if not all(isinstance(item, dict) for item in patch):
        raise statuses.bad_request("expected list of maps in a list merged by key")
    if any(item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if "$patch" not in item]
    gone = {_identity(item, key) for item in patch if item.get("$patch") == "delete"}
    changes = [item for item in patch if "$patch" not in item]
    merged = [item for item in original if _identity(item, key) not in gone]
    _merge_items(merged, changes, key, list_type.item if isinstance(list_type, ListOf) else ANYTHING)
    return _in_order(merged, changes, original, key)


def _merge_items(merged: list[Any], changes: list[Object], key: str, item_type: Type) -> None:
    """Each change goes into the first item with the same key, or becomes a new one."""
    places: dict[Any, int] = {}
    for index, item in enumerate(merged):
        places.setdefault(_identity(item, key), index)
    for change in changes:
        if key not in change:
            raise statuses.bad_request(f"map: {change} does not contain declared merge key: {key}")
        place = places.setdefault(_identity(change, key), len(merged))
        if place == len(merged):
            merged.append({})
        merged[place] = strategic_merge(merged[place], change, item_type)


def _identity(item: Any, key: str) -> Any:
    """What tells items apart: the value of the merge key, or without one the item itself."""
    value = item.get(key) if key and isinstance(item, dict) else item
    return str(value) if isinstance(value, (dict, list)) else value


def _in_order(merged: list[Any], wanted: list[Any], original: list[Any], key: str) -> list[Any]:
    """Items of the patch in the patch's order, the server's others in theirs, new items before what they meet."""

    def identity(item: Any) -> Any:
        return _identity(item, key)

    rank = {identity(item): index for index, item in enumerate(wanted)}
    server = {identity(item): index for index, item in enumerate(original)}
    left = [item for item in merged if identity(item) not in rank]
    left.sort(key=lambda item: server.get(identity(item), len(server)))
    right = sorted((item for item in merged if identity(item) in rank), key=lambda item: rank[identity(item)])
    result: list[Any] = []
    lefts, rights = deque(left), deque(right)
    while lefts and rights:
        here, there = server.get(identity(lefts[0])), server.get(identity(rights[0]))
        result.append(lefts.popleft() if here is not None and there is not None and here < there else rights.popleft())
    return [*result, *lefts, *rights]


def _without_directives(value: list[Any]) -> list[Any]:
    return [item for item in value if not (isinstance(item, dict) and "$patch" in item)]


def _field(struct: Type, key: str) -> Field | None:
    return struct.fields.get(key) if isinstance(struct, Struct) else None


def _child(struct: Type, key: str) -> Type:
    if isinstance(struct, MapOf):
        return struct.item
    field = _field(struct, key)
    return field.type_ if field is not None else ANYTHING
