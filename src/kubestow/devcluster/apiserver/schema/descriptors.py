"""Protobuf message classes, made from the table: what ``generated.proto`` files are to Kubernetes.

Every field of the table with a number is a field of a message; a struct that Go embeds is a message of its own. Fields
have their JSON names. The classes of all types are made together when the first is asked for, which takes tens of
milliseconds and imports google.protobuf.
"""

from __future__ import annotations

from functools import cache

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    Edition,
    FeatureSet,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileOptions,
    MessageOptions,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from kubestow.devcluster.apiserver.schema.table import FieldEntry, entry, models

__all__ = ["ENVELOPE", "embedded_name", "message_class"]

#: The message around every object: ``runtime.Unknown``.
ENVELOPE = "Envelope"

_PACKAGE = "kubernetes"
_SCALARS = {
    "string": FieldDescriptorProto.TYPE_STRING,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "float64": FieldDescriptorProto.TYPE_DOUBLE,
}
#: The messages that are one value in JSON, and the envelope: their fields as names and types, numbered from 1.
_MESSAGES = {
    "Quantity": (("string", "string"),),
    "Time": (("seconds", "int64"), ("nanos", "int32")),
    "MicroTime": (("seconds", "int64"), ("nanos", "int32")),
    "IntOrString": (("type", "int64"), ("intVal", "int32"), ("strVal", "string")),
    "any": (("raw", "bytes"),),
    "TypeMeta": (("apiVersion", "string"), ("kind", "string")),
    ENVELOPE: (
        ("typeMeta", "TypeMeta"),
        ("raw", "bytes"),
        ("contentEncoding", "string"),
        ("contentType", "string"),
    ),
}


def message_class(name: str) -> type[Message]:
    """The class of a model (``V1Pod``) or of the envelope. Raises KeyError for a name that is neither."""
    return GetMessageClass(_pool().FindMessageTypeByName(f"{_PACKAGE}.{name}"))


def embedded_name(number: int) -> str:
    """The name of the field that holds an embedded struct, which has none in JSON."""
    return f"embedded_{number}"


@cache
def _pool() -> DescriptorPool:
    pool = DescriptorPool()
    pool.AddSerializedFile(_file().SerializeToString())
    return pool


def _file() -> FileDescriptorProto:
    """Strings have to be UTF-8, fields know whether they are set, and repeated numbers are not packed, as in Go."""
    features = FeatureSet(repeated_field_encoding=FeatureSet.EXPANDED)
    file = FileDescriptorProto(name="kubernetes.proto", package=_PACKAGE, syntax="editions")
    file.edition = Edition.EDITION_2023
    file.options.CopyFrom(FileOptions(features=features))
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, (field, type_) in enumerate(fields, 1):
            _add_field(message, name, field, number, type_)
    for model in models():
        message = file.message_type.add(name=model)
        _add_fields(message, model, [(field.number, field) for field in entry(model).fields if field.number])
    return file


def _add_fields(message: DescriptorProto, path: str, fields: list[tuple[tuple[int, ...], FieldEntry]]) -> None:
    for number in sorted({number for (number, *_), _ in fields}):
        (inner, field), *more = [(rest, field) for (first, *rest), field in fields if first == number]
        if not inner:
            _add_field(message, path, field.name, number, field.type)
            continue
        name = embedded_name(number)
        embedded = message.nested_type.add(name=name)
        _add_fields(embedded, f"{path}.{name}", [(tuple(rest), field) for rest, field in [(inner, field), *more]])
        _add_field(message, path, name, number, f"{path}.{name}")


def _add_field(message: DescriptorProto, path: str, name: str, number: int, text: str) -> None:
    """One field; of a map or of lists inside a map also the nested message that protobuf has for it."""
    field = message.field.add(name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
    if text.startswith(("[]", "map[string]")):
        field.label = FieldDescriptorProto.LABEL_REPEATED
    text = text.removeprefix("[]")
    if text.startswith("map[string]"):
        item = text.removeprefix("map[string]")
        values = f"{name[:1].upper()}{name[1:]}"
        if item.startswith("[]"):
            _add_field(message.nested_type.add(name=f"{values}Items"), "", "items", 1, item)
            item = f"{path}.{values}Items"
        map_entry = message.nested_type.add(name=f"{values}Entry", options=MessageOptions(map_entry=True))
        _add_field(map_entry, "", "key", 1, "string")
        _add_field(map_entry, "", "value", 2, item)
        text = f"{path}.{values}Entry"
    if text in _SCALARS:
        field.type = _SCALARS[text]
    else:
        field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{_PACKAGE}.{text}"
