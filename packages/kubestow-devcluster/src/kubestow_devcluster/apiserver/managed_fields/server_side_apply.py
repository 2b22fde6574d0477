"""Server-side apply: merges an applied configuration and records its fields as owned by the applying manager.

The manager owns exactly the fields of its configuration. Fields that it no longer applies are removed unless another
manager owns them; fields that another manager owns conflict unless the apply is forced.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from kubestow_devcluster.apiserver.field_errors import FieldError
from kubestow_devcluster.apiserver.managed_fields.managers import (
    FieldManager,
    FieldPath,
    Fieldset,
    applied_fieldset,
    child_field,
    child_fields,
    compare,
    contains,
    is_granular,
    is_owned,
    sorted_entries,
    without_fields,
)
from kubestow_devcluster.apiserver.schema.types import ListOf, Object, Struct, StructField, Type
from kubestow_devcluster.apiserver.statuses import StatusError


def server_side_apply(
    live: Object | None, config: Object, struct: Struct, manager: FieldManager, *, force: bool, time: str
) -> Object:
    """The object after ``manager`` applies ``config`` to ``live`` (None: creates it), with its managedFields.

    Raises a 409 StatusError that names the conflicting managers, unless forced.
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
    if not force and (conflicts := _conflicts(others, comparison.changed)):
        raise _conflict_error(conflicts)
    remaining = [without_fields(other, comparison.changed + comparison.removed) for other in others]
    if entry is None or entry.get("fieldsV1") != fieldset:
        entry = manager.entry(fieldset, time)
    applied["metadata"] = {**applied["metadata"]}
    applied["metadata"]["managedFields"] = sorted_entries([entry, *(other for other in remaining if other is not None)])
    return applied


def undeclared_fields(config: Object, struct: Struct) -> list[str]:
    """The paths of the fields of a configuration that its schema does not have: ``.spec.containers[name="c"].x``."""
    return list(_undeclared(config, struct, None, ""))


def _undeclared(value: Any, type_: Type, field: StructField | None, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            item_type, item_field = child_field(type_, key)
            if isinstance(type_, Struct) and item_field is None and not type_.preserves_unknown_fields:
                yield f"{path}.{key}"
            else:
                yield from _undeclared(item, item_type, item_field, f"{path}.{key}")
    elif isinstance(value, list) and isinstance(type_, ListOf):
        is_keyed = is_granular(value, type_, field) and all(isinstance(item, dict) for item in value)
        elements = [element for element, *_ in child_fields(value, type_, field)] if is_keyed else []
        for index, item in enumerate(value):
            place = _format_path((elements[index],)) if is_keyed else f"[{index}]"
            yield from _undeclared(item, type_.item, None, f"{path}{place}")


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
        FieldError("FieldManagerConflict", f"conflict with {manager}", _format_path(path))
        for manager, path in conflicts
    ]
    if len(errors) == 1:
        message = f"Apply failed with 1 conflict: {errors[0].message}: {errors[0].field}"
    else:
        by_manager: dict[str, list[str]] = {}
        for manager, path in conflicts:
            by_manager.setdefault(f"conflicts with {manager}:", []).append(f"- {_format_path(path)}")
        lines = [line for heading, paths in sorted(by_manager.items()) for line in (heading, *paths)]
        message = f"Apply failed with {len(errors)} conflicts: " + "\n".join(lines)
    causes = [{"reason": error.reason, "message": error.message, "field": error.field} for error in errors]
    return StatusError(409, "Conflict", message, details={"causes": causes})


def _format_path(path: FieldPath) -> str:
    """``.spec.containers[name="c"].image``."""
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
