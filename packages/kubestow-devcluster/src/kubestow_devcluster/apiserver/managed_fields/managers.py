"""The entries of ``metadata.managedFields``: one per field manager, with the fieldset that it owns.

A create or update owns the fields that it adds or changes, and removes them from other managers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kubestow_devcluster.apiserver.managed_fields.field_paths import FieldPath
from kubestow_devcluster.apiserver.managed_fields.fieldsets import (
    Comparison,
    Fieldset,
    compare,
    contains,
    copy_tree,
    created_fieldset,
    insert,
    remove,
    sorted_tree,
)
from kubestow_devcluster.apiserver.schema import Object, Struct

__all__ = ["FieldManager", "record_update", "sorted_entries", "without_fields", "written_entries"]


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


def _updated_entries(entries: list[Object], comparison: Comparison, manager: FieldManager, time: str) -> list[Object]:
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
