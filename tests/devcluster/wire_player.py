"""Playing recordings against our server.

A session is scenarios that followed each other on one server. Requests name uids, versions and continue tokens of the
recorded server; what ours answered in their place is learnt from each pair of answers and put into later requests.
What others did meanwhile was not recorded as requests, but watches saw it: their events are written in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from kubestow.devcluster.apiserver.requests import Request, Stream
from kubestow.devcluster.apiserver.resources import Kind
from kubestow.devcluster.cluster import DevCluster
from tests.devcluster.wire import Event, Exchange, metadatas, name_of, without_heartbeats

__all__ = ["Played", "Player"]

_NAMED = ("uid", "resourceVersion", "continue", "creationTimestamp")
_VERSION = re.compile(r'("resourceVersion": ?"|resourceVersion=)(\d+)')
#: Objects as people see them are none that could be written.
_SHOWN = ("Table", "PartialObjectMetadata")
#: Seconds in which a watch delivers what has happened already: ours, and the recorded ones.
_PATIENCE = 1.0
_AT_ONCE, _SOON = 0.1, 1.0


@dataclass
class Played:
    """Our answer to one exchange."""

    exchange: Exchange
    status: int
    answer: Any
    headers: dict[str, str]


@dataclass
class _Open:
    """A watch that goes on while other requests are played."""

    exchange: Exchange
    lines: list[Event]
    task: asyncio.Task[None]


@dataclass
class Player:
    server: DevCluster
    learnt: dict[str, str] = field(default_factory=dict)

    async def play(self, exchanges: Sequence[Exchange]) -> AsyncIterator[Played]:
        """Our answers in the order of the requests; those of watches that stayed open come last."""
        await asyncio.sleep(0)
        others = _Others(self, exchanges)
        others.found()
        self._recognise(exchanges)
        watches: list[_Open] = []
        try:
            for exchange in exchanges:
                others.write_before(exchange)
                if _is_open(exchange):
                    if not _is_middle(exchange):
                        watches.append(await self._open(exchange))
                else:
                    yield await self._ask(exchange)
            others.write_rest()
            for watch in watches:
                yield await self._close(watch)
        finally:
            for watch in watches:
                watch.task.cancel()

    async def _ask(self, exchange: Exchange) -> Played:
        result = await self.server.api.handle(self._request(exchange))
        if isinstance(result, Stream):
            lines = [msgspec.json.decode(line) async for part in result.events for line in part.splitlines()]
            return Played(exchange, 200, lines, {})
        content = result.body if isinstance(result.body, bytes) else b"".join(result.body)
        try:
            answer = msgspec.json.decode(content) if content and exchange.method != "HEAD" else None
        except msgspec.DecodeError:
            answer = content.decode()
        self.learn(exchange.answer, answer)
        self.learnt.setdefault(exchange.answer_headers.get("Etag", ""), result.headers.get("Etag", ""))
        return Played(exchange, result.status, answer, result.headers)

    async def _open(self, exchange: Exchange) -> _Open:
        result = await self.server.api.handle(self._request(exchange))
        assert isinstance(result, Stream), f"{exchange}: {result}"
        lines: list[Event] = []
        expected = len(without_heartbeats(exchange.events or []))

        async def read(stream: Stream) -> None:
            async for part in stream.events:
                lines.extend(msgspec.json.decode(line) for line in part.splitlines())
                if len(without_heartbeats(lines)) >= expected:
                    return

        watch = _Open(exchange, lines, asyncio.create_task(read(result)))
        await asyncio.sleep(0)
        return watch

    async def _close(self, watch: _Open) -> Played:
        """As much as the client of the recording saw before it went away."""
        if watch.exchange.events:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(watch.task, _PATIENCE)
        watch.task.cancel()
        seen = len(without_heartbeats(watch.exchange.events or []))
        return Played(watch.exchange, 200, without_heartbeats(watch.lines)[:seen], {})

    def _request(self, exchange: Exchange) -> Request:
        is_text = not exchange.headers.get("Content-Type", "").endswith("protobuf")
        body = self._translate(exchange.body.decode("utf-8", "replace")).encode() if is_text else exchange.body
        route, _, query = self._translate(exchange.path).partition("?")
        return Request(
            method=exchange.method,
            path=route,
            query=dict(parse_qsl(query, keep_blank_values=True)),
            accept=exchange.headers.get("Accept", ""),
            content_type=exchange.headers.get("Content-Type", ""),
            user_agent=exchange.headers.get("User-Agent", ""),
            if_none_match=self.learnt.get(exchange.headers.get("If-None-Match", ""), ""),
            host="127.0.0.1:6443",
            body=body,
        )

    def _recognise(self, exchanges: Sequence[Exchange]) -> None:
        """Learn the uids that objects made beforehand have in the recording, from wherever they are first named."""
        ours: dict[str, str] = {}
        for resource in self.server.store.counts():
            for stored in self.server.store.collection(resource).snapshot():
                ours.setdefault(stored.name, msgspec.json.decode(stored.data)["metadata"]["uid"])
        for exchange in exchanges:
            for metadata in metadatas(exchange.answer):
                if metadata.get("name") in ours and "uid" in metadata:
                    self.learnt.setdefault(metadata["uid"], ours[metadata["name"]])

    def learn(self, recorded: Any, ours: Any) -> None:
        if isinstance(recorded, dict) and isinstance(ours, dict):
            for key in [key for key in recorded if key in ours]:
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
            if len(here) > 8:
                text = text.replace(here, there)
        return _VERSION.sub(lambda found: found[1] + self._version(found[2]), text)

    def _version(self, recorded: str) -> str:
        """Our version at the moment of a recorded one: the newest that is known not to be later."""
        known = sorted(int(here) for here in self.learnt if here.isdigit())
        before = [version for version in known if version <= int(recorded)]
        is_known = before and int(recorded) <= known[-1]
        return self.learnt[str(before[-1])] if is_known else recorded


class _Others:
    """What was there before the first request, and what others wrote between the requests: known from watches."""

    def __init__(self, player: Player, exchanges: Sequence[Exchange]) -> None:
        self._player, self._exchanges = player, exchanges
        self._first: dict[int, Event] = {}
        self._later: dict[int, Event] = {}
        #: The versions that bindings led to, which their answers do not say.
        self._bindings: dict[str, int] = {}
        for exchange in exchanges:
            self._sort(exchange)
        for exchange in exchanges:
            if exchange.method != "GET" and exchange.status < 300:
                self._claim(exchange)

    def found(self) -> None:
        for version in sorted(self._first):
            self._write(self._first[version], beforehand=True)

    def write_before(self, exchange: Exchange) -> None:
        """All that others had written before this request, as far as its answer's version says."""
        upto = self._version_of(exchange)
        for version in sorted(self._later):
            if version < upto:
                self._write(self._later.pop(version))

    def write_rest(self) -> None:
        for version in sorted(self._later):
            self._write(self._later.pop(version))

    def _sort(self, exchange: Exchange) -> None:
        """Events before the bookmark that ends a watch's beginning were there, later ones came."""
        watched = zip(exchange.events or (), exchange.delays, strict=True) if _is_open(exchange) else ()
        initial = _begins_with_state(exchange)
        for event, delay in watched:
            if event["type"] == "BOOKMARK" or delay > _AT_ONCE:
                initial = False
            is_object = event["type"] not in ("BOOKMARK", "ERROR") and event["object"]["kind"] not in _SHOWN
            if is_object and not _only_leaves(exchange, event):
                (self._first if initial else self._later).setdefault(_version(event), event)
        if exchange.scenario.startswith("scheduler") and "items" in (exchange.answer or ()):
            listed = exchange.answer
            for item in listed["items"]:
                whole = {"kind": listed["kind"].removesuffix("List"), "apiVersion": listed["apiVersion"], **item}
                self._first[int(item["metadata"]["resourceVersion"])] = {"type": "ADDED", "object": whole}

    def _claim(self, exchange: Exchange) -> None:
        """Forget the events that this request will cause by itself."""
        name, version = _object_name(exchange), self._version_of(exchange)
        if exchange.path.partition("?")[0].endswith("/binding"):
            bound = (v for v, event in sorted(self._later.items()) if _is_bound(event, name))
            version = self._bindings[str(exchange)] = next(bound, 0)
        self._later.pop(version, None)
        if exchange.method == "DELETE":
            for beside in (version - 1, version + 1):
                if beside in self._later and _is_deletion(self._later[beside], name):
                    del self._later[beside]

    def _version_of(self, exchange: Exchange) -> int:
        metadata = exchange.answer.get("metadata") if isinstance(exchange.answer, dict) else None
        version = metadata.get("resourceVersion", "") if isinstance(metadata, dict) else ""
        if _is_open(exchange) and not _is_middle(exchange):
            return _first_news(exchange)
        return int(version) if version.isdigit() else self._bindings.get(str(exchange), 0)

    def _write(self, event: Event, *, beforehand: bool = False) -> None:
        recorded = event["object"]
        registry, kind = self._player.server.registry, self._kind(recorded)
        if kind is None:
            return
        new = kind.struct.read(recorded, [])
        new = {field: value for field, value in new.items() if field not in ("kind", "apiVersion")}
        metadata = new["metadata"]
        there = registry.store.collection(kind.storage).get(kind.key(metadata.get("namespace", ""), metadata["name"]))
        if event["type"] == "DELETED":
            registry.commit_deletion(kind, new)
        elif there is None or not beforehand:
            registry.commit(kind, new)
        else:
            return
        self._player.learnt.setdefault(recorded["metadata"]["resourceVersion"], new["metadata"]["resourceVersion"])

    def _kind(self, recorded: dict[str, Any]) -> Kind | None:
        group, _, version = recorded["apiVersion"].rpartition("/")
        kinds = self._player.server.registry.scheme.served(group, version)
        return next((kind for kind in kinds if kind.name == recorded["kind"]), None)


def _is_open(exchange: Exchange) -> bool:
    """Whether this is a watch that went on while other requests were made."""
    return exchange.events is not None and exchange.end != "server"


def _is_middle(exchange: Exchange) -> bool:
    """Whether of this watch only what came in one phase was kept; another recording shows it whole."""
    return (
        _is_open(exchange)
        and "sendInitialEvents=true" in exchange.path
        and not any("k8s.io/initial-events-end" in str(event) for event in exchange.events or ())
    )


def _begins_with_state(exchange: Exchange) -> bool:
    version = re.search(r"resourceVersion=(\d+)", exchange.path)
    return not _is_middle(exchange) and (version is None or version[1] == "0")


def _only_leaves(exchange: Exchange, event: Event) -> bool:
    """Whether an object is reported deleted because the selector no longer matches it."""
    is_alive = "deletionTimestamp" not in event["object"]["metadata"]
    return event["type"] == "DELETED" and is_alive and "fieldSelector=" in exchange.path


def _first_news(exchange: Exchange) -> int:
    """The version of the first event that happened soon after the watch began; 0 where none did."""
    late = (
        _version(event)
        for event, delay in zip(exchange.events or (), exchange.delays, strict=True)
        if _AT_ONCE < delay < _SOON and event["type"] != "BOOKMARK"
    )
    return next(late, 0)


def _version(event: Event) -> int:
    return int(event["object"]["metadata"]["resourceVersion"])


def _object_name(exchange: Exchange) -> str:
    parts = exchange.path.partition("?")[0].split("/")
    return parts[-2] if parts[-1] in ("binding", "status", "eviction") else name_of(exchange.answer) or parts[-1]


def _is_bound(event: Event, name: str) -> bool:
    made = event["object"]
    return name_of(made) == name and event["type"] == "MODIFIED" and "nodeName" in made.get("spec", {})


def _is_deletion(event: Event, name: str) -> bool:
    return name_of(event["object"]) == name and "deletionTimestamp" in event["object"]["metadata"]
