"""Request bodies in protobuf, as ``kubectl create deployment`` sends them, read into what JSON would have said.

A body is four magic bytes and an envelope (``runtime.Unknown``) that names the kind and holds the object. The objects'
types are the schema's, their field numbers stand in one table; what the table does not know is skipped, as protobuf
would have it. Answers are never in protobuf: every client that sends it also takes JSON.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from kubestow.api.timestamps import micro_timestamp
from kubestow.devcluster.apiserver.schema import ListOf, MapOf, QuantityText, Scalar, Struct, Time, Type, struct_of
from kubestow.devcluster.apiserver.schema.field_numbers import numbers_of

__all__ = ["MAGIC", "MEDIA_TYPE", "Malformed", "NotProtobuf", "Unserved", "decode"]

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\0"

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_TRUNCATED = "unexpected EOF"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Raw bytes, which JSON writes in base64.
_RAW = frozenset({"ConfigMap.binaryData", "Secret.data"})


class NotProtobuf(Exception):
    """The body has no envelope of which the kind could be told."""


class Unserved(Exception):
    """The kind is known by name only: it has to be sent as JSON."""


class Malformed(Exception):
    """The object does not follow its type. ``kind`` and ``api_version`` are what the envelope said."""

    def __init__(self, kind: str, api_version: str, problem: str) -> None:
        self.kind, self.api_version = kind, api_version
        super().__init__(problem)


class _Broken(Exception):
    """Bytes that are no message."""


def decode(body: bytes) -> dict[str, Any]:
    """The object in a body, with kind and apiVersion. Raises NotProtobuf, Unserved or Malformed."""
    if not body.startswith(MAGIC):
        prefix = " ".join(str(byte) for byte in MAGIC)
        raise NotProtobuf(
            f"provided data does not appear to be a protobuf message, expected prefix [{prefix}]"
            if body
            else "empty data"
        )
    try:
        api_version, kind, raw = _unwrapped(memoryview(body)[len(MAGIC) :])
    except _Broken as broken:
        raise NotProtobuf(str(broken)) from None
    if not kind:
        raise NotProtobuf("Object 'Kind' is missing in the envelope")
    struct = _struct(kind)
    whole: dict[str, Any] = {"kind": kind, "apiVersion": api_version}
    try:
        _read(struct, struct.name, raw, whole)
    except _Broken as broken:
        raise Malformed(kind, api_version, str(broken)) from None
    return whole


def _unwrapped(envelope: memoryview) -> tuple[str, str, memoryview]:
    """apiVersion, kind and the encoded object. 1: type (1: apiVersion, 2: kind), 2: object."""
    said: dict[int, str] = {}
    raw = memoryview(b"")
    for piece in _pieces(envelope):
        if piece.number == 1:
            said = {part.number: _text(part, "TypeMeta") for part in _pieces(_nested(piece, "TypeMeta"))}
        elif piece.number == 2:
            raw = _nested(piece, "Raw")
    return said.get(1, ""), said.get(2, ""), raw


def _struct(kind: str) -> Struct:
    try:
        numbers_of(kind)
    except KeyError:
        raise Unserved(kind) from None
    return struct_of(f"V1{kind}")


def _read(struct: Struct, message: str, data: memoryview, into: dict[str, Any]) -> None:
    """Put the fields of one message into ``into``. ``message`` names their numbers, ``struct`` has their types."""
    numbers = numbers_of(message)
    for piece in _pieces(data):
        numbered = numbers.get(piece.number)
        if numbered is None:
            continue
        if numbered.embedded:
            _read(struct, numbered.name, _nested(piece, numbered.name), into)
            continue
        name = numbered.name
        field = struct.fields.get(name)
        if field is None:
            continue
        type_ = field.type_
        if isinstance(type_, ListOf):
            into.setdefault(name, []).extend(_items(type_.item, piece, name))
        elif isinstance(type_, MapOf):
            key, value = _entry(type_.item, piece, name, raw=f"{struct.name}.{name}" in _RAW)
            into.setdefault(name, {})[key] = value
        else:
            value = _value(type_, piece, name)
            if value or not numbered.zero_is_nothing:
                into[name] = value


def _items(type_: Type, piece: _Piece, name: str) -> Iterator[Any]:
    """One item, or, of numbers, as many as are packed together."""
    if isinstance(type_, Scalar) and type_.python is int and piece.wire == _BYTES:
        data, position = _nested(piece, name), 0
        while position < len(data):
            number, position = _varint(data, position)
            yield _signed(number)
    else:
        yield _value(type_, piece, name)


def _entry(type_: Type, piece: _Piece, name: str, *, raw: bool) -> tuple[str, Any]:
    """One entry of a map: key 1, value 2. A list as a value is a message with the items under 1."""
    key = ""
    value: Any = None
    for part in _pieces(_nested(piece, name)):
        if part.number == 1:
            key = _text(part, name)
        elif part.number == 2 and raw:
            value = base64.b64encode(_nested(part, name)).decode()
        elif part.number == 2 and isinstance(type_, ListOf):
            value = [_value(type_.item, item, name) for item in _pieces(_nested(part, name)) if item.number == 1]
        elif part.number == 2:
            value = _value(type_, part, name)
    return key, value


def _value(type_: Type, piece: _Piece, name: str) -> Any:
    if isinstance(type_, Struct):
        made: dict[str, Any] = {}
        _read(type_, type_.name, _nested(piece, name), made)
        return made
    if isinstance(type_, QuantityText):
        return "".join(_text(part, name) for part in _pieces(_nested(piece, name)) if part.number == 1)
    if isinstance(type_, Time):
        return _time(_nested(piece, name))
    if isinstance(type_, Scalar) and type_.python is str:
        return _text(piece, name)
    if isinstance(type_, Scalar):
        number = _number(piece, name)
        return bool(number) if type_.python is bool else number
    return _raw_json(piece) if name == "fieldsV1" else _int_or_string(_nested(piece, name))


def _int_or_string(data: memoryview) -> int | str:
    """1: whether it is the string, 2: the number, 3: the string."""
    is_text, number, text = 0, 0, ""
    for piece in _pieces(data):
        if piece.number == 1:
            is_text = _number(piece, "Type")
        elif piece.number == 2:
            number = _number(piece, "IntVal")
        elif piece.number == 3:
            text = _text(piece, "StrVal")
    return text if is_text else number


def _time(data: memoryview) -> str | None:
    """1: seconds since 1970, 2: nanoseconds. No bytes are no time."""
    parts = {piece.number: _number(piece, "Time") for piece in _pieces(data)}
    if not parts:
        return None
    try:
        moment = _EPOCH + timedelta(seconds=parts.get(1, 0), microseconds=parts.get(2, 0) // 1000)
    except OverflowError:
        raise _Broken("proto: time out of range") from None
    return micro_timestamp(moment)


def _raw_json(piece: _Piece) -> Any:
    raw = b"".join(bytes(_nested(part, "Raw")) for part in _pieces(_nested(piece, "FieldsV1")) if part.number == 1)
    try:
        return msgspec.json.decode(raw) if raw else {}
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _Broken(str(error)) from None


# The wire


class _Piece(NamedTuple):
    """One field on the wire: a number for wire type 0, else bytes."""

    number: int
    wire: int
    value: int | memoryview


def _pieces(data: memoryview) -> Iterator[_Piece]:
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire = tag >> 3, tag & 7
        if not number:
            raise _Broken(f"proto: illegal tag {number} (wire type {wire})")
        if wire == _VARINT:
            value, position = _varint(data, position)
            yield _Piece(number, wire, value)
            continue
        if wire == _BYTES:
            length, position = _varint(data, position)
        elif wire in (_FIXED64, _FIXED32):
            length = 8 if wire == _FIXED64 else 4
        else:
            raise _Broken(f"proto: illegal wireType {wire}")
        if length > len(data) - position:
            raise _Broken(_TRUNCATED)
        yield _Piece(number, wire, data[position : position + length])
        position += length


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    """An unsigned number of at most 64 bits and where the next byte is."""
    number = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            raise _Broken(_TRUNCATED)
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & 0xFFFF_FFFF_FFFF_FFFF, position
    raise _Broken("proto: integer overflow")


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def _number(piece: _Piece, name: str) -> int:
    if isinstance(piece.value, int):
        return _signed(piece.value)
    raise _wrong_wire(piece, name)


def _nested(piece: _Piece, name: str) -> memoryview:
    if piece.wire == _BYTES and isinstance(piece.value, memoryview):
        return piece.value
    raise _wrong_wire(piece, name)


def _text(piece: _Piece, name: str) -> str:
    try:
        return str(_nested(piece, name), "utf-8")
    except UnicodeDecodeError:
        raise _Broken(f"proto: field {_go_name(name)} contains invalid UTF-8") from None


def _wrong_wire(piece: _Piece, name: str) -> _Broken:
    return _Broken(f"proto: wrong wireType = {piece.wire} for field {_go_name(name)}")


def _go_name(name: str) -> str:
    return name[:1].upper() + name[1:]
