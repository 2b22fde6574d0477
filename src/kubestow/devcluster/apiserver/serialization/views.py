"""Stored objects as clients want to see them: whole, metadata only, or as table rows; in JSON or YAML; one or a list.

Whole objects in JSON, by far the most wanted, are the stored bytes behind a constant head. Everything else is made
by decoding them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec
import yaml

from kubestow.devcluster.apiserver.printing import tables
from kubestow.devcluster.apiserver.requests import JSON, Answer
from kubestow.devcluster.apiserver.resources import Kind
from kubestow.devcluster.apiserver.serialization.negotiation import Form, Representation
from kubestow.devcluster.apiserver.storage.store import StoredObject

__all__ = ["View"]

_YAML = "application/yaml"
_METADATA_HEAD = b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",'
#: Bytes of one part of a long list.
_PART = 256 * 1024


class _Metadata(msgspec.Struct):
    metadata: msgspec.Raw


_METADATA = msgspec.json.Decoder(_Metadata)


class View:
    """How objects of one kind are shown in one representation. ``include_object`` is the parameter for table rows."""

    def __init__(
        self, kind: Kind, representation: Representation, *, include_object: str = "", now: Callable[[], datetime]
    ) -> None:
        self.kind, self.form, self._is_yaml = kind, representation.form, representation.is_yaml
        self._include, self._now = include_object or "Metadata", now

    @property
    def content_type(self) -> str:
        return _YAML if self._is_yaml else JSON

    @property
    def is_plain(self) -> bool:
        """Whether an object looks the same to all who ask this way."""
        return self.form is Form.OBJECT and not self._is_yaml

    def one(self, stored: StoredObject, status: int = 200, *, headers: dict[str, str] | None = None) -> Answer:
        return self._answer(self.object(stored), status, headers)

    def many(self, objects: Sequence[StoredObject], list_metadata: dict[str, Any]) -> Answer:
        metadata = msgspec.json.encode(list_metadata)
        if self.form is Form.TABLE:
            return self._answer(self._table(objects, list_metadata), 200, None)
        if self.form is Form.METADATA:
            head = (
                b'{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":%s,"items":[' % metadata
            )
            parts = _joined(head, (self.object(stored) for stored in objects))
        else:
            named = (self.kind.list_kind.encode(), self.kind.api_version.encode(), metadata)
            head = b'{"kind":"%s","apiVersion":"%s","metadata":%s,"items":[' % named
            encode = self.kind.encode_item
            parts = _joined(head, (encode(stored) for stored in objects))
        if self._is_yaml:
            return self._answer(b"".join(parts), 200, None)
        return Answer(200, parts)

    def object(self, stored: StoredObject, *, first: bool = True) -> bytes:
        """One object without a newline. ``first`` rows of a watch carry the column definitions."""
        if self.form is Form.OBJECT:
            return self.kind.encode(stored)
        if self.form is Form.METADATA:
            return _METADATA_HEAD + b'"metadata":%s}' % bytes(_METADATA.decode(stored.data).metadata)
        return self._table([stored], {"resourceVersion": str(stored.resource_version)}, columns=first)

    def bookmark(self, version: int, annotations: dict[str, str]) -> bytes:
        metadata: dict[str, Any] = {"resourceVersion": str(version)}
        if annotations:
            metadata["annotations"] = annotations
        if self.form is Form.TABLE:
            return self._table([], metadata, columns=False)
        if self.form is Form.METADATA:
            return _METADATA_HEAD + b'"metadata":%s}' % msgspec.json.encode(metadata)
        empty = {} if self.kind.struct.open else self.kind.struct.read({}, [])
        return self.kind.head + msgspec.json.encode({**empty, "metadata": metadata})[1:]

    def _table(self, objects: Sequence[StoredObject], metadata: dict[str, Any], *, columns: bool = True) -> bytes:
        made = tables.table(self.kind, objects, metadata, include=self._include, now=self._now(), columns=columns)
        return msgspec.json.encode(made)

    def _answer(self, body: bytes, status: int, headers: dict[str, str] | None) -> Answer:
        if self._is_yaml:
            text = yaml.dump(
                msgspec.json.decode(body), Dumper=_Dumper, default_flow_style=False, allow_unicode=True, width=2**20
            )
            return Answer(status, text.encode(), _YAML, headers or {})
        return Answer(status, body + b"\n", headers=headers or {})


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """YAML as Kubernetes writes it: no aliases, and what needs quotes has double ones."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: Any, text: str) -> Any:
    tag = "tag:yaml.org,2002:str"
    plain = dumper.resolve(yaml.ScalarNode, text, (True, False)) == tag
    style = "|" if "\n" in text else None if plain and text else '"'
    return dumper.represent_scalar(tag, text, style=style)


_Dumper.add_representer(str, _text)


def _joined(head: bytes, items: Iterator[bytes]) -> Iterator[bytes]:
    """The list in parts of about equal size, so that a long one is never held whole."""
    part, size, separator = [head], len(head), b""
    for item in items:
        part += (separator, item)
        size += len(item) + 1
        separator = b","
        if size >= _PART:
            yield b"".join(part)
            part, size = [], 0
    part.append(b"]}\n")
    yield b"".join(part)
