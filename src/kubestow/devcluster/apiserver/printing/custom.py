r"""The columns that a custom resource's definition asks for: JSON paths into the object.

Of JSON path what definitions use: fields (``.spec.size``, ``['size']``, a dot in a name written ``\.``), places in
lists (``[0]``, ``[*]``) and the choice of items by a field (``[?(@.type=="Ready")]``). The first value found is shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from kubestow.devcluster.apiserver.printing.layout import Column, Layout, Object, age, name_of

__all__ = ["custom_layout", "values_of"]

_STEP = re.compile(
    r"""\.(?P<name>(?:\\.|[^.\[\]\\])+)|\[(?P<index>-?\d+)\]|(?P<every>\[\*\]|\.\*)"""
    r"""|\[['"](?P<quoted>[^'"]+)['"]\]"""
    r"""|\[\?\(@(?P<path>[^=!<>\s]*)\s*==\s*['"]?(?P<wanted>[^'")]*)['"]?\)\]"""
)
_AGE = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


def custom_layout(columns: list[Object]) -> Layout:
    """Name, and the columns of a definition (``additionalPrinterColumns``); without any, the age."""
    asked = columns or [_AGE]
    made = (
        Column("Name"),
        *(
            Column(one["name"], one.get("type", "string"), one.get("priority", 0), one.get("description", ""))
            for one in asked
        ),
    )

    def cells(new: Object, now: datetime) -> list[Any]:
        return [name_of(new), *(_cell(new, one, now) for one in asked)]

    return Layout(made, cells)


def _cell(new: Object, column: Object, now: datetime) -> Any:
    value = next(values_of(new, column.get("jsonPath", "")), None)
    kind = column.get("type", "string")
    if kind == "date":
        return _age(value, now)
    if value is None:
        return None
    if kind == "integer":
        return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    if kind == "number":
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    if kind == "boolean":
        return value if isinstance(value, bool) else None
    return _text(value)


def _age(value: Any, now: datetime) -> Any:
    try:
        return age(value, now) if isinstance(value, str) else None
    except ValueError:
        return "<invalid>"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{_text(item)}" for key, item in sorted(value.items())) + "]"
    if isinstance(value, list):
        return "[" + " ".join(_text(item) for item in value) + "]"
    return str(value)


def values_of(value: Any, path: str) -> Iterator[Any]:
    """The values at a JSON path; none for a path that cannot be read."""
    if not path:
        yield value
        return
    step = _STEP.match(path)
    if step is None:
        return
    for found in _stepped(value, step):
        yield from values_of(found, path[step.end() :])


def _stepped(value: Any, step: re.Match[str]) -> Iterator[Any]:
    name = step["name"] or step["quoted"]
    if step["every"]:
        yield from value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    elif name:
        plain = name.replace("\\.", ".")
        if isinstance(value, dict) and value.get(plain) is not None:
            yield value[plain]
    elif isinstance(value, list):
        if step["index"]:
            yield from value[int(step["index"]) :][:1]
        else:
            yield from (item for item in value if step["wanted"] in map(_text, values_of(item, step["path"])))
