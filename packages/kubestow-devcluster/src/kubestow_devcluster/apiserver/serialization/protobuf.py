"""Protobuf, as Go clients prefer it: bodies and the events of watches, to and from plain objects.

A body is four magic bytes and an envelope (``runtime.Unknown``) with the kind and the encoded object. The protobuf
library parses the messages, whose classes come from the type table; unknown fields are skipped. The library is imported
on the first body, because most servers never receive one.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import msgspec

from kubestow.api.formats.timestamps import micro_timestamp
from kubestow_devcluster.apiserver.schema.type_table import FieldEntry, has_protobuf, model_for

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.message import Message

MAGIC = b"k8s\0"

_TRUNCATED = "unexpected EOF"
#: Kinds of objects with metadata only, which no schema has.
_METADATA_KINDS = ("PartialObjectMetadata",)
_SCHEMA = "V1JSONSchemaProps"
#: Doubles below this represent every whole number.
_WHOLE = 2**53
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class NotProtobuf(Exception):
    """The body has no envelope with a kind."""


class UnsupportedKind(Exception):
    """The kind has no protobuf encoding; clients send it as JSON."""


class InvalidMessage(Exception):
    """The object is not a valid message of its type. ``kind`` and ``api_version`` are those of the envelope."""

    def __init__(self, kind: str, api_version: str, problem: str) -> None:
        self.kind, self.api_version = kind, api_version
        super().__init__(problem)


class _DecodeError(Exception):
    """Bytes that are not a valid message of the expected type."""


def decode(body: bytes) -> dict[str, Any]:
    """The object in a body, with kind and apiVersion. Raises NotProtobuf, UnsupportedKind or InvalidMessage."""
    from kubestow_devcluster.apiserver.schema.descriptors import ENVELOPE

    if not body.startswith(MAGIC):
        prefix = " ".join(str(byte) for byte in MAGIC)
        raise NotProtobuf(
            f"provided data does not appear to be a protobuf message, expected prefix [{prefix}]"
            if body
            else "empty data"
        )
    try:
        envelope: Any = _parsed(ENVELOPE, body[len(MAGIC) :])
    except _DecodeError as error:
        raise NotProtobuf(str(error)) from None
    api_version, kind = envelope.typeMeta.apiVersion, envelope.typeMeta.kind
    if not kind:
        raise NotProtobuf("Object 'Kind' is missing in the envelope")
    model = _model(api_version, kind)
    try:
        return {"kind": kind, "apiVersion": api_version, **_codec(model).read(_parsed(model, envelope.raw))}
    except _DecodeError as error:
        raise InvalidMessage(kind, api_version, str(error)) from None


def encode(obj: dict[str, Any]) -> bytes:
    """The body of an object or list with kind and apiVersion. Omits fields that its schema lacks.

    Raises UnsupportedKind.
    """
    from kubestow_devcluster.apiserver.schema.descriptors import ENVELOPE, message_class

    api_version, kind = obj["apiVersion"], obj["kind"]
    envelope: Any = message_class(ENVELOPE)()
    envelope.typeMeta.apiVersion, envelope.typeMeta.kind = api_version, kind
    envelope.raw = _encode_raw(api_version, kind, obj)
    return MAGIC + cast(bytes, envelope.SerializeToString())


def _encode_raw(api_version: str, kind: str, obj: dict[str, Any]) -> bytes:
    if kind in _METADATA_KINDS and api_version.startswith("meta.k8s.io/"):
        return delimited(1, _encode_message("V1ObjectMeta", obj["metadata"]))
    if "items" in obj and kind.endswith("List"):
        # The messages of lists are all alike.
        item_kind = kind.removesuffix("List")
        items = [delimited(2, _encode_raw(api_version, item_kind, item)) for item in obj["items"] or ()]
        return b"".join([delimited(1, _encode_message("V1ListMeta", obj["metadata"])), *items])
    return _encode_message(_model(api_version, kind), obj)


def _encode_message(model: str, obj: dict[str, Any]) -> bytes:
    from kubestow_devcluster.apiserver.schema.descriptors import message_class

    message = message_class(model)()
    _codec(model).write(obj, message)
    return message.SerializeToString()


def encode_event(type_: str, obj: dict[str, Any]) -> bytes:
    """One event of a watch: its length in four bytes, then a ``WatchEvent`` with the body of the object."""
    raw = delimited(1, encode(obj))
    event = delimited(1, type_.encode()) + delimited(2, raw)
    return len(event).to_bytes(4, "big") + event


def delimited(number: int, content: bytes) -> bytes:
    """A length-delimited field."""
    prefix, length = bytearray((number << 3 | _BYTES,)), len(content)
    while length >= 0x80:
        prefix.append(length & 0x7F | 0x80)
        length >>= 7
    prefix.append(length)
    return bytes(prefix) + content


def _model(api_version: str, kind: str) -> str:
    """The model of a kind, in any version: callers compare the version themselves. Raises UnsupportedKind."""
    try:
        model = model_for(api_version, kind)
    except KeyError:
        raise UnsupportedKind(kind) from None
    if not has_protobuf(model):
        raise UnsupportedKind(kind)
    return model


# Codecs of messages


@dataclass(frozen=True, slots=True)
class _Scalar:
    """A scalar field: ``read`` converts it to JSON, ``to_message`` from JSON."""

    read: Callable[[Any], Any]
    to_message: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class _Message:
    """A message field: ``read`` converts it to JSON, ``write`` sets the fields of an existing message."""

    read: Callable[[Any], Any]
    write: Callable[[Any, Any], None]


@dataclass(frozen=True, slots=True)
class _ListOf:
    item: _Scalar | _Message

    def read(self, value: Any) -> list[Any]:
        return [self.item.read(item) for item in value]

    def write(self, items: list[Any], into: Any) -> None:
        if isinstance(self.item, _Scalar):
            into.extend(map(self.item.to_message, items))
        else:
            for item in items:
                self.item.write(item, into.add())


@dataclass(frozen=True, slots=True)
class _MapOf:
    item: _Scalar | _Message

    def read(self, value: Any) -> dict[str, Any]:
        return {key: self.item.read(value[key]) for key in value}

    def write(self, items: dict[str, Any], into: Any) -> None:
        for key, item in items.items():
            if isinstance(self.item, _Scalar):
                into[key] = self.item.to_message(item)
            else:
                self.item.write(item, into[key])


_ValueCodec = _Scalar | _Message | _ListOf | _MapOf


@dataclass(frozen=True, slots=True)
class _Field:
    """One field: its names in JSON and in the message, the path of the embedded structs that contain it, its codec.

    ``omit_zero`` fields are not pointers in Go: clients always send them, and JSON omits them when zero.
    """

    name: str
    attribute: str
    path: tuple[str, ...]
    codec: _ValueCodec
    omit_zero: bool


class _Codec:
    """The fields of one message by number, and by name including those of embedded structs."""

    def __init__(self, fields: list[tuple[tuple[int, ...], FieldEntry]], path: tuple[str, ...] = ()) -> None:
        from kubestow_devcluster.apiserver.schema.descriptors import embedded_name, field_name

        self._by_number: dict[int, _Field | _Codec] = {}
        self._by_name: dict[str, _Field] = {}
        for number in {number for (number, *_), _ in fields}:
            inside = [(tuple(rest), field) for (first, *rest), field in fields if first == number]
            if inside[0][0]:
                embedded = self._by_number[number] = _Codec(inside, (*path, embedded_name(number)))
                self._by_name |= embedded._by_name
            else:
                field = inside[0][1]
                omit_zero = field.omit == "empty" and not field.pointer
                attribute, codec = field_name(field.name), _value_codec(field.type)
                leaf = self._by_number[number] = _Field(field.name, attribute, path, codec, omit_zero)
                self._by_name[field.name] = leaf

    def read(self, message: Message) -> dict[str, Any]:
        """The fields that are set. Raises _DecodeError for a field with the wrong wire type."""
        _check_wire_types(message)
        obj: dict[str, Any] = {}
        for descriptor, value in message.ListFields():
            field = self._by_number[descriptor.number]
            if isinstance(field, _Codec):
                obj |= field.read(value)
                continue
            item = field.codec.read(value)
            # Go writes empty structs.
            if item or not field.omit_zero or isinstance(item, dict):
                obj[field.name] = item
        return obj

    def write(self, obj: dict[str, Any], message: Any) -> None:
        """Set the fields of ``message``."""
        message.SetInParent()
        for name, item in obj.items():
            field = self._by_name.get(name)
            if field is None or item is None:
                continue
            parent = message
            for step in field.path:
                parent = getattr(parent, step)
            if isinstance(field.codec, _Scalar):
                setattr(parent, field.attribute, field.codec.to_message(item))
            else:
                field.codec.write(item, getattr(parent, field.attribute))


@cache
def _codec(model: str) -> _Codec:
    from kubestow_devcluster.apiserver.schema.descriptors import message_fields

    return _Codec([(field.number, field) for field in message_fields(model)])


def _value_codec(text: str) -> _ValueCodec:
    from kubestow_devcluster.apiserver.schema.descriptors import LIST_MESSAGE

    if text.startswith(LIST_MESSAGE):
        return _item_codec(text.removeprefix(LIST_MESSAGE))
    if text.startswith("[]"):
        return _ListOf(_item_codec(text[2:]))
    if text.startswith("map[string]"):
        return _MapOf(_item_codec(text.removeprefix("map[string]")))
    return _item_codec(text)


def _item_codec(text: str) -> _Scalar | _Message:
    if text.startswith("[]"):
        # Protobuf has no lists in maps and no named lists; the list is the field of a message.
        items = _ListOf(_item_codec(text[2:]))
        return _Message(lambda value: items.read(value.items), lambda item, into: items.write(item, into.items))
    if text in _VALUES:
        return _VALUES[text]
    # Types can be recursive, so the codec is looked up for each value.
    return _Message(lambda value: _codec(text).read(value), lambda item, into: _codec(text).write(item, into))


def _read_time(value: Any) -> str | None:
    """None for an empty message, which is the zero time."""
    if not value.ListFields():
        return None
    try:
        return micro_timestamp(_EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000))
    except OverflowError:
        raise _DecodeError("proto: time out of range") from None


def _write_time(item: str, into: Any) -> None:
    since = datetime.fromisoformat(item) - _EPOCH
    into.seconds, into.nanos = since // timedelta(seconds=1), since.microseconds * 1000


def _write_int_or_string(item: int | str, into: Any) -> None:
    if isinstance(item, str):
        into.type, into.strVal = 1, item
    else:
        into.type, into.intVal = 0, item


def _read_any(value: Any) -> Any:
    try:
        return msgspec.json.decode(value.raw) if value.raw else {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _DecodeError(str(error)) from None


def _write_any(item: Any, into: Any) -> None:
    into.raw = msgspec.json.encode(item)


def _write_quantity(item: str, into: Any) -> None:
    into.string = item


def _read_float(value: float) -> float:
    """As Go writes it to JSON: whole numbers without a fraction."""
    return int(value) if value.is_integer() and abs(value) < _WHOLE else value


def _write_empty(item: Any, into: Any) -> None:
    into.SetInParent()


# The values of JSON schemas that are of several forms. Go writes ``allows`` beside a schema, too.


def _read_schema(value: Any) -> Any:
    return _codec(_SCHEMA).read(value.schema) if value.HasField("schema") else None


def _read_schema_or_bool(value: Any) -> Any:
    return _read_schema(value) if value.HasField("schema") else value.allows


def _write_schema_or_bool(item: Any, into: Any) -> None:
    into.allows = bool(item) or isinstance(item, dict)
    if isinstance(item, dict):
        _codec(_SCHEMA).write(item, into.schema)


def _read_schema_or_list(value: Any) -> Any:
    return [_codec(_SCHEMA).read(item) for item in value.schemas] or _read_schema(value)


def _write_schema_or_list(item: Any, into: Any) -> None:
    if isinstance(item, dict):
        _codec(_SCHEMA).write(item, into.schema)
    else:
        for one in item:
            _codec(_SCHEMA).write(one, into.schemas.add())


def _read_schema_or_names(value: Any) -> Any:
    return list(value.property) or _read_schema(value)


def _write_schema_or_names(item: Any, into: Any) -> None:
    if isinstance(item, dict):
        _codec(_SCHEMA).write(item, into.schema)
    else:
        into.property.extend(item)


def _identity(value: Any) -> Any:
    return value


_TIME = _Message(_read_time, _write_time)
_VALUES: dict[str, _Scalar | _Message] = {
    **dict.fromkeys(("string", "bool", "int32", "int64"), _Scalar(_identity, _identity)),
    "float64": _Scalar(_read_float, _identity),
    "bytes": _Scalar(lambda value: base64.b64encode(value).decode(), base64.b64decode),
    "Quantity": _Message(lambda value: value.string, _write_quantity),
    "Time": _TIME,
    "MicroTime": _TIME,
    "IntOrString": _Message(lambda value: value.strVal if value.type else value.intVal, _write_int_or_string),
    "any": _Message(_read_any, _write_any),
    "struct{}": _Message(lambda value: {}, _write_empty),
    "JSONSchemaPropsOrArray": _Message(_read_schema_or_list, _write_schema_or_list),
    "JSONSchemaPropsOrBool": _Message(_read_schema_or_bool, _write_schema_or_bool),
    "JSONSchemaPropsOrStringArray": _Message(_read_schema_or_names, _write_schema_or_names),
}


# Error messages of Kubernetes' decoder

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIZES = {_FIXED64: 8, _FIXED32: 4}


def _parsed(name: str, data: bytes) -> Message:
    """The message in ``data``. Raises _DecodeError."""
    from google.protobuf.message import DecodeError

    from kubestow_devcluster.apiserver.schema.descriptors import message_class

    class_ = message_class(name)
    try:
        return class_.FromString(data)
    except DecodeError as error:
        _explain(cast(Any, class_.DESCRIPTOR), memoryview(data))
        raise _DecodeError(str(error)) from None


def _check_wire_types(message: Message) -> None:
    """Raise _DecodeError for a wrong wire type, which the library treats as an unknown field."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    unknown = UnknownFieldSet(message)
    for index in range(len(unknown)):
        field: Any = message.DESCRIPTOR.fields_by_number.get(unknown[index].field_number)
        _check_wire_type(unknown[index].wire_type, field)


def _explain(descriptor: Descriptor, data: memoryview) -> None:
    """Find what the library rejected, and raise it as _DecodeError."""
    for number, wire_type, value in _wire_fields(data):
        field = descriptor.fields_by_number.get(number)
        _check_wire_type(wire_type, field)
        if field is None or wire_type != _BYTES:
            continue
        if field.message_type is not None:
            _explain(field.message_type, value)
        elif field.type == field.TYPE_STRING:
            try:
                str(value, "utf-8")
            except UnicodeDecodeError:
                raise _DecodeError(f"proto: field {_go_name(field)} contains invalid UTF-8") from None


def _wire_fields(data: memoryview) -> Iterator[tuple[int, int, memoryview]]:
    """The encoded fields: number, wire type, bytes."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire_type = tag >> 3, tag & 7
        if not number:
            raise _DecodeError(f"proto: illegal tag {number} (wire type {wire_type})")
        length = _SIZES.get(wire_type, 0)
        if wire_type == _BYTES:
            length, position = _varint(data, position)
        elif wire_type == _VARINT:
            length = _varint(data, position)[1] - position
        elif not length:
            raise _DecodeError(f"proto: illegal wireType {wire_type}")
        if length > len(data) - position:
            raise _DecodeError(_TRUNCATED)
        yield number, wire_type, data[position : position + length]
        position += length


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    """A varint of at most ten bytes, and the position after it."""
    number = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            raise _DecodeError(_TRUNCATED)
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
    raise _DecodeError("proto: integer overflow")


def _check_wire_type(wire_type: int, field: FieldDescriptor | None) -> None:
    if wire_type not in (_VARINT, _FIXED64, _BYTES, _FIXED32):
        raise _DecodeError(f"proto: illegal wireType {wire_type}")
    if field is None:
        return
    expected = _BYTES
    if field.type not in (field.TYPE_MESSAGE, field.TYPE_STRING, field.TYPE_BYTES):
        expected = _FIXED64 if field.type == field.TYPE_DOUBLE else _VARINT
        if wire_type == _BYTES and field.is_repeated:
            return
    if wire_type != expected:
        raise _DecodeError(f"proto: wrong wireType = {wire_type} for field {_go_name(field)}")


def _go_name(field: FieldDescriptor) -> str:
    return field.name[:1].upper() + field.name[1:]
