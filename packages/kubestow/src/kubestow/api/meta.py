"""Object metadata, label selectors, and the decoding of Kubernetes objects.

JSON is decoded into frozen msgspec Structs with only the fields that scheduling reads; all others are skipped. An
object is therefore never written back as a whole (see :mod:`kubestow.scheduling.interfaces`). Kubernetes decodes
``null`` as the zero value of a field, and takes JSON that msgspec does not (:mod:`kubestow.api.json_text`), so an
object that fails to decode is decoded a second time without its nulls, from text that is readable.
"""

from __future__ import annotations

from datetime import datetime
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import msgspec

from kubestow.api.json_text import UNDECODABLE, parse_json
from kubestow.errors import InvalidObject

T = TypeVar("T")

Time = Annotated[datetime, msgspec.Meta(tz=True)]
"""A ``metav1.Time``: RFC 3339, which always has a time zone."""


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
        """The controlling owner reference, if any."""
        return next((owner for owner in self.owner_references if owner.controller), None)


class LabelSelectorRequirement(APIObject, frozen=True):
    """``matchExpressions[]`` of a label selector."""

    key: str = ""
    operator: str = ""
    values: list[str] = []


class LabelSelector(APIObject, frozen=True):
    """A ``metav1.LabelSelector``; :func:`kubestow.api.selectors.compile_selector` compiles it."""

    match_labels: dict[str, str] = {}
    match_expressions: list[LabelSelectorRequirement] = []

    @property
    def label_keys(self) -> frozenset[str]:
        """The keys of the labels on which it depends whether this matches."""
        return frozenset(self.match_labels).union(expression.key for expression in self.match_expressions)


@cache
def json_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """The decoder of a type, made once."""
    return msgspec.json.Decoder(kind)


def invalid_object(error: msgspec.ValidationError) -> InvalidObject:
    """The error about a value of the wrong type, with the path of its field."""
    problem, _, path = str(error).partition(" - at `")
    return InvalidObject(problem, path=path.rstrip("`").removeprefix("$").lstrip("."))


def without_nulls(value: Any) -> Any:
    """JSON data without the fields and list items that are null, which mean the same as absent ones."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value if item is not None]
    return value


def decode(kind: type[T], data: bytes | msgspec.Raw) -> T:
    """Decode an object of a kind from JSON. Raises InvalidObject with the path of the invalid field."""
    try:
        decoded: T = json_decoder(kind).decode(data)  # type: ignore[arg-type]  # classes are hashable
        return decoded
    except UNDECODABLE:
        pass
    value = _parsed(data)
    try:
        return msgspec.convert(value, kind)  # the nulls of what is passed on as it is, such as parameters, stay
    except msgspec.ValidationError:
        return convert(kind, value)


def decode_partly(kind: type[T], data: bytes | msgspec.Raw) -> tuple[T, list[InvalidObject]]:
    """Decode an object without its fields of a wrong type, and say which these are.

    A field of a part, an item of a list and a value of a map are left out on their own. Raises InvalidObject if nothing
    is left: the JSON is invalid, or not an object.
    """
    problems: list[InvalidObject] = []
    kept = _readable_part(without_nulls(_parsed(data)), kind, "", problems)
    if kept is _UNREADABLE:
        raise problems[-1]
    return convert(kind, kept), problems


def _parsed(data: bytes | msgspec.Raw) -> Any:
    try:
        return parse_json(data)
    except UNDECODABLE as error:
        raise InvalidObject(f"invalid JSON: {error}") from None


_UNREADABLE = object()


def _readable_part(value: Any, kind: Any, path: str, problems: list[InvalidObject]) -> Any:
    """What of JSON data a type can be converted from; _UNREADABLE, and a problem, if there is nothing."""
    try:
        msgspec.convert(value, kind)
        return value
    except msgspec.ValidationError as error:
        problem = str(error).partition(" - at `")[0]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType) and len(arguments) == 2 and NoneType in arguments:
        return _readable_part(value, next(one for one in arguments if one is not NoneType), path, problems)
    if isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        types = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
        members = {
            name: _readable_part(item, types[name], f"{path}.{name}".lstrip("."), problems)
            for name, item in value.items()
            if name in types
        }
    elif isinstance(value, dict) and origin is dict:
        members = {
            name: _readable_part(item, arguments[1], f"{path}[{name}]", problems) for name, item in value.items()
        }
    elif isinstance(value, list) and origin is list:
        items = [_readable_part(item, arguments[0], f"{path}[{index}]", problems) for index, item in enumerate(value)]
        return [item for item in items if item is not _UNREADABLE]
    else:
        problems.append(InvalidObject(problem, path=path))
        return _UNREADABLE
    return {name: item for name, item in members.items() if item is not _UNREADABLE}


def convert(kind: type[T], value: Any) -> T:
    """Convert parsed JSON or YAML to an object of a kind. Raises InvalidObject like :func:`decode`."""
    try:
        return msgspec.convert(without_nulls(value), kind)
    except msgspec.ValidationError as error:
        raise invalid_object(error) from None
