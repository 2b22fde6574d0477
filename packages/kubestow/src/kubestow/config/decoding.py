"""Strict decoding of plain data into the configuration's Structs, collecting every error.

The rules are those of Kubernetes' strict JSON decoder: field names are case-sensitive, ``null`` leaves a field at its
default, a number is not a string, 1.0 is not an integer. msgspec only describes the types: its own decoder stops at the
first error and rejects ``null``.
"""

from __future__ import annotations

import base64
import binascii
import difflib
from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, TypeGuard, TypeVar

import msgspec
from msgspec import inspect

from kubestow.api.formats.duration import Duration
from kubestow.config.field_errors import FieldError, child
from kubestow.rules.minors import DEFAULT_MINOR, Behaviour, Minor

T = TypeVar("T", bound=msgspec.Struct)

_INT32 = (-(2**31), 2**31 - 1)
_LARGEST_FLOAT32 = 3.4028234663852886e38
_INVALID = object()
"""The result of decoding a value of the wrong type; the field then keeps its default."""


class Decoder:
    """Decodes values and collects errors.

    ``type_errors`` are values of the wrong type, ``strict_errors`` are unknown fields: kube-scheduler reports unknown
    fields only when there are no type errors. ``misspelt`` are the paths of the fields that unknown ones resemble.

    ``added`` are the fields that a ``minor`` version does not know without a behaviour, by Struct and name in the text.
    """

    def __init__(
        self,
        minor: Minor = DEFAULT_MINOR,
        added: Mapping[tuple[type[msgspec.Struct], str], Behaviour] = MappingProxyType({}),
    ) -> None:
        self._unknown_since = {field: behaviour.since for field, behaviour in added.items() if not minor.has(behaviour)}
        self.type_errors: list[FieldError] = []
        self.strict_errors: list[FieldError] = []
        self.misspelt: set[str] = set()

    def decode(self, kind: type[T], data: Any, path: str = "") -> T:
        """Decode one Struct; fields with errors keep their default."""
        value = self._value(data, _type_info(kind), path)
        return value if isinstance(value, kind) else kind()

    def _value(self, data: Any, kind: inspect.Type, path: str) -> Any:
        if isinstance(kind, inspect.UnionType):
            kind = next(member for member in kind.types if not isinstance(member, inspect.NoneType))
        match kind:
            case inspect.AnyType():
                return data
            case inspect.StructType(cls=cls) if cls is Duration:
                return self._duration(data, path)
            case inspect.StructType():
                return self._struct(data, kind, path)
            case inspect.ListType() | inspect.VarTupleType():
                items = self._items(data, kind.item_type, path)
                return tuple(items) if isinstance(kind, inspect.VarTupleType) else items
            case inspect.DictType():
                return self._members(data, kind.value_type, path)
        return self._scalar(data, kind, path)

    def _struct(self, data: Any, kind: inspect.StructType, path: str) -> Any:
        if data is None:
            return kind.cls()
        if not isinstance(data, Mapping):
            return self._mismatch(path, "an object", data)
        known, unknown_since = {field.encode_name: field for field in kind.fields}, self._unknown_since
        values = {}
        for name, item in data.items():
            if name not in known:
                self._unknown(path, str(name), [field for field in known if (kind.cls, field) not in unknown_since])
            elif (kind.cls, name) in unknown_since:
                problem = f"unknown field, known since {unknown_since[kind.cls, name]}"
                self.strict_errors.append(FieldError(child(path, name), problem))
            elif item is not None or getattr(known[name].type, "cls", None) is Duration:  # which must not be null
                value = self._value(item, known[name].type, child(path, name))
                if value is not _INVALID:
                    values[known[name].name] = value
        return kind.cls(**values)

    def _items(self, data: Any, kind: inspect.Type, path: str) -> list[Any]:
        if data is None:
            return []
        if not is_list(data):
            self._mismatch(path, "a list", data)
            return []
        items = [self._value(item, kind, f"{path}[{index}]") for index, item in enumerate(data)]
        if isinstance(kind, inspect.StructType):  # an invalid object is left empty, so that the others keep their index
            return [kind.cls() if item is _INVALID else item for item in items]
        return [item for item in items if item is not _INVALID]

    def _members(self, data: Any, kind: inspect.Type, path: str) -> dict[str, Any]:
        if data is None:
            return {}
        if not isinstance(data, Mapping):
            self._mismatch(path, "an object", data)
            return {}
        members = {str(name): self._value(item, kind, child(path, str(name))) for name, item in data.items()}
        return {name: item for name, item in members.items() if item is not _INVALID}

    def _duration(self, data: Any, path: str) -> Any:
        # kube-scheduler decodes null like the empty string here, and rejects both.
        if data is not None and not isinstance(data, str):
            return self._mismatch(path, 'a duration such as "15s"', data)
        try:
            return Duration.parse(data or "")
        except ValueError as error:
            self.type_errors.append(FieldError(path, f'expected a duration such as "15s": {error}'))
            return _INVALID

    def _scalar(self, data: Any, kind: inspect.Type, path: str) -> Any:
        match kind:
            case inspect.StrType():
                return data if isinstance(data, str) else self._zero_or_mismatch("", path, "a string", data)
            case inspect.BoolType():
                return data if isinstance(data, bool) else self._zero_or_mismatch(False, path, "a boolean", data)
            case inspect.IntType():
                # A bare int is an int32, the most common integer type of the configuration.
                least, most = kind.ge or _INT32[0], kind.le or _INT32[1]
                fits = isinstance(data, int) and not isinstance(data, bool) and least <= data <= most
                size = "int32" if most == _INT32[1] else "int64"
                return data if fits else self._zero_or_mismatch(0, path, f"an integer ({size})", data)
            case inspect.FloatType():
                fits = isinstance(data, (int, float)) and not isinstance(data, bool) and abs(data) <= _LARGEST_FLOAT32
                return float(data) if fits else self._zero_or_mismatch(0.0, path, "a number", data)
            case inspect.BytesType():
                return self._bytes(data, path)
        raise TypeError(f"{path}: a configuration has no values of type {kind}")

    def _bytes(self, data: Any, path: str) -> Any:
        try:
            if isinstance(data, str):
                return base64.b64decode(data.replace("\r", "").replace("\n", ""), validate=True)
        except (binascii.Error, ValueError):
            self.type_errors.append(FieldError(path, "expected base64 text"))
            return _INVALID
        return self._zero_or_mismatch(b"", path, "base64 text", data)

    def _zero_or_mismatch(self, zero: Any, path: str, expected: str, data: Any) -> Any:
        return zero if data is None else self._mismatch(path, expected, data)

    def _mismatch(self, path: str, expected: str, data: Any) -> Any:
        self.type_errors.append(FieldError(path, f"expected {expected}, got {describe_value(data)}"))
        return _INVALID

    def _unknown(self, path: str, name: str, known: list[str]) -> None:
        near = difflib.get_close_matches(name, known, n=1)
        self.misspelt.update(child(path, field) for field in near)
        hint = f', did you mean "{near[0]}"?' if near else ""
        self.strict_errors.append(FieldError(child(path, name), f"unknown field{hint}"))


def is_list(data: Any) -> TypeGuard[Sequence[Any]]:
    """Whether a value is a list; a string is none."""
    return isinstance(data, Sequence) and not isinstance(data, (str, bytes))


def describe_value(data: Any) -> str:
    """The JSON type of a value, with a scalar's value: 'string "a"', "number 1.5", "null"."""
    match data:
        case None:
            return "null"
        case bool():
            return f"boolean {str(data).lower()}"
        case int() | float():
            return f"number {data}"
        case str():
            return f'string "{data}"'
        case Mapping():
            return "an object"
    return "a list"


@cache
def _type_info(kind: type[msgspec.Struct]) -> inspect.Type:
    return inspect.type_info(kind)
