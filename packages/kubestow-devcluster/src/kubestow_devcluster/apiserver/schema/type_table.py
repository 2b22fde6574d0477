"""The table of built-in Kubernetes types: the fields of each, from its OpenAPI schema and its Go type.

``make schema`` generates ``kubernetes-1.36.json`` from two packages (``tools/schema/generate.py``), which the head of
the file names with their licences. ``kubernetes-1.37.json`` has the types of the API versions that 1.37 added, made in
the same way, ``kubernetes-1.35.json`` those that only 1.35 had, and their field of pods. The server reads the files
when it needs the first type, and decodes only the types that clients use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec

_V1BETA1 = b'"definition": "io.k8s.api.resource.v1beta1.'
_RULES = ("V1beta2DeviceTaintRule", "V1beta2DeviceTaintSelector")
_FILES = tuple(Path(__file__).with_name(f"kubernetes-{minor}.json") for minor in ("1.36", "1.37", "1.35"))


class FieldEntry(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One field of a type.

    ``type`` is in Go's notation: ``string``, ``int64``, ``[]V1Container``, ``map[string]Quantity``, ``any``,
    ``struct{}``. ``number`` is the protobuf field number, preceded by those of the embedded structs that contain the
    field; it is empty for a field that exists in JSON only. ``pointer`` and ``omit`` describe the Go field: a zero
    value is written unless it is omitted as ``empty`` (omitempty, which does not apply to structs) or as ``zero``
    (omitzero). ``definition`` is the name in OpenAPI of a type without fields, which ``type`` does not name.
    """

    name: str
    type: str
    number: tuple[int, ...] = ()
    pointer: bool = False
    omit: Literal["", "empty", "zero"] = ""
    required: bool = False
    list_type: str = ""
    list_map_keys: tuple[str, ...] = ()
    patch_merge_key: str = ""
    patch_strategy: str = ""
    map_type: str = ""
    definition: str = ""
    description: str = ""


class TypeEntry(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One type. ``definition`` is its name in OpenAPI, ``api_versions`` those of a kind (``*`` for all)."""

    definition: str
    fields: tuple[FieldEntry, ...]
    description: str = ""
    map_type: str = ""
    api_versions: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The Go name: ``PodSpec``."""
        return self.definition.rpartition(".")[2]


class _Table(msgspec.Struct):
    types: dict[str, msgspec.Raw]
    values: dict[str, msgspec.Raw]
    #: Fields of types in another file.
    fields: dict[str, tuple[FieldEntry, ...]] = {}


@cache
def type_entry(model: str) -> TypeEntry:
    """The type that generated clients call ``model`` (``V1PodSpec``). Raises KeyError when the table has none."""
    entry = msgspec.json.decode(_types()[model], type=TypeEntry)
    fields = _tables().fields.get(model)
    return msgspec.structs.replace(entry, fields=(*entry.fields, *fields)) if fields else entry


def has_protobuf(model: str) -> bool:
    """Whether the objects of a model have a protobuf encoding; those of custom resources (an empty name) have none."""
    return bool(model) and any(field.number for field in type_entry(model).fields)


def model_names() -> list[str]:
    return list(_types())


def value_schema(definition: str) -> dict[str, Any]:
    """The OpenAPI schema of a definition without fields, such as Quantity. Raises KeyError when the table has none."""
    schema: dict[str, Any] = msgspec.json.decode(_tables().values[definition])
    return schema


@cache
def model_for(api_version: str, kind: str) -> str:
    """The model of a kind; the first with that name when ``api_version`` has no such kind. Raises KeyError."""
    entries = {model: type_entry(model) for model in _types() if model.endswith(kind)}
    by_version = {version: model for model, one in entries.items() if one.name == kind for version in one.api_versions}
    if not by_version:
        raise KeyError(kind)
    return by_version.get(api_version) or next(iter(by_version.values()))


def _types() -> dict[str, msgspec.Raw]:
    return _tables().types


@cache
def _tables() -> _Table:
    """All files as one table."""
    all_ = _Table({}, {})
    for file in _FILES:
        table = msgspec.json.decode(file.read_bytes(), type=_Table)
        all_.types |= table.types
        all_.values |= table.values
        all_.fields |= table.fields
    all_.types |= dict(_v1alpha3_types(all_.types))
    return all_


def _v1alpha3_types(types: Mapping[str, msgspec.Raw]) -> Iterator[tuple[str, msgspec.Raw]]:
    """The types of the kinds in resource.k8s.io/v1alpha3, which the packages no longer contain.

    They are those of v1beta1, also with fields that came after v1alpha3. The value of a capacity is a quantity. Device
    taint rules are those of v1beta2, without the device class and the selectors of 1.33 and 1.34.
    """
    for model, raw in types.items():
        if model.startswith(_RULES):
            renamed = bytes(raw).replace(b"v1beta2", b"v1alpha3").replace(b"V1beta2", b"V1alpha3")
            yield model.replace("V1beta2", "V1alpha3"), msgspec.Raw(renamed)
        if model.startswith("V1beta1") and _V1BETA1 in bytes(raw):
            renamed = bytes(raw).replace(b"v1beta1", b"v1alpha3").replace(b"V1beta1", b"V1alpha3")
            renamed = renamed.replace(b'"map[string]V1alpha3DeviceCapacity"', b'"map[string]Quantity"')
            yield model.replace("V1beta1", "V1alpha3"), msgspec.Raw(renamed)
