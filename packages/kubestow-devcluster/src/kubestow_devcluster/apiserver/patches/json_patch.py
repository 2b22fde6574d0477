"""JSON patch (RFC 6902)."""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.schema.types import Object

__all__ = ["json_patch"]

#: Operations in one patch at most, as in kube-apiserver.
MAX_OPERATIONS = 10_000
#: Bytes of JSON that the copy operations of one patch can add, as in kube-apiserver.
MAX_COPIED = 3 * 1024 * 1024


def json_patch(original: Object, operations: Any) -> Object:
    """Apply the operations of a JSON patch.

    Raises a StatusError: 400 for a malformed patch, 413 for one over the limits, 422 for one that does not apply.
    """
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
                _check_copied(copied)
            document = _apply(document, operation)
        except (KeyError, IndexError, ValueError, TypeError):
            raise statuses.rejected() from None
    if not isinstance(document, dict):
        raise statuses.rejected()
    return document


def _check_copied(copied: int) -> None:
    """Copies of copies double the document with every operation. Raises a 413 StatusError."""
    if copied > MAX_COPIED:
        message = (
            "Request entity too large: Unable to complete the copy, the accumulated size increase of copy is"
            f" {copied}, exceeding the limit {MAX_COPIED}"
        )
        raise statuses.StatusError(413, "RequestEntityTooLarge", message)


def _apply(document: Any, operation: Object) -> Any:
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
