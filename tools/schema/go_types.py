"""Go struct types, read from the reflection data that the Go linker puts into every executable.

The JSON schemas of Kubernetes lack what only its Go types say: the protobuf number of a field, whether it is a pointer,
and whether a zero value is written. A stripped binary still has all of it, because encoding/json reads the same struct
tags at run time. The layout is that of Go's ``internal/abi``: ``Type``, ``StructType``, ``Name``.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_BOOL, _INT32, _INT64, _FLOAT64, _INTERFACE, _MAP, _POINTER, _SLICE, _STRING, _STRUCT = (
    1,
    5,
    6,
    14,
    20,
    21,
    22,
    23,
    24,
    25,
)
_UINT8 = 8
_KINDS = {_BOOL: "bool", _INT32: "int32", _INT64: "int64", _FLOAT64: "float64", _STRING: "string", _UINT8: "uint8"}
_KINDS |= {_MAP: "map", _POINTER: "pointer", _SLICE: "slice", _STRUCT: "struct", _INTERFACE: "interface"}
_HAS_UNCOMMON, _EXTRA_STAR, _NAMED = 1, 2, 4
_HAS_TAG, _EMBEDDED = 2, 8
_TYPE_SIZE, _STRUCT_SIZE, _FIELD_SIZE = 48, 80, 24
_TAG = re.compile(r'(\w+):"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class GoField:
    """A struct field: its Go ``name``, the address of its type, its ``tags`` by key."""

    name: str
    type: int
    tags: dict[str, str]
    embedded: bool


@dataclass(frozen=True)
class GoType:
    """A type. ``name`` is qualified by the last element of ``package``; ``element`` is the address of the pointed-to,
    item or value type, and ``fields`` are a struct's."""

    name: str
    kind: str
    package: str
    element: int
    fields: tuple[GoField, ...]


class GoBinary:
    """The types in one ELF executable for 64-bit little-endian machines, linked without relocations."""

    def __init__(self, path: Path) -> None:
        self._data = path.read_bytes()
        self._sections = self._section_table()
        self._base, self._offset, _ = self._sections[".rodata"]

    @cached_property
    def structs(self) -> dict[tuple[str, str], GoType]:
        """The named struct types that are used by pointer, by package path and bare name."""
        found = (self.type(self.type(address).element) for address in self._pointers())
        return {(made.package, made.name.rpartition(".")[2]): made for made in found if made.kind == "struct"}

    def type(self, address: int) -> GoType:
        """The type at an address."""
        at = self._at(address)
        flags, kind = self._data[at + 20], _KINDS.get(self._data[at + 23] & 31, "other")
        name = self._name(self._base + self._int32(address + 40))[0]
        name = name[1:] if flags & _EXTRA_STAR else name
        package, element = "", 0
        fields: tuple[GoField, ...] = ()
        if kind in ("pointer", "slice"):
            element = self._word(address + _TYPE_SIZE)
        elif kind == "map":
            element = self._word(address + _TYPE_SIZE + 8)
        elif kind == "struct":
            fields = tuple(self._fields(address))
            if flags & _NAMED and flags & _HAS_UNCOMMON:
                package = self._name(self._base + self._int32(address + _STRUCT_SIZE))[0]
        return GoType(name, kind, package, element, fields)

    def _pointers(self) -> Iterator[int]:
        """The pointer types among the linked types that need no name to be found."""
        _, offset, size = self._sections[".typelink"]
        for (link,) in struct.iter_unpack("<i", self._data[offset : offset + size]):
            if self._data[self._at(self._base + link) + 23] & 31 == _POINTER:
                yield self._base + link

    def _fields(self, address: int) -> Iterator[GoField]:
        first, count = self._word(address + 56), self._word(address + 64)
        for place in range(first, first + count * _FIELD_SIZE, _FIELD_SIZE):
            name, tag, embedded = self._name(self._word(place))
            yield GoField(name, self._word(place + 8), dict(_TAG.findall(tag)), embedded)

    def _name(self, address: int) -> tuple[str, str, bool]:
        """Name, tag, and whether the field is embedded."""
        at = self._at(address)
        flags = self._data[at]
        name, at = self._text(at + 1)
        return name, self._text(at)[0] if flags & _HAS_TAG else "", bool(flags & _EMBEDDED)

    def _text(self, at: int) -> tuple[str, int]:
        length = shift = 0
        while True:
            byte = self._data[at]
            at += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return self._data[at : at + length].decode(), at + length

    def _word(self, address: int) -> int:
        return int.from_bytes(self._data[self._at(address) : self._at(address) + 8], "little")

    def _int32(self, address: int) -> int:
        at = self._at(address)
        return int.from_bytes(self._data[at : at + 4], "little", signed=True)

    def _at(self, address: int) -> int:
        return address - self._base + self._offset

    def _section_table(self) -> dict[str, tuple[int, int, int]]:
        """Address, file offset and size of each section, all in bytes."""
        (table,) = struct.unpack_from("<Q", self._data, 0x28)
        size, count, names = struct.unpack_from("<HHH", self._data, 0x3A)
        headers = [struct.unpack_from("<IIQQQQ", self._data, table + number * size) for number in range(count)]
        start = headers[names][4]

        def name(header: tuple[int, ...]) -> str:
            at = start + header[0]
            return self._data[at : self._data.index(b"\0", at)].decode()

        return {name(header): (header[3], header[4], header[5]) for header in headers}
