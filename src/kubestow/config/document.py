"""Reading a configuration's text, YAML or JSON, into plain data.

YAML is read as Kubernetes reads it: the YAML 1.1 notions of booleans and numbers (without times of day and dates), the
first document of a stream, whole numbers with a decimal point taken for integers. Beside the data, a :class:`Document`
knows the line of each field and the keys that were given twice, which a parsed mapping would have lost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml
from msgspec import structs
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from kubestow.config.field_problems import Problem, child

__all__ = ["Document", "Unreadable", "read_document"]


class Unreadable(Exception):
    """A text that is neither YAML nor JSON; holds the one problem that says where it stops making sense."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(str(problem))


@dataclass(frozen=True)
class Document:
    """Plain data, the lines (from 1) of its fields by path, and a problem for each key that was given twice."""

    data: Any
    lines: Mapping[str, int] = field(default_factory=dict)
    duplicates: tuple[Problem, ...] = ()

    def line_of(self, path: str) -> int | None:
        """The line of a field, or of the nearest field around it that the text has; None without line numbers."""
        while path and path not in self.lines:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.lines.get(path)

    def located(self, problem: Problem) -> Problem:
        """The problem with the line of its field, where it has none and the text has one."""
        return problem if problem.line else structs.replace(problem, line=self.line_of(problem.path))


def read_document(source: str | bytes | Mapping[str, Any]) -> Document:
    """Read YAML or JSON text; data that is parsed already passes through. Raises Unreadable."""
    if isinstance(source, Mapping):
        return Document(source)
    text = _text(source)
    if not text.lstrip().startswith("{"):
        return _YAMLReader().read(text)
    try:
        return _read_json(text)
    except Unreadable as not_json:
        try:
            return _YAMLReader().read(text)
        except Unreadable:
            raise not_json from None


def _text(source: str | bytes) -> str:
    if isinstance(source, str):
        return source
    try:
        return source.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreadable(Problem("", f"not UTF-8 text: {error.reason} at byte {error.start}")) from None


# JSON ----------------------------------------------------------------------------------------------------------------


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as its members in order, before those with one name are folded into one."""


def _read_json(text: str) -> Document:
    try:
        duplicates: list[Problem] = []
        data = _folded(json.loads(text, object_pairs_hook=_Pairs, parse_constant=_refuse_constant), "", duplicates)
    except json.JSONDecodeError as error:
        raise Unreadable(Problem("", f"not JSON: {error.msg} (column {error.colno})", error.lineno)) from None
    except RecursionError:
        raise Unreadable(Problem("", "not JSON that can be read: nested too deeply")) from None
    return Document(data, duplicates=tuple(duplicates))


def _refuse_constant(name: str) -> Any:
    raise Unreadable(Problem("", f"not JSON: {name} is not a number"))


def _folded(value: Any, path: str, duplicates: list[Problem]) -> Any:
    """Members folded into mappings, the last of one name winning; names given twice are noted."""
    if isinstance(value, _Pairs):
        members: dict[str, Any] = {}
        for name, item in value:
            place = child(path, name)
            if name in members:
                duplicates.append(Problem(place, "duplicate field"))
            members[name] = _folded(item, place, duplicates)
        return members
    if isinstance(value, list):
        return [_folded(item, f"{path}[{index}]", duplicates) for index, item in enumerate(value)]
    return value


# YAML ----------------------------------------------------------------------------------------------------------------

_TAG = "tag:yaml.org,2002:"
_INTEGER = re.compile(r"[-+]?(?:0x[0-9a-fA-F_]+|0b[01_]+|0o[0-7_]+|0[0-7_]*|[1-9][0-9_]*)$")
_FLOAT = re.compile(
    r"[-+]?(?:(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|\.(?:inf|Inf|INF))$|\.(?:nan|NaN|NAN)$"
)
_ONE_LETTER_BOOLEAN = re.compile(r"[yYnN]$")
_TRUE = frozenset({"y", "yes", "true", "on"})
_LARGEST_EXACT_FLOAT = 1e21
"""From here on JSON writes a whole float with an exponent, and it is no integer any more."""
_MOST_VALUES = 1_000_000
"""More than any honest configuration has, and few enough to be read: aliases can multiply without end."""


class _Loader(yaml.SafeLoader):
    """Composes nodes whose plain scalars have the types of Go's YAML 1.1: no dates, no sexagesimal numbers."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag.removeprefix(_TAG) in ("bool", "null", "merge")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


_Loader.add_implicit_resolver(f"{_TAG}bool", _ONE_LETTER_BOOLEAN, list("yYnN"))
_Loader.add_implicit_resolver(f"{_TAG}int", _INTEGER, list("-+0123456789"))
_Loader.add_implicit_resolver(f"{_TAG}float", _FLOAT, list("-+.0123456789"))


class _YAMLReader:
    """Turns the first document of a YAML text into plain data, noting lines and keys given twice on the way."""

    def __init__(self) -> None:
        self._lines: dict[str, int] = {}
        self._duplicates: list[Problem] = []
        self._open: set[int] = set()
        self._values = 0

    def read(self, text: str) -> Document:
        try:
            node = _first_document(text)
            data = None if node is None else self._value(node, "")
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            raise Unreadable(Problem("", f"not YAML: {error.problem}", mark.line + 1 if mark else None)) from None
        except RecursionError:
            raise Unreadable(Problem("", "not YAML that can be read: nested too deeply")) from None
        except yaml.YAMLError as error:
            raise Unreadable(Problem("", f"not YAML: {str(error).splitlines()[0]}")) from None
        return Document(data, self._lines, tuple(self._duplicates))

    def _value(self, node: Node, path: str) -> Any:
        self._values += 1
        if self._values > _MOST_VALUES:
            raise Unreadable(Problem(path, "not YAML that can be read: aliases make it too large", _line(node)))
        if isinstance(node, ScalarNode):
            return _scalar(node)
        if id(node) in self._open:
            raise Unreadable(Problem(path, "not YAML that can be read: an anchor contains itself", _line(node)))
        self._open.add(id(node))
        value = self._sequence(node, path) if isinstance(node, SequenceNode) else self._mapping(node, path)
        self._open.discard(id(node))
        return value

    def _sequence(self, node: SequenceNode, path: str) -> list[Any]:
        items = []
        for index, item in enumerate(node.value):
            place = f"{path}[{index}]"
            self._lines.setdefault(place, _line(item))
            items.append(self._value(item, place))
        return items

    def _mapping(self, node: Node, path: str) -> dict[str, Any]:
        members: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == f"{_TAG}merge":
                for inherited in _mappings(value_node):
                    merged = {**self._mapping(inherited, path), **merged}
                continue
            name = _key(key_node)
            place = child(path, name)
            if name in members:
                self._duplicates.append(Problem(place, "duplicate field", _line(key_node)))
            self._lines[place] = _line(key_node)
            members[name] = self._value(value_node, place)
        return {**merged, **members}


def _first_document(text: str) -> Node | None:
    loader = _Loader(text)
    try:
        return loader.get_node() if loader.check_node() else None
    finally:
        loader.dispose()


def _mappings(node: Node) -> Iterator[Node]:
    """The mappings that a merge key ("<<") brings in."""
    for candidate in node.value if isinstance(node, SequenceNode) else [node]:
        if not isinstance(candidate, MappingNode):
            raise Unreadable(Problem("", "not YAML: a merge key takes a mapping or a list of mappings", _line(node)))
        yield candidate


def _key(node: Node) -> str:
    if not isinstance(node, ScalarNode):
        raise Unreadable(Problem("", "not YAML that can be read: a key must be a plain word", _line(node)))
    if node.tag == f"{_TAG}bool":
        return "true" if _scalar(node) else "false"
    return str(node.value)


def _scalar(node: ScalarNode) -> Any:
    kind, text = node.tag.removeprefix(_TAG), str(node.value)
    try:
        match kind:
            case "null":
                return None
            case "bool":
                return text.lower() in _TRUE
            case "int":
                return _integer(text.replace("_", ""))
            case "float":
                number = float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))
                return int(number) if number.is_integer() and abs(number) < _LARGEST_EXACT_FLOAT else number
    except ValueError:
        raise Unreadable(Problem("", f'not YAML: "{text}" is not a number', _line(node))) from None
    return text


def _integer(text: str) -> int:
    octal = re.fullmatch(r"([-+]?)0([0-7]+)", text)
    return int(f"{octal[1]}0o{octal[2]}", 0) if octal else int(text, 0)


def _line(node: Node) -> int:
    return int(node.start_mark.line) + 1
