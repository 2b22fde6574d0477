"""Reading recordings, and comparing responses apart from what differs between runs."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from core_tests.recordings import exchanges
from devcluster_tests.protobuf_bodies import decoded
from kubestow_devcluster.apiserver.schema.type_table import model_for
from kubestow_devcluster.apiserver.schema.types import struct_of
from kubestow_devcluster.apiserver.serialization.media_types import PROTOBUF

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_YAML_VERSION = re.compile(r'resourceVersion: "\d+"')
_SUFFIX = re.compile(r"\bgen-[a-z0-9]{5}\b")
_AGE = re.compile(r"\d+[smhdy](\d+[smhdy])?")
_HASH = re.compile(r"\?hash=[0-9A-F]+")

Event = dict[str, Any]


@dataclass
class RecordedRequest:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    user: str


@dataclass
class RecordedResponse:
    """``events`` are those of a watch, None for any other request; ``delays`` their times in seconds."""

    status: int
    headers: dict[str, str]
    body: Any
    #: Whether the recording has only a part of the body, or one in protobuf that cannot be decoded.
    is_partial: bool
    events: list[Event] | None
    delays: list[float]
    #: "server" when the server ended the watch.
    end: str


@dataclass
class Exchange:
    """One request and kube-apiserver's response, by scenario and number."""

    scenario: str
    number: int
    note: str
    request: RecordedRequest
    response: RecordedResponse

    def __str__(self) -> str:
        return f"{self.scenario} #{self.number} {self.request.method} {self.request.path}: {self.note}"


def scenario(name: str) -> list[Exchange]:
    return [_exchange(name, one) for one in exchanges(name)]


def _exchange(name: str, one: dict[str, Any]) -> Exchange:
    return Exchange(name, one["n"], one.get("note", ""), _request(one), _response(one))


def _request(one: dict[str, Any]) -> RecordedRequest:
    body = one.get("reqText", "").encode()
    if "reqBase64" in one:
        body = base64.b64decode(one["reqBase64"])
    if "reqBody" in one:
        body = msgspec.json.encode(one["reqBody"])
    return RecordedRequest(one["method"], one["path"], one.get("reqHeaders", {}), body, one["user"])


def _response(one: dict[str, Any]) -> RecordedResponse:
    body, is_partial = _body(one)
    if "/watch/" in one["path"]:
        # The response to a deprecated watch with one event is recorded as a JSON body.
        one |= {"respStream": [{"ms": 0, "event": body}], "end": "server"}
    return RecordedResponse(
        one["status"],
        one.get("respHeaders", {}),
        body,
        is_partial,
        [event["event"] for event in one["respStream"]] if "respStream" in one else None,
        [event["ms"] / 1000 for event in one.get("respStream", ())],
        one.get("end", ""),
    )


def _body(one: dict[str, Any]) -> tuple[Any, bool]:
    """The body as JSON or text, and whether it is only a part."""
    is_trimmed = "respTrimmed" in one
    media_type = one.get("respHeaders", {}).get("Content-Type", "")
    if media_type.startswith(PROTOBUF):
        raw = base64.b64decode(one["respBase64"]) if "respBase64" in one else one.get("respText", "").encode()
        return (None, True) if is_trimmed else (protobuf_object(raw), False)
    return one.get("respBody", one.get("respText")), is_trimmed


def protobuf_object(raw: bytes) -> Any:
    """The object or list in a protobuf body as JSON has it: protobuf writes many zero values."""
    obj = decoded(raw)
    if "items" in obj:
        # Items have no kind in JSON.
        items = [_without_zero_values(item) for item in obj["items"]]
        return {**obj, "items": [{k: v for k, v in one.items() if k not in ("kind", "apiVersion")} for one in items]}
    return _without_zero_values(obj)


def _without_zero_values(obj: dict[str, Any]) -> dict[str, Any]:
    read = struct_of(model_for(obj["apiVersion"], obj["kind"])).read(obj, [])
    return {**read, "metadata": {key: value for key, value in read["metadata"].items() if value}}


def name_of(body: Any) -> str:
    metadata = body.get("metadata") if isinstance(body, dict) else None
    return metadata.get("name", "") if isinstance(metadata, dict) else ""


def normalized(value: Any) -> Any:
    """A body without what differs between runs: uids, times, resourceVersions, ages, generated names."""
    if isinstance(value, dict):
        if value.get("type") == "BOOKMARK" and "object" in value:
            value = {**value, "object": {key: value["object"].get(key) for key in ("kind", "apiVersion", "metadata")}}
        return {
            _normalized_text(key): (
                "<version>" if key in ("resourceVersion", "continue") else normalized(_sorted_managed_fields(key, item))
            )
            for key, item in value.items()
            if key != "description"
        }
    if isinstance(value, list):
        return [normalized(item) for item in value]
    if isinstance(value, str):
        return "<age>" if _AGE.fullmatch(value) else _normalized_text(value)
    return value


def _sorted_managed_fields(key: str, item: Any) -> Any:
    """managedFields are ordered by time, which differs between runs."""
    if key != "managedFields" or not isinstance(item, list):
        return item
    return sorted(item, key=lambda entry: (entry["operation"], entry["manager"], entry.get("subresource", "")))


def _normalized_text(text: str) -> str:
    text = _HASH.sub("?hash=<hash>", _YAML_VERSION.sub('resourceVersion: "<version>"', text))
    return _SUFFIX.sub("gen-<suffix>", _UID.sub("<uid>", _TIME.sub("<time>", text)))


def without_bookmarks(events: list[Event]) -> list[Event]:
    """The events without periodic bookmarks; the bookmark that ends the initial events stays."""
    return [one for one in events if one["type"] != "BOOKMARK" or "k8s.io/initial-events-end" in str(one)]


def metadata_objects(value: Any) -> Iterator[dict[str, Any]]:
    """Every ``metadata`` in a body, at any depth."""
    if isinstance(value, dict):
        if isinstance(value.get("metadata"), dict):
            yield value["metadata"]
        for item in value.values():
            yield from metadata_objects(item)
    elif isinstance(value, list):
        for item in value:
            yield from metadata_objects(item)
