"""The recordings of a real kube-apiserver, and playing them against ours.

A scenario is a file of exchanges. Requests name uids, versions and continue tokens of the recorded server; while
playing, what our server answered in their place is learnt from each pair of answers and put into later requests.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from kubestow.apiserver import Server
from kubestow.apiserver.messages import Answer, Request, Stream

__all__ = ["Exchange", "Player", "alike", "folder", "scenario"]

_NAMED = ("uid", "resourceVersion", "continue", "creationTimestamp")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_YAML_VERSION = re.compile(r'resourceVersion: "\d+"')
_SUFFIX = re.compile(r"\bgen-[a-z0-9]{5}\b")
_AGE = re.compile(r"\d+[smhdy](\d+[smhdy])?")


def folder() -> Path | None:
    """Where the recordings are: ``KUBESTOW_WIRE``, or ``../shared/wire`` beside the project."""
    named = os.environ.get("KUBESTOW_WIRE")
    root = Path(__file__).resolve().parents[2]
    candidates = [Path(named)] if named else [root.parent / "shared" / "wire", root.parent.parent / "shared" / "wire"]
    return next((path for path in candidates if path.is_dir()), None)


@dataclass
class Exchange:
    number: int
    note: str
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    status: int
    answer: Any
    answer_headers: dict[str, str]
    stream: list[Any] | None
    user: str
    #: How a stream ended: "server" where it timed out by itself.
    end: str


def scenario(name: str) -> Iterator[Exchange]:
    where = folder()
    assert where is not None
    for line in (where / f"{name}.jsonl").read_text().splitlines():
        one = msgspec.json.decode(line)
        body = one.get("reqText", "").encode()
        if "reqBody" in one:
            body = msgspec.json.encode(one["reqBody"])
        stream = [event["event"] for event in one["respStream"]] if "respStream" in one else None
        yield Exchange(
            one["n"],
            one.get("note", ""),
            one["method"],
            one["path"],
            one.get("reqHeaders", {}),
            body,
            one["status"],
            one.get("respBody", one.get("respText")),
            one.get("respHeaders", {}),
            stream,
            one["user"],
            one.get("end", ""),
        )


@dataclass
class Player:
    """Plays requests and learns how our answers name what the recorded ones named otherwise."""

    server: Server
    learnt: dict[str, str] = field(default_factory=dict)

    def seed(self, exchanges: list[Exchange]) -> None:
        """Store what the recorded requests found there: objects of streams, of answers to GET, of bodies of PUT."""
        made = {(one.path, _name(one.answer)) for one in exchanges if one.method == "POST" and one.status == 201}
        created = {name for _, name in made if name}
        for one in exchanges:
            found = [event["object"] for event in one.stream or () if event["type"] == "ADDED"]
            if one.method == "GET" and one.status == 200 and _name(one.answer):
                found.append(one.answer)
            if one.method == "PUT" and one.status == 200:
                found.append(msgspec.json.decode(one.body))
            for seen in found:
                if _name(seen) not in created:
                    self._store(seen)

    def _store(self, recorded: dict[str, Any]) -> None:
        registry = self.server.registry
        group, _, version = recorded["apiVersion"].rpartition("/")
        kinds = [kind for kind in registry.catalog.served(group, version) if kind.name == recorded["kind"]]
        if not kinds:
            return
        new = kinds[0].struct.read(recorded, [])
        metadata = new["metadata"]
        new = {field: value for field, value in new.items() if field not in ("kind", "apiVersion")}
        if self.server.store.collection(kinds[0].storage).get(
            kinds[0].key(metadata.get("namespace", ""), metadata["name"])
        ):
            return
        version_there = metadata.get("resourceVersion", "")
        registry.commit(kinds[0], new)
        self.learnt.setdefault(version_there, new["metadata"]["resourceVersion"])

    def recognise(self, exchanges: list[Exchange]) -> None:
        """Learn the uids that objects made beforehand have in the recording, from wherever they are first named."""
        ours = {}
        for stored in self.server.store.collection("pods").snapshot():
            ours[stored.name] = msgspec.json.decode(stored.data)["metadata"]["uid"]
        for exchange in exchanges:
            for metadata in _metadatas(exchange.answer):
                if metadata.get("name") in ours and "uid" in metadata:
                    self.learnt.setdefault(metadata["uid"], ours[metadata["name"]])

    async def play(self, exchange: Exchange) -> tuple[int, Any, dict[str, str]]:
        body, path = self._translate(exchange.body.decode("utf-8", "replace")), self._translate(exchange.path)
        route, _, query = path.partition("?")
        request = Request(
            method=exchange.method,
            path=route,
            query=dict(parse_qsl(query, keep_blank_values=True)),
            accept=exchange.headers.get("Accept", ""),
            content_type=exchange.headers.get("Content-Type", ""),
            user_agent=exchange.headers.get("User-Agent", ""),
            body=body.encode(),
        )
        result = await self.server.api.handle(request)
        if isinstance(result, Stream):
            return 200, [msgspec.json.decode(line) async for part in result.events for line in part.splitlines()], {}
        assert isinstance(result, Answer)
        content = result.body if isinstance(result.body, bytes) else b"".join(result.body)
        try:
            answer = msgspec.json.decode(content) if content else None
        except msgspec.DecodeError:
            answer = content.decode()
        self.learn(exchange.answer, answer)
        return result.status, answer, result.headers

    def learn(self, recorded: Any, ours: Any) -> None:
        if isinstance(recorded, dict) and isinstance(ours, dict):
            for key in recorded.keys() & ours.keys():
                here, there = recorded[key], ours[key]
                if key in _NAMED and isinstance(here, str) and isinstance(there, str):
                    self.learnt.setdefault(here, there)
                else:
                    self.learn(here, there)
        elif isinstance(recorded, list) and isinstance(ours, list):
            for here, there in zip(recorded, ours, strict=False):
                self.learn(here, there)

    def _translate(self, text: str) -> str:
        for here, there in self.learnt.items():
            if not here:
                continue
            if len(here) > 8:
                text = text.replace(here, there)
            elif here != there:
                text = re.sub(rf'("resourceVersion": ?"|resourceVersion=){here}(?!\d)', rf"\g<1>{there}", text)
        return text


def _name(answer: Any) -> str:
    metadata = answer.get("metadata") if isinstance(answer, dict) else None
    return metadata.get("name", "") if isinstance(metadata, dict) else ""


def _metadatas(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if isinstance(value.get("metadata"), dict):
            yield value["metadata"]
        for item in value.values():
            yield from _metadatas(item)
    elif isinstance(value, list):
        for item in value:
            yield from _metadatas(item)


def alike(value: Any) -> Any:
    """A body without what differs from run to run: uids, times, versions, ages, generated names."""
    if isinstance(value, dict):
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
    text = _YAML_VERSION.sub('resourceVersion: "<version>"', text)
    return _SUFFIX.sub("gen-<suffix>", _UID.sub("<uid>", _TIME.sub("<time>", text)))
