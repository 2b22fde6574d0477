"""The patch types of the Kubernetes API but server-side apply: JSON patch, JSON merge patch, strategic merge patch.

Each is a function from an object and a patch to a new object. Inputs are not modified; outputs can share parts with
them. A patch that cannot be applied raises APIError with code, reason and message of kube-apiserver's response.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import msgspec

from kubestow.errors import APIError

Object = dict[str, Any]

#: Operations in one JSON patch at most.
MAX_OPERATIONS = 10_000
#: Bytes of JSON that the copy operations of one JSON patch can add.
MAX_COPIED = 3 * 1024 * 1024

_ELEMENT_ORDER = "$setElementOrder/"
_DELETE_FROM_LIST = "$deleteFromPrimitiveList/"


# -- JSON merge patch ----------------------------------------------------------------------------------------------


def json_merge_patch(original: Any, patch: Any) -> Any:
    """Merge ``patch`` into ``original``; null removes a field (RFC 7386)."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(original) if isinstance(original, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = json_merge_patch(result.get(key), value)
    return result


# -- JSON patch ----------------------------------------------------------------------------------------------------


def json_patch(original: Object, operations: Any) -> Object:
    """Apply the operations of a JSON patch (RFC 6902), within kube-apiserver's limits.

    Two things keep this from being the ``jsonpatch`` library: the limit on what copies of copies add, which needs each
    operation's source before it is applied, and ``test``, for which the Go library takes a missing member for null.

    Raises APIError: 400 for a malformed patch, 413 for one over the limits, 422 for one that does not apply.
    """
    if not isinstance(operations, list):
        raise _malformed("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    if len(operations) > MAX_OPERATIONS:
        message = f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}"
        raise APIError(413, "RequestEntityTooLarge", message)
    document: Any = copy.deepcopy(original)
    copied = 0
    for operation in operations:
        if not isinstance(operation, dict):
            raise _malformed("json: cannot unmarshal into Go value of type jsonpatch.Operation")
        try:
            if operation["op"] == "copy":
                copied += len(msgspec.json.encode(_get(document, _pointer(operation["from"]))))
                if copied > MAX_COPIED:  # copies of copies double the document with every operation
                    problem = "Unable to complete the copy, the accumulated size increase of copy is"
                    message = f"Request entity too large: {problem} {copied}, exceeding the limit {MAX_COPIED}"
                    raise APIError(413, "RequestEntityTooLarge", message)
            document = _operate(document, operation)
        except (KeyError, IndexError, ValueError, TypeError):
            raise _rejected() from None
    if not isinstance(document, dict):
        raise _rejected()
    return document


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


# -- strategic merge patch -----------------------------------------------------------------------------------------


class PatchSchema(Protocol):
    """What a strategic merge patch reads of the schema of an object: how its fields merge."""

    def field(self, name: str) -> FieldMerge:
        """How a field merges; :data:`ANY_FIELD` for one that the schema does not have."""


class FieldMerge(NamedTuple):
    """How a field merges: ``strategy`` is ``merge``, ``replace`` or empty (``x-kubernetes-patch-strategy``).

    ``schema`` is that of the field's value, of an item for a list. Lists with the strategy ``merge`` merge by
    ``merge_key``, by value if it is empty; other lists are replaced.
    """

    schema: PatchSchema
    strategy: str = ""
    merge_key: str = ""


@dataclass(frozen=True, slots=True)
class FieldTable:
    """A schema as a table of the fields that merge in a way of their own, and of those that lead to them."""

    fields: Mapping[str, FieldMerge]

    def field(self, name: str) -> FieldMerge:
        """See :class:`PatchSchema`."""
        return self.fields.get(name, ANY_FIELD)


ANY_FIELD = FieldMerge(FieldTable({}))


def strategic_merge_patch(original: Object, patch: Mapping[str, Any], schema: PatchSchema) -> Object:
    """Merge ``patch`` into ``original``: a merge patch in which the schema defines how lists merge.

    Directives override the schema: ``$patch``, ``$retainKeys``, ``$setElementOrder/<list>`` and
    ``$deleteFromPrimitiveList/<list>`` (api-machinery's strategic-merge-patch). Raises APIError (400) for an invalid
    directive.
    """
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise _malformed(f"unknown patch type found: {directive}")
    result = dict(original)
    element_orders: dict[str, list[Any]] = {}
    for key, value in patch.items():
        if key.startswith("$") and key != "$patch" and not isinstance(value, list):
            raise _malformed(f"{key} expects a list")
        if key.startswith(_ELEMENT_ORDER):
            element_orders[key.removeprefix(_ELEMENT_ORDER)] = value
        elif key.startswith(_DELETE_FROM_LIST):
            name = key.removeprefix(_DELETE_FROM_LIST)
            result[name] = [item for item in result.get(name) or [] if item not in value]
        elif key not in ("$patch", "$retainKeys"):
            _merge_field(result, key, value, schema.field(key))
    for key, order in element_orders.items():
        field = schema.field(key)
        if key in result and field.strategy == "merge":
            result[key] = _sort_elements(result[key], order, original.get(key) or [], field.merge_key)
    if "$retainKeys" in patch:
        result = {key: value for key, value in result.items() if key in patch["$retainKeys"]}
    return result


def _merge_field(result: Object, key: str, value: Any, field: FieldMerge) -> None:
    before = result.get(key)
    if value is None:
        result.pop(key, None)
    elif isinstance(value, Mapping) and field.strategy == "replace":
        result[key] = value
    elif isinstance(value, Mapping):
        merged = strategic_merge_patch(before if isinstance(before, dict) else {}, value, field.schema)
        if merged or value.get("$patch") != "delete":
            result[key] = merged
        else:
            result.pop(key, None)
    elif isinstance(value, list) and field.strategy == "merge" and isinstance(before, list):
        result[key] = _merge_list(before, value, field)
    elif isinstance(value, list):
        result[key] = [item for item in value if not (isinstance(item, dict) and "$patch" in item)]
    else:
        result[key] = value


def _merge_list(original: list[Any], patch: list[Any], field: FieldMerge) -> list[Any]:
    key = field.merge_key
    if not key:
        if any(isinstance(item, (dict, list)) for item in patch):
            raise _malformed("expected list of primitives in a list merged as a set")
        return _sort_elements(list(dict.fromkeys([*original, *patch])), patch, original, "")
    if not all(isinstance(item, dict) for item in patch):
        raise _malformed("expected list of maps in a list merged by key")
    if any(item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if "$patch" not in item]
    deleted = {_merge_key(item, key) for item in patch if item.get("$patch") == "delete"}
    changes = [item for item in patch if "$patch" not in item]
    merged = [item for item in original if _merge_key(item, key) not in deleted]
    positions: dict[Any, int] = {}  # of the first item with each key
    for index, item in enumerate(merged):
        positions.setdefault(_merge_key(item, key), index)
    for change in changes:
        if key not in change:
            raise _malformed(f"map: {change} does not contain declared merge key: {key}")
        position = positions.setdefault(_merge_key(change, key), len(merged))
        if position == len(merged):
            merged.append({})
        merged[position] = strategic_merge_patch(merged[position], change, field.schema)
    return _sort_elements(merged, changes, original, key)


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


def _malformed(problem: str) -> APIError:
    return APIError(400, "BadRequest", problem)


def _rejected() -> APIError:
    return APIError(422, "Invalid", "the server rejected our request due to an error in our request")
