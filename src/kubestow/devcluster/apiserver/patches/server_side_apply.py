"""Server-side apply: merges an applied configuration and records its fields as owned by the applying manager.

The manager owns exactly the fields of its configuration. Fields that it no longer applies are removed unless another
manager owns them; fields that another manager owns conflict unless the apply is forced.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kubestow.devcluster.apiserver.field_errors import FieldError
from kubestow.devcluster.apiserver.managed_fields.field_paths import FieldPath, child_field, child_fields, is_granular
from kubestow.devcluster.apiserver.managed_fields.fieldsets import (
    Fieldset,
    applied_fieldset,
    compare,
    contains,
    has_prefix,
    leaves_first,
)
from kubestow.devcluster.apiserver.managed_fields.managers import FieldManager, sorted_entries, without_fields
from kubestow.devcluster.apiserver.schema import ListOf, Object, Struct, StructField, Type
from kubestow.devcluster.apiserver.statuses import StatusError

__all__ = ["server_side_apply"]


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
        owned = [fieldset, *(other.get("fieldsV1") or {} for other in others)]
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


def _remove_unapplied(applied: Object, previous: Fieldset, owned: list[Fieldset], struct: Struct) -> Object:
    """Remove the fields of the manager's previous fieldset that no fieldset in ``owned`` contains."""
    for path in leaves_first(previous):
        if not any(has_prefix(fieldset, path) for fieldset in owned):
            applied = _remove_field(applied, path, struct)
    return applied


def _remove_field(value: Any, path: FieldPath, type_: Type, field: StructField | None = None) -> Any:
    """``value`` without the field at ``path``."""
    element, rest = path[0], path[1:]
    if isinstance(value, dict):
        key = element[2:]
        if key not in value:
            return value
        if not rest:
            return {name: item for name, item in value.items() if name != key}
        return {**value, key: _remove_field(value[key], rest, *child_field(type_, key))}
    if not isinstance(value, list):
        return value
    kept = []
    for item_element, item, item_type, item_field in child_fields(value, type_, field):
        if item_element != element:
            kept.append(item)
        elif rest:
            kept.append(_remove_field(item, rest, item_type, item_field))
    return kept


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
