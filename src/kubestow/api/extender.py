"""The protocol of scheduler extenders on the wire (k8s.io/kube-scheduler/extender/v1, semantics 5.5).

Keys are the names of Go's fields, capitalised, for those types have no JSON names. Go reads a key in whatever case it
is written, and extenders rely on that: :func:`read` does too. Pods and nodes go through as they are, in full, for what
scheduling reads of them is only a part.
"""

from __future__ import annotations

from functools import cache
from types import UnionType
from typing import Annotated, Any, TypeVar, get_args, get_origin

import msgspec
from msgspec import Raw, field

from kubestow.api.meta import UNDECODABLE
from kubestow.errors import InvalidObject

__all__ = [
    "MAX_SCORE",
    "BindingArgs",
    "BindingResult",
    "ExtenderArgs",
    "FilterResult",
    "HostPriority",
    "MetaPod",
    "MetaVictims",
    "NodeList",
    "PreemptionArgs",
    "PreemptionResult",
    "Victims",
    "name_of",
    "read",
    "uid_of",
]

MAX_SCORE = 10
"""The highest score that an extender gives; the lowest is 0."""

T = TypeVar("T")
_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _Message(msgspec.Struct, frozen=True, kw_only=True, rename="pascal", forbid_unknown_fields=True):
    """The base of all messages and their parts."""


class NodeList(msgspec.Struct, frozen=True, kw_only=True):
    """A ``v1.NodeList``."""

    metadata: dict[str, str | int | None] = {}
    items: list[Raw] = []


class ExtenderArgs(_Message, frozen=True):
    """What filter and prioritize are asked: a pod, and either nodes or the names of nodes."""

    pod: Raw
    nodes: NodeList | None = None
    node_names: list[str] | None = None


class FilterResult(_Message, frozen=True):
    """The nodes that are left, in the form in which they were sent, and why others are not."""

    nodes: NodeList | None = None
    node_names: list[str] | None = None
    failed_nodes: dict[str, str] = {}
    failed_and_unresolvable_nodes: dict[str, str] = {}
    error: str = ""


class HostPriority(_Message, frozen=True):
    """A node's score, 0 to 10; prioritize answers with a list of them."""

    host: str = ""
    score: _Int64 = 0


class Victims(_Message, frozen=True):
    """The pods to be evicted from a node."""

    pods: list[Raw] = []
    num_pdb_violations: _Int64 = field(default=0, name="NumPDBViolations")


class MetaPod(_Message, frozen=True):
    """A pod by its uid."""

    uid: str = field(default="", name="UID")


class MetaVictims(_Message, frozen=True):
    """The same as :class:`Victims`, by uid."""

    pods: list[MetaPod] = []
    num_pdb_violations: _Int64 = field(default=0, name="NumPDBViolations")


class PreemptionArgs(_Message, frozen=True):
    """What preempt is asked: the victims on each candidate node, in full or, of those that cache, by uid."""

    pod: Raw
    node_name_to_victims: dict[str, Victims] | None = None
    node_name_to_meta_victims: dict[str, MetaVictims] | None = None


class PreemptionResult(_Message, frozen=True):
    """The candidates that are left, always by uid."""

    node_name_to_meta_victims: dict[str, MetaVictims] = {}


class BindingArgs(_Message, frozen=True):
    """What bind is asked."""

    pod_name: str = ""
    pod_namespace: str = ""
    pod_uid: str = field(default="", name="PodUID")
    node: str = ""


class BindingResult(_Message, frozen=True):
    """What came of it."""

    error: str = ""


class _Identity(msgspec.Struct):
    name: str
    uid: str = ""


class _Identified(msgspec.Struct):
    metadata: _Identity


_IDENTIFIED = msgspec.json.Decoder(_Identified)


def name_of(obj: Raw) -> str:
    """The name of a pod or node. Raises InvalidObject if it has none."""
    return _identity(obj).name


def uid_of(obj: Raw) -> str:
    """Its uid, "" if it has none. Raises InvalidObject if it has no name either."""
    return _identity(obj).uid


def _identity(obj: Raw) -> _Identity:
    try:
        return _IDENTIFIED.decode(obj).metadata
    except UNDECODABLE as error:
        raise InvalidObject(str(error)) from None


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_ARRAY = msgspec.json.Decoder(list[Raw])
#: No null takes so many bytes, whatever stands around it.
_SHORT = 16


def read(kind: type[T], data: bytes) -> T:
    """A message from JSON. Raises InvalidObject with the place that does not fit."""
    try:
        message: T = _decoder(kind).decode(data)  # type: ignore[arg-type]  # classes are hashable
    except UNDECODABLE:
        return _read_respelled(kind, data)
    return message


def _read_respelled(kind: type[T], data: bytes) -> T:
    """The same of a message whose keys are spelled in another way, or that has nulls or further keys."""
    try:
        respelled = _respelled(kind, Raw(data))
        message: T = msgspec.json.decode(msgspec.json.encode(respelled), type=kind)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `")
        raise InvalidObject(problem, path=path.rstrip("`").removeprefix("$").lstrip(".")) from None
    except UNDECODABLE as error:
        raise InvalidObject(f"not JSON: {error}") from None
    return message


def _respelled(kind: Any, data: Raw) -> Any:
    """Data with the keys that its kind declares; what has another form than that is left for decoding to refuse."""
    origin, arguments = get_origin(kind), get_args(kind)
    if memoryview(data).nbytes < _SHORT and bytes(data).strip() == b"null":
        return None
    if origin is UnionType:
        return _respelled(arguments[0], data)
    try:
        if origin is list:
            return [_respelled(arguments[0], item) for item in _ARRAY.decode(data)]
        if origin is dict:
            return {key: _respelled(arguments[1], item) for key, item in _OBJECT.decode(data).items()}
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return _respelled_struct(kind, _OBJECT.decode(data))
    except msgspec.ValidationError:
        pass
    return data


def _respelled_struct(kind: type[msgspec.Struct], items: dict[str, Raw]) -> dict[str, Any]:
    given = {key.lower(): item for key, item in items.items()}
    fields = ((f.encode_name, f.type, given.get(f.encode_name.lower())) for f in msgspec.structs.fields(kind))
    spelled = ((name, _respelled(type_, item)) for name, type_, item in fields if item is not None)
    return {name: item for name, item in spelled if item is not None}
