r"""The printer of a custom resource, from the ``additionalPrinterColumns`` of its definition.

Columns are JSONPath expressions. Supported are what definitions use: fields (``.spec.size``, ``['size']``, a dot in a
name escaped as ``\.``), indices (``[0]``, ``[*]``) and filters by a field (``[?(@.type=="Ready")]``). A cell shows the
first value found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from kubestow_devcluster.apiserver.printers.table import ColumnDefinition, Printer, age, name_of
from kubestow_devcluster.apiserver.schema.types import Object

_STEP = re.compile(
    r"""\.(?P<name>(?:\\.|[^.\[\]\\])+)|\[(?P<index>-?\d+)\]|(?P<every>\[\*\]|\.\*)"""
    r"""|\[['"](?P<quoted>[^'"]+)['"]\]"""
    r"""|\[\?\(@(?P<path>[^=!<>\s]*)\s*==\s*['"]?(?P<wanted>[^'")]*)['"]?\)\]"""
)
_AGE = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


def additional_columns_printer(columns: list[Object]) -> Printer:
    """A printer of the name and these columns, or of the name and the age without any."""
    columns = columns or [_AGE]
    definitions = [
        ColumnDefinition(one["name"], one.get("type", "string"), one.get("priority", 0), one.get("description", ""))
        for one in columns
    ]

    def cells(obj: Object, now: datetime) -> list[Any]:
        return [name_of(obj), *(_cell(obj, one, now) for one in columns)]

    return Printer((ColumnDefinition("Name"), *definitions), cells)


def _cell(obj: Object, column: Object, now: datetime) -> Any:
    value = next(json_path_values(obj, column.get("jsonPath", "")), None)
    type_ = column.get("type", "string")
    if type_ == "date":
        try:
            return age(value, now) if isinstance(value, str) else None
        except ValueError:
            return "<invalid>"
    if value is None:
        return None
    if type_ == "integer":
        return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    if type_ == "number":
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    if type_ == "boolean":
        return value if isinstance(value, bool) else None
    return _go_string(value)


def _go_string(value: Any) -> str:
    """``value`` as Go's ``%v`` formats it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{_go_string(item)}" for key, item in sorted(value.items())) + "]"
    if isinstance(value, list):
        return "[" + " ".join(_go_string(item) for item in value) + "]"
    return str(value)


def json_path_values(value: Any, path: str) -> Iterator[Any]:
    """The values at a JSONPath; none for an expression that is not supported."""
    if not path:
        yield value
        return
    step = _STEP.match(path)
    if step is None:
        return
    for found in _step_values(value, step):
        yield from json_path_values(found, path[step.end() :])


def _step_values(value: Any, step: re.Match[str]) -> Iterator[Any]:
    name = step["name"] or step["quoted"]
    if step["every"]:
        yield from value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    elif name:
        key = name.replace("\\.", ".")
        if isinstance(value, dict) and value.get(key) is not None:
            yield value[key]
    elif isinstance(value, list):
        if step["index"]:
            yield from value[int(step["index"]) :][:1]
        else:
            for item in value:
                if step["wanted"] in map(_go_string, json_path_values(item, step["path"])):
                    yield item
