"""What a client wants back, from its Accept header, and what it sent, from its Content-Type."""

from __future__ import annotations

import contextlib
import json
from enum import Enum
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import msgspec
import yaml

from kubestow.devcluster.apiserver import statuses
from kubestow.devcluster.apiserver.serialization import protobuf

__all__ = ["Form", "Representation", "YAMLLoader", "accepted", "decode", "repeated_fields"]

_OFFERED = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
_EVERY_OFFER = f"{_OFFERED}, application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
_JSON, _YAML = "application/json", "application/yaml"
#: Largest body, in bytes, that is read as YAML: everybody else waits meanwhile.
_MAX_YAML = 1024 * 1024
#: Collections inside one another that a YAML body may have.
_MAX_DEPTH = 200


class Form(Enum):
    """How objects are shown: whole, metadata only, or as rows for people."""

    OBJECT = "object"
    METADATA = "PartialObjectMetadata"
    TABLE = "Table"


class Representation(NamedTuple):
    form: Form
    media_type: str

    @property
    def is_yaml(self) -> bool:
        return self.media_type == _YAML


_FORMS = {"Table": Form.TABLE, "PartialObjectMetadata": Form.METADATA, "PartialObjectMetadataList": Form.METADATA}


@lru_cache(maxsize=256)
def accepted(accept: str) -> Representation:
    """The first representation in the header that the server offers. Raises a 406 Failure when there is none."""
    asked_for_conversion = False
    for clause in accept.split(",") if accept else ["*/*"]:
        media_type, *parameters = (part.strip() for part in clause.split(";"))
        if media_type in ("*/*", "application/*"):
            media_type = _JSON
        if media_type not in (_JSON, _YAML):
            continue
        options = dict(parameter.split("=", 1) for parameter in parameters if "=" in parameter)
        if "as" not in options:
            return Representation(Form.OBJECT, media_type)
        asked_for_conversion = True
        form = _FORMS.get(options["as"])
        if form and options.get("g", "meta.k8s.io") == "meta.k8s.io" and options.get("v", "v1") == "v1":
            return Representation(form, media_type)
    if asked_for_conversion:
        raise statuses.not_acceptable(f"only the following media types are accepted: {_OFFERED}")
    raise statuses.not_acceptable(
        f"406: Not Acceptable\n\nAvailable representations: {_EVERY_OFFER}", with_details=True
    )


def decode(body: bytes, content_type: str, *, expected: str) -> dict[str, Any]:
    """A request body as an object. ``expected`` is the kind named in refusals. Raises a 400 or 415 Failure."""
    media_type = content_type.partition(";")[0].strip() or _JSON
    if media_type == _JSON:
        value = _decode_json(body, expected)
    elif media_type in (_YAML, "application/apply-patch+yaml"):
        value = _decode_yaml(body, expected)
    elif media_type == protobuf.MEDIA_TYPE:
        value = _decode_protobuf(body, expected)
    else:
        raise _unknown_format(_OFFERED)
    if not isinstance(value, dict):
        problem = f"json: cannot unmarshal {_json_name(value)} into Go value of type struct"
        raise _unrecognized(expected, f"json parse error: {problem}", body)
    return value


def repeated_fields(body: bytes, content_type: str) -> list[str]:
    """The paths of fields that a JSON body, known to be well-formed, gives more than once."""
    if (content_type.partition(";")[0].strip() or _JSON) != _JSON:
        return []
    found: list[str] = []
    _find_repeated(json.loads(body, object_pairs_hook=_Pairs, parse_int=str), "", found)
    return found


class _Pairs(list[tuple[str, Any]]):
    """An object as its members in order, repeated ones too."""


def _find_repeated(value: Any, path: str, found: list[str]) -> None:
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for name, inner in value:
            place = f"{path}.{name}" if path else name
            if name in seen and place not in found:
                found.append(place)
            seen.add(name)
            _find_repeated(inner, place, found)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            _find_repeated(inner, f"{path}[{index}]", found)


def _decode_json(body: bytes, expected: str) -> Any:
    try:
        return msgspec.json.decode(body)
    except RecursionError:
        raise _unrecognized(expected, "json parse error: exceeded max depth", body) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        truncated = not body.strip() or "truncated" in str(error)
        problem = "unexpected end of JSON input" if truncated else str(error)
        raise _unrecognized(expected, f"json parse error: {problem}", body) from None


def _decode_yaml(body: bytes, expected: str) -> Any:
    if body.lstrip()[:1] == b"{":
        # JSON is YAML, and what kubectl applies with is; it is read hundreds of times as fast.
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return msgspec.json.decode(body)
    if len(body) > _MAX_YAML:
        raise statuses.too_large(_MAX_YAML)
    try:
        _check_structure(body)
        value = yaml.load(body, Loader=YAMLLoader)
        # By way of JSON, keys become strings and what JSON cannot say is found out.
        return {} if value is None else msgspec.json.decode(msgspec.json.encode(value))
    except (yaml.YAMLError, RecursionError, TypeError, ValueError) as error:
        problem = " ".join(str(error).split()) or type(error).__name__
        raise _unrecognized(expected, f"yaml: {problem}", body) from None


def _decode_protobuf(body: bytes, expected: str) -> Any:
    try:
        return protobuf.decode(body)
    except protobuf.NotProtobuf as problem:
        shown = f"{body[:30].hex()} ..." if len(body) > 30 else body.hex() or "<empty>"
        message = f"the object provided is unrecognized (must be of type {expected}): {problem} ({shown})"
        raise statuses.bad_request(message) from None
    except protobuf.Unserved:
        raise _unknown_format(f"{_JSON}, {_YAML}") from None
    except protobuf.Malformed as malformed:
        version = malformed.api_version.rpartition("/")[2]
        raise statuses.bad_request(
            f'{malformed.kind} in version "{version}" cannot be handled as a {expected}: {malformed}'
        ) from None


def _unknown_format(accepted: str) -> statuses.StatusError:
    return statuses.unsupported_media_type(
        f"the body of the request was in an unknown format - accepted media types include: {accepted}"
    )


def _check_structure(body: bytes) -> None:
    """Refuse what a small body could do great harm with: aliases that multiply, nesting without end."""
    if body.count(b"[") + body.count(b"{") + body.count(b"- ") < _MAX_DEPTH and not (b"&" in body and b"*" in body):
        return
    depth = 0
    for event in yaml.parse(body, Loader=YAMLLoader):
        if isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not supported")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _MAX_DEPTH:
                raise yaml.YAMLError("exceeded max depth")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


class YAMLLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML as Kubernetes reads it: a timestamp is a string."""

    yaml_implicit_resolvers: ClassVar = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def _unrecognized(expected: str, problem: str, body: bytes) -> statuses.StatusError:
    text = body.decode("utf-8", "replace")
    shown = "<empty>" if not text else text if len(text) <= 30 else f"{text[:30]} ..."
    found = f"couldn't get version/kind; {problem} ({shown})"
    return statuses.bad_request(f"the object provided is unrecognized (must be of type {expected}): {found}")


def _json_name(value: object) -> str:
    return {list: "array", str: "string", int: "number", float: "number", bool: "bool"}.get(type(value), "null")
