"""The recordings of a real kube-apiserver: reading them, and comparing answers but for what differs from run to run."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from kubestow.devcluster.apiserver.schema import struct_of
from kubestow.devcluster.apiserver.schema.table import model_of
from kubestow.devcluster.apiserver.serialization import protobuf

__all__ = ["Event", "Exchange", "alike", "folder", "metadatas", "name_of", "printed", "scenario", "without_heartbeats"]

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_YAML_VERSION = re.compile(r'resourceVersion: "\d+"')
_SUFFIX = re.compile(r"\bgen-[a-z0-9]{5}\b")
_AGE = re.compile(r"\d+[smhdy](\d+[smhdy])?")
_HASH = re.compile(r"\?hash=[0-9A-F]+")

Event = dict[str, Any]


def folder() -> Path | None:
    """Where the recordings are: ``KUBESTOW_WIRE``, or ``../shared/wire`` beside the project."""
    named = os.environ.get("KUBESTOW_WIRE")
    root = Path(__file__).resolve().parents[2]
    candidates = [Path(named)] if named else [root.parent / "shared" / "wire", root.parent.parent / "shared" / "wire"]
    return next((path for path in candidates if path.is_dir()), None)


@dataclass
class Exchange:
    """One request and what the real server answered. ``events`` is a watch's, None for all else."""

    scenario: str
    number: int
    note: str
    user: str
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    status: int
    answer: Any
    answer_headers: dict[str, str]
    events: list[Event] | None
    #: Seconds after which the events came, in the same order.
    delays: list[float]
    #: How a stream ended: "server" where it timed out by itself.
    end: str
    #: Whether only a part of the answer was kept, or it is in protobuf that cannot be read back.
    partial: bool

    def __str__(self) -> str:
        return f"{self.scenario} #{self.number} {self.method} {self.path}: {self.note}"


def scenario(name: str) -> list[Exchange]:
    where = folder()
    assert where is not None
    return [_exchange(name, msgspec.json.decode(line)) for line in _lines(where / f"{name}.jsonl")]


def printed() -> dict[str, dict[str, str]]:
    """What kubectl printed, in the order in which it was called: by scenario its ``command`` and ``output``."""
    where = folder()
    if where is None:
        return {}
    found: dict[str, dict[str, str]] = msgspec.json.decode((where / "kubectl-output.json").read_bytes())
    return found


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def _exchange(name: str, one: dict[str, Any]) -> Exchange:
    body = one.get("reqText", "").encode()
    if "reqBase64" in one:
        body = base64.b64decode(one["reqBase64"])
    if "reqBody" in one:
        body = msgspec.json.encode(one["reqBody"])
    answer, partial = _answer(one)
    if "/watch/" in one["path"]:
        # The old form of a watch, of which one event is a whole JSON body.
        one |= {"respStream": [{"ms": 0, "event": answer}], "end": "server"}
    return Exchange(
        name,
        one["n"],
        one.get("note", ""),
        one["user"],
        one["method"],
        one["path"],
        one.get("reqHeaders", {}),
        body,
        one["status"],
        answer,
        one.get("respHeaders", {}),
        [event["event"] for event in one["respStream"]] if "respStream" in one else None,
        [event["ms"] / 1000 for event in one.get("respStream", ())],
        one.get("end", ""),
        partial,
    )


def _answer(one: dict[str, Any]) -> tuple[Any, bool]:
    """The recorded body as JSON or text, and whether it is only a part of what was answered."""
    trimmed = "respTrimmed" in one
    media_type = one.get("respHeaders", {}).get("Content-Type", "")
    if media_type.startswith(protobuf.MEDIA_TYPE):
        raw = base64.b64decode(one["respBase64"]) if "respBase64" in one else one.get("respText", "").encode()
        try:
            return _without_zeros(protobuf.decode(raw)), trimmed
        except (protobuf.Unserved, protobuf.NotProtobuf, protobuf.Malformed):
            return None, True
    return one.get("respBody", one.get("respText")), trimmed


def _without_zeros(whole: dict[str, Any]) -> dict[str, Any]:
    """What JSON would have said: protobuf writes many zero values."""
    kept = struct_of(model_of(whole["apiVersion"], whole["kind"])).read(whole, [])
    return {**kept, "metadata": {key: value for key, value in kept["metadata"].items() if value}}


def name_of(answer: Any) -> str:
    metadata = answer.get("metadata") if isinstance(answer, dict) else None
    return metadata.get("name", "") if isinstance(metadata, dict) else ""


def alike(value: Any) -> Any:
    """A body without what differs from run to run: uids, times, versions, ages, generated names."""
    if isinstance(value, dict):
        if value.get("type") == "BOOKMARK" and "object" in value:
            value = {**value, "object": {key: value["object"].get(key) for key in ("kind", "apiVersion", "metadata")}}
        return {
            _text(key): "<version>" if key in ("resourceVersion", "continue") else alike(_unordered(key, item))
            for key, item in value.items()
            if key != "description"
        }
    if isinstance(value, list):
        return [alike(item) for item in value]
    if isinstance(value, str):
        return "<age>" if _AGE.fullmatch(value) else _text(value)
    return value


def _unordered(key: str, item: Any) -> Any:
    """Managers stand in the order of their times, which are not ours."""
    if key != "managedFields" or not isinstance(item, list):
        return item
    return sorted(item, key=lambda entry: (entry["operation"], entry["manager"], entry.get("subresource", "")))


def _text(text: str) -> str:
    text = _HASH.sub("?hash=<hash>", _YAML_VERSION.sub('resourceVersion: "<version>"', text))
    return _SUFFIX.sub("gen-<suffix>", _UID.sub("<uid>", _TIME.sub("<time>", text)))


def without_heartbeats(events: list[Event]) -> list[Event]:
    """Without the bookmarks that only time brings, which is not ours; the one that ends the beginning stays."""
    return [one for one in events if one["type"] != "BOOKMARK" or "k8s.io/initial-events-end" in str(one)]


def metadatas(value: Any) -> Iterator[dict[str, Any]]:
    """Every ``metadata`` anywhere in a body."""
    if isinstance(value, dict):
        if isinstance(value.get("metadata"), dict):
            yield value["metadata"]
        for item in value.values():
            yield from metadatas(item)
    elif isinstance(value, list):
        for item in value:
            yield from metadatas(item)
