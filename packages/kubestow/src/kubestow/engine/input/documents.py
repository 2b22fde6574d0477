"""The Kubernetes objects in a file or folder, each with its position.

A file holds one object, a List (``kubectl get -o json`` or ``-o yaml``), or several of them: documents separated by
``---`` in YAML, one after the other in JSON. It may be compressed with gzip (:mod:`kubestow.files`).

Objects stay encoded: their bytes are decoded into the struct of their kind, without a detour through dictionaries, and
a million of them fit into memory.

One unusable object does not spoil a dump of thousands, so it is left out, reported and counted as an
:class:`InputProblem`. With ``strict``, the first problem refuses the whole input. A file that does not parse is always
refused: it may be truncated, and half a cluster would give wrong results.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from kubestow.api.conversion import conversion_of
from kubestow.api.formats.yaml_documents import load_yaml, yaml_documents
from kubestow.api.json_text import UNDECODABLE, decode_readable, parse_json, readable_json
from kubestow.errors import InputError
from kubestow.files import MAX_DUMP, as_utf8, read_file, read_standard_input

_SUFFIXES = (".json", ".yaml", ".yml")
_STANDARD_INPUT = "-"
Raw = bytes | msgspec.Raw


@dataclass(frozen=True, slots=True)
class SourceObject:
    """An object of a file: its type, its JSON, and where it is: ``line 12``, ``items[3]`` or ``line 12: items[3]``.

    Objects of former versions of resource.k8s.io are converted to v1. ``server_version`` is the version of the API
    server that they are from, and ``listed`` the resourceVersions of the lists by path, if the file tells them.
    """

    api_version: str
    kind: str
    raw: Raw
    subject: str
    place: str
    server_version: str = ""
    listed: Mapping[str, str] | None = None

    @property
    def manifest(self) -> dict[str, Any]:
        """The object as plain data, decoded anew on each access."""
        decoded: dict[str, Any] = parse_json(self.raw)
        return decoded


class _TypeMeta(msgspec.Struct, rename="camel"):
    """The type of an object; of a list, the items, and what a snapshot notes about the API server and its lists.

    Older snapshots have ``kubernetesVersion`` in place of ``serverVersion``.
    """

    api_version: str | None = None
    kind: str | None = None
    items: list[msgspec.Raw] | None = None
    server_version: str | None = None
    kubernetes_version: str | None = None
    resource_versions: dict[str, str] | None = None


_TYPE_META = msgspec.json.Decoder(_TypeMeta)


def read_objects(paths: Iterable[str | Path], problems: Problems) -> Iterator[SourceObject]:
    """The objects of files and folders, in order; ``-`` is standard input.

    Of a folder, all files that end in .json, .yaml or .yml, or in one of these and .gz, are read in order of their
    paths. Raises InputError for a file that cannot be read or does not parse.
    """
    for path in paths:
        for file in _files(path):
            subject = "standard input" if file == _STANDARD_INPUT else str(file)
            from_input = file == _STANDARD_INPUT
            content = read_standard_input(limit=MAX_DUMP) if from_input else read_file(Path(file), limit=MAX_DUMP)
            yield from parse_objects(content, subject, problems)


def _files(path: str | Path) -> list[str | Path]:
    if str(path) == _STANDARD_INPUT or not Path(path).is_dir():
        return [path]
    files = [Path(folder) / name for folder, _, names in os.walk(path) for name in names]
    found = [file for file in files if file.name.lower().removesuffix(".gz").endswith(_SUFFIXES)]
    if not found:
        raise InputError(str(path), f"no manifests, expected files that end in {', '.join(_SUFFIXES)}")
    return [*sorted(found)]


def parse_objects(content: bytes, subject: str, problems: Problems) -> Iterator[SourceObject]:
    """The objects in the content of a file, which errors call ``subject``. Raises InputError if it does not parse."""
    content = as_utf8(content, subject)
    is_json = content.lstrip()[:1] in (b"{", b"[")
    documents = _json_documents(content, subject) if is_json else _yaml_documents(content, subject)
    empty = True
    for place, raw, items in documents:
        empty = False
        yield from _objects_in(raw, items, subject, place, problems)
    if empty:
        raise InputError(subject, "is empty, expected Kubernetes objects")


#: A document: its position, its JSON, and the positions of its items if they are known.
_Document = tuple[str, Raw, list[str]]


def _objects_in(
    raw: Raw, places: list[str], subject: str, place: str, problems: Problems, default: _TypeMeta | None = None
) -> Iterator[SourceObject]:
    """The objects of a document: itself, or the items of a list, at any depth."""
    try:
        meta = decode_readable(_TYPE_META, raw)
    except UNDECODABLE as error:
        problems.report(subject, place, f"not a Kubernetes object: {_text(error)}")
        return
    api_version = meta.api_version or (default.api_version if default else None)
    kind = meta.kind or (default.kind if default else None)
    if not api_version or not kind:
        problems.report(subject, place, "not a Kubernetes object: expected apiVersion and kind")
        return
    version = meta.server_version or meta.kubernetes_version or (default.server_version if default else None)
    listed = meta.resource_versions or (default.resource_versions if default else None)
    if meta.items is None or not kind.endswith("List"):
        if (group := conversion_of(api_version, kind)) is not None:
            raw = msgspec.json.encode(group.to_hub(api_version.rpartition("/")[2], parse_json(raw)))
            api_version = group.hub_api_version
        yield SourceObject(sys.intern(api_version), sys.intern(kind), raw, subject, place, version or "", listed)
        return
    # The items of a typed list such as NodeList have no kind and apiVersion of their own.
    is_typed = kind != "List"
    item_type = _TypeMeta(api_version, kind.removesuffix("List")) if is_typed else _TypeMeta()
    item_type.server_version, item_type.resource_versions = version, listed
    within = place and place + ("." if place.endswith("]") else ": ")
    for index, item in enumerate(meta.items):
        item_place = places[index] if index < len(places) else f"{within}items[{index}]"
        yield from _objects_in(item, [], subject, item_place, problems, item_type)


# -- JSON ----------------------------------------------------------------------------------------------------------


def _json_documents(content: bytes, subject: str) -> list[_Document]:
    try:
        return _json_values(content)
    except UNDECODABLE:
        content = readable_json(_decoded(content, subject).encode())
    try:
        return _json_values(content)
    except UNDECODABLE:
        return list(_concatenated_json(content.decode(), subject))


def _json_values(content: bytes) -> list[_Document]:
    if content.lstrip().startswith(b"["):
        array = msgspec.json.decode(content, type=list[msgspec.Raw])
        return [(f"[{index}]", item, []) for index, item in enumerate(array)]
    msgspec.json.decode(content, type=msgspec.Raw)
    return [("", content, [])]


def _decoded(content: bytes, subject: str) -> str:
    """The text of a file. Raises InputError with the line at which it is not UTF-8."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(subject, "not UTF-8 text", place=f"line {line}") from None


_NOT_SPACE = re.compile(r"\S")


def _concatenated_json(text: str, subject: str) -> Iterator[_Document]:
    """JSON documents one after the other. Raises InputError with the line at which the text is not JSON."""
    decoder, position = json.JSONDecoder(), len(text) - len(text.lstrip())
    line = _line(text, position)
    while position < len(text):
        try:
            _, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError) as error:  # ValueError without a position: a number of thousands of digits
            at = error.pos if isinstance(error, json.JSONDecodeError) else position
            truncated = at >= len(text.rstrip()) or "Unterminated" in str(error)
            problem = "the JSON ends early: the file is truncated" if truncated else f"invalid JSON: {_text(error)}"
            raise InputError(subject, problem, place=f"line {_line(text, at)}") from None
        yield f"line {line}", text[position:end].encode(), []
        following = _NOT_SPACE.search(text, end)
        before, position = position, len(text) if following is None else following.start()
        line += text.count("\n", before, position)


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


# -- YAML ----------------------------------------------------------------------------------------------------------


def _yaml_documents(content: bytes, subject: str) -> Iterator[_Document]:
    """YAML documents as JSON, with the lines of list items. Raises InputError with the line of an error."""
    for document in yaml_documents(content, subject):
        if document.data is not None:  # a document of comments only
            line = f"line {document.line}"
            yield line, _encoded(document.data, subject, line), _item_lines(document.node)


def _encoded(data: Any, subject: str, place: str) -> bytes:
    try:
        return msgspec.json.encode(data)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(subject, f"not a Kubernetes object: {_text(error)}", place=place) from None


def _item_lines(node: yaml.Node) -> list[str]:
    """The lines of the items of a list."""
    if not isinstance(node, yaml.MappingNode):
        return []
    for key, value in node.value:
        if key.value == "items" and isinstance(value, yaml.SequenceNode):
            return [f"line {item.start_mark.line + 1}" for item in value.value]
    return []


def _text(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


@dataclass(frozen=True, slots=True)
class InputProblem:
    """Why an object was left out: its file, its ``place`` there (a line or ``items[3]``), and what is wrong."""

    subject: str
    place: str
    text: str

    def __str__(self) -> str:
        """One line: file, place, problem."""
        return f"{self.subject}: {self.place}: {self.text}" if self.place else f"{self.subject}: {self.text}"


class Problems:
    """The problems found so far; the first one is raised as InputError if ``strict``."""

    def __init__(self, *, strict: bool = False) -> None:
        self.strict = strict
        self._found: list[InputProblem] = []

    def report(self, subject: str, place: str, text: str) -> None:
        """Keep a problem. Raises InputError if strict."""
        if self.strict:
            raise InputError(subject, text, place=place)
        self._found.append(InputProblem(subject, place, text))

    def __iter__(self) -> Iterator[InputProblem]:
        """In the order in which they were found."""
        return iter(self._found)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._found)


def read_yaml(path: str | Path) -> Any:
    """The plain data of a file with one document. Raises InputError."""
    return load_yaml(read_file(Path(path)), str(path))


def convert_part(data: Any, kind: Any, *, subject: str, place: str = "") -> Any:
    """Plain data as an instance of a msgspec type.

    Raises InputError with the path of the field that is wrong; ``place`` is the path of the data in the file.
    """
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$")
        field = (place + path.rstrip("`")).removeprefix(".")
        raise InputError(subject, problem[:1].lower() + problem[1:], place=field) from None
