"""The types of fields, and reading a decoded JSON value as one of them.

Reading does what a typed decoder does in one pass over the dicts: wrong types are refused with the place they stand
in, unknown fields are dropped (and reported), nulls and zero values that mean nothing are left out, quantities and
times get their canonical text, and fields that are always written are filled in. Types are made when first met, so a
server knows only the types of the kinds its clients use.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from functools import cache, cached_property
from typing import Any, cast

from kubestow.api.timestamps import micro_timestamp, timestamp
from kubestow.devcluster.apiserver.schema import conventions
from kubestow.devcluster.apiserver.schema.conventions import Merge
from kubestow.devcluster.apiserver.schema.models import ModelField, fields_of, short_name
from kubestow.devcluster.apiserver.schema.quantities import canonical
from kubestow.errors import InvalidQuantity

__all__ = ["ANYTHING", "Field", "IntOrString", "ListOf", "MapOf", "Mismatch", "Struct", "Type", "struct_of"]

_JSON_NAMES = {str: "string", int: "number", float: "number", bool: "bool", dict: "object", list: "array"}
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")
_CANONICAL_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


class Mismatch(Exception):
    """A value that is not of its field's type; ``str()`` is what the API server says about it."""

    def __init__(self, value: object, expected: str, *, problem: str = "") -> None:
        self.got = _JSON_NAMES.get(type(value), "null")
        self.expected = expected
        self.problem = problem
        self.owner = ""
        self.path: list[str] = []

    def inside(self, owner: str, field: str) -> Mismatch:
        self.owner = self.owner or owner
        self.path.insert(0, field)
        return self

    def __str__(self) -> str:
        if self.problem:
            return self.problem
        place = f"Go struct field {self.owner}.{'.'.join(self.path)}" if self.path else "Go value"
        return f"json: cannot unmarshal {self.got} into {place} of type {self.expected}"


class Type:
    """Anything goes: the type of schemaless parts."""

    go_name = "interface {}"
    atomic = True

    def read(self, value: Any, strangers: list[str]) -> Any:
        """``value`` in canonical form; names of unknown fields are added to ``strangers``. Raises Mismatch."""
        return value


ANYTHING = Type()


class Scalar(Type):
    """A string, number or boolean."""

    def __init__(self, python: type, go_name: str) -> None:
        self.python, self.go_name = python, go_name

    def read(self, value: Any, strangers: list[str]) -> Any:
        if type(value) is not self.python and not (self.python is float and type(value) is int):
            raise Mismatch(value, self.go_name)
        return value


class IntOrString(Type):
    """A port by number or name, a count or a percentage."""

    go_name = "int32"

    def read(self, value: Any, strangers: list[str]) -> Any:
        if type(value) not in (int, str):
            raise Mismatch(value, self.go_name)
        return value


class QuantityText(Type):
    """A resource quantity; a bare number is taken too."""

    go_name = "resource.Quantity"

    def read(self, value: Any, strangers: list[str]) -> str:
        if type(value) not in (str, int, float):
            raise Mismatch(value, self.go_name)
        try:
            return canonical(value if type(value) is str else repr(value))
        except InvalidQuantity as invalid:
            raise Mismatch(value, self.go_name, problem=str(invalid)) from None


class Time(Type):
    """An RFC 3339 time, kept to the second or to the microsecond."""

    go_name = "string"

    def __init__(self, *, micro: bool) -> None:
        self._micro = micro

    def read(self, value: Any, strangers: list[str]) -> Any:
        if type(value) is not str:
            raise Mismatch(value, self.go_name)
        if not self._micro and _CANONICAL_TIME.fullmatch(value):
            return value
        if not value:
            return None
        try:
            if not _TIME.fullmatch(value):
                raise ValueError
            moment = datetime.fromisoformat(value.upper())
            return micro_timestamp(moment) if self._micro else timestamp(moment)
        except (ValueError, OverflowError):
            layout = "2006-01-02T15:04:05.000000Z07:00" if self._micro else "2006-01-02T15:04:05Z07:00"
            problem = f'parsing time "{value}" as "{layout}": cannot parse "{value}" as "2006"'
            raise Mismatch(value, self.go_name, problem=problem) from None


class ListOf(Type):
    """A list; how patches combine two of them is said by the field that holds it."""

    def __init__(self, item: Type) -> None:
        self.item = item
        self.go_name = f"[]{item.go_name}"

    def read(self, value: Any, strangers: list[str]) -> list[Any]:
        if type(value) is not list:
            raise Mismatch(value, self.go_name)
        read = self.item.read
        return [read(item, strangers) for item in value]


class MapOf(Type):
    """A map from strings."""

    def __init__(self, item: Type, *, atomic: bool = False) -> None:
        self.item, self.atomic = item, atomic
        self.go_name = f"map[string]{item.go_name}"

    def read(self, value: Any, strangers: list[str]) -> dict[str, Any]:
        if type(value) is not dict:
            raise Mismatch(value, self.go_name)
        read = self.item.read
        return {key: read("" if item is None else item, strangers) for key, item in value.items()}


class StringMap(MapOf):
    """Labels, annotations and their like: the map met in every object, checked at the least cost."""

    def read(self, value: Any, strangers: list[str]) -> dict[str, Any]:
        if type(value) is dict:
            for item in value.values():
                if type(item) is not str:
                    break
            else:
                return value
        return super().read(value, strangers)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a struct.

    ``scalar`` is the Python type to compare with where that is all there is to check. ``present`` fields exist even in
    an empty object, so setting them is a change and not an addition.
    """

    name: str
    type_: Type
    required: bool
    description: str
    merge: Merge | None
    scalar: type | None
    omit_empty: bool
    atomic: bool
    present: bool


class Struct(Type):
    """A type with named fields. ``open`` structs keep fields they do not know (custom resources)."""

    def __init__(self, model: str, *, open_: bool = False) -> None:
        self.model, self.open = model, open_
        self.name = short_name(model)
        self.go_name = f"v1.{self.name}"
        self.atomic = self.name in conventions.ATOMIC_TYPES

    @cached_property
    def fields(self) -> dict[str, Field]:
        if self.open:
            metadata = ModelField("metadata", "V1ObjectMeta", False, "")
            return {"metadata": _field(self.model, metadata)}
        return {field.name: _field(self.model, field) for field in fields_of(self.model)}

    @cached_property
    def _emitted(self) -> list[tuple[str, Any, Struct | None]]:
        emitted: list[tuple[str, Any, Struct | None]] = []
        for name, field in self.fields.items():
            key = f"{self.name}.{name}"
            key = key if key in conventions.EMITTED else f"{self.model}.{name}"
            if key in conventions.EMITTED:
                filled = field.type_ if isinstance(field.type_, Struct) else None
                emitted.append((name, conventions.EMITTED[key], filled))
        return emitted

    def read(self, value: Any, strangers: list[str]) -> dict[str, Any]:
        if type(value) is not dict:
            if value is None:
                value = {}
            else:
                raise Mismatch(value, self.go_name)
        fields, result = self.fields, {}
        for key, item in value.items():
            field = fields.get(key)
            if field is None:
                if self.open:
                    result[key] = item
                else:
                    strangers.append(key)
                continue
            if item is None:
                continue
            if field.scalar is not None:
                if type(item) is not field.scalar:
                    raise Mismatch(item, field.type_.go_name).inside(self.name, key)
            else:
                try:
                    item = field.type_.read(item, strangers)
                except Mismatch as mismatch:
                    raise mismatch.inside(self.name, key) from None
            if item or not field.omit_empty:
                result[key] = item
        for key, zero, filled in self._emitted:
            if key not in result:
                result[key] = filled.read({}, strangers) if filled is not None else zero
        return result

    def strangers(self, value: Any, path: str = "") -> list[str]:
        """The full paths of the unknown fields in ``value``: the slow pass, made only when there are some."""
        found: list[str] = []
        if not isinstance(value, dict):
            return found
        for key, item in value.items():
            field, place = self.fields.get(key), f"{path}.{key}" if path else key
            if field is None:
                found += [] if self.open else [place]
            else:
                found += _strangers(field.type_, item, place)
        return found


def _strangers(type_: Type, value: Any, path: str) -> list[str]:
    if isinstance(type_, Struct):
        return type_.strangers(value, path)
    if isinstance(type_, ListOf) and isinstance(value, list):
        return [found for index, item in enumerate(value) for found in _strangers(type_.item, item, f"{path}[{index}]")]
    if isinstance(type_, MapOf) and isinstance(value, dict):
        return [found for key, item in value.items() for found in _strangers(type_.item, item, f"{path}.{key}")]
    return []


@cache
def struct_of(model: str) -> Struct:
    """The type of a model; the empty name is the open struct of kinds that have no schema."""
    return Struct(model, open_=not model)


_SCALARS: dict[str, Type] = {
    "str": Scalar(str, "string"),
    "int": Scalar(int, "int32"),
    "bool": Scalar(bool, "bool"),
    "float": Scalar(float, "float64"),
    "object": ANYTHING,
}
_INT64 = Scalar(int, "int64")


def _field(model: str, described: ModelField) -> Field:
    name = described.name
    place = f"{short_name(model)}.{name}"
    type_ = _type(described.type, place)
    return Field(
        name=name,
        type_=type_,
        required=described.required,
        description=described.description,
        merge=conventions.MERGES.get(place),
        scalar=type_.python if isinstance(type_, Scalar) and type_.python is not float else None,
        omit_empty=place not in conventions.POINTER_NUMBERS and _omits_empty(described, type_),
        atomic=type_.atomic and place not in conventions.GRANULAR,
        present=described.required
        or place in conventions.ALWAYS_THERE
        or place in conventions.EMITTED
        or f"{model}.{name}" in conventions.EMITTED,
    )


def _omits_empty(described: ModelField, type_: Type) -> bool:
    name = described.name
    if isinstance(type_, Struct) or described.type == "object":
        return False
    if isinstance(type_, Scalar) and type_.python is bool:
        return name in conventions.OMITTED_FALSE
    if isinstance(type_, Scalar) and type_.python in (int, float):
        return name in conventions.OMITTED_ZERO
    return not described.required and name not in conventions.POINTER_STRINGS


def _type(text: str, place: str) -> Type:
    if text.startswith("list["):
        return ListOf(_type(text[5:-1], place))
    if text.startswith("dict("):
        item = _type(text[len("dict(str, ") : -1], place)
        if isinstance(item, Scalar) and item.python is str:
            return StringMap(item, atomic=place in conventions.ATOMIC_MAPS)
        return MapOf(item)
    if place in conventions.QUANTITIES and text == "str":
        return cast(Type, _QUANTITY)
    if place in conventions.INTS_OR_STRINGS:
        return _INT_OR_STRING
    if text == "datetime":
        return _MICRO_TIME if place in conventions.MICRO_TIMES else _SECOND_TIME
    if text == "int" and place.rpartition(".")[2] in conventions.INT64:
        return _INT64
    return _SCALARS[text] if text in _SCALARS else struct_of(text)


_INT_OR_STRING, _QUANTITY = IntOrString(), QuantityText()
_SECOND_TIME, _MICRO_TIME = Time(micro=False), Time(micro=True)
