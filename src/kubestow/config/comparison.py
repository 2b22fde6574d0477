"""What a configuration says differently from the default one, written beside its lines.

:func:`annotated` prints a configuration as YAML that can be loaded again, with a comment on every line that
differs from the default. Lists of named things (plugins, their arguments, resources) are compared by name: a plugin
that moved is not another plugin. Every profile is compared with the default one, which it was merged with.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import yaml

from kubestow.config.document import read_document
from kubestow.config.field_problems import child

__all__ = ["Difference", "annotated", "differences"]

_ADDED = "not in the default"


class Difference(NamedTuple):
    """The path of a field and how it differs from the default, in a few words."""

    path: str
    text: str


def annotated(configuration: Mapping[str, Any], default: Mapping[str, Any]) -> str:
    """A rendered configuration as YAML, each line that differs from the rendered ``default`` ending in a comment."""
    lines = yaml.safe_dump(dict(configuration), sort_keys=False, width=float("inf"), allow_unicode=True).splitlines()
    document = read_document("\n".join(lines))
    for path, text in differences(configuration, default):
        line = document.line_of(path)
        if line:
            lines[line - 1] += f"{'; ' if '  # ' in lines[line - 1] else '  # '}{text}"
    return "\n".join(lines) + "\n"


def differences(configuration: Mapping[str, Any], default: Mapping[str, Any]) -> Iterator[Difference]:
    """Every field of a rendered configuration that differs from the rendered ``default``, in order."""
    for name, value in configuration.items():
        if name == "profiles":
            yield from _profiles(value, default[name][0])
        else:
            yield from _member(value, default, name, name)


def _profiles(profiles: Sequence[Mapping[str, Any]], default: Mapping[str, Any]) -> Iterator[Difference]:
    for index, profile in enumerate(profiles):
        yield from _mapping(profile, default, f"profiles[{index}]")


def _member(value: Any, default: Mapping[str, Any], name: str, path: str) -> Iterator[Difference]:
    if name in default:
        yield from _value(value, default[name], path)
    else:
        yield Difference(path, _ADDED)


def _value(value: Any, default: Any, path: str) -> Iterator[Difference]:
    match value, default:
        case Mapping(), Mapping():
            yield from _mapping(value, default, path)
        case list(), list() if _named(value) and _named(default):
            yield from _named_items(value, default, path)
        case _ if value != default:
            yield Difference(path, f"default: {json.dumps(default, ensure_ascii=False)}")


def _mapping(value: Mapping[str, Any], default: Mapping[str, Any], path: str) -> Iterator[Difference]:
    for name, item in value.items():
        yield from _member(item, default, name, child(path, name))
    for name in default:
        if name not in value:
            yield Difference(path, f"default also has {name}")


def _named(items: Sequence[Any]) -> bool:
    return all(isinstance(item, Mapping) and isinstance(item.get("name"), str) for item in items)


def _named_items(items: list[Any], defaults: list[Any], path: str) -> Iterator[Difference]:
    by_name = {item["name"]: item for item in defaults}
    names = [item["name"] for item in items]
    missing = [name for name in by_name if name not in names]
    if missing:
        yield Difference(path, f"default also has {', '.join(missing)}")
    kept = [name for name in names if name in by_name]
    if path.endswith(".enabled") and kept != [name for name in by_name if name in names]:
        yield Difference(path, "in another order than the default")
    for index, item in enumerate(items):
        place = f"{path}[{index}]"
        if item["name"] in by_name:
            yield from _mapping(item, by_name[item["name"]], place)
        else:
            yield Difference(place, _ADDED)
