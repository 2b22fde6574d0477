"""Column definitions, printers, and the formats that printers share: ages, lists, labels and selectors.

The ``additionalPrinterColumns`` of a custom resource are JSONPath expressions. Supported are what definitions use:
fields (``.spec.size``, ``['size']``, a dot in a name escaped as ``\\.``), indices (``[0]``, ``[*]``) and filters by a
field (``[?(@.type=="Ready")]``). A cell shows the first value found.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kubestow_devcluster.apiserver.schema.types import Object

NONE, UNKNOWN, UNSET = "<none>", "<unknown>", "<unset>"


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """A column of a Table. Columns of priority 1 are shown by ``-o wide`` only."""

    name: str
    type: str = "string"
    priority: int = 0
    description: str = ""


Cells = Callable[[Object, datetime], list[Any]]


@dataclass(frozen=True, slots=True)
class Printer:
    """The columns of a kind, and a function from an object and the current time to its cells in the same order."""

    columns: tuple[ColumnDefinition, ...]
    cells: Cells


def _columns(text: str) -> tuple[ColumnDefinition, ...]:
    """The columns ``Name, !Node, Value:integer``: names, with ``!`` of priority 1, with types other than string."""
    made = []
    for one in text.split(", "):
        name, _, type_ = one.removeprefix("!").partition(":")
        made.append(ColumnDefinition(name, type_ or "string", priority=int(one.startswith("!"))))
    return tuple(made)


#: The printer of each kind by the resource that its objects are stored under.
PRINTERS: dict[str, Printer] = {}


def printer(columns: str, *resources: str) -> Callable[[Cells], Cells]:
    """Make a function the printer of these resources, with columns such as ``Name, !Node, Value:integer``."""

    def register(cells: Cells) -> Cells:
        PRINTERS.update(dict.fromkeys(resources, Printer(_columns(columns), cells)))
        return cells

    return register


def print_fields(columns: str, resource: str, *paths: str, after_age: tuple[str, ...] = ()) -> None:
    """Print a resource by the name, the fields at these dotted paths, the age, and the fields in ``after_age``."""

    def cells(obj: Object, now: datetime) -> list[Any]:
        before, after = ([_field(obj, path) for path in group] for group in (paths, after_age))
        return [name_of(obj), *before, age_of(obj, now), *after]

    printer(columns, resource)(cells)


def age(since: str | None, now: datetime) -> str:
    """The time from ``since`` to ``now``, or ``<unknown>``."""
    if not since:
        return UNKNOWN
    return format_duration((now - datetime.fromisoformat(since)).total_seconds())


def format_duration(length: float) -> str:
    """Seconds as kubectl writes them, in two units at most: ``45s``, ``3m12s``, ``5h3m``, ``4d2h``, ``2y13d``."""
    seconds = int(length)
    if length < -1:
        return "<invalid>"
    if seconds < 120:
        return f"{max(seconds, 0)}s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if hours < 192:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if days < 730:
        return f"{days}d"
    years, rest = days // 365, days % 365
    if days < 8 * 365:
        return f"{years}y{rest}d" if rest else f"{years}y"
    return f"{years}y"


def name_of(obj: Object) -> str:
    name: str = obj["metadata"]["name"]
    return name


def age_of(obj: Object, now: datetime) -> str:
    return age(obj["metadata"].get("creationTimestamp"), now)


def has_condition(status: Object, type_: str) -> bool:
    """Whether a condition of this type is True."""
    return any(one["type"] == type_ and one["status"] == "True" for one in status.get("conditions") or ())


def format_list(items: Iterable[str]) -> str:
    return ",".join(items) or NONE


def format_labels(labels: dict[str, str] | None) -> str:
    return format_list(f"{key}={value}" for key, value in sorted((labels or {}).items()))


def format_selector(selector: Object | None) -> str:
    """A LabelSelector as kubectl writes it."""
    if selector is None:
        return NONE
    terms = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for requirement in selector.get("matchExpressions") or ():
        key, operator, values = requirement["key"], requirement["operator"], ",".join(requirement.get("values") or ())
        form = {
            "In": f"{key} in ({values})",
            "NotIn": f"{key} notin ({values})",
            "Exists": key,
            "DoesNotExist": f"!{key}",
        }
        terms.append(form.get(operator, key))
    return format_list(terms)


def template_cells(spec: Object) -> tuple[str, str]:
    """The names and the images of the containers of a pod template."""
    containers = spec.get("template", {}).get("spec", {}).get("containers") or ()
    return format_list(c["name"] for c in containers), format_list(c.get("image", "") for c in containers)


def _field(obj: Object, path: str) -> Any:
    value: Any = obj
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return len(value) if isinstance(value, (dict, list)) else "" if value is None else value


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


def _print_created_at(obj: Object, now: datetime) -> list[Any]:
    return [name_of(obj), obj["metadata"].get("creationTimestamp", "")]


#: The printer of kinds without one.
DEFAULT = Printer(_columns("Name, Created At:date"), _print_created_at)
