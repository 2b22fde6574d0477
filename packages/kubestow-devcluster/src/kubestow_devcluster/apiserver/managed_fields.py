"""Managed fields: which manager owns which fields of an object (``metadata.managedFields``), and server-side apply.

Every write updates the entries with the fields that it sets. Server-side apply is the patch type that is based on them;
the others are rules of the core (:mod:`kubestow.rules.patches`). Its manager owns exactly the fields of the applied
configuration: fields that it no longer applies are removed unless another manager owns them; fields that another
manager owns conflict unless the apply is forced.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kubestow_devcluster.apiserver.schema.types import ANY, ListOf, MapOf, Object, Struct, StructField, Type
from kubestow_devcluster.apiserver.statuses import FieldError, StatusError

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
class FieldChanges:
    """The paths in which two objects differ: ``changed`` are added or modified, ``removed`` are not in the new one."""

    changed: list[FieldPath] = field(default_factory=list)
    removed: list[FieldPath] = field(default_factory=list)


def compare(old: Object, new: Object, struct: Struct) -> FieldChanges:
    comparison = FieldChanges()
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
    old: Any, new: Any, type_: Type, struct_field: StructField | None, path: FieldPath, comparison: FieldChanges
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


@dataclass(frozen=True, slots=True)
class FieldManager:
    """The identity of an entry. ``operation`` is Apply or Update."""

    name: str
    operation: str
    api_version: str
    subresource: str = ""

    @classmethod
    def of(cls, entry: Object) -> FieldManager:
        return cls(
            entry.get("manager", ""),
            entry.get("operation", ""),
            entry.get("apiVersion", ""),
            entry.get("subresource", ""),
        )

    def entry(self, fieldset: Fieldset, time: str) -> Object:
        entry = {
            "manager": self.name,
            "operation": self.operation,
            "apiVersion": self.api_version,
            "time": time,
            "fieldsType": "FieldsV1",
            "fieldsV1": sorted_tree(fieldset),
        }
        if self.subresource:
            entry["subresource"] = self.subresource
        return entry

    def __str__(self) -> str:
        """The manager as kube-apiserver names it in conflicts."""
        text = f'"{self.name}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return f"{text} using {self.api_version}" if self.operation == "Update" else text


def written_entries(requested: list[Object] | None, current: list[Object]) -> list[Object]:
    """The entries of an object after a client has written ``requested`` (None: nothing) in place of ``current``.

    Entries of which one is invalid are ignored, as kube-apiserver does. A single empty entry removes all.
    """
    if not requested or requested == current:
        return current
    if requested == [{}]:
        return []
    return requested if all(map(_is_valid, requested)) else current


def _is_valid(entry: Object) -> bool:
    return bool(
        entry.get("operation") in ("Apply", "Update")
        and entry.get("apiVersion")
        and entry.get("fieldsType") == "FieldsV1"
        and _is_fieldset(entry.get("fieldsV1") or {})
    )


def _is_fieldset(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_fieldset, value.values()))


def record_update(old: Object | None, new: Object, struct: Struct, manager: FieldManager, time: str) -> None:
    """Update the managedFields of ``new`` after ``manager`` created it (``old`` is None) or updated ``old``."""
    metadata = new["metadata"]
    if old is None:
        fieldset = created_fieldset(new, struct)
        if fieldset:
            metadata["managedFields"] = [manager.entry(fieldset, time)]
        return
    comparison = compare(old, new, struct)
    entries = metadata.get("managedFields") or []
    if comparison.changed or comparison.removed:
        entries = _updated_entries(entries, comparison, manager, time)
    if entries:
        metadata["managedFields"] = entries
    else:
        metadata.pop("managedFields", None)


def _updated_entries(entries: list[Object], comparison: FieldChanges, manager: FieldManager, time: str) -> list[Object]:
    """The entries after ``manager`` has taken the changed fields; removed fields have no owner."""
    result: list[Object] = []
    fieldset: Fieldset = {}
    old_entry: Object | None = None
    for entry in entries:
        if FieldManager.of(entry) == manager:
            old_entry, fieldset = entry, copy_tree(entry.get("fieldsV1") or {})
            continue
        remaining = without_fields(entry, comparison.changed + comparison.removed)
        if remaining is not None:
            result.append(remaining)
    for path in comparison.removed:
        remove(fieldset, path)
    for path in comparison.changed:
        insert(fieldset, path)
    if fieldset:
        is_unchanged = old_entry is not None and old_entry.get("fieldsV1") == fieldset
        result.append(old_entry if is_unchanged and old_entry is not None else manager.entry(fieldset, time))
    return sorted_entries(result)


def without_fields(entry: Object, paths: list[FieldPath]) -> Object | None:
    """The entry without these fields; None when none are left."""
    fieldset = entry.get("fieldsV1") or {}
    lost = [path for path in paths if contains(fieldset, path)]
    if not lost:
        return entry
    fieldset = copy_tree(fieldset)
    for path in lost:
        remove(fieldset, path)
    return {**entry, "fieldsV1": fieldset} if fieldset else None


def sorted_entries(entries: list[Object]) -> list[Object]:
    """The entries in kube-apiserver's order: by operation, time and manager."""

    def order(entry: Object) -> tuple[str, ...]:
        manager = FieldManager.of(entry)
        return manager.operation, entry.get("time", ""), manager.name, manager.api_version, manager.subresource

    return sorted(entries, key=order)


def server_side_apply(
    live: Object | None,
    config: Object,
    struct: Struct,
    manager: FieldManager,
    *,
    force: bool,
    forced: Fieldset | None = None,
    time: str,
) -> Object:
    """The object after ``manager`` applies ``config`` to ``live`` (None: creates it), with its managedFields.

    Raises a 409 StatusError that names the conflicting managers, unless forced for all or for the conflicting fields.
    """
    config = _without_empty(config, struct)
    fieldset = applied_fieldset(config, struct)
    if live is None:
        created = {**config, "metadata": dict(config.get("metadata", {}))}
        if fieldset:
            created["metadata"]["managedFields"] = [manager.entry(fieldset, time)]
        return created
    entries = live["metadata"].get("managedFields") or []
    entry = next((entry for entry in entries if FieldManager.of(entry) == manager), None)
    others = [other for other in entries if other is not entry]
    applied: Object = _merge(live, config, struct)
    if entry is not None:
        # Every configuration has a name, although no manager owns it.
        named: Fieldset = {"f:metadata": {}}
        owned = [named, fieldset, *(other.get("fieldsV1") or {} for other in others)]
        applied = _remove_unapplied(applied, entry.get("fieldsV1") or {}, owned, struct)
    comparison = compare(live, applied, struct)
    unforced = [path for path in comparison.changed if not contains(forced or {}, path)]
    if not force and (conflicts := _conflicts(others, unforced)):
        raise _conflict_error(conflicts)
    remaining = [without_fields(other, comparison.changed + comparison.removed) for other in others]
    if entry is None or entry.get("fieldsV1") != fieldset:
        entry = manager.entry(fieldset, time)
    applied["metadata"] = {**applied["metadata"]}
    applied["metadata"]["managedFields"] = sorted_entries([entry, *(other for other in remaining if other is not None)])
    return applied


def _without_empty(value: Any, type_: Type) -> Any:
    """A configuration without the nulls and the empty lists and maps that are not stored."""
    if isinstance(value, dict):
        kept = {}
        for key, item in value.items():
            item_type, field = child_field(type_, key)
            if item is not None and (item or field is None or not field.omit_empty):
                kept[key] = _without_empty(item, item_type)
        return kept
    if isinstance(value, list) and isinstance(type_, ListOf):
        return [_without_empty(item, type_.item) for item in value]
    return value


def _merge(live: Any, config: Any, type_: Type, field: StructField | None = None) -> Any:
    if not is_granular(config, type_, field) or not is_granular(live, type_, field):
        return config
    if isinstance(config, dict):
        result = dict(live)
        for key, value in config.items():
            if value is None:
                continue
            result[key] = _merge(result[key], value, *child_field(type_, key)) if key in result else value
        return result
    positions = {element: position for position, (element, *_) in enumerate(child_fields(live, type_, field))}
    merged = list(live)
    for element, item, item_type, item_field in child_fields(config, type_, field):
        if element in positions:
            position = positions[element]
            merged[position] = _merge(merged[position], item, item_type, item_field)
        else:
            merged.append(item)
    return merged


def _remove_unapplied(
    value: Any, previous: Fieldset, owned: list[Fieldset], type_: Type, field: StructField | None = None
) -> Any:
    """``value`` without the fields of the manager's ``previous`` fieldset that no fieldset in ``owned`` has.

    A field goes whole, with the fields below it that have other owners or none. The fieldsets are those of ``value``.
    """
    if not previous or not is_granular(value, type_, field):
        return value
    kept = []
    for element, item, item_type, item_field in child_fields(value, type_, field):
        before, remaining = previous.get(element), [tree[element] for tree in owned if element in tree]
        # A field with a name is owned with any field below it; an item of a list or map on its own.
        is_named = item_field is not None and isinstance(type_, Struct)
        if before is None:
            kept.append((element, item))
        elif any(map(is_owned, remaining)) or (remaining and is_named) or not (is_named or is_owned(before)):
            kept.append((element, _remove_unapplied(item, before, remaining, item_type, item_field)))
    if isinstance(value, dict):
        return {element[2:]: item for element, item in kept}
    return [item for _, item in kept]


def _conflicts(entries: list[Object], changed: list[FieldPath]) -> list[tuple[FieldManager, FieldPath]]:
    """The changed fields that other managers own."""
    return [
        (FieldManager.of(entry), path)
        for entry in entries
        for path in changed
        if contains(entry.get("fieldsV1") or {}, path)
    ]


def _conflict_error(conflicts: list[tuple[FieldManager, FieldPath]]) -> StatusError:
    errors = [
        FieldError("FieldManagerConflict", f"conflict with {manager}", format_path(path)) for manager, path in conflicts
    ]
    if len(errors) == 1:
        message = f"Apply failed with 1 conflict: {errors[0].message}: {errors[0].field}"
    else:
        by_manager: dict[str, list[str]] = {}
        for manager, path in conflicts:
            by_manager.setdefault(f"conflicts with {manager}:", []).append(f"- {format_path(path)}")
        lines = [line for heading, paths in sorted(by_manager.items()) for line in (heading, *paths)]
        message = f"Apply failed with {len(errors)} conflicts: " + "\n".join(lines)
    causes = [{"reason": error.reason, "message": error.message, "field": error.field} for error in errors]
    return StatusError(409, "Conflict", message, details={"causes": causes})


def format_path(path: FieldPath) -> str:
    """A path as kube-apiserver shows it: ``.spec.containers[name="c"].image``."""
    text = ""
    for element in path:
        kind, _, name = element.partition(":")
        if kind == "f":
            text += f".{name}"
        elif kind == "k":
            keys = msgspec.json.decode(name)
            text += "[" + ",".join(f"{key}={msgspec.json.encode(value).decode()}" for key, value in keys.items()) + "]"
        else:
            text += f"[={name}]"
    return text
