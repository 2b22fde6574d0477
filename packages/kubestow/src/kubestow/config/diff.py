"""The differences between a configuration and the default one.

:func:`annotated` prints a configuration as loadable YAML with a comment on every line that differs from the default.
Lists of named items (plugins, their arguments, resources) are compared by name, not by index. Every profile is compared
with the default profile.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import yaml

from kubestow.config.document import parse_document
from kubestow.config.field_errors import child

_ADDED = "not in the default"


class FieldDiff(NamedTuple):
    """The path of a field and a short description of its difference from the default."""

    path: str
    description: str


def annotated(
    configuration: Mapping[str, Any], default: Mapping[str, Any], notes: Mapping[str, str] = MappingProxyType({})
) -> str:
    """A rendered configuration as YAML, with a comment on each line that differs from the rendered ``default``.

    ``notes`` are further comments by path.
    """
    lines = yaml.safe_dump(dict(configuration), sort_keys=False, width=float("inf"), allow_unicode=True).splitlines()
    document = parse_document("\n".join(lines))
    noted = (FieldDiff(path, note) for path, note in notes.items() if path in document.positions)
    for path, description in (*diff(configuration, default), *noted):
        position = document.position_of(path)
        if position:
            line = position.line
            lines[line - 1] += f"{'; ' if '  # ' in lines[line - 1] else '  # '}{description}"
    return "\n".join(lines) + "\n"


def diff(configuration: Mapping[str, Any], default: Mapping[str, Any]) -> Iterator[FieldDiff]:
    """The fields of a rendered configuration that differ from the rendered ``default``, in order."""
    for name, value in configuration.items():
        if name == "profiles":
            for index, profile in enumerate(value):
                yield from _diff_mapping(profile, default[name][0], f"profiles[{index}]")
        else:
            yield from _diff_member(value, default, name, name)


def _diff_member(value: Any, default: Mapping[str, Any], name: str, path: str) -> Iterator[FieldDiff]:
    if name in default:
        yield from _diff_value(value, default[name], path)
    else:
        yield FieldDiff(path, _ADDED)


def _diff_value(value: Any, default: Any, path: str) -> Iterator[FieldDiff]:
    match value, default:
        case Mapping(), Mapping():
            yield from _diff_mapping(value, default, path)
        case list(), list() if _are_named(value) and _are_named(default):
            yield from _diff_named_items(value, default, path)
        case _ if value != default:
            yield FieldDiff(path, f"default: {json.dumps(default, ensure_ascii=False)}")


def _diff_mapping(value: Mapping[str, Any], default: Mapping[str, Any], path: str) -> Iterator[FieldDiff]:
    for name, item in value.items():
        yield from _diff_member(item, default, name, child(path, name))
    for name in default:
        if name not in value:
            yield FieldDiff(path, f"default also has {name}")


def _are_named(items: Sequence[Any]) -> bool:
    return all(isinstance(item, Mapping) and isinstance(item.get("name"), str) for item in items)


def _diff_named_items(items: list[Any], defaults: list[Any], path: str) -> Iterator[FieldDiff]:
    by_name = {item["name"]: item for item in defaults}
    names = [item["name"] for item in items]
    missing = [name for name in by_name if name not in names]
    if missing:
        yield FieldDiff(path, f"default also has {', '.join(missing)}")
    kept = [name for name in names if name in by_name]
    if path.endswith(".enabled") and kept != [name for name in by_name if name in names]:
        yield FieldDiff(path, "order differs from the default")
    for index, item in enumerate(items):
        item_path = f"{path}[{index}]"
        if item["name"] in by_name:
            yield from _diff_mapping(item, by_name[item["name"]], item_path)
        else:
            yield FieldDiff(item_path, _ADDED)
