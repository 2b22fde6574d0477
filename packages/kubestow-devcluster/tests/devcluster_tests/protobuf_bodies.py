"""Bodies and watch events in protobuf, as plain objects: what a Go client reads of a response."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubestow_devcluster.apiserver.serialization import protobuf


def varint(number: int) -> bytes:
    number &= 0xFFFF_FFFF_FFFF_FFFF
    return bytes([number]) if number < 0x80 else bytes([number & 0x7F | 0x80]) + varint(number >> 7)


def wire_field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def envelope(kind: str, raw: bytes, *, version: str = "v1") -> bytes:
    types = wire_field(1, version.encode()) + wire_field(2, kind.encode())
    return protobuf.MAGIC + wire_field(1, types) + wire_field(2, raw)


def decoded(body: bytes) -> dict[str, Any]:
    """The object or list in a body, with kind and apiVersion."""
    assert body.startswith(protobuf.MAGIC)
    fields = dict(_fields(body[len(protobuf.MAGIC) :]))
    types = {number: text.decode() for number, text in _fields(fields[1])}
    api_version, kind = types[1], types[2]
    raw = fields.get(2, b"")
    if kind == "PartialObjectMetadata":
        return {"kind": kind, "apiVersion": api_version, "metadata": _metadata(raw)}
    if not kind.endswith("List"):
        return protobuf.decode(body)
    lists = list(_fields(raw))
    item_kind = kind.removesuffix("List")
    items = [decoded(envelope(item_kind, item, version=api_version)) for number, item in lists if number == 2]
    metadata = dict(_fields(dict(lists)[1]))
    names = {2: "resourceVersion", 3: "continue"}
    found = {names[number]: value.decode() for number, value in metadata.items() if number in names and value}
    return {"kind": kind, "apiVersion": api_version, "metadata": found, "items": items}


def decoded_events(content: bytes) -> list[dict[str, Any]]:
    """The events of a watch: frames of a length in four bytes and a ``WatchEvent``."""
    events = []
    while content:
        length = int.from_bytes(content[:4], "big")
        frame, content = content[4 : 4 + length], content[4 + length :]
        assert len(frame) == length
        event = dict(_fields(frame))
        events.append({"type": event[1].decode(), "object": decoded(dict(_fields(event[2]))[1])})
    return events


def _metadata(raw: bytes) -> dict[str, Any]:
    pod: dict[str, Any] = protobuf.decode(envelope("Pod", raw))["metadata"]
    return pod


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The length-delimited fields of a message, by number; others are skipped."""
    position = 0
    while position < len(data):
        tag, position = _read_varint(data, position)
        if tag & 7 == 0:
            _, position = _read_varint(data, position)
            continue
        assert tag & 7 == 2
        length, position = _read_varint(data, position)
        yield tag >> 3, data[position : position + length]
        position += length


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[position]
        number |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return number, position
