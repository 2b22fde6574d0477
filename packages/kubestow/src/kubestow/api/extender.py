"""The wire protocol of scheduler extenders (k8s.io/kube-scheduler/extender/v1, semantics 5.5).

Keys are Go field names, capitalised, because the Go types have no JSON tags. Go decodes keys case-insensitively and
extenders rely on that, so :func:`read` does the same. Pods and nodes stay raw JSON, because scheduling decodes only
some of their fields.
"""

from __future__ import annotations

from types import UnionType
from typing import Annotated, Any, TypeVar, get_args, get_origin

import msgspec
from msgspec import Raw, field

from kubestow.api.json_text import UNDECODABLE, decode_readable, readable_json
from kubestow.api.meta import invalid_object, json_decoder
from kubestow.errors import InvalidObject

MAX_SCORE = 10
"""The highest score of an extender (MaxExtenderPriority); the lowest is 0."""

T = TypeVar("T")
_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _Message(msgspec.Struct, frozen=True, kw_only=True, rename="pascal", forbid_unknown_fields=True):
    """The base of all messages and their parts."""


class NodeList(msgspec.Struct, frozen=True, kw_only=True):
    """A ``v1.NodeList``."""

    metadata: dict[str, str | int | None] = {}
    items: list[Raw] = []


class ExtenderArgs(_Message, frozen=True):
    """The arguments of filter and prioritize: a pod, and either nodes or (nodeCacheCapable) node names."""

    pod: Raw
    nodes: NodeList | None = None
    node_names: list[str] | None = None


class FilterResult(_Message, frozen=True):
    """The result of filter: the feasible nodes, in the form of the request, and a reason for each failed node."""

    nodes: NodeList | None = None
    node_names: list[str] | None = None
    failed_nodes: dict[str, str] = {}
    failed_and_unresolvable_nodes: dict[str, str] = {}
    error: str = ""


class HostPriority(_Message, frozen=True):
    """The score of a node, 0 to 10; the result of prioritize is a list of them."""

    host: str = ""
    score: _Int64 = 0


class Victims(_Message, frozen=True):
    """The victims on a candidate node."""

    pods: list[Raw] = []
    num_pdb_violations: _Int64 = field(default=0, name="NumPDBViolations")


class MetaPod(_Message, frozen=True):
    """A pod identified by its UID."""

    uid: str = field(default="", name="UID")


class MetaVictims(_Message, frozen=True):
    """:class:`Victims` identified by UID."""

    pods: list[MetaPod] = []
    num_pdb_violations: _Int64 = field(default=0, name="NumPDBViolations")


class PreemptionArgs(_Message, frozen=True):
    """The arguments of preempt: the victims on each candidate node, as objects or (nodeCacheCapable) by UID."""

    pod: Raw
    node_name_to_victims: dict[str, Victims] | None = None
    node_name_to_meta_victims: dict[str, MetaVictims] | None = None


class PreemptionResult(_Message, frozen=True):
    """The result of preempt: the remaining candidate nodes with their victims, always by UID."""

    node_name_to_meta_victims: dict[str, MetaVictims] = {}


class BindingArgs(_Message, frozen=True):
    """The arguments of bind."""

    pod_name: str = ""
    pod_namespace: str = ""
    pod_uid: str = field(default="", name="PodUID")
    node: str = ""


class BindingResult(_Message, frozen=True):
    """The result of bind: an error, or an empty string."""

    error: str = ""


class _NameAndUID(msgspec.Struct):
    name: str
    uid: str = ""


class _NamedObject(msgspec.Struct):
    metadata: _NameAndUID


_NAMED_OBJECT = msgspec.json.Decoder(_NamedObject)


def name_of(obj: Raw) -> str:
    """The name of a pod or node. Raises InvalidObject if it has no name."""
    return _identity(obj).name


def uid_of(obj: Raw) -> str:
    """The UID of a pod or node, or "". Raises InvalidObject if it has no name."""
    return _identity(obj).uid


def _identity(obj: Raw) -> _NameAndUID:
    try:
        return decode_readable(_NAMED_OBJECT, obj).metadata
    except UNDECODABLE as error:
        raise InvalidObject(str(error)) from None


_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_ARRAY = msgspec.json.Decoder(list[Raw])
#: Only values below this length are compared with ``null``; whitespace around a null is shorter than this.
_MAX_NULL_LENGTH = 16


def read(kind: type[T], data: bytes) -> T:
    """Decode a message from JSON. Raises InvalidObject with the path of the invalid field."""
    try:
        message: T = json_decoder(kind).decode(data)  # type: ignore[arg-type]  # classes are hashable
    except UNDECODABLE:
        return _read_case_insensitive(kind, data)
    return message


def _read_case_insensitive(kind: type[T], data: bytes) -> T:
    """Decode a message with keys in another case, nulls, or unknown keys."""
    try:
        canonical = _canonical(kind, Raw(readable_json(data)))
        message: T = msgspec.json.decode(msgspec.json.encode(canonical), type=kind)
    except msgspec.ValidationError as error:
        raise invalid_object(error) from None
    except UNDECODABLE as error:
        raise InvalidObject(f"invalid JSON: {error}") from None
    return message


def _canonical(kind: Any, data: Raw) -> Any:
    """The data with canonical keys, without nulls and unknown keys; decoding reports values of the wrong type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if memoryview(data).nbytes < _MAX_NULL_LENGTH and bytes(data).strip() == b"null":
        return None
    if origin is UnionType:
        return _canonical(arguments[0], data)
    try:
        if origin is list:
            return [_canonical(arguments[0], item) for item in _ARRAY.decode(data)]
        if origin is dict:
            return {key: _canonical(arguments[1], item) for key, item in _OBJECT.decode(data).items()}
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            given = {key.lower(): item for key, item in _OBJECT.decode(data).items()}
            known = [field for field in msgspec.structs.fields(kind) if field.encode_name.lower() in given]
            items = {one.encode_name: _canonical(one.type, given[one.encode_name.lower()]) for one in known}
            return {name: item for name, item in items.items() if item is not None}
    except msgspec.ValidationError:
        pass
    return data
