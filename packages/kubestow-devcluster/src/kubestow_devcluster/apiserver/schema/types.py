"""The types of fields, and conversion of decoded JSON values to their canonical form.

``Type.read`` does what Go's typed decoding and encoding do together, in one pass over the dicts: values of the wrong
type raise an error with the path of the field; unknown fields are pruned and reported; nulls and empty values that Go
omits are removed; quantities and times get their canonical form; fields that Go always writes are filled in. Types are
built from the type table on first use, so a server holds only the types of the kinds its clients use.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, cached_property
from typing import Any

from kubestow.api.formats.canonical_quantity import canonical
from kubestow.api.formats.timestamps import micro_timestamp, timestamp
from kubestow.errors import InvalidQuantity
from kubestow_devcluster.apiserver.schema.type_table import FieldEntry, TypeEntry, type_entry

#: A JSON object: a whole Kubernetes object without ``kind`` and ``apiVersion``, or a part of one.
Object = dict[str, Any]

_JSON_NAMES = {str: "string", int: "number", float: "number", bool: "bool", dict: "object", list: "array"}
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")
_CANONICAL_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


class UnmarshalTypeError(Exception):
    """A value that does not fit the type of its field; ``str()`` is the message of Go's JSON decoder."""

    def __init__(self, value: object, expected: str, *, problem: str = "", json_type: str = "") -> None:
        self.json_type = json_type or _JSON_NAMES.get(type(value), "null")
        self.expected = expected
        self.problem = problem
        self.struct = ""
        self.path: list[str] = []

    def inside(self, struct: str, field: str) -> UnmarshalTypeError:
        """This error with the enclosing struct and field added to its path."""
        self.struct = self.struct or struct
        self.path.insert(0, field)
        return self

    def __str__(self) -> str:
        if self.problem:
            return self.problem
        target = f"Go struct field {self.struct}.{'.'.join(self.path)}" if self.path else "Go value"
        return f"json: cannot unmarshal {self.json_type} into {target} of type {self.expected}"


@dataclass(frozen=True, slots=True)
class ListMerge:
    """How patches merge a list.

    Server-side apply merges by ``map_keys`` (x-kubernetes-list-map-keys), or by value where ``is_set``. A strategic
    merge patch merges by ``patch_key`` (patchMergeKey), or by value where ``patch_by_value``.
    """

    patch_key: str = ""
    map_keys: tuple[str, ...] = ()
    is_set: bool = False
    patch_by_value: bool = False
    retain_keys: bool = False


class Type:
    """Any JSON value: the type of schemaless fields, and the base of all others."""

    go_name = "interface {}"
    atomic = True

    def read(self, value: Any, unknown_fields: list[str]) -> Any:
        """``value`` in canonical form; appends the names of unknown fields. Raises UnmarshalTypeError."""
        return value


ANY = Type()


class Scalar(Type):
    """A string, number or boolean."""

    def __init__(self, python: type, go_name: str) -> None:
        self.python, self.go_name = python, go_name

    def read(self, value: Any, unknown_fields: list[str]) -> Any:
        if type(value) is not self.python and not (self.python is float and type(value) is int):
            raise UnmarshalTypeError(value, self.go_name)
        return value


class Integer(Scalar):
    """An integer of 32 or 64 bits."""

    def __init__(self, bits: int) -> None:
        super().__init__(int, f"int{bits}")
        self._range = range(-(2 ** (bits - 1)), 2 ** (bits - 1))

    def read(self, value: Any, unknown_fields: list[str]) -> Any:
        if type(value) is not int:
            raise UnmarshalTypeError(value, self.go_name)
        if value not in self._range:
            raise UnmarshalTypeError(value, self.go_name, json_type=f"number {value}")
        return value


class Bytes(Scalar):
    """Bytes, base64-encoded in JSON."""

    def __init__(self) -> None:
        super().__init__(str, "[]uint8")

    def read(self, value: Any, unknown_fields: list[str]) -> Any:
        if type(value) is not str:
            raise UnmarshalTypeError(value, self.go_name)
        try:
            # Like Go's decoder, ignore line breaks.
            base64.b64decode(value.replace("\n", "").replace("\r", ""), validate=True)
        except ValueError:
            raise UnmarshalTypeError(value, self.go_name, problem="illegal base64 data") from None
        return value


class IntOrString(Type):
    """A port by number or name, a count or a percentage."""

    definition = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
    go_name = "int32"

    def read(self, value: Any, unknown_fields: list[str]) -> Any:
        if type(value) is str:
            return value
        return _TYPES["int32"].read(value, unknown_fields)


class JSONSchemaOr(Type):
    """A JSON schema, or a value of the type ``other`` of the type table; ``problem`` is the error for anything else."""

    atomic = False

    def __init__(self, other: str, problem: str) -> None:
        self._other, self._problem = other, problem

    def read(self, value: Any, unknown_fields: list[str]) -> Any:
        if type(value) not in (dict, bool, list):
            raise UnmarshalTypeError(value, "", problem=self._problem)
        try:
            return self.form_of(value).read(value, unknown_fields)
        except UnmarshalTypeError as error:
            raise error if type(value) is dict else UnmarshalTypeError(value, "", problem=self._problem) from None

    def form_of(self, value: Any) -> Type:
        """The type that a value is read as."""
        return struct_of("V1JSONSchemaProps") if isinstance(value, dict) else _type(self._other)


class Quantity(Type):
    """A resource quantity, as a string or a number."""

    definition = "io.k8s.apimachinery.pkg.api.resource.Quantity"
    go_name = "resource.Quantity"

    def read(self, value: Any, unknown_fields: list[str]) -> str:
        if type(value) not in (str, int, float):
            raise UnmarshalTypeError(value, self.go_name)
        try:
            return canonical(value if type(value) is str else repr(value))
        except InvalidQuantity as invalid:
            raise UnmarshalTypeError(value, self.go_name, problem=str(invalid)) from None


class Time(Type):
    """An RFC 3339 time, with second or microsecond precision."""

    go_name = "string"

    def __init__(self, *, micro: bool) -> None:
        self._micro = micro
        self.definition = f"io.k8s.apimachinery.pkg.apis.meta.v1.{'MicroTime' if micro else 'Time'}"

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
            time = datetime.fromisoformat(value.upper())
            return micro_timestamp(time) if self._micro else timestamp(time)
        except (ValueError, OverflowError):
            layout = "2006-01-02T15:04:05.000000Z07:00" if self._micro else "2006-01-02T15:04:05Z07:00"
            problem = f'parsing time "{value}" as "{layout}": cannot parse "{value}" as "2006"'
            raise UnmarshalTypeError(value, self.go_name, problem=problem) from None


class ListOf(Type):
    """A list. The field that contains it defines how patches merge it."""

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
    """Labels, annotations and other string maps. Every object has some, so valid ones are returned without a copy."""

    def read(self, value: Any, unknown_fields: list[str]) -> dict[str, Any]:
        if type(value) is dict:
            for item in value.values():
                if type(item) is not str:
                    break
            else:
                return value
        return super().read(value, unknown_fields)


@dataclass(frozen=True, slots=True)
class StructField:
    """One field of a struct.

    ``omit_empty`` fields are removed when empty or zero. ``in_empty`` fields exist in an empty struct, so that setting
    one modifies the field instead of adding it. ``patch_strategy`` is that of a strategic merge patch for a struct: a
    patch with ``replace`` replaces it; ``retainKeys`` is for clients. ``python`` is the Python type of a scalar that
    needs no other check. ``definition`` is the name in OpenAPI of a type without fields that ``type_`` does not tell.
    """

    type_: Type
    required: bool
    description: str
    merge: ListMerge | None
    omit_empty: bool
    atomic: bool
    in_empty: bool
    patch_strategy: str = ""
    definition: str = ""
    python: type | None = field(init=False)

    def __post_init__(self) -> None:
        is_checked_by_type = type(self.type_) is Scalar and self.type_.python is not float  # a float may be an integer
        python = self.type_.python if isinstance(self.type_, Scalar) and is_checked_by_type else None
        object.__setattr__(self, "python", python)


class Struct(Type):
    """A type with named fields. ``preserves_unknown_fields`` disables pruning."""

    def __init__(self, entry: TypeEntry, *, preserves_unknown_fields: bool = False) -> None:
        self.definition, self.description = entry.definition, entry.description
        self.preserves_unknown_fields = preserves_unknown_fields
        self.name = entry.name
        self.go_name = f"v1.{self.name}"
        self.atomic = entry.map_type == "atomic"
        self._entries = entry.fields

    @cached_property
    def fields(self) -> dict[str, StructField]:
        return {entry.name: _field(entry) for entry in self._entries}

    @cached_property
    def _zero_values(self) -> list[tuple[str, Any, Struct | None]]:
        """The fields that Go writes even when unset: name and zero value, or the struct that makes the zero value."""
        found: list[tuple[str, Any, Struct | None]] = []
        for entry in self._entries:
            type_ = self.fields[entry.name].type_
            if f"{self.name}.{entry.name}" in _NULL_LISTS:
                found.append((entry.name, None, None))
            elif entry.pointer or entry.omit == "zero":
                continue
            elif isinstance(type_, Struct | Time | Quantity):
                zero = "0" if isinstance(type_, Quantity) else None
                found.append((entry.name, zero, type_ if isinstance(type_, Struct) else None))
            elif isinstance(type_, Scalar) and not entry.omit:
                found.append((entry.name, type_.python(), None))
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
                if self.preserves_unknown_fields:
                    result[key] = item
                else:
                    unknown_fields.append(key)
                continue
            if item is None:
                continue
            if field.python is not None:
                if type(item) is not field.python:
                    raise UnmarshalTypeError(item, field.type_.go_name).inside(self.name, key)
            else:
                try:
                    item = field.type_.read(item, unknown_fields)
                except UnmarshalTypeError as error:
                    raise error.inside(self.name, key) from None
            if item or not field.omit_empty:
                result[key] = item
        for key, zero, struct in self._zero_values:
            if key not in result:
                result[key] = struct.read({}, unknown_fields) if struct is not None else zero
        return result

    def unknown_fields(self, value: Any, path: str = "") -> list[str]:
        """The full paths of the unknown fields in ``value``. Slower than :meth:`read`; for error messages."""
        found: list[str] = []
        if not isinstance(value, dict):
            return found
        for key, item in value.items():
            field, item_path = self.fields.get(key), f"{path}.{key}" if path else key
            if field is None:
                found += [] if self.preserves_unknown_fields else [item_path]
            else:
                found += _unknown_fields(field.type_, item, item_path)
        return found


def _unknown_fields(type_: Type, value: Any, path: str) -> list[str]:
    if isinstance(type_, JSONSchemaOr):
        type_ = type_.form_of(value)
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
    """The type of a model (``V1Pod``); the empty name is the type of kinds without a schema. Raises KeyError."""
    return Struct(type_entry(model)) if model else Struct(TypeEntry("", _METADATA), preserves_unknown_fields=True)


_METADATA = (FieldEntry("metadata", "V1ObjectMeta", pointer=True, omit="empty"),)
_TYPES: dict[str, Type] = {
    "string": Scalar(str, "string"),
    "bytes": Bytes(),
    "int32": Integer(32),
    "int64": Integer(64),
    "bool": Scalar(bool, "bool"),
    "float64": Scalar(float, "float64"),
    "any": ANY,
    "struct{}": ANY,
    "JSONSchemaPropsOrArray": JSONSchemaOr("[]V1JSONSchemaProps", "array or JSON schema expected"),
    "JSONSchemaPropsOrBool": JSONSchemaOr("bool", "boolean or JSON schema expected"),
    "JSONSchemaPropsOrStringArray": JSONSchemaOr("[]string", "array or JSON schema expected"),
    "IntOrString": IntOrString(),
    "Quantity": Quantity(),
    "Time": Time(micro=False),
    "MicroTime": Time(micro=True),
}
#: Lists that are written as null when unset. Go does so for other lists too; they are omitted here, because clients
#: treat a null list and a missing one alike.
_NULL_LISTS = frozenset({"CSINodeDriver.topologyKeys"})


def _field(entry: FieldEntry) -> StructField:
    type_ = _type(entry.type, atomic=entry.map_type == "atomic")
    is_go_struct = isinstance(type_, Struct | Time | Quantity | IntOrString)
    return StructField(
        type_=type_,
        required=entry.required,
        description=entry.description,
        merge=_list_merge(entry) if isinstance(type_, ListOf) else None,
        omit_empty=_omits_empty(entry, type_),
        atomic=type_.atomic and entry.map_type != "granular",
        in_empty=not entry.omit or (is_go_struct and not entry.pointer and entry.omit != "zero"),
        patch_strategy="" if isinstance(type_, ListOf) else entry.patch_strategy,
        definition=entry.definition,
    )


def _omits_empty(entry: FieldEntry, type_: Type) -> bool:
    if isinstance(type_, Time):
        # An empty string is the zero time, which is null; fields that are always written get it as a zero value.
        return True
    if isinstance(type_, ListOf | MapOf):
        # kube-apiserver stores objects in protobuf, which does not distinguish an empty list from a missing one.
        return not entry.required
    if entry.pointer or not entry.omit or type_ is ANY:
        return False
    return not isinstance(type_, Struct) or entry.omit == "zero"


def _list_merge(entry: FieldEntry) -> ListMerge | None:
    strategies = entry.patch_strategy.split(",")
    if entry.list_type not in ("map", "set") and "merge" not in strategies:
        return None
    return ListMerge(
        patch_key=entry.patch_merge_key,
        map_keys=entry.list_map_keys,
        is_set=entry.list_type == "set",
        patch_by_value="merge" in strategies and not entry.patch_merge_key,
        retain_keys="retainKeys" in strategies,
    )


def _type(text: str, *, atomic: bool = False) -> Type:
    if text.startswith("[]"):
        return ListOf(_type(text[2:]))
    if text.startswith("map[string]"):
        item = _type(text.removeprefix("map[string]"))
        return (StringMap if item is _TYPES["string"] else MapOf)(item, atomic=atomic)
    return _TYPES[text] if text in _TYPES else struct_of(text)
