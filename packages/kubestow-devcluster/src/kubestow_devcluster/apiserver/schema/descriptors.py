"""Protobuf message classes of the built-in types, as in the ``generated.proto`` files of Kubernetes.

Every field of the type table with a number is a field of a message; a struct that Go embeds is a message of its own.
Fields have their JSON names (:func:`field_name`). The classes of all types are created together on first use, which
takes tens of milliseconds and imports google.protobuf.
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
from msgspec.structs import replace

from kubestow_devcluster.apiserver.schema.type_table import FieldEntry, model_names, type_entry

#: The message that wraps every object: ``runtime.Unknown``.
ENVELOPE = "Envelope"

#: What precedes the type of a list that is a message of its own, with the list as its field.
LIST_MESSAGE = "message "
#: Fields whose Go type is a named list (``Verbs``), which is a message.
_NAMED_LISTS = {("V1APIResource", "verbs")}

_PACKAGE = "kubernetes"
_IDENTIFIERS = str.maketrans("-$", "__")
_SCALARS = {
    "string": FieldDescriptorProto.TYPE_STRING,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "float64": FieldDescriptorProto.TYPE_DOUBLE,
}
#: The messages that JSON writes in another form, that of empty structs, and the envelope: names and types of their
#: fields, numbered from 1.
_MESSAGES = {
    "Quantity": (("string", "string"),),
    "Time": (("seconds", "int64"), ("nanos", "int32")),
    "MicroTime": (("seconds", "int64"), ("nanos", "int32")),
    "IntOrString": (("type", "int64"), ("intVal", "int32"), ("strVal", "string")),
    "any": (("raw", "bytes"),),
    "Empty": (),
    "JSONSchemaPropsOrArray": (("schema", "V1JSONSchemaProps"), ("schemas", "[]V1JSONSchemaProps")),
    "JSONSchemaPropsOrBool": (("allows", "bool"), ("schema", "V1JSONSchemaProps")),
    "JSONSchemaPropsOrStringArray": (("schema", "V1JSONSchemaProps"), ("property", "[]string")),
    "TypeMeta": (("apiVersion", "string"), ("kind", "string")),
    ENVELOPE: (("typeMeta", "TypeMeta"), ("raw", "bytes"), ("contentEncoding", "string"), ("contentType", "string")),
}


def message_class(name: str) -> type[Message]:
    """The class of a model (``V1Pod``) or of the envelope. Raises KeyError for any other name."""
    return GetMessageClass(_pool().FindMessageTypeByName(f"{_PACKAGE}.{name}"))


def field_name(name: str) -> str:
    """The name of the field that JSON calls ``name``; names in protobuf are identifiers (``x_kubernetes_map_type``)."""
    return name.translate(_IDENTIFIERS)


def embedded_name(number: int) -> str:
    """The name of the field of an embedded struct, which has no name in JSON."""
    return f"embedded_{number}"


@cache
def message_fields(model: str) -> tuple[FieldEntry, ...]:
    """The fields of a type that its message has, with their types in the message."""
    return tuple(
        replace(field, type=f"{LIST_MESSAGE}{field.type}") if (model, field.name) in _NAMED_LISTS else field
        for field in type_entry(model).fields
        if field.number
    )


@cache
def _pool() -> DescriptorPool:
    pool = DescriptorPool()
    # As in Go, strings are UTF-8, fields have explicit presence, and repeated numbers are not packed.
    features = FeatureSet(repeated_field_encoding=FeatureSet.EXPANDED)
    file = FileDescriptorProto(name="kubernetes.proto", package=_PACKAGE, syntax="editions")
    file.edition = Edition.EDITION_2023
    file.options.CopyFrom(FileOptions(features=features))
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, (field, type_) in enumerate(fields, 1):
            _add_field(message, name, field, number, type_)
    for model in model_names():
        message = file.message_type.add(name=model)
        _add_fields(message, model, [(field.number, field) for field in message_fields(model)])
    pool.AddSerializedFile(file.SerializeToString())
    return pool


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
    """Add one field, and the nested message that protobuf needs for a map or for lists in a map."""
    field = message.field.add(name=field_name(name), number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
    if text.startswith(("[]", "map[string]")):
        field.label = FieldDescriptorProto.LABEL_REPEATED
    text = text.removeprefix("[]")
    if text.startswith(LIST_MESSAGE):
        items = f"{name[:1].upper()}{name[1:]}Items"
        _add_field(message.nested_type.add(name=items), "", "items", 1, text.removeprefix(LIST_MESSAGE))
        text = f"{path}.{items}"
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
    if text == "struct{}":
        text = "Empty"
    if text in _SCALARS:
        field.type = _SCALARS[text]
    else:
        field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{_PACKAGE}.{text}"
