"""From the bytes of lists and watches to objects: lines, envelopes, and what to do with an object that does not fit.

Bytes become structs in two steps without a dict in between: the envelope leaves the object as it is (``Raw``), then the
object is decoded into its resource's type. An object that does not decode is reported by name and left out; the others
go on. Nothing here knows of connections.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kubestow.api.meta import UNDECODABLE, decode
from kubestow.errors import APIError, InvalidObject
from kubestow.scheduling.ports import Resource

__all__ = [
    "UNDECODABLE",
    "Bookmark",
    "LineSplitter",
    "ListPage",
    "ObjectDecoder",
    "WatchEvent",
    "error_event",
]


class WatchEvent(msgspec.Struct, gc=False):
    """One line of a watch. Decode with :meth:`parse`."""

    type: str
    object: msgspec.Raw

    @classmethod
    def parse(cls, line: bytes) -> WatchEvent:
        """Raises one of UNDECODABLE for a line that is no watch event."""
        return _EVENT.decode(line)


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class ListPage(msgspec.Struct):
    """A list, or a page of one, its items not yet decoded."""

    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[msgspec.Raw] | None = None

    @classmethod
    def parse(cls, body: bytes) -> ListPage:
        """Raises one of UNDECODABLE for a body that is no list."""
        return _PAGE.decode(body)


class _BookmarkMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class Bookmark(msgspec.Struct):
    """All that is read of an object which only marks a position in a watch."""

    metadata: _BookmarkMeta

    @classmethod
    def parse(cls, data: msgspec.Raw) -> Bookmark:
        """Raises one of UNDECODABLE."""
        return _BOOKMARK.decode(data)

    @property
    def ends_initial_events(self) -> bool:
        """Whether all objects that existed when a streaming list began have been sent."""
        return (self.metadata.annotations or {}).get("k8s.io/initial-events-end") == "true"


class _Status(msgspec.Struct):
    code: int = 0
    reason: str = ""
    message: str = ""


_EVENT = msgspec.json.Decoder(WatchEvent)
_PAGE = msgspec.json.Decoder(ListPage)
_BOOKMARK = msgspec.json.Decoder(Bookmark)
_STATUS = msgspec.json.Decoder(_Status)


def error_event(data: msgspec.Raw) -> APIError:
    """The failure that an ERROR event carries. Raises one of UNDECODABLE if it carries none."""
    status = _STATUS.decode(data)
    return APIError(status.code, status.reason, status.message)


class LineSplitter:
    """Cuts a stream into lines as its chunks come; a line is copied once, or twice where a chunk ends inside it."""

    def __init__(self) -> None:
        self._begun: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes, empty ones left out."""
        *lines, rest = chunk.split(b"\n")
        if lines and self._begun:
            lines[0] = b"".join((*self._begun, lines[0]))
            self._begun.clear()
        if rest:
            self._begun.append(rest)
        return [line for line in lines if line.strip()]

    @property
    def unfinished(self) -> bool:
        """Whether the stream so far ends in the middle of a line."""
        return bool(self._begun)


class ObjectDecoder:
    """Decodes the objects of one resource and reports those that do not decode: each once, until it changes its fault.

    ``report`` receives the object's ``namespace/name``, as far as it can be made out, and the problem. ``keep`` gets
    every object that was read together with the JSON it was read from.
    """

    def __init__(
        self,
        resource: Resource,
        report: Callable[[str, str], None],
        keep: Callable[[Any, msgspec.Raw], None] | None = None,
    ) -> None:
        self._type, self._report, self._keep = resource.type, report, keep
        self._faults: dict[str, str] = {}
        self._faults_before: dict[str, str] = {}

    def start_over(self) -> None:
        """The complete collection is about to be read once more: what is not in it any longer is forgotten."""
        self._faults, self._faults_before = {}, self._faults

    def read(self, data: msgspec.Raw) -> Any | None:
        """The object, or None after reporting it."""
        try:
            obj = decode(self._type, data)
        except (InvalidObject, *UNDECODABLE) as error:
            self._fault(_subject(data), str(error))
            return None
        if self._faults:
            self._faults.pop(_name(obj.metadata.namespace, obj.metadata.name), None)
        if self._keep is not None:
            self._keep(obj, data)
        return obj

    def read_deleted(self, data: msgspec.Raw) -> Any | None:
        """The last state of a deleted object; where it does not decode, its identity alone, for it has to go."""
        try:
            obj = decode(self._type, data)
        except (InvalidObject, *UNDECODABLE) as error:
            obj = self._nameplate(data)
            if obj is None:
                self._fault(_subject(data), str(error))
                return None
        self._faults.pop(_name(obj.metadata.namespace, obj.metadata.name), None)
        return obj

    def _nameplate(self, data: msgspec.Raw) -> Any | None:
        meta = _metadata(data)
        identity = {key: meta[key] for key in ("namespace", "name", "uid", "resourceVersion") if key in meta}
        try:
            return decode(self._type, msgspec.json.encode({"metadata": identity})) if identity.get("name") else None
        except InvalidObject:
            return None

    def _fault(self, subject: str, problem: str) -> None:
        known = self._faults.get(subject, self._faults_before.get(subject))
        self._faults[subject] = problem
        if known != problem:
            self._report(subject, problem)


def _metadata(data: msgspec.Raw) -> dict[str, Any]:
    try:
        obj = msgspec.json.decode(data)
    except UNDECODABLE:
        return {}
    meta = obj.get("metadata") if isinstance(obj, dict) else None
    return meta if isinstance(meta, dict) else {}


def _subject(data: msgspec.Raw) -> str:
    meta = _metadata(data)
    namespace, name = meta.get("namespace"), meta.get("name")
    return _name(namespace if isinstance(namespace, str) else "", name if isinstance(name, str) else "(no name)")


def _name(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name
