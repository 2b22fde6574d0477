"""Protobuf messages: Node and Pod of Kubernetes, the protocol of cluster-autoscaler's gRPC expander, and simulations.

On the wire they are those of ``generated.proto`` of k8s.io/api/core/v1 and of ``expander.proto`` of cluster-autoscaler
(expander/grpcplugin/protos). Of Node and Pod they have the fields that scheduling reads (``core_messages.txt``); others
are skipped. The classes are created on first use.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

import msgspec

from kubestow.api.core import Node, Pod
from kubestow.api.formats.timestamps import timestamp
from kubestow.api.meta import convert, decode
from kubestow.engine.input.object_defaults import with_defaults
from kubestow.errors import InputError, InvalidObject
from kubestow.rules.defaults import default_pod_level_requests, default_pod_spec, merge_label_keys

try:
    from google.protobuf.descriptor import FieldDescriptor
    from google.protobuf.descriptor_pb2 import (
        DescriptorProto,
        FieldDescriptorProto,
        FileDescriptorProto,
        MessageOptions,
    )
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import DecodeError, Message
    from google.protobuf.message_factory import GetMessageClass
except ModuleNotFoundError:
    raise InputError(__name__, "needs protobuf, install kubestow-lab[expander]") from None

T = TypeVar("T", Node, Pod)

_CORE = "k8s.io.api.core.v1"
EXPANDER = "grpcplugin.Expander"
"""The service of cluster-autoscaler's expander; its method is BestOptions."""
SIMULATOR = "kubestow.simulation.v1.Simulator"
"""The service of simulations; its method is Simulate."""

_SCALARS = {
    "string": FieldDescriptorProto.TYPE_STRING,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "int64": FieldDescriptorProto.TYPE_INT64,
}
#: The messages of which JSON has another form.
_QUANTITY, _TIME = "Quantity: 1 string string", "Time: 1 seconds int64, 2 nanos int32"
#: A part of a message that JSON has in the message itself.
_EMBEDDED = "volumeSource"

_EXPANDER_MESSAGES = (
    f"BestOptionsRequest: 1 options []Option, 2 nodeMap map[string].{_CORE}.Node, 3 nodeBytesMap map[string]bytes",
    "BestOptionsResponse: 1 options []Option",
    f"Option: 1 nodeGroupId string, 2 nodeCount int32, 3 debug string, 4 pod [].{_CORE}.Pod, 5 podBytes []bytes",
)
_SIMULATION_MESSAGES = (
    "SimulateRequest: 1 pods []bytes, 2 nodes []NodeTemplate",
    "NodeTemplate: 1 node bytes, 2 count int32",
    "SimulateResponse: 1 fits bool, 2 placements []Placement",
    "Placement: 1 namespace string, 2 name string, 3 node string, 4 reason string",
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def message_class(name: str) -> type[Message]:
    """The class of a message by its full name (``grpcplugin.Option``). Raises KeyError."""
    return GetMessageClass(pool().FindMessageTypeByName(name))


@cache
def pool() -> DescriptorPool:
    """The descriptors of all messages and services."""
    pool = DescriptorPool()
    text = files(__package__).joinpath("core_messages.txt").read_text(encoding="utf-8")
    core = [line for line in text.splitlines() if line and not line.startswith("#")]
    pool.AddSerializedFile(_file("k8s.io/api/core/v1/generated.proto", _CORE, (*core, _QUANTITY, _TIME), "proto2"))
    for path, package, messages, method in (
        ("expander.proto", "grpcplugin", _EXPANDER_MESSAGES, ("Expander", "BestOptions")),
        ("simulation.proto", "kubestow.simulation.v1", _SIMULATION_MESSAGES, ("Simulator", "Simulate")),
    ):
        pool.AddSerializedFile(_file(path, package, messages, "proto3", method))
    return pool


def _file(
    path: str, package: str, messages: tuple[str, ...], syntax: str, method: tuple[str, str] | None = None
) -> bytes:
    """A file of messages, each given as ``name: number field type, …``, and maybe a service with one method."""
    file = FileDescriptorProto(name=path, package=package, syntax=syntax)
    if any(_CORE in message for message in messages):
        file.dependency.append("k8s.io/api/core/v1/generated.proto")
    for text in messages:
        name, _, fields = text.partition(":")
        message = file.message_type.add(name=name)
        for field in filter(None, map(str.strip, fields.split(","))):
            number, field_name, kind = field.split()
            _add_field(message, package, int(number), field_name, kind)
    if method is not None:
        service, name = method
        types = {"input_type": f".{package}.{name}Request", "output_type": f".{package}.{name}Response"}
        file.service.add(name=service).method.add(name=name, **types)
    return file.SerializeToString()


def _add_field(message: DescriptorProto, package: str, number: int, name: str, kind: str) -> None:
    field = message.field.add(name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
    if kind.startswith(("[]", "map[string]")):
        field.label = FieldDescriptorProto.LABEL_REPEATED
    if kind.startswith("map[string]"):
        entry = message.nested_type.add(
            name=f"{name[:1].upper()}{name[1:]}Entry", options=MessageOptions(map_entry=True)
        )
        _add_field(entry, package, 1, "key", "string")
        _add_field(entry, package, 2, "value", kind.removeprefix("map[string]"))
        kind = f".{package}.{message.name}.{entry.name}"
    kind = kind.removeprefix("[]")
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type = FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = kind if kind.startswith(".") else f".{package}.{kind}"


def decode_object(kind: type[T], encoded: bytes) -> T:
    """A Node or Pod from its protobuf message, or from JSON, which may be a manifest. Raises InvalidObject."""
    if encoded[:1] == b"{":
        return _of_manifest(kind, encoded)
    message = message_class(f"{_CORE}.{kind.__name__}")()
    try:
        message.ParseFromString(encoded)
    except DecodeError as error:
        raise InvalidObject(f"not a protobuf message of a {kind.__name__}: {error}") from None
    return object_of(kind, message)


def _of_manifest(kind: type[T], encoded: bytes) -> T:
    """A Node or Pod with what the API server adds to a new one, but for defaults that other objects define."""
    if kind is Node:
        node: T = with_defaults(decode(kind, encoded))
        return node
    decode(kind, encoded)  # so that the parts that are completed are of the expected types
    manifest = msgspec.json.decode(encoded)
    metadata, spec = manifest.setdefault("metadata", {}), manifest.setdefault("spec", {})
    metadata["namespace"] = metadata.get("namespace") or "default"
    default_pod_spec(spec)
    default_pod_level_requests(spec)
    merge_label_keys(spec, metadata.get("labels") or {})
    return convert(kind, manifest)


def object_of(kind: type[T], message: Message) -> T:
    """A Node or Pod, with Kubernetes' defaults, from its message. Raises InvalidObject."""
    complete: T = with_defaults(convert(kind, dict(_members(message))))
    return complete


def _members(message: Message) -> Iterator[tuple[str, Any]]:
    """The fields of a message as in JSON; those that are not set, and empty texts, are left out."""
    for field, value in message.ListFields():
        if field.name == _EMBEDDED:
            yield from _members(value)
        elif field.message_type is not None and field.message_type.GetOptions().map_entry:
            of_value = field.message_type.fields_by_name["value"]
            yield field.name, {key: _json(of_value, each) for key, each in value.items()}
        elif field.is_repeated:
            yield field.name, [_json(field, each) for each in value]
        elif value != "" and (found := _json(field, value)) is not None:
            yield field.name, found


def _json(field: FieldDescriptor, value: Any) -> Any:
    if field.message_type is None:
        return value
    if field.message_type.name == "Quantity":
        return value.string
    if field.message_type.name == "Time":  # no time is 0
        moment = _EPOCH + timedelta(seconds=value.seconds)
        return timestamp(moment) if value.seconds or value.nanos else None
    return dict(_members(value))
