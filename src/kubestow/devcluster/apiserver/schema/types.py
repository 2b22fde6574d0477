"""The types of fields, and reading a decoded JSON value as one of them.

Reading does what a typed decoder does in one pass over the dicts: wrong types are refused with the path of the field,
unknown fields are dropped (and reported), nulls and zero values that mean nothing are left out, quantities and times
get their canonical text, and fields that are always written are filled in. Types are built from the table when first
met, so a server knows only the types of the kinds its clients use.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from functools import cache, cached_property
from typing import Any

from kubestow.api.timestamps import micro_timestamp, timestamp
from kubestow.devcluster.apiserver.schema.quantities import canonical
from kubestow.devcluster.apiserver.schema.table import FieldEntry, TypeEntry, entry
from kubestow.errors import InvalidQuantity

__all__ = [
    "ANYTHING",
    "Bytes",
    "Field",
    "IntOrString",
    "ListOf",
    "MapOf",
    "Merge",
    "QuantityText",
    "Scalar",
    "Struct",
    "Time",
    "Type",
    "UnmarshalTypeError",
    "struct_of",
]

_JSON_NAMES = {str: "string", int: "number", float: "number", bool: "bool", dict: "object", list: "array"}
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")
_CANONICAL_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


class UnmarshalTypeError(Exception):
    """A value that is not of its field's type; ``str()`` is what the API server says about it."""

    def __init__(self, value: object, expected: str, *, problem: str = "") -> None:
        self.got = _JSON_NAMES.get(type(value), "null")
        self.expected = expected
        self.problem = problem
        self.owner = ""
        self.path: list[str] = []

    def inside(self, owner: str, field: str) -> UnmarshalTypeError:
        self.owner = self.owner or owner
        self.path.insert(0, field)
        return self

    def __str__(self) -> str:
        if self.problem:
            return self.problem
        place = f"Go struct field {self.owner}.{'.'.join(self.path)}" if self.path else "Go value"
        return f"json: cannot unmarshal {self.got} into {place} of type {self.expected}"


@dataclass(frozen=True, slots=True)
class Merge:
    """How two versions of a list are combined: by ``keys`` or as a set in server-side apply, by ``patch_key`` or, where
    ``patch_set``, by value in strategic merge patches."""

    patch_key: str = ""
    keys: tuple[str, ...] = ()
    is_set: bool = False
    patch_set: bool = False
    retain_keys: bool = False


class Type:
    """Any JSON value: the type of schemaless parts."""

    go_name = "interface {}"
    atomic = True

    def read(self, value: Any, unknown_fields: list[str]) -> Any:
        """``value`` in canonical form; names of unknown fields are added to ``unknown_fields``. Raises Mismatch."""
        return value


ANYTHING = Type()


class Scalar(Type):
    """A string, number or boolean."""

    def __init__(self, python: type, go_name: str) -> None:
        self.python, self.go_name = python, go_name

    def read(self, value: Any, unknown_fields: list[str]) -> Any:
        if type(value) is not self.python and not (self.python is float and type(value) is int):
            raise UnmarshalTypeError(value, self.go_name)
        return value


class Bytes(Scalar):
    """Raw bytes, which JSON has in base64."""

    def __init__(self) -> None:
        super().__init__(str, "[]uint8")


class IntOrString(Type):
    """A port by number or name, a count or a percentage."""

    go_name = "int32"

    def read(self, value: Any, unknown_fields: list[str]) -> Any:
        if type(value) not in (int, str):
            raise UnmarshalTypeError(value, self.go_name)
        return value


class QuantityText(Type):
    """A resource quantity; a bare number is taken too."""

    go_name = "resource.Quantity"

    def read(self, value: Any, unknown_fields: list[str]) -> str:
        if type(value) not in (str, int, float):
            raise UnmarshalTypeError(value, self.go_name)
        try:
            return canonical(value if type(value) is str else repr(value))
        except InvalidQuantity as invalid:
            raise UnmarshalTypeError(value, self.go_name, problem=str(invalid)) from None


class Time(Type):
    """An RFC 3339 time, kept to the second or to the microsecond."""

    go_name = "string"

    def __init__(self, *, micro: bool) -> None:
        self._micro = micro

    def read(self, value: Any, unknown_fields: list[str]) -> Any:
        if type(value) is not str:
            raise UnmarshalTypeError(value, self.go_name)
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
            raise UnmarshalTypeError(value, self.go_name, problem=problem) from None


class ListOf(Type):
    """A list; how patches combine two of them is said by the field that holds it."""

    def __init__(self, item: Type) -> None:
        self.item = item
        self.go_name = f"[]{item.go_name}"

    def read(self, value: Any, unknown_fields: list[str]) -> list[Any]:
        if type(value) is not list:
            raise UnmarshalTypeError(value, self.go_name)
        read = self.item.read
        return [read(item, unknown_fields) for item in value]


class MapOf(Type):
    """A map from strings."""

    def __init__(self, item: Type, *, atomic: bool = False) -> None:
        self.item, self.atomic = item, atomic
        self.go_name = f"map[string]{item.go_name}"

    def read(self, value: Any, unknown_fields: list[str]) -> dict[str, Any]:
        if type(value) is not dict:
            raise UnmarshalTypeError(value, self.go_name)
        read = self.item.read
        return {key: read("" if item is None else item, unknown_fields) for key, item in value.items()}


class StringMap(MapOf):
    """Labels, annotations and their like: the map met in every object, checked at the least cost."""

    def read(self, value: Any, unknown_fields: list[str]) -> dict[str, Any]:
        if type(value) is dict:
            for item in value.values():
                if type(item) is not str:
                    break
            else:
                return value
        return super().read(value, unknown_fields)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a struct.

    ``scalar`` is the Python type to compare with where that is all there is to check. ``omit_empty`` fields are left
    out when empty or zero. ``present`` fields exist even in an empty object, so setting them is a change and not an
    addition.
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
    """A type with named fields, and what the table has of it. ``open`` structs keep fields they do not know."""

    def __init__(self, described: TypeEntry, *, open_: bool = False) -> None:
        self.definition, self.description, self.open = described.definition, described.description, open_
        self.name = described.name
        self.go_name = f"v1.{self.name}"
        self.atomic = described.map_type == "atomic"
        self._described = described.fields

    @cached_property
    def fields(self) -> dict[str, Field]:
        return {field.name: _field(field, f"{self.name}.{field.name}") for field in self._described}

    @cached_property
    def _zeros(self) -> list[tuple[str, Any, Struct | None]]:
        """The fields that are written even when they are not set: the zero value, or the struct that makes it."""
        found: list[tuple[str, Any, Struct | None]] = []
        for described in self._described:
            type_ = self.fields[described.name].type_
            if f"{self.name}.{described.name}" in _NULL_LISTS:
                found.append((described.name, None, None))
            elif described.pointer or described.omit == "zero":
                continue
            elif isinstance(type_, Struct | Time | QuantityText):
                zero = "0" if isinstance(type_, QuantityText) else None
                found.append((described.name, zero, type_ if isinstance(type_, Struct) else None))
            elif isinstance(type_, Scalar) and not described.omit:
                found.append((described.name, type_.python(), None))
        return found

    def read(self, value: Any, unknown_fields: list[str]) -> dict[str, Any]:
        if type(value) is not dict:
            if value is None:
                value = {}
            else:
                raise UnmarshalTypeError(value, self.go_name)
        fields, result = self.fields, {}
        for key, item in value.items():
            field = fields.get(key)
            if field is None:
                if self.open:
                    result[key] = item
                else:
                    unknown_fields.append(key)
                continue
            if item is None:
                continue
            if field.scalar is not None:
                if type(item) is not field.scalar:
                    raise UnmarshalTypeError(item, field.type_.go_name).inside(self.name, key)
            else:
                try:
                    item = field.type_.read(item, unknown_fields)
                except UnmarshalTypeError as mismatch:
                    raise mismatch.inside(self.name, key) from None
            if item or not field.omit_empty:
                result[key] = item
        for key, zero, struct in self._zeros:
            if key not in result:
                result[key] = struct.read({}, unknown_fields) if struct is not None else zero
        return result

    def unknown_fields(self, value: Any, path: str = "") -> list[str]:
        """The full paths of the unknown fields in ``value``: the slow pass, made only when there are some."""
        found: list[str] = []
        if not isinstance(value, dict):
            return found
        for key, item in value.items():
            field, place = self.fields.get(key), f"{path}.{key}" if path else key
            if field is None:
                found += [] if self.open else [place]
            else:
                found += _unknown_fields(field.type_, item, place)
        return found


def _unknown_fields(type_: Type, value: Any, path: str) -> list[str]:
    if isinstance(type_, Struct):
        return type_.unknown_fields(value, path)
    if isinstance(type_, ListOf) and isinstance(value, list):
        return [
            found for index, item in enumerate(value) for found in _unknown_fields(type_.item, item, f"{path}[{index}]")
        ]
    if isinstance(type_, MapOf) and isinstance(value, dict):
        return [found for key, item in value.items() for found in _unknown_fields(type_.item, item, f"{path}.{key}")]
    return []


@cache
def struct_of(model: str) -> Struct:
    """The type of a model (``V1Pod``); the empty name is the open struct of kinds without a schema. Raises KeyError."""
    return Struct(entry(model)) if model else Struct(TypeEntry("", _METADATA), open_=True)


_METADATA = (FieldEntry("metadata", "V1ObjectMeta", pointer=True, omit="empty"),)
_VALUES: dict[str, Type] = {
    "string": Scalar(str, "string"),
    "bytes": Bytes(),
    "int32": Scalar(int, "int32"),
    "int64": Scalar(int, "int64"),
    "bool": Scalar(bool, "bool"),
    "float64": Scalar(float, "float64"),
    "any": ANYTHING,
    "IntOrString": IntOrString(),
    "Quantity": QuantityText(),
    "Time": Time(micro=False),
    "MicroTime": Time(micro=True),
}
#: Lists that are null when they are not set. Others are null in Go too, and are left out here: to the readers of
#: objects in this project, no list and null are the same.
_NULL_LISTS = frozenset({"CSINodeDriver.topologyKeys"})


#: Lists that strategic merge patches merge by a key that the table does not have.
_PATCH_KEYS = {"NodeSpec.taints": "key"}


def _field(described: FieldEntry, place: str) -> Field:
    type_ = _type(described.type, atomic=described.map_type == "atomic")
    structured = isinstance(type_, Struct | Time | QuantityText | IntOrString)
    return Field(
        name=described.name,
        type_=type_,
        required=described.required,
        description=described.description,
        merge=_merge(described, _PATCH_KEYS.get(place, "")) if isinstance(type_, ListOf) else None,
        scalar=type_.python if isinstance(type_, Scalar) and type_.python is not float else None,
        omit_empty=_omits_empty(described, type_),
        atomic=type_.atomic and described.map_type != "granular",
        present=not described.omit or (structured and not described.pointer and described.omit != "zero"),
    )


def _omits_empty(described: FieldEntry, type_: Type) -> bool:
    if isinstance(type_, Time):
        # The empty text is no time: null, which is filled in where it is written.
        return True
    if isinstance(type_, ListOf | MapOf):
        # Objects are stored in protobuf, where an empty list and none are the same.
        return not described.required
    if described.pointer or not described.omit or type_ is ANYTHING:
        return False
    return not isinstance(type_, Struct) or described.omit == "zero"


def _merge(described: FieldEntry, patch_key: str) -> Merge | None:
    strategies = described.patch_strategy.split(",")
    if described.list_type not in ("map", "set") and "merge" not in strategies and not patch_key:
        return None
    return Merge(
        patch_key=described.patch_merge_key or patch_key,
        keys=described.list_map_keys,
        is_set=described.list_type == "set",
        patch_set="merge" in strategies and not described.patch_merge_key,
        retain_keys="retainKeys" in strategies,
    )


def _type(text: str, *, atomic: bool = False) -> Type:
    if text.startswith("[]"):
        return ListOf(_type(text[2:]))
    if text.startswith("map[string]"):
        item = _type(text.removeprefix("map[string]"))
        return (StringMap if isinstance(item, Scalar) and item.python is str else MapOf)(item, atomic=atomic)
    return _VALUES[text] if text in _VALUES else struct_of(text)
