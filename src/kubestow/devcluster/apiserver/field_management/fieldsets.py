"""Sets of fields, as trees: the nested dicts of ``fieldsV1`` themselves.

An empty dict is an owned field, ``"."`` marks an owned field that has owned children. Here are the sets that new,
applied and changed objects give rise to, and the few operations on trees that ownership needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kubestow.devcluster.apiserver.field_management.parts import (
    UNOWNED,
    Object,
    Path,
    child,
    is_granular,
    owned_metadata,
    parts,
)
from kubestow.devcluster.apiserver.schema import Field, Struct, Type

__all__ = [
    "Changes",
    "Fields",
    "compare",
    "contains",
    "copied",
    "declared",
    "discard",
    "insert",
    "leaves_first",
    "of_new",
    "reaches",
]

#: A fieldsV1 tree.
Fields = dict[str, Any]

_ABSENT = object()


# The fields of an object


def of_new(new: Object, struct: Struct) -> Fields:
    owned = {key: value for key, value in new.items() if key not in UNOWNED}
    owned["metadata"] = owned_metadata(new["metadata"])
    return _set_in_empty(owned, struct, top=True)


def _set_in_empty(value: Object, struct: Struct, *, top: bool = False) -> Fields:
    """What is owned of a struct that was there when it was empty: what is in it now, but not what was in it then."""
    fields: Fields = {}
    for key, item in value.items():
        type_, field_ = child(struct, key)
        present = field_ is not None and (field_.present or (top and key in ("metadata", "spec", "status")))
        if not present:
            fields[f"f:{key}"] = _added(item, type_, field_)
        elif item and isinstance(type_, Struct) and is_granular(item, type_, field_):
            below = _set_in_empty(item, type_)
            if below:
                fields[f"f:{key}"] = below
        elif item:
            below = _added(item, type_, field_)
            below.pop(".", None)
            fields[f"f:{key}"] = below
    return fields


def _added(value: Any, type_: Type, field_: Field | None) -> Fields:
    if not value or not is_granular(value, type_, field_):
        return {}
    tree: Fields = {".": {}}
    for step, item, item_type, item_field in parts(value, type_, field_):
        tree[step] = _added(item, item_type, item_field)
    return tree


def declared(config: Object, struct: Struct) -> Fields:
    """The set of an applied configuration: leaves, and list items; containers only where they are empty."""
    tree: Fields = {}
    _declare(config, struct, tree)
    return tree


def _declare(value: Any, type_: Type, tree: Fields, field_: Field | None = None, *, depth: int = 0) -> None:
    """The field set of an applied configuration: leaves, and list items; containers only where they are empty."""
    for step, item, item_type, item_field in parts(value, type_, field_):
        if (depth == 0 and step[2:] in UNOWNED) or item is None:
            continue
        if depth == 0 and step == "f:metadata":
            item = owned_metadata(item)
            if not item:
                continue
        below: Fields = {".": {}} if step[0] == "k" else {}
        if item and is_granular(item, item_type, item_field):
            _declare(item, item_type, below, item_field, depth=depth + 1)
        tree[step] = below


# Differences between two


@dataclass(slots=True)
class Changes:
    """The paths in which two objects differ."""

    taken: list[Path] = field(default_factory=list)
    removed: list[Path] = field(default_factory=list)


def compare(old: Object, new: Object, struct: Struct, changes: Changes) -> None:
    for key in {**old, **new}:
        if key in UNOWNED:
            continue
        before, after = old.get(key, _ABSENT), new.get(key, _ABSENT)
        if key == "metadata":
            before, after = owned_metadata(before), owned_metadata(after)
        if before != after:
            _compare(before, after, *child(struct, key), (f"f:{key}",), changes)


def _compare(old: Any, new: Any, type_: Type, field_: Field | None, path: Path, changes: Changes) -> None:
    if new is _ABSENT:
        changes.removed.extend(_paths(old, type_, field_, path))
    elif old is _ABSENT:
        changes.taken.extend(_paths(new, type_, field_, path))
    elif is_granular(new, type_, field_) and (old is None or is_granular(old, type_, field_)):
        before = {step: (item, t, f) for step, item, t, f in parts(old or {}, type_, field_)}
        for step, item, item_type, item_field in parts(new, type_, field_):
            was = before.pop(step, (_ABSENT, None, None))[0]
            if was is _ABSENT or was != item:
                _compare(was, item, item_type, item_field, (*path, step), changes)
        for step, (item, item_type, item_field) in before.items():
            changes.removed.extend(_paths(item, item_type, item_field, (*path, step)))
    else:
        changes.taken.append(path)


def _paths(value: Any, type_: Type, field_: Field | None, path: Path) -> Iterator[Path]:
    yield path
    if value and is_granular(value, type_, field_):
        for step, item, item_type, item_field in parts(value, type_, field_):
            yield from _paths(item, item_type, item_field, (*path, step))


# Trees


def copied(tree: Fields) -> Fields:
    return {step: copied(below) for step, below in tree.items()}


def insert(tree: Fields, path: Path) -> None:
    for step in path[:-1]:
        below = tree.get(step)
        if below is None:
            below = tree[step] = {}
        elif not below:
            below["."] = {}
        tree = below
    below = tree.get(path[-1])
    if below is None:
        tree[path[-1]] = {}
    elif below:
        below["."] = {}


def contains(tree: Fields, path: Path) -> bool:
    found = _below(tree, path)
    return found is not None and (not found or "." in found)


def reaches(tree: Fields, path: Path) -> bool:
    return _below(tree, path) is not None


def _below(tree: Fields, path: Path) -> Fields | None:
    for step in path:
        found = tree.get(step)
        if found is None:
            return None
        tree = found
    return tree


def discard(tree: Fields, path: Path) -> None:
    trail: list[tuple[Fields, str]] = []
    for step in path:
        if step not in tree:
            return
        trail.append((tree, step))
        tree = tree[step]
    if set(tree) - {"."}:
        tree.pop(".", None)
        return
    for parent, step in reversed(trail):
        del parent[step]
        if set(parent) == {"."}:
            # The parent is owned itself and has no owned children left.
            del parent["."]
            return
        if parent:
            return


def leaves_first(tree: Fields, path: Path = ()) -> Iterator[Path]:
    for step, below in tree.items():
        if step != ".":
            yield from leaves_first(below, (*path, step))
    if path and (not tree or "." in tree):
        yield path
