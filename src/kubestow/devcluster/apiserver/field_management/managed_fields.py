"""Who owns which field: the entries of ``metadata.managedFields``, and server-side apply, which rests on them.

A plain write owns what it added or changed and takes it from the others; an apply owns exactly what it says, and may
not take what others own unless forced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from kubestow.devcluster.apiserver.field_errors import Cause
from kubestow.devcluster.apiserver.field_management import fieldsets
from kubestow.devcluster.apiserver.field_management.fieldsets import (
    Changes,
    Fields,
    contains,
    copied,
    discard,
    insert,
    leaves_first,
    reaches,
)
from kubestow.devcluster.apiserver.field_management.parts import Object, Path, child, is_granular, parts
from kubestow.devcluster.apiserver.schema import Field, ListOf, Struct, Type
from kubestow.devcluster.apiserver.statuses import StatusError

__all__ = ["Manager", "apply", "record_update"]


@dataclass(frozen=True, slots=True)
class Manager:
    """Who writes: the identity of one entry of managedFields."""

    name: str
    operation: str
    api_version: str
    subresource: str = ""

    @classmethod
    def of(cls, entry: Object) -> Manager:
        return cls(
            entry.get("manager", ""),
            entry.get("operation", ""),
            entry.get("apiVersion", ""),
            entry.get("subresource", ""),
        )

    def entry(self, fields: Fields, time: str) -> Object:
        made = {
            "manager": self.name,
            "operation": self.operation,
            "apiVersion": self.api_version,
            "time": time,
            "fieldsType": "FieldsV1",
            "fieldsV1": fields,
        }
        if self.subresource:
            made["subresource"] = self.subresource
        return made

    def __str__(self) -> str:
        text = f'"{self.name}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return f"{text} using {self.api_version}" if self.operation == "Update" else text


def record_update(old: Object | None, new: Object, struct: Struct, manager: Manager, time: str) -> None:
    """Write into ``new`` who owns its fields now that ``manager`` made it of ``old`` (None: created it)."""
    metadata = new["metadata"]
    if old is None:
        fields = fieldsets.of_new(new, struct)
        if fields:
            metadata["managedFields"] = [manager.entry(fields, time)]
        return
    changes = Changes()
    fieldsets.compare(old, new, struct, changes)
    entries = metadata.get("managedFields") or []
    if changes.taken or changes.removed:
        entries = _reassigned(entries, changes, manager, time)
    if entries:
        metadata["managedFields"] = entries
    else:
        metadata.pop("managedFields", None)


def apply(live: Object | None, config: Object, struct: Struct, manager: Manager, *, force: bool, time: str) -> Object:
    """The object that applying ``config`` leads to. Raises a 409 Failure naming others' fields, unless forced."""
    config = _meaningful(config, struct)
    wanted = fieldsets.declared(config, struct)
    if live is None:
        created = {**config, "metadata": dict(config.get("metadata", {}))}
        if wanted:
            created["metadata"]["managedFields"] = [manager.entry(wanted, time)]
        return created
    entries = live["metadata"].get("managedFields") or []
    mine = next((entry for entry in entries if Manager.of(entry) == manager), None)
    others = [entry for entry in entries if entry is not mine]
    applied: Object = _merged(live, config, struct)
    if mine is not None:
        # What an applier no longer says, and nobody else owns, goes.
        for path in leaves_first(mine.get("fieldsV1") or {}):
            if not any(
                reaches(fields, path) for fields in (wanted, *(other.get("fieldsV1") or {} for other in others))
            ):
                applied = _pruned(applied, path, struct)
    changes = Changes()
    fieldsets.compare(live, applied, struct, changes)
    conflicts = [
        (Manager.of(entry), path)
        for entry in others
        for path in changes.taken
        if contains(entry.get("fieldsV1") or {}, path)
    ]
    if conflicts and not force:
        raise _conflict(conflicts)
    kept = [_released(entry, changes.taken + changes.removed) for entry in others]
    unchanged = mine is not None and mine.get("fieldsV1") == wanted
    entry = mine if unchanged and mine is not None else manager.entry(wanted, time)
    applied["metadata"] = {**applied["metadata"]}
    applied["metadata"]["managedFields"] = _ordered([entry, *(other for other in kept if other is not None)])
    return applied


def _conflict(conflicts: list[tuple[Manager, Path]]) -> StatusError:
    causes = [Cause("FieldManagerConflict", f"conflict with {manager}", _shown(path)) for manager, path in conflicts]
    if len(conflicts) == 1:
        message = f"Apply failed with 1 conflict: {causes[0].message}: {causes[0].field}"
    else:
        lines: dict[str, list[str]] = {}
        for manager, path in conflicts:
            lines.setdefault(f"conflicts with {manager}:", []).append(f"- {_shown(path)}")
        listed = "\n".join(line for heading, paths in sorted(lines.items()) for line in (heading, *paths))
        message = f"Apply failed with {len(conflicts)} conflicts: {listed}"
    details = {"causes": [{"reason": c.reason, "message": c.message, "field": c.field} for c in causes]}
    return StatusError(409, "Conflict", message, details=details)


def _shown(path: Path) -> str:
    """``.spec.containers[name="c"].image`` for the path of that field."""
    text = ""
    for step in path:
        kind, _, name = step.partition(":")
        if kind == "f":
            text += f".{name}"
        elif kind == "k":
            keys = msgspec.json.decode(name)
            text += "[" + ",".join(f"{key}={msgspec.json.encode(value).decode()}" for key, value in keys.items()) + "]"
        else:
            text += f"[={name}]"
    return text


# Entries


def _reassigned(entries: list[Object], changes: Changes, manager: Manager, time: str) -> list[Object]:
    result: list[Object] = []
    mine: Fields = {}
    old_entry: Object | None = None
    for entry in entries:
        if Manager.of(entry) == manager:
            old_entry, mine = entry, copied(entry.get("fieldsV1") or {})
            continue
        released = _released(entry, changes.taken + changes.removed)
        if released is not None:
            result.append(released)
    for path in changes.removed:
        discard(mine, path)
    for path in changes.taken:
        insert(mine, path)
    if mine:
        same = old_entry is not None and old_entry.get("fieldsV1") == mine
        result.append(old_entry if same and old_entry is not None else manager.entry(mine, time))
    return _ordered(result)


def _released(entry: Object, paths: list[Path]) -> Object | None:
    """The entry without these fields, or None when nothing is left of it."""
    fields = entry.get("fieldsV1") or {}
    lost = [path for path in paths if contains(fields, path)]
    if not lost:
        return entry
    fields = copied(fields)
    for path in lost:
        discard(fields, path)
    return {**entry, "fieldsV1": fields} if fields else None


def _ordered(entries: list[Object]) -> list[Object]:
    return sorted(
        entries,
        key=lambda e: (e["operation"], e.get("time", ""), e["manager"], e["apiVersion"], e.get("subresource", "")),
    )


# Merging an applied configuration


def _meaningful(value: Any, type_: Type) -> Any:
    """A configuration without what the server does not keep: nulls, and lists and maps that are empty."""
    if isinstance(value, dict):
        kept = {}
        for key, item in value.items():
            item_type, field_ = child(type_, key)
            if item is not None and (item or field_ is None or not field_.omit_empty):
                kept[key] = _meaningful(item, item_type)
        return kept
    if isinstance(value, list) and isinstance(type_, ListOf):
        return [_meaningful(item, type_.item) for item in value]
    return value


def _merged(live: Any, config: Any, type_: Type, field_: Field | None = None) -> Any:
    if not is_granular(config, type_, field_) or not is_granular(live, type_, field_):
        return config
    if isinstance(config, dict):
        result = dict(live)
        for key, value in config.items():
            if value is None:
                continue
            result[key] = _merged(result[key], value, *child(type_, key)) if key in result else value
        return result
    index = {step: position for position, (step, *_) in enumerate(parts(live, type_, field_))}
    merged = list(live)
    for step, item, item_type, item_field in parts(config, type_, field_):
        if step in index:
            merged[index[step]] = _merged(merged[index[step]], item, item_type, item_field)
        else:
            merged.append(item)
    return merged


def _pruned(value: Any, path: Path, type_: Type, field_: Field | None = None) -> Any:
    """``value`` without the field at ``path``."""
    step, rest = path[0], path[1:]
    if isinstance(value, dict):
        key = step[2:]
        if key not in value:
            return value
        if not rest:
            return {name: item for name, item in value.items() if name != key}
        return {**value, key: _pruned(value[key], rest, *child(type_, key))}
    if not isinstance(value, list):
        return value
    kept = []
    for item_step, item, item_type, item_field in parts(value, type_, field_):
        if item_step != step:
            kept.append(item)
        elif rest:
            kept.append(_pruned(item, rest, item_type, item_field))
    return kept
