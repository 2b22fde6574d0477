"""Objects in protobuf, as ``kubectl create deployment`` sends them, to and from the objects of JSON.

A body is four magic bytes and an envelope (``runtime.Unknown``) that names the kind and holds the object. The messages
are made from the schema's table, by the protobuf library; unknown fields are skipped. The library is imported with the
first body, because most servers never get one.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import msgspec

from kubestow.api.timestamps import micro_timestamp
from kubestow.devcluster.apiserver.schema.table import FieldEntry, entry, model_of

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.message import Message

__all__ = ["MAGIC", "MEDIA_TYPE", "Malformed", "NotProtobuf", "Unserved", "decode", "encode"]

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\0"

_TRUNCATED = "unexpected EOF"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class NotProtobuf(Exception):
    """The body has no envelope that names a kind."""


class Unserved(Exception):
    """The kind has no protobuf form: it has to be sent as JSON."""


class Malformed(Exception):
    """The object does not follow its type. ``kind`` and ``api_version`` are those of the envelope."""

    def __init__(self, kind: str, api_version: str, problem: str) -> None:
        self.kind, self.api_version = kind, api_version
        super().__init__(problem)


class _Broken(Exception):
    """Bytes that are not the message they should be."""


def decode(body: bytes) -> dict[str, Any]:
    """The object in a body, with kind and apiVersion. Raises NotProtobuf, Unserved or Malformed."""
    from kubestow.devcluster.apiserver.schema.descriptors import ENVELOPE

    if not body.startswith(MAGIC):
        prefix = " ".join(str(byte) for byte in MAGIC)
        raise NotProtobuf(
            f"provided data does not appear to be a protobuf message, expected prefix [{prefix}]"
            if body
            else "empty data"
        )
    try:
        envelope: Any = _parsed(ENVELOPE, body[len(MAGIC) :])
    except _Broken as broken:
        raise NotProtobuf(str(broken)) from None
    api_version, kind = envelope.typeMeta.apiVersion, envelope.typeMeta.kind
    if not kind:
        raise NotProtobuf("Object 'Kind' is missing in the envelope")
    model = _model(api_version, kind)
    try:
        return {"kind": kind, "apiVersion": api_version, **_codec(model).read(_parsed(model, envelope.raw))}
    except _Broken as broken:
        raise Malformed(kind, api_version, str(broken)) from None


def encode(whole: dict[str, Any]) -> bytes:
    """The body of an object that has kind and apiVersion and follows its schema. Raises Unserved.

    Fields in no schema are left out.
    """
    from kubestow.devcluster.apiserver.schema.descriptors import ENVELOPE, message_class

    api_version, kind = whole["apiVersion"], whole["kind"]
    model = _model(api_version, kind)
    message = message_class(model)()
    _codec(model).write(whole, message)
    envelope: Any = message_class(ENVELOPE)()
    envelope.typeMeta.apiVersion, envelope.typeMeta.kind = api_version, kind
    envelope.raw = message.SerializeToString()
    return MAGIC + cast(bytes, envelope.SerializeToString())


def _model(api_version: str, kind: str) -> str:
    """The model of a kind. Of a wrong API version it is the kind's all the same: the request's path is compared later.

    Raises Unserved.
    """
    try:
        model = model_of(api_version, kind)
    except KeyError:
        raise Unserved(kind) from None
    if not any(field.number for field in entry(model).fields):
        raise Unserved(kind)
    return model


# Messages and the values of JSON


@dataclass(frozen=True, slots=True)
class _Scalar:
    """A value that a field holds itself. ``read`` makes it JSON, ``made`` takes it from there."""

    read: Callable[[Any], Any]
    made: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class _Nested:
    """A value that is a message. ``write`` sets the fields of one that is there."""

    read: Callable[[Any], Any]
    write: Callable[[Any, Any], None]


@dataclass(frozen=True, slots=True)
class _ListOf:
    item: _Scalar | _Nested

    def read(self, value: Any) -> list[Any]:
        return [self.item.read(item) for item in value]

    def write(self, items: list[Any], into: Any) -> None:
        if isinstance(self.item, _Scalar):
            into.extend(map(self.item.made, items))
        else:
            for item in items:
                self.item.write(item, into.add())


@dataclass(frozen=True, slots=True)
class _MapOf:
    item: _Scalar | _Nested

    def read(self, value: Any) -> dict[str, Any]:
        return {key: self.item.read(value[key]) for key in value}

    def write(self, items: dict[str, Any], into: Any) -> None:
        for key, item in items.items():
            if isinstance(self.item, _Scalar):
                into[key] = self.item.made(item)
            else:
                self.item.write(item, into[key])


_Value = _Scalar | _Nested | _ListOf | _MapOf


@dataclass(frozen=True, slots=True)
class _Field:
    """One field: its name in JSON, the names of the embedded structs around it, its type.

    ``zero_is_nothing`` fields are no pointers in Go: clients always send them, and JSON leaves them out when zero.
    """

    name: str
    path: tuple[str, ...]
    value: _Value
    zero_is_nothing: bool


class _Codec:
    """The fields of one message, by number and, with those of embedded structs, by name."""

    def __init__(self, fields: list[tuple[tuple[int, ...], FieldEntry]], path: tuple[str, ...] = ()) -> None:
        from kubestow.devcluster.apiserver.schema.descriptors import embedded_name

        self._by_number: dict[int, _Field | _Codec] = {}
        self._by_name: dict[str, _Field] = {}
        for number in {number for (number, *_), _ in fields}:
            inside = [(tuple(rest), field) for (first, *rest), field in fields if first == number]
            if inside[0][0]:
                embedded = self._by_number[number] = _Codec(inside, (*path, embedded_name(number)))
                self._by_name |= embedded._by_name
            else:
                field = inside[0][1]
                zero_is_nothing = field.omit == "empty" and not field.pointer
                made = self._by_number[number] = _Field(field.name, path, _value(field.type), zero_is_nothing)
                self._by_name[field.name] = made

    def read(self, message: Message) -> dict[str, Any]:
        """The fields that are set. Raises _Broken when one has another wire type than its own."""
        _check_wire_types(message)
        made: dict[str, Any] = {}
        for descriptor, value in message.ListFields():
            field = self._by_number[descriptor.number]
            if isinstance(field, _Codec):
                made |= field.read(value)
                continue
            item = field.value.read(value)
            # JSON has a struct even when it is empty.
            if item or not field.zero_is_nothing or isinstance(item, dict):
                made[field.name] = item
        return made

    def write(self, whole: dict[str, Any], message: Any) -> None:
        """Set the fields of ``message``."""
        message.SetInParent()
        for name, item in whole.items():
            field = self._by_name.get(name)
            if field is None or item is None:
                continue
            into = message
            for step in field.path:
                into = getattr(into, step)
            if isinstance(field.value, _Scalar):
                setattr(into, name, field.value.made(item))
            else:
                field.value.write(item, getattr(into, name))


@cache
def _codec(model: str) -> _Codec:
    return _Codec([(field.number, field) for field in entry(model).fields if field.number])


def _value(text: str) -> _Value:
    if text.startswith("[]"):
        return _ListOf(_item(text[2:]))
    if text.startswith("map[string]"):
        return _MapOf(_item(text.removeprefix("map[string]")))
    return _item(text)


def _item(text: str) -> _Scalar | _Nested:
    if text.startswith("[]"):
        # A list inside a map is the items of a message.
        items = _ListOf(_item(text[2:]))
        return _Nested(lambda value: items.read(value.items), lambda item, into: items.write(item, into.items))
    if text in _VALUES:
        return _VALUES[text]
    # A type may hold itself, so its codec is made when a value is met.
    return _Nested(lambda value: _codec(text).read(value), lambda item, into: _codec(text).write(item, into))


def _read_time(value: Any) -> str | None:
    """None for a message without fields, which stands for no time."""
    if not value.ListFields():
        return None
    try:
        return micro_timestamp(_EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000))
    except OverflowError:
        raise _Broken("proto: time out of range") from None


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
        raise _Broken(str(error)) from None


def _write_any(item: Any, into: Any) -> None:
    into.raw = msgspec.json.encode(item)


def _write_quantity(item: str, into: Any) -> None:
    into.string = item


def _same(value: Any) -> Any:
    return value


_TIME = _Nested(_read_time, _write_time)
_VALUES: dict[str, _Scalar | _Nested] = {
    **dict.fromkeys(("string", "bool", "int32", "int64", "float64"), _Scalar(_same, _same)),
    "bytes": _Scalar(lambda value: base64.b64encode(value).decode(), base64.b64decode),
    "Quantity": _Nested(lambda value: value.string, _write_quantity),
    "Time": _TIME,
    "MicroTime": _TIME,
    "IntOrString": _Nested(lambda value: value.strVal if value.type else value.intVal, _write_int_or_string),
    "any": _Nested(_read_any, _write_any),
}


# What is wrong with a message, in the words of Kubernetes' decoder

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIZES = {_FIXED64: 8, _FIXED32: 4}


def _parsed(name: str, data: bytes) -> Message:
    """The message in ``data``. Raises _Broken."""
    from google.protobuf.message import DecodeError

    from kubestow.devcluster.apiserver.schema.descriptors import message_class

    made = message_class(name)
    try:
        return made.FromString(data)
    except DecodeError as error:
        _explain(cast(Any, made.DESCRIPTOR), memoryview(data))
        raise _Broken(str(error)) from None


def _check_wire_types(message: Message) -> None:
    """The library takes a field with another wire type than its own for an unknown field."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    unknown = UnknownFieldSet(message)
    for index in range(len(unknown)):
        field: Any = message.DESCRIPTOR.fields_by_number.get(unknown[index].field_number)
        _check_wire_type(unknown[index].wire_type, field)


def _explain(descriptor: Descriptor, data: memoryview) -> None:
    """Find what the library refused, and raise it as _Broken."""
    for number, wire_type, value in _pieces(data):
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
                raise _Broken(f"proto: field {_go_name(field)} contains invalid UTF-8") from None


def _pieces(data: memoryview) -> Iterator[tuple[int, int, memoryview]]:
    """The fields on the wire as number, wire type and bytes."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire_type = tag >> 3, tag & 7
        if not number:
            raise _Broken(f"proto: illegal tag {number} (wire type {wire_type})")
        length = _SIZES.get(wire_type, 0)
        if wire_type == _BYTES:
            length, position = _varint(data, position)
        elif wire_type == _VARINT:
            length = _varint(data, position)[1] - position
        elif not length:
            raise _Broken(f"proto: illegal wireType {wire_type}")
        if length > len(data) - position:
            raise _Broken(_TRUNCATED)
        yield number, wire_type, data[position : position + length]
        position += length


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    """A number of at most ten bytes, and the position behind it."""
    number = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            raise _Broken(_TRUNCATED)
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
    raise _Broken("proto: integer overflow")


def _check_wire_type(wire_type: int, field: FieldDescriptor | None) -> None:
    if wire_type not in (_VARINT, _FIXED64, _BYTES, _FIXED32):
        raise _Broken(f"proto: illegal wireType {wire_type}")
    if field is None:
        return
    expected = _BYTES
    if field.type not in (field.TYPE_MESSAGE, field.TYPE_STRING, field.TYPE_BYTES):
        expected = _FIXED64 if field.type == field.TYPE_DOUBLE else _VARINT
        if wire_type == _BYTES and field.is_repeated:
            return
    if wire_type != expected:
        raise _Broken(f"proto: wrong wireType = {wire_type} for field {_go_name(field)}")


def _go_name(field: FieldDescriptor) -> str:
    return field.name[:1].upper() + field.name[1:]
