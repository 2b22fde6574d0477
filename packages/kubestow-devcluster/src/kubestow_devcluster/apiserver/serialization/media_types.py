"""Media types: negotiation of the form of a response from the Accept header, and decoding of request bodies.

Bodies in JSON, YAML and protobuf become plain objects, with kube-apiserver's error messages.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence, Set
from enum import Enum
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import yaml

from kubestow.api.formats.yaml_documents import YAMLDocument, yaml_documents
from kubestow.errors import InputError
from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.serialization import protobuf

JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
#: The media types that error messages list; custom resources have no protobuf encoding.
SUPPORTED_MEDIA_TYPES = f"{JSON}, {YAML}, {PROTOBUF}"
_REPRESENTATIONS = f"{SUPPORTED_MEDIA_TYPES}, {JSON};stream=watch, {PROTOBUF};stream=watch"


class ResponseForm(Enum):
    """What objects are converted to before encoding (``as=`` in the Accept header)."""

    NONE = ""
    PARTIAL_OBJECT_METADATA = "PartialObjectMetadata"
    TABLE = "Table"


_CONVERSIONS = {
    "Table": ResponseForm.TABLE,
    "PartialObjectMetadata": ResponseForm.PARTIAL_OBJECT_METADATA,
    "PartialObjectMetadataList": ResponseForm.PARTIAL_OBJECT_METADATA,
}


class MediaTypeOptions(NamedTuple):
    """The negotiated media type (JSON, YAML or protobuf), and the conversion with its version of meta.k8s.io."""

    conversion: ResponseForm
    media_type: str
    version: str = "v1"


@lru_cache(maxsize=256)
def negotiate_output_media_type(accept: str, *, has_protobuf: bool, has_conversions: bool = True) -> MediaTypeOptions:
    """The first clause of the header that the server supports. Raises a 406 StatusError without any.

    ``has_protobuf`` says whether the kind has a protobuf encoding, ``has_conversions`` whether it has Tables and
    PartialObjectMetadata. Tables have no protobuf encoding.
    """
    has_conversion = False
    supported = (JSON, YAML, PROTOBUF) if has_protobuf else (JSON, YAML)
    for clause in accept.split(",") if accept else ["*/*"]:
        media_type, *parameters = (part.strip() for part in clause.split(";"))
        if media_type in ("*/*", "application/*"):
            media_type = JSON
        if media_type not in supported:
            continue
        options = dict(parameter.split("=", 1) for parameter in parameters if "=" in parameter)
        if "as" not in options:
            return MediaTypeOptions(ResponseForm.NONE, media_type)
        has_conversion = True
        conversion = _CONVERSIONS.get(options["as"])
        if not has_conversions or (conversion is ResponseForm.TABLE and media_type == PROTOBUF):
            continue
        version = options.get("v", "v1")
        if conversion and options.get("g", "meta.k8s.io") == "meta.k8s.io" and version in ("v1", "v1beta1"):
            return MediaTypeOptions(conversion, media_type, version)
    if has_conversion or not has_protobuf:
        raise statuses.not_acceptable(f"only the following media types are accepted: {', '.join(supported)}")
    message = f"406: Not Acceptable\n\nAvailable representations: {_REPRESENTATIONS}"
    raise statuses.not_acceptable(message, with_details=True)


_APPLY_YAML = "application/apply-patch+yaml"
#: Bytes of the largest YAML body. Parsing YAML blocks the event loop.
_MAX_YAML = 1024 * 1024


def decode_body(body: bytes, content_type: str, *, expected: str, has_protobuf: bool = True) -> dict[str, Any]:
    """The object in a request body. Raises a 400 or 415 StatusError, which names the ``expected`` kind.

    ``has_protobuf`` says whether that kind has a protobuf encoding.
    """
    media_type = content_type.partition(";")[0].strip() or JSON
    if media_type == JSON:
        value = _decode_json(body, expected)
    elif media_type in (YAML, _APPLY_YAML):
        value = _decode_yaml(body, expected)
    elif media_type == PROTOBUF and has_protobuf:
        value = _decode_protobuf(body, expected)
    else:
        raise _unknown_format(SUPPORTED_MEDIA_TYPES if has_protobuf else f"{JSON}, {YAML}")
    if not isinstance(value, dict):
        problem = f"json: cannot unmarshal {_json_type(value)} into Go value of type struct"
        raise _unrecognized(expected, f"json parse error: {problem}", body)
    return value


def field_problems(body: bytes, content_type: str, unknown: Sequence[str]) -> list[str]:
    """The problems of duplicate and ``unknown`` fields, in the order of a well-formed body.

    Raises a 400 StatusError for a body that is nested too deeply for it.
    """
    media_type = content_type.partition(";")[0].strip() or JSON
    if media_type == YAML and (duplicates := yaml_duplicates(body)):
        return [duplicates, *(f'unknown field "{path}"' for path in unknown)]
    found: dict[str, None] = {}
    if media_type in (JSON, YAML) and _is_json_object(body):
        try:
            _find_problems(json.loads(body, object_pairs_hook=_Members, parse_int=str), "", frozenset(unknown), found)
        except RecursionError:
            raise statuses.bad_request("json parse error: exceeded max depth") from None
    return list(found | dict.fromkeys(f'unknown field "{path}"' for path in unknown))


def yaml_duplicates(body: bytes) -> str:
    """The error about duplicate keys in a well-formed body in YAML that is not JSON; empty without any."""
    lines: list[str] = []
    if not _is_json_object(body):
        for document in _yaml_documents(body):
            _find_yaml_duplicates(document.node, lines)
    return "\n".join(["yaml: unmarshal errors:", *lines]) if lines else ""


def _is_json_object(body: bytes) -> bool:
    """Whether a well-formed body is an object in JSON: in YAML, an object can begin with a brace, too."""
    if body.lstrip()[:1] != b"{":
        return False
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    except RecursionError:
        return True  # YAML ends at a fraction of that depth
    return True


def _yaml_documents(body: bytes) -> list[YAMLDocument]:
    """The only document of a body, if it has one. Raises InputError."""
    documents = list(yaml_documents(body, "body", max_expansion=_MAX_YAML))
    if len(documents) > 1:
        raise InputError("body", "expected a single document in the stream", place=f"line {documents[1].line}")
    return documents


def _find_yaml_duplicates(node: yaml.Node, found: list[str]) -> None:
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if key.value in seen:
                found.append(f'  line {key.start_mark.line + 1}: key "{key.value}" already set in map')
            seen.add(key.value)
            _find_yaml_duplicates(value, found)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _find_yaml_duplicates(item, found)


class _Members(list[tuple[str, Any]]):
    """The members of a JSON object in order, including duplicates."""


def _find_problems(value: Any, path: str, unknown: Set[str], found: dict[str, None]) -> None:
    if isinstance(value, _Members):
        seen: set[str] = set()
        for name, member in value:
            member_path = f"{path}.{name}" if path else name
            if name in seen:
                found[f'duplicate field "{member_path}"'] = None
            elif member_path in unknown:
                found[f'unknown field "{member_path}"'] = None
            seen.add(name)
            _find_problems(member, member_path, unknown, found)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _find_problems(item, f"{path}[{index}]", unknown, found)


def _decode_json(body: bytes, expected: str) -> Any:
    try:
        return msgspec.json.decode(body)
    except RecursionError:
        raise _unrecognized(expected, "json parse error: exceeded max depth", body) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        is_truncated = not body.strip() or "truncated" in str(error)
        problem = "unexpected end of JSON input" if is_truncated else str(error)
        raise _unrecognized(expected, f"json parse error: {problem}", body) from None


def _decode_yaml(body: bytes, expected: str) -> Any:
    if body.lstrip()[:1] == b"{":
        # kubectl apply sends JSON as YAML; the JSON decoder is hundreds of times as fast.
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return msgspec.json.decode(body)
    if len(body) > _MAX_YAML:
        raise statuses.too_large(_MAX_YAML)
    try:
        documents = _yaml_documents(body)
        value = documents[0].data if documents else None
        # The round trip turns keys into strings and rejects values that JSON does not have.
        return {} if value is None else msgspec.json.decode(msgspec.json.encode(value))
    except (InputError, RecursionError, TypeError, ValueError) as error:
        problem = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, InputError):
            problem = ": ".join(filter(None, (error.place, error.problem.removeprefix("invalid YAML: "))))
        raise _unrecognized(expected, f"yaml: {problem}", body) from None


def _decode_protobuf(body: bytes, expected: str) -> Any:
    try:
        return protobuf.decode(body)
    except protobuf.NotProtobuf as problem:
        dump = f"{body[:30].hex()} ..." if len(body) > 30 else body.hex() or "<empty>"
        message = f"the object provided is unrecognized (must be of type {expected}): {problem} ({dump})"
        raise statuses.bad_request(message) from None
    except protobuf.UnsupportedKind:
        raise _unknown_format(f"{JSON}, {YAML}") from None
    except protobuf.InvalidMessage as invalid:
        version = invalid.api_version.rpartition("/")[2]
        raise statuses.bad_request(
            f'{invalid.kind} in version "{version}" cannot be handled as a {expected}: {invalid}'
        ) from None


def _unknown_format(accepted: str) -> statuses.StatusError:
    return statuses.unsupported_media_type(
        f"the body of the request was in an unknown format - accepted media types include: {accepted}"
    )


def _unrecognized(expected: str, problem: str, body: bytes) -> statuses.StatusError:
    text = body.decode("utf-8", "replace")
    excerpt = "<empty>" if not text else text if len(text) <= 30 else f"{text[:30]} ..."
    problem = f"couldn't get version/kind; {problem} ({excerpt})"
    return statuses.bad_request(f"the object provided is unrecognized (must be of type {expected}): {problem}")


def _json_type(value: object) -> str:
    return {list: "array", str: "string", int: "number", float: "number", bool: "bool"}.get(type(value), "null")
