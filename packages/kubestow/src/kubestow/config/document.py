"""Parsing the text of a configuration, YAML or JSON, into plain data.

YAML is parsed as sigs.k8s.io/yaml does: YAML 1.1 booleans and numbers (but no timestamps and no sexagesimal numbers),
the first document of a stream only, whole floats as integers. A :class:`Document` also has the position of each field
and the duplicate keys, which a plain mapping loses. A configuration in a ConfigMap is a document inside a document.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import yaml
from msgspec import structs
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from kubestow.api.formats.yaml_documents import check_yaml
from kubestow.api.json_text import without_lone_surrogates
from kubestow.config.field_errors import FieldError, child
from kubestow.errors import InputError


class DocumentError(Exception):
    """The text is neither valid YAML nor valid JSON; ``error`` says where and why."""

    def __init__(self, error: FieldError) -> None:
        self.error = error
        super().__init__(str(error))


class Position(NamedTuple):
    """A position in a text; both numbers count from 1."""

    line: int
    column: int


@dataclass(frozen=True)
class Document:
    """Plain data, the positions of its fields by path, and an error for each duplicate key.

    ``text`` is the source, "" for data that was parsed before. Of the configuration of a managed service,
    ``refused`` are settings that the service does not accept, and ``remarks`` what the conversion assumes
    (:mod:`kubestow.config.managed_services`).
    """

    data: Any
    positions: Mapping[str, Position] = field(default_factory=dict)
    duplicates: tuple[FieldError, ...] = ()
    text: str = ""
    refused: tuple[FieldError, ...] = ()
    remarks: tuple[FieldError, ...] = ()

    def position_of(self, path: str) -> Position | None:
        """The position of a field, or of its nearest parent that has one; None if there is none."""
        while path and path not in self.positions:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.positions.get(path)

    def located(self, error: FieldError) -> FieldError:
        """The error with the position of its field, if it has no position yet."""
        position = None if error.line else self.position_of(error.path)
        return structs.replace(error, line=position.line, column=position.column) if position else error


def unwrap_config_map(document: Document) -> Document:
    """The configuration inside a ConfigMap, or the document itself if it is not a ConfigMap.

    Positions are those in the text of the ConfigMap where its value is a block of lines, else that of the value. Raises
    DocumentError if the ConfigMap has no or several values that could be meant.
    """
    data = document.data
    if not isinstance(data, Mapping) or data.get("kind") != "ConfigMap":
        return document
    texts = data.get("data")
    names = list(texts) if isinstance(texts, Mapping) else []
    name = _POLICY_KEY if _POLICY_KEY in names else names[0] if len(names) == 1 else None
    if name is None or not isinstance(texts, Mapping) or not isinstance(texts[name], str):
        error = FieldError("data", f'expected a key "{_POLICY_KEY}", or one key with a configuration')
        raise DocumentError(document.located(error))
    return parse_embedded(document, child("data", name), texts[name])


_POLICY_KEY = "policy.cfg"


def parse_embedded(document: Document, path: str, text: str) -> Document:
    """Parse the text of a field, such as a value of a ConfigMap; the positions are those in the whole document.

    If the text is not a block of lines, every position is that of the field. Raises DocumentError.
    """
    origin = _embedding(document, path, text)
    try:
        inner = parse_document(text)
    except DocumentError as failure:
        raise DocumentError(origin.error(failure.error)) from None
    positions = {path: origin.position(position) for path, position in inner.positions.items()}
    return Document(inner.data, positions, tuple(map(origin.error, inner.duplicates)), document.text)


class _Embedding(NamedTuple):
    """Where a text is inside another: its first character, or, if ``key`` is set, somewhere behind this key."""

    line: int = 1
    indentation: int = 0
    key: Position | None = None

    def position(self, inner: Position) -> Position:
        return self.key or Position(self.line + inner.line - 1, self.indentation + inner.column)

    def error(self, inner: FieldError) -> FieldError:
        if not inner.line:
            return inner
        position = self.position(Position(inner.line, inner.column or 1))
        return structs.replace(inner, line=position.line, column=position.column)


def _embedding(document: Document, path: str, text: str) -> _Embedding:
    key = document.position_of(path)
    if key is None:
        return _Embedding()
    block, wanted = document.text.splitlines()[key.line :], text.splitlines()
    indentation = 0
    for given, inner in zip(block, wanted, strict=False):
        if inner:
            indentation = max(len(given) - len(inner), 0)
            break
    if len(block) < len(wanted) or any(a[indentation:] != b for a, b in zip(block, wanted, strict=False)):
        return _Embedding(key=key)
    return _Embedding(key.line + 1, indentation)


def parse_document(source: str | bytes | Mapping[str, Any]) -> Document:
    """Parse YAML or JSON text; parsed data passes through. Raises DocumentError."""
    if isinstance(source, Mapping):
        return Document(source)
    try:
        text = source if isinstance(source, str) else source.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DocumentError(FieldError("", f"invalid UTF-8: {error.reason} at byte {error.start}")) from None
    if not text.lstrip().startswith("{"):
        return _YAMLParser().parse(text)
    try:
        return _read_json(text)
    except DocumentError as not_json:
        try:
            return _YAMLParser().parse(text)
        except DocumentError:
            raise not_json from None


# JSON ----------------------------------------------------------------------------------------------------------------


class _ObjectPairs(list[tuple[str, Any]]):
    """The members of a JSON object in order, duplicates included."""


def _read_json(text: str) -> Document:
    duplicates: list[FieldError] = []
    try:
        # Go takes the escape of half a surrogate pair for U+FFFD; the length stays.
        sound = without_lone_surrogates(text.encode(errors="replace")).decode()
        members = json.loads(sound, object_pairs_hook=_ObjectPairs, parse_constant=_reject_constant)
        data = _merged(members, "", duplicates)
    except json.JSONDecodeError as error:
        text = f"invalid JSON: {error.msg} (column {error.colno})"
        raise DocumentError(FieldError("", text, error.lineno, error.colno)) from None
    except RecursionError:
        raise DocumentError(FieldError("", "invalid JSON: nested too deeply")) from None
    except ValueError:  # of int(), which reads at most 4,300 digits
        raise DocumentError(FieldError("", "invalid JSON: a number of thousands of digits")) from None
    try:  # the text is also YAML, whose nodes have positions, except for tabs
        located = _YAMLParser().parse(text.replace("\t", " "))
    except DocumentError:
        return Document(data, duplicates=tuple(duplicates), text=text)
    return Document(data, located.positions, located.duplicates, text)


def _reject_constant(name: str) -> Any:
    raise DocumentError(FieldError("", f"invalid JSON: {name} is not a number"))


def _merged(value: Any, path: str, duplicates: list[FieldError]) -> Any:
    """Merge the members of each object into a mapping; the last of several duplicates wins, each is reported."""
    if isinstance(value, _ObjectPairs):
        members: dict[str, Any] = {}
        for name, item in value:
            field_path = child(path, name)
            if name in members:
                duplicates.append(FieldError(field_path, "duplicate field"))
            members[name] = _merged(item, field_path, duplicates)
        return members
    if isinstance(value, list):
        return [_merged(item, f"{path}[{index}]", duplicates) for index, item in enumerate(value)]
    return value


# YAML ----------------------------------------------------------------------------------------------------------------

_TAG = "tag:yaml.org,2002:"
_INTEGER = re.compile(r"[-+]?(?:0x[0-9a-fA-F_]+|0b[01_]+|0o[0-7_]+|0[0-7_]*|[1-9][0-9_]*)$")
_FLOAT = re.compile(
    r"[-+]?(?:(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|\.(?:inf|Inf|INF))$|\.(?:nan|NaN|NAN)$"
)
_ONE_LETTER_BOOLEAN = re.compile(r"[yYnN]$")
_TRUE = frozenset({"y", "yes", "true", "on"})
_SURROGATE = re.compile("[\ud800-\udfff]")
_LARGEST_EXACT_FLOAT = 1e21
"""From here on Go's JSON encoder writes a whole float with an exponent, and it no longer decodes as an integer."""
_MAX_VALUES = 1_000_000
"""A bound on the size of the data, because YAML aliases can multiply it exponentially."""


class _Loader(yaml.SafeLoader):
    """Resolves plain scalars as Go's YAML 1.1 parser does: no timestamps, no sexagesimal numbers."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag.removeprefix(_TAG) in ("bool", "null", "merge")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


_Loader.add_implicit_resolver(f"{_TAG}bool", _ONE_LETTER_BOOLEAN, list("yYnN"))
_Loader.add_implicit_resolver(f"{_TAG}int", _INTEGER, list("-+0123456789"))
_Loader.add_implicit_resolver(f"{_TAG}float", _FLOAT, list("-+.0123456789"))


class _YAMLParser:
    """Parses the first document of a YAML text into plain data, and collects positions and duplicate keys."""

    def __init__(self) -> None:
        self._positions: dict[str, Position] = {}
        self._duplicates: list[FieldError] = []
        self._ancestors: set[int] = set()
        self._values = 0

    def parse(self, text: str) -> Document:
        try:
            check_yaml(text, "")
            node = _composed(text)
            data = None if node is None else self._value(node, "")
        except InputError as error:
            line = error.place.removeprefix("line ")
            raise DocumentError(FieldError("", error.problem, int(line) if line else None)) from None
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            position = (mark.line + 1, mark.column + 1) if mark else (None, None)
            raise DocumentError(FieldError("", f"invalid YAML: {error.problem}", *position)) from None
        except RecursionError:
            raise DocumentError(FieldError("", "invalid YAML: nested too deeply")) from None
        except yaml.YAMLError as error:
            raise DocumentError(FieldError("", f"invalid YAML: {str(error).splitlines()[0]}")) from None
        return Document(data, self._positions, tuple(self._duplicates), text)

    def _value(self, node: Node, path: str) -> Any:
        self._values += 1
        if self._values > _MAX_VALUES:
            raise DocumentError(FieldError(path, "invalid YAML: too large after expanding aliases", *_position(node)))
        if isinstance(node, ScalarNode):
            return _scalar(node)
        if id(node) in self._ancestors:
            raise DocumentError(FieldError(path, "invalid YAML: anchor contains itself", *_position(node)))
        self._ancestors.add(id(node))
        value: Any = []
        if isinstance(node, SequenceNode):
            for index, item in enumerate(node.value):
                item_path = f"{path}[{index}]"
                self._positions.setdefault(item_path, _position(item))
                value.append(self._value(item, item_path))
        else:
            value = self._mapping(node, path)
        self._ancestors.discard(id(node))
        return value

    def _mapping(self, node: Node, path: str) -> dict[str, Any]:
        members: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == f"{_TAG}merge":
                for inherited in _mappings(value_node):
                    merged = {**self._mapping(inherited, path), **merged}
                continue
            name = _key(key_node)
            field_path = child(path, name)
            if name in members:
                self._duplicates.append(FieldError(field_path, "duplicate field", *_position(key_node)))
            self._positions[field_path] = _position(key_node)
            members[name] = self._value(value_node, field_path)
        return {**merged, **members}


def _composed(text: str) -> Node | None:
    """The node of the first document; None without one. Raises DocumentError and yaml.YAMLError."""
    loader = _Loader(text)
    try:
        return loader.get_node() if loader.check_node() else None
    except (ValueError, OverflowError):  # of chr()
        problem = "invalid YAML: an escape is not a Unicode character"
        raise DocumentError(FieldError("", problem, loader.line + 1, loader.column + 1)) from None
    finally:
        loader.dispose()


def _mappings(node: Node) -> Iterator[Node]:
    """The mappings that a merge key ("<<") refers to."""
    for candidate in node.value if isinstance(node, SequenceNode) else [node]:
        if not isinstance(candidate, MappingNode):
            text = "invalid YAML: a merge key takes a mapping or a list of mappings"
            raise DocumentError(FieldError("", text, *_position(node)))
        yield candidate


def _key(node: Node) -> str:
    if not isinstance(node, ScalarNode):
        raise DocumentError(FieldError("", "invalid YAML: a mapping key must be a scalar", *_position(node)))
    if node.tag == f"{_TAG}bool":
        return "true" if _scalar(node) else "false"
    return _text(node)


def _text(node: ScalarNode) -> str:
    text = str(node.value)
    if _SURROGATE.search(text):
        raise DocumentError(FieldError("", "invalid YAML: an escape is half of a surrogate pair", *_position(node)))
    return text


def _scalar(node: ScalarNode) -> Any:
    kind, text = node.tag.removeprefix(_TAG), _text(node)
    try:
        match kind:
            case "null":
                return None
            case "bool":
                return text.lower() in _TRUE
            case "int":
                octal = re.fullmatch(r"([-+]?)0([0-7]+)", text.replace("_", ""))
                return int(f"{octal[1]}0o{octal[2]}" if octal else text.replace("_", ""), 0)
            case "float":
                number = float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))
                return int(number) if number.is_integer() and abs(number) < _LARGEST_EXACT_FLOAT else number
    except ValueError:
        raise DocumentError(FieldError("", f'invalid YAML: "{text}" is not a number', *_position(node))) from None
    return text


def _position(node: Node) -> Position:
    return Position(int(node.start_mark.line) + 1, int(node.start_mark.column) + 1)
