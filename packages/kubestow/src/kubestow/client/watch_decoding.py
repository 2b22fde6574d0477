"""Decoding of list and watch responses: lines, envelopes, objects, and the handling of objects that do not decode.

Bytes become structs in two steps without an intermediate dict: the envelope keeps the object as ``msgspec.Raw``, then
the object is decoded into the type of its resource. An envelope that does not decode is made readable
(:mod:`kubestow.api.json_text`), so that an object can harm itself only. An object that does not decode is reported by
name. It is skipped if it waits to be scheduled; what it occupies already counts, so a pod with a node and an allocated
ResourceClaim are read without the fields that do not decode. This module does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from kubestow.api.core import Pod
from kubestow.api.json_text import decode_readable
from kubestow.api.meta import APIObject, ObjectMeta, decode, decode_partly
from kubestow.api.resource import ResourceClaim
from kubestow.errors import InvalidObject
from kubestow.scheduling.interfaces import Resource


class WatchLine(msgspec.Struct, gc=False):
    """One line of a watch; ``object`` is not decoded yet."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: msgspec.Raw

    @classmethod
    def parse(cls, line: bytes) -> WatchLine:
        """Raises one of UNDECODABLE."""
        return decode_readable(_EVENT, line)


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class ListPage(msgspec.Struct):
    """A list, or one page of it; ``items`` are not decoded yet."""

    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[msgspec.Raw] | None = None

    @classmethod
    def parse(cls, body: bytes) -> ListPage:
        """Raises one of UNDECODABLE."""
        return decode_readable(_PAGE, body)


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


class _NamedObject(APIObject, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


_encode = msgspec.json.Encoder(order="deterministic").encode
_EVENT = msgspec.json.Decoder(WatchLine)
_PAGE = msgspec.json.Decoder(ListPage)


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

    ``on_undecodable`` receives what identifies the object, as far as it can be decoded, and the problem.
    ``on_decoded`` receives every decoded object together with its JSON. ``received`` converts JSON that the server
    sends in another version.
    """

    def __init__(
        self,
        resource: Resource,
        on_undecodable: Callable[[ObjectMeta, str], None],
        on_decoded: Callable[[Any, msgspec.Raw], None] | None = None,
        received: Callable[[bytes | msgspec.Raw], bytes | msgspec.Raw] | None = None,
    ) -> None:
        self._type, self._on_undecodable, self._on_decoded = resource.type, on_undecodable, on_decoded
        self._received = received
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
        """The object, or after a report what of it decodes if it occupies something, or None."""
        if self._received is not None:
            data = msgspec.Raw(self._received(data))
        try:
            obj = decode(self._type, data)
        except InvalidObject as error:
            obj = self._decode_partly(data, error)
            if obj is None:
                return None
        else:
            if self._problems:
                self._problems.pop(_key(obj.metadata), None)
        if self._shared_fields is not None and isinstance(obj, Pod):
            obj = self._shared_fields.share(obj)
        if self._on_decoded is not None:
            self._on_decoded(obj, data)
        return obj

    def decode_deleted(self, data: msgspec.Raw) -> Any | None:
        """The last state of a deleted object, or what of it decodes if that names it; None after a report.

        The identity is enough for the cache to delete the object.
        """
        if self._received is not None:
            data = msgspec.Raw(self._received(data))
        try:
            obj = decode(self._type, data)
        except InvalidObject as error:
            try:
                obj, _ = decode_partly(self._type, data)
            except InvalidObject:
                obj = None
            if obj is None or not obj.metadata.name:
                self._report(_metadata(data), str(error))
                return None
        self._problems.pop(_key(obj.metadata), None)
        return obj

    def _decode_partly(self, data: msgspec.Raw, error: InvalidObject) -> Any | None:
        try:
            obj, problems = decode_partly(self._type, data)
        except InvalidObject:
            obj, problems = None, []
        if obj is None or not (obj.metadata.name and obj.metadata.uid and _occupies(obj)):
            self._report(_metadata(data), f"{error}; it is ignored")
            return None
        self._report(obj.metadata, f"{'; '.join(map(str, problems[:_MAX_NAMED]))}; the rest of it counts")
        return obj

    def _report(self, metadata: ObjectMeta, problem: str) -> None:
        subject = _key(metadata)
        reported = self._problems.get(subject, self._problems_before_list.get(subject))
        self._problems[subject] = problem
        if reported != problem:
            self._on_undecodable(identity(metadata), problem)


#: Problems of one object that are named.
_MAX_NAMED = 3


def _occupies(obj: Any) -> bool:
    """Whether an object holds room on a node, or devices: it has to count even if it cannot be decoded as a whole."""
    if isinstance(obj, Pod):
        return bool(obj.spec.node_name)
    return isinstance(obj, ResourceClaim) and obj.status.allocation is not None


def identity(metadata: ObjectMeta) -> ObjectMeta:
    """What identifies a state of an object, without what its owner can make long."""
    return ObjectMeta(
        name=metadata.name,
        namespace=metadata.namespace,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        generation=metadata.generation,
    )


def _metadata(data: msgspec.Raw) -> ObjectMeta:
    """The metadata of an object as far as it decodes."""
    try:
        named, _ = decode_partly(_NamedObject, data)
    except InvalidObject:
        return ObjectMeta()
    return named.metadata


_NO_NAME = "(no name)"


def _key(metadata: ObjectMeta) -> str:
    name = metadata.name or _NO_NAME
    return f"{metadata.namespace}/{name}" if metadata.namespace else name
