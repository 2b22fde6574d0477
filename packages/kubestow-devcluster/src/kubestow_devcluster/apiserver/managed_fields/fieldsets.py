"""Sets of fields, as the trees of nested dicts that ``fieldsV1`` stores.

An empty dict is an owned field; ``"."`` marks an owned field with owned children. This module computes the fieldsets
of new and applied objects and the comparison of two objects, and has the operations on trees that ownership needs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kubestow_devcluster.apiserver.managed_fields.field_paths import (
    TYPE_META,
    FieldPath,
    child_field,
    child_fields,
    is_granular,
    manageable_metadata,
)
from kubestow_devcluster.apiserver.schema import Object, Struct, StructField, Type

__all__ = [
    "Comparison",
    "Fieldset",
    "applied_fieldset",
    "compare",
    "contains",
    "copy_tree",
    "created_fieldset",
    "insert",
    "is_owned",
    "remove",
    "sorted_tree",
]

#: A fieldsV1 tree.
Fieldset = dict[str, Any]

_ABSENT = object()


# Fieldsets of objects


def created_fieldset(new: Object, struct: Struct) -> Fieldset:
    """The fields that creating ``new`` sets."""
    owned = {key: value for key, value in new.items() if key not in TYPE_META}
    owned["metadata"] = manageable_metadata(new["metadata"])
    return _set_in_empty(owned, struct, is_root=True)


def _set_in_empty(value: Object, struct: Struct, *, is_root: bool = False) -> Fieldset:
    """The fields of a struct that differ from the empty struct. Fields of the empty struct itself are not set."""
    fields: Fieldset = {}
    for key, item in value.items():
        type_, struct_field = child_field(struct, key)
        in_empty = struct_field is not None and (
            struct_field.in_empty or (is_root and key in ("metadata", "spec", "status"))
        )
        if not in_empty:
            fields[f"f:{key}"] = _added(item, type_, struct_field)
        elif item and isinstance(type_, Struct) and is_granular(item, type_, struct_field):
            children = _set_in_empty(item, type_)
            if children:
                fields[f"f:{key}"] = children
        elif item:
            children = _added(item, type_, struct_field)
            children.pop(".", None)
            fields[f"f:{key}"] = children
    return fields


def _added(value: Any, type_: Type, struct_field: StructField | None) -> Fieldset:
    """The fields of a value that was absent: itself and all below it."""
    if not value or not is_granular(value, type_, struct_field):
        return {}
    tree: Fieldset = {".": {}}
    for element, item, item_type, item_field in child_fields(value, type_, struct_field):
        tree[element] = _added(item, item_type, item_field)
    return tree


def applied_fieldset(config: Object, struct: Struct) -> Fieldset:
    """The fields of an applied configuration: leaves, list items, and empty containers."""
    tree: Fieldset = {}
    _add_applied(config, struct, tree)
    return tree


def _add_applied(
    value: Any, type_: Type, tree: Fieldset, struct_field: StructField | None = None, *, depth: int = 0
) -> None:
    for element, item, item_type, item_field in child_fields(value, type_, struct_field):
        if (depth == 0 and element[2:] in TYPE_META) or item is None:
            continue
        if depth == 0 and element == "f:metadata":
            item = manageable_metadata(item)
            if not item:
                continue
        children: Fieldset = {".": {}} if element[0] == "k" else {}
        if item and is_granular(item, item_type, item_field):
            _add_applied(item, item_type, children, item_field, depth=depth + 1)
        tree[element] = children


# Comparison of two objects


@dataclass(slots=True)
class Comparison:
    """The paths in which two objects differ: ``changed`` are added or modified, ``removed`` are not in the new one."""

    changed: list[FieldPath] = field(default_factory=list)
    removed: list[FieldPath] = field(default_factory=list)


def compare(old: Object, new: Object, struct: Struct) -> Comparison:
    comparison = Comparison()
    for key in {**old, **new}:
        if key in TYPE_META:
            continue
        before, after = old.get(key, _ABSENT), new.get(key, _ABSENT)
        if key == "metadata":
            before, after = manageable_metadata(before), manageable_metadata(after)
        if before != after:
            _compare(before, after, *child_field(struct, key), (f"f:{key}",), comparison)
    return comparison


def _compare(
    old: Any, new: Any, type_: Type, struct_field: StructField | None, path: FieldPath, comparison: Comparison
) -> None:
    if new is _ABSENT:
        comparison.removed.extend(_paths(old, type_, struct_field, path))
    elif old is _ABSENT:
        comparison.changed.extend(_paths(new, type_, struct_field, path))
    elif is_granular(new, type_, struct_field) and (old is None or is_granular(old, type_, struct_field)):
        before = {element: (item, t, f) for element, item, t, f in child_fields(old or {}, type_, struct_field)}
        for element, item, item_type, item_field in child_fields(new, type_, struct_field):
            old_item = before.pop(element, (_ABSENT, None, None))[0]
            if old_item is _ABSENT or old_item != item:
                _compare(old_item, item, item_type, item_field, (*path, element), comparison)
        for element, (item, item_type, item_field) in before.items():
            comparison.removed.extend(_paths(item, item_type, item_field, (*path, element)))
    else:
        comparison.changed.append(path)


def _paths(value: Any, type_: Type, struct_field: StructField | None, path: FieldPath) -> Iterator[FieldPath]:
    """The path of a value and those of all fields below it."""
    yield path
    if value and is_granular(value, type_, struct_field):
        for element, item, item_type, item_field in child_fields(value, type_, struct_field):
            yield from _paths(item, item_type, item_field, (*path, element))


# Operations on trees


def copy_tree(tree: Fieldset) -> Fieldset:
    return {element: copy_tree(children) for element, children in tree.items()}


def insert(tree: Fieldset, path: FieldPath) -> None:
    """Add the field at ``path``."""
    for element in path[:-1]:
        children = tree.get(element)
        if children is None:
            children = tree[element] = {}
        elif not children:
            children["."] = {}
        tree = children
    children = tree.get(path[-1])
    if children is None:
        tree[path[-1]] = {}
    elif children:
        children["."] = {}


def contains(tree: Fieldset, path: FieldPath) -> bool:
    """Whether the field at ``path`` is owned itself."""
    for element in path:
        found = tree.get(element)
        if found is None:
            return False
        tree = found
    return is_owned(tree)


def is_owned(tree: Fieldset) -> bool:
    """Whether the field that this is the tree of is owned itself, not only fields below it."""
    return not tree or "." in tree


def remove(tree: Fieldset, path: FieldPath) -> None:
    """Remove the field at ``path``, but not those below it; drops parents that are left empty."""
    ancestors: list[tuple[Fieldset, str]] = []
    for element in path:
        if element not in tree:
            return
        ancestors.append((tree, element))
        tree = tree[element]
    if set(tree) - {"."}:
        tree.pop(".", None)
        return
    for parent, element in reversed(ancestors):
        del parent[element]
        if set(parent) == {"."}:
            # An owned parent without owned children is written as an empty dict.
            del parent["."]
            return
        if parent:
            return


def sorted_tree(tree: Fieldset) -> Fieldset:
    """The tree in the order in which kube-apiserver writes it: fields by name, then items by keys, then by value."""
    if len(tree) < 2:
        return {element: sorted_tree(children) for element, children in tree.items()}
    return {element: sorted_tree(tree[element]) for element in sorted(tree, key=_element_order)}


def _element_order(element: str) -> tuple[str, list[tuple[str, bool, Any]]]:
    """The sort key of a path element: kind, then parts. Numbers come before strings, and are compared as numbers."""
    kind, _, name = element.partition(":")
    parts: list[tuple[str, Any]] = [("", name)]
    if kind in ("k", "v"):
        # A client can store any text in managedFields.
        with contextlib.suppress(msgspec.DecodeError):
            value = msgspec.json.decode(name)
            parts = list(value.items()) if isinstance(value, dict) else [("", value)]
    return kind, [(key, False, part) if type(part) in (int, float) else (key, True, str(part)) for key, part in parts]
