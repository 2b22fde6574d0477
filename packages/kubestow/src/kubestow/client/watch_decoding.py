"""Decoding of list and watch responses: lines, envelopes, objects, and the handling of objects that do not decode.

Bytes become structs in two steps without an intermediate dict: the envelope keeps the object as ``msgspec.Raw``, then
the object is decoded into the type of its resource. An object that does not decode is reported by name and skipped; the
others are processed. This module does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from kubestow.api.core import Pod
from kubestow.api.json_text import UNDECODABLE
from kubestow.api.meta import decode
from kubestow.errors import InvalidObject
from kubestow.scheduling.interfaces import Resource


class WatchLine(msgspec.Struct, gc=False):
    """One line of a watch; ``object`` is not decoded yet."""

    type: str
    object: msgspec.Raw

    @classmethod
    def parse(cls, line: bytes) -> WatchLine:
        """Raises one of UNDECODABLE."""
        return _EVENT.decode(line)


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class ListPage(msgspec.Struct):
    """A list, or one page of it; ``items`` are not decoded yet."""

    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[msgspec.Raw] | None = None


class _BookmarkMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class Bookmark(msgspec.Struct):
    """The object of a BOOKMARK event: a resourceVersion without other content."""

    metadata: _BookmarkMeta

    @property
    def ends_initial_events(self) -> bool:
        """Whether the initial list of a streaming list is complete."""
        return (self.metadata.annotations or {}).get("k8s.io/initial-events-end") == "true"


_encode = msgspec.json.Encoder(order="deterministic").encode
_EVENT = msgspec.json.Decoder(WatchLine)


class LineSplitter:
    """Splits a stream of chunks into lines. A line is copied once, or twice if it extends over several chunks."""

    def __init__(self) -> None:
        self._partial: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The non-empty lines that this chunk completes."""
        *lines, rest = chunk.split(b"\n")
        if lines and self._partial:
            lines[0] = b"".join((*self._partial, lines[0]))
            self._partial.clear()
        if rest:
            self._partial.append(rest)
        return [line for line in lines if line.strip()]

    @property
    def has_partial_line(self) -> bool:
        """Whether the stream so far ends in the middle of a line."""
        return bool(self._partial)


class SharedPodFields:
    """Shares the equal fields of copies of a pod, while the pods of a large cluster are listed. Without it, each
    decoded copy would have its own containers, tolerations and owner references, which are more than half of its
    memory.
    """

    _OF_METADATA = ("labels", "owner_references")
    _OF_SPEC = (
        "containers",
        "init_containers",
        "overhead",
        "node_selector",
        "affinity",
        "tolerations",
        "topology_spread_constraints",
        "scheduling_gates",
        "resource_claims",
    )

    def __init__(self) -> None:
        self._known: dict[bytes, dict[str, Any]] = {}

    def share(self, pod: Pod) -> Pod:
        """An equal pod, which has those of these fields in common with earlier pods that are equal to theirs."""
        metadata, spec = self._shared(pod.metadata, self._OF_METADATA), self._shared(pod.spec, self._OF_SPEC)
        return replace(pod, metadata=replace(pod.metadata, **metadata), spec=replace(pod.spec, **spec))

    def _shared(self, struct: msgspec.Struct, names: Iterable[str]) -> dict[str, Any]:
        fields = {name: getattr(struct, name) for name in names}
        return self._known.setdefault(_encode(fields), fields)


class ObjectDecoder:
    """Decodes the objects of one resource. An object that does not decode is reported once per distinct problem.

    ``on_undecodable`` receives the object's ``namespace/name``, as far as it can be decoded, and the problem.
    ``on_decoded`` receives every decoded object together with its JSON.
    """

    def __init__(
        self,
        resource: Resource,
        on_undecodable: Callable[[str, str], None],
        on_decoded: Callable[[Any, msgspec.Raw], None] | None = None,
    ) -> None:
        self._type, self._on_undecodable, self._on_decoded = resource.type, on_undecodable, on_decoded
        self._problems: dict[str, str] = {}
        self._problems_before_list: dict[str, str] = {}
        #: Of the list in progress.
        self._shared_fields: SharedPodFields | None = None

    def begin_list(self) -> None:
        """Start a new list: problems of objects that it no longer contains are dropped."""
        self._problems, self._problems_before_list = {}, self._problems
        self._shared_fields = SharedPodFields()

    def end_list(self) -> None:
        """The list is complete; later objects share nothing with its objects."""
        self._shared_fields = None

    def decode(self, data: msgspec.Raw) -> Any | None:
        """The decoded object, or None after a report."""
        try:
            obj = decode(self._type, data)
        except (InvalidObject, *UNDECODABLE) as error:
            self._report(_subject(data), str(error))
            return None
        if self._problems:
            self._problems.pop(_key(obj.metadata.namespace, obj.metadata.name), None)
        if self._shared_fields is not None and isinstance(obj, Pod):
            obj = self._shared_fields.share(obj)
        if self._on_decoded is not None:
            self._on_decoded(obj, data)
        return obj

    def decode_deleted(self, data: msgspec.Raw) -> Any | None:
        """The last state of a deleted object. If it does not decode, an object with its identity only, or None.

        The identity is enough for the cache to delete the object.
        """
        try:
            obj = decode(self._type, data)
        except (InvalidObject, *UNDECODABLE) as error:
            obj = self._identity_only(data)
            if obj is None:
                self._report(_subject(data), str(error))
                return None
        self._problems.pop(_key(obj.metadata.namespace, obj.metadata.name), None)
        return obj

    def _identity_only(self, data: msgspec.Raw) -> Any | None:
        meta = _metadata(data)
        identity = {key: meta[key] for key in ("namespace", "name", "uid", "resourceVersion") if key in meta}
        try:
            return decode(self._type, msgspec.json.encode({"metadata": identity})) if identity.get("name") else None
        except InvalidObject:
            return None

    def _report(self, subject: str, problem: str) -> None:
        reported = self._problems.get(subject, self._problems_before_list.get(subject))
        self._problems[subject] = problem
        if reported != problem:
            self._on_undecodable(subject, problem)


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
    return _key(namespace if isinstance(namespace, str) else "", name if isinstance(name, str) else "(no name)")


def _key(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name
