"""What every Kubernetes object carries, and how objects are read.

Objects arrive as JSON and become frozen msgspec Structs holding only the fields that scheduling reads; everything else
is skipped at scan speed. Because an object is held in part, it is never written back whole (see
:mod:`kubestow.scheduling.ports`). Kubernetes reads ``null`` as the field's zero value; msgspec does not, so an object
that fails to decode is read once more with its nulls left out.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

import msgspec

from kubestow.errors import InvalidObject

__all__ = [
    "UNDECODABLE",
    "APIObject",
    "LabelSelector",
    "LabelSelectorRequirement",
    "ObjectMeta",
    "OwnerReference",
    "convert",
    "decode",
]

T = TypeVar("T")

UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises for bytes that are not what they should be: no JSON, the wrong shape, no UTF-8, or too deep."""


class APIObject(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False, forbid_unknown_fields=False
):
    """The base of all API structs: frozen, camelCase on the wire, unknown fields ignored."""


class OwnerReference(APIObject, frozen=True):
    """``metadata.ownerReferences[]``."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool = False


class ObjectMeta(APIObject, frozen=True):
    """``metadata`` as scheduling reads it."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[OwnerReference] = []
    finalizers: list[str] = []
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages this object, if one does."""
        return next((owner for owner in self.owner_references if owner.controller), None)


class LabelSelectorRequirement(APIObject, frozen=True):
    """``matchExpressions[]`` of a label selector."""

    key: str = ""
    operator: str = ""
    values: list[str] = []


class LabelSelector(APIObject, frozen=True):
    """A ``metav1.LabelSelector`` as written; :func:`kubestow.api.selectors.compile_selector` makes it usable."""

    match_labels: dict[str, str] = {}
    match_expressions: list[LabelSelectorRequirement] = []


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value if item is not None]
    return value


def decode(kind: type[T], data: bytes | msgspec.Raw) -> T:
    """Read one object of a kind from JSON. Raises InvalidObject with the path of the field that does not fit."""
    try:
        decoded: T = _decoder(kind).decode(data)  # type: ignore[arg-type]  # classes are hashable
        return decoded
    except msgspec.ValidationError:
        pass
    except UNDECODABLE as error:
        raise InvalidObject(f"not JSON: {error}") from None
    try:
        return convert(kind, msgspec.json.decode(data))
    except UNDECODABLE as error:
        raise InvalidObject(f"not JSON: {error}") from None


def convert(kind: type[T], value: Any) -> T:
    """Read one object of a kind from parsed JSON or YAML. Raises InvalidObject like :func:`decode`."""
    try:
        return msgspec.convert(_without_nulls(value), kind)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `")
        raise InvalidObject(problem, path=path.rstrip("`").removeprefix("$").lstrip(".")) from None
