"""Columns, cells, and the texts that many of them share: ages, lists, selectors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

__all__ = [
    "NONE",
    "UNKNOWN",
    "UNSET",
    "Column",
    "Layout",
    "Object",
    "age",
    "age_of",
    "columns",
    "duration",
    "labels_text",
    "listed",
    "name_of",
    "selector_text",
    "template_cells",
    "values_at",
]

Object = dict[str, Any]

NONE, UNKNOWN, UNSET = "<none>", "<unknown>", "<unset>"


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str = "string"
    priority: int = 0
    description: str = ""


@dataclass(frozen=True, slots=True)
class Layout:
    columns: tuple[Column, ...]
    cells: Callable[[Object, datetime], list[Any]]


def columns(*described: str | tuple[str, str] | Column) -> tuple[Column, ...]:
    """A bare name is a string column; ``"!Name"`` one for -o wide; ``(name, type)`` one of another type."""
    made = []
    for one in described:
        if isinstance(one, Column):
            made.append(one)
        elif isinstance(one, tuple):
            made.append(Column(one[0], one[1]))
        else:
            made.append(Column(one.lstrip("!"), priority=int(one.startswith("!"))))
    return tuple(made)


def age(since: str | None, now: datetime) -> str:
    """A duration as kubectl writes it: two units at most, coarser as it grows."""
    if not since:
        return UNKNOWN
    return duration((now - datetime.fromisoformat(since)).total_seconds())


def duration(length: float) -> str:
    """Seconds as ``45s``, ``3m12s``, ``5h3m``, ``4d2h``, ``2y13d``."""
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


def name_of(new: Object) -> str:
    name: str = new["metadata"]["name"]
    return name


def age_of(new: Object, now: datetime) -> str:
    return age(new["metadata"].get("creationTimestamp"), now)


def listed(items: Iterable[str]) -> str:
    return ",".join(items) or NONE


def labels_text(labels: dict[str, str] | None) -> str:
    return listed(f"{key}={value}" for key, value in sorted((labels or {}).items()))


def selector_text(selector: Object | None) -> str:
    """A label selector as kubectl writes it."""
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
    return listed(terms)


def template_cells(spec: Object) -> tuple[str, str]:
    containers = spec.get("template", {}).get("spec", {}).get("containers") or ()
    return listed(c["name"] for c in containers), listed(c.get("image", "") for c in containers)


def values_at(*paths: str, after_age: tuple[str, ...] = ()) -> Callable[[Object, datetime], list[Any]]:
    """Name, the values at these dotted paths, age, and the values at those that come ``after_age``."""

    def cells(new: Object, now: datetime) -> list[Any]:
        before, after = ([_value_at(new, path) for path in some] for some in (paths, after_age))
        return [name_of(new), *before, age_of(new, now), *after]

    return cells


def _value_at(new: Object, path: str) -> Any:
    value: Any = new
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return len(value) if isinstance(value, (dict, list)) else "" if value is None else value
