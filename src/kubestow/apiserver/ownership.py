"""Who owns which field: ``metadata.managedFields``, kept on every write, and server-side apply, which rests on it.

Field sets are the nested dicts of ``fieldsV1`` themselves (``{"f:spec": {"f:replicas": {}}}``): an empty dict is an
owned field, ``"."`` marks an owned field that has owned children. A plain write owns what it added or changed
and takes it from the others; an apply owns exactly what it says, and may not take what others own unless forced.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kubestow.apiserver.schema import Field, ListOf, MapOf, Struct, Type
from kubestow.apiserver.schema.types import ANYTHING
from kubestow.apiserver.statuses import Cause, Failure

__all__ = ["Manager", "apply", "record_update"]

Object = dict[str, Any]
#: A fieldsV1 tree.
Fields = dict[str, Any]
Path = tuple[str, ...]

_ABSENT = object()
#: Never owned by anyone.
_UNOWNED = frozenset({"apiVersion", "kind"})
_UNOWNED_METADATA = frozenset(
    "name namespace creationTimestamp selfLink uid generation managedFields resourceVersion deletionTimestamp"
    " deletionGracePeriodSeconds".split()
)
#: Key fields that may be left out of a list item, with what they default to.
_KEY_DEFAULTS = {"protocol": "TCP"}


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


@dataclass(slots=True)
class _Changes:
    """The paths in which two objects differ."""

    taken: list[Path] = field(default_factory=list)
    removed: list[Path] = field(default_factory=list)


def record_update(old: Object | None, new: Object, struct: Struct, manager: Manager, time: str) -> None:
    """Write into ``new`` who owns its fields now that ``manager`` made it of ``old`` (None: created it)."""
    metadata = new["metadata"]
    if old is None:
        fields = _created(new, struct)
        if fields:
            metadata["managedFields"] = [manager.entry(fields, time)]
        return
    changes = _Changes()
    _compare_objects(old, new, struct, changes)
    entries = metadata.get("managedFields") or []
    if changes.taken or changes.removed:
        entries = _reassigned(entries, changes, manager, time)
    if entries:
        metadata["managedFields"] = entries
    else:
        metadata.pop("managedFields", None)


def apply(live: Object | None, config: Object, struct: Struct, manager: Manager, *, force: bool, time: str) -> Object:
    """The object that applying ``config`` leads to. Raises a 409 Failure naming the fields others own, unless forced."""
    wanted: Fields = {}
    _declare(config, struct, wanted)
    if live is None:
        applied = dict(config)
        applied["metadata"] = {**config.get("metadata", {})}
        if wanted:
            applied["metadata"]["managedFields"] = [manager.entry(wanted, time)]
        return applied
    entries = live["metadata"].get("managedFields") or []
    mine = next((entry for entry in entries if Manager.of(entry) == manager), None)
    others = [entry for entry in entries if entry is not mine]
    applied = _merged(live, config, struct)
    if mine is not None:
        # What an applier no longer says, and nobody else owns, goes.
        for path in _leaves_first(mine.get("fieldsV1") or {}):
            if not any(
                _owns_below(fields, path) for fields in (wanted, *(other.get("fieldsV1") or {} for other in others))
            ):
                applied = _pruned(applied, path, struct)
    changes = _Changes()
    _compare_objects(live, applied, struct, changes)
    conflicts = [
        (Manager.of(entry), path)
        for entry in others
        for path in changes.taken
        if _contains(entry.get("fieldsV1") or {}, path)
    ]
    if conflicts and not force:
        raise _conflict(conflicts)
    kept = [_released(entry, changes.taken + changes.removed) for entry in others]
    unchanged = mine is not None and mine.get("fieldsV1") == wanted
    entry = mine if unchanged and mine is not None else manager.entry(wanted, time)
    applied["metadata"] = {**applied["metadata"]}
    applied["metadata"]["managedFields"] = _ordered([entry, *(other for other in kept if other is not None)])
    return applied


def _conflict(conflicts: list[tuple[Manager, Path]]) -> Failure:
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
    return Failure(409, "Conflict", message, details=details)


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


# How types divide into fields


def _child(struct: Type, key: str) -> tuple[Type, Field | None]:
    if isinstance(struct, Struct):
        found = struct.fields.get(key)
        return (ANYTHING, None) if found is None else (found.type_, found)
    return (struct.item, None) if isinstance(struct, MapOf) else (ANYTHING, None)


def _granular(value: object, type_: Type, field_: Field | None) -> bool:
    """Whether the parts of this value are owned one by one. Schemaless maps are; lists only where they merge."""
    if isinstance(value, dict):
        return type_ is ANYTHING or not (field_.atomic if field_ is not None else type_.atomic)
    if isinstance(value, list):
        return field_ is not None and field_.merge is not None and (field_.merge.is_set or bool(field_.merge.keys))
    return False


def _items(value: Any, type_: Type, field_: Field | None) -> Iterator[tuple[str, Any, Type, Field | None]]:
    """The parts of a granular value as (path step, part, type, field)."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield f"f:{key}", item, *_child(type_, key)
    elif field_ is not None and field_.merge is not None and field_.merge.is_set:
        for item in value:
            yield f"v:{msgspec.json.encode(item).decode()}", item, ANYTHING, None
    elif field_ is not None and field_.merge is not None:
        item_type = type_.item if isinstance(type_, ListOf) else ANYTHING
        for item in value:
            yield _key_step(item, field_.merge.keys), item, item_type, None


def _key_step(item: Any, keys: tuple[str, ...]) -> str:
    found = {key: item.get(key, _KEY_DEFAULTS.get(key)) for key in sorted(keys) if key in item or key in _KEY_DEFAULTS}
    return "k:" + msgspec.json.encode(found).decode()


# Field sets of new values


def _created(new: Object, struct: Struct) -> Fields:
    owned = {key: value for key, value in new.items() if key not in _UNOWNED}
    owned["metadata"] = _owned_metadata(new["metadata"])
    return _set_in_empty(owned, struct, top=True)


def _set_in_empty(value: Object, struct: Struct, *, top: bool = False) -> Fields:
    """What is owned of a struct that was there when it was empty: what is in it now, but not what was in it then."""
    fields: Fields = {}
    for key, item in value.items():
        type_, field_ = _child(struct, key)
        present = field_ is not None and (field_.present or (top and key in ("metadata", "spec", "status")))
        if not present:
            fields[f"f:{key}"] = _added(item, type_, field_)
        elif item and isinstance(type_, Struct) and _granular(item, type_, field_):
            below = _set_in_empty(item, type_)
            if below:
                fields[f"f:{key}"] = below
        elif item:
            below = _added(item, type_, field_)
            below.pop(".", None)
            fields[f"f:{key}"] = below
    return fields


def _added(value: Any, type_: Type, field_: Field | None) -> Fields:
    if not value or not _granular(value, type_, field_):
        return {}
    tree: Fields = {".": {}}
    for step, item, item_type, item_field in _items(value, type_, field_):
        tree[step] = _added(item, item_type, item_field)
    return tree


def _declare(value: Any, type_: Type, tree: Fields, field_: Field | None = None, *, depth: int = 0) -> None:
    """The field set of an applied configuration: leaves, and list items; containers only where they are empty."""
    for step, item, item_type, item_field in _items(value, type_, field_):
        if (depth == 0 and step[2:] in _UNOWNED) or item is None:
            continue
        if depth == 0 and step == "f:metadata":
            item = {name: part for name, part in item.items() if name not in _UNOWNED_METADATA}
            if not item:
                continue
        below: Fields = {".": {}} if step[0] == "k" else {}
        if item and _granular(item, item_type, item_field):
            _declare(item, item_type, below, item_field, depth=depth + 1)
        tree[step] = below


# Differences


def _compare_objects(old: Object, new: Object, struct: Struct, changes: _Changes) -> None:
    for key in {**old, **new}:
        if key in _UNOWNED:
            continue
        before, after = old.get(key, _ABSENT), new.get(key, _ABSENT)
        if key == "metadata":
            before, after = _owned_metadata(before), _owned_metadata(after)
        if before != after:
            _compare(before, after, *_child(struct, key), (f"f:{key}",), changes)


def _owned_metadata(metadata: Any) -> Object:
    return {key: value for key, value in metadata.items() if key not in _UNOWNED_METADATA}


def _compare(old: Any, new: Any, type_: Type, field_: Field | None, path: Path, changes: _Changes) -> None:
    if new is _ABSENT:
        changes.removed.extend(_paths(old, type_, field_, path))
    elif old is _ABSENT:
        changes.taken.extend(_paths(new, type_, field_, path))
    elif _granular(new, type_, field_) and (old is None or _granular(old, type_, field_)):
        before = {step: (item, t, f) for step, item, t, f in _items(old or {}, type_, field_)}
        for step, item, item_type, item_field in _items(new, type_, field_):
            was = before.pop(step, (_ABSENT, None, None))[0]
            if was is _ABSENT or was != item:
                _compare(was, item, item_type, item_field, (*path, step), changes)
        for step, (item, item_type, item_field) in before.items():
            changes.removed.extend(_paths(item, item_type, item_field, (*path, step)))
    else:
        changes.taken.append(path)


def _paths(value: Any, type_: Type, field_: Field | None, path: Path) -> Iterator[Path]:
    yield path
    if value and _granular(value, type_, field_):
        for step, item, item_type, item_field in _items(value, type_, field_):
            yield from _paths(item, item_type, item_field, (*path, step))


# Field sets as trees


def _reassigned(entries: list[Object], changes: _Changes, manager: Manager, time: str) -> list[Object]:
    result: list[Object] = []
    mine: Fields = {}
    old_entry: Object | None = None
    for entry in entries:
        if Manager.of(entry) == manager:
            old_entry, mine = entry, _copied(entry.get("fieldsV1") or {})
            continue
        released = _released(entry, changes.taken + changes.removed)
        if released is not None:
            result.append(released)
    for path in changes.removed:
        _discard(mine, path)
    for path in changes.taken:
        _insert(mine, path)
    if mine:
        same = old_entry is not None and old_entry.get("fieldsV1") == mine
        result.append(old_entry if same and old_entry is not None else manager.entry(mine, time))
    return _ordered(result)


def _released(entry: Object, paths: list[Path]) -> Object | None:
    """The entry without these fields, or None when nothing is left of it."""
    fields = entry.get("fieldsV1") or {}
    lost = [path for path in paths if _contains(fields, path)]
    if not lost:
        return entry
    fields = _copied(fields)
    for path in lost:
        _discard(fields, path)
    return {**entry, "fieldsV1": fields} if fields else None


def _ordered(entries: list[Object]) -> list[Object]:
    return sorted(
        entries,
        key=lambda e: (e["operation"], e.get("time", ""), e["manager"], e["apiVersion"], e.get("subresource", "")),
    )


def _copied(tree: Fields) -> Fields:
    return {step: _copied(below) for step, below in tree.items()}


def _insert(tree: Fields, path: Path) -> None:
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


def _contains(tree: Fields, path: Path) -> bool:
    for step in path:
        found = tree.get(step)
        if found is None:
            return False
        tree = found
    return not tree or "." in tree


def _owns_below(tree: Fields, path: Path) -> bool:
    for step in path:
        found = tree.get(step)
        if found is None:
            return False
        tree = found
    return True


def _discard(tree: Fields, path: Path) -> None:
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


def _leaves_first(tree: Fields, path: Path = ()) -> Iterator[Path]:
    for step, below in tree.items():
        if step != ".":
            yield from _leaves_first(below, (*path, step))
    if path and (not tree or "." in tree):
        yield path


# Merging an applied configuration


def _merged(live: Any, config: Any, type_: Type, field_: Field | None = None) -> Any:
    if not _granular(config, type_, field_) or not _granular(live, type_, field_):
        return config
    if isinstance(config, dict):
        result = dict(live)
        for key, value in config.items():
            if value is None:
                continue
            result[key] = _merged(result[key], value, *_child(type_, key)) if key in result else value
        return result
    index = {step: position for position, (step, *_) in enumerate(_items(live, type_, field_))}
    merged = list(live)
    for step, item, item_type, item_field in _items(config, type_, field_):
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
        return {**value, key: _pruned(value[key], rest, *_child(type_, key))}
    if not isinstance(value, list):
        return value
    kept = []
    for item_step, item, item_type, item_field in _items(value, type_, field_):
        if item_step != step:
            kept.append(item)
        elif rest:
            kept.append(_pruned(item, rest, item_type, item_field))
    return kept
