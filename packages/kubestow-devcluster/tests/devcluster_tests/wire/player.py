"""Replays recordings against the embedded API server.

A session is a sequence of scenarios that were recorded one after the other on one server. Requests contain uids,
resourceVersions and continue tokens of the recorded server; the player learns their counterparts from each pair of
responses and substitutes them in later requests. Writes by other clients were not recorded as requests but appear in
recorded watches; they are written to the store in between.
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

from devcluster_tests.wire.recordings import (
    Event,
    Exchange,
    metadata_objects,
    name_of,
    protobuf_object,
    without_bookmarks,
)
from kubestow.http.messages import ALL_AUTHENTICATED, ANONYMOUS, HTTPResponse, UserInfo
from kubestow_devcluster.apiserver.endpoints.requests import Request, RequestHeaders
from kubestow_devcluster.apiserver.kinds.kind import Kind
from kubestow_devcluster.apiserver.security.authentication import ADMIN
from kubestow_devcluster.apiserver.serialization.media_types import PROTOBUF
from kubestow_devcluster.cluster import DevCluster

#: The recorded users that are not known by their name.
_USERS = {"admin": ADMIN, "anonymous": ANONYMOUS}
#: Fields whose values differ between servers and recur in later requests.
_IDENTIFIERS = ("uid", "resourceVersion", "continue", "creationTimestamp")
_RESOURCE_VERSION = re.compile(r'("resourceVersion": ?"|resourceVersion=)(\d+)')
#: Converted objects, which cannot be written to the store.
_CONVERTED = ("Table", "PartialObjectMetadata")
#: Seconds to wait for the events of a replayed watch.
_WATCH_TIMEOUT = 1.0
#: Recorded events with at most this delay in seconds are the initial state; later ones with at most
#: the second delay are the first changes.
_INITIAL_DELAY, _EARLY_DELAY = 0.1, 1.0


@dataclass
class Replayed:
    """The response to a replayed exchange."""

    exchange: Exchange
    status: int
    body: Any
    headers: dict[str, str]


@dataclass
class _OpenWatch:
    """A watch that stays open while other requests are replayed."""

    exchange: Exchange
    events: list[Event]
    task: asyncio.Task[None]


@dataclass
class Player:
    """Replays exchanges on ``server``. ``identifiers`` maps recorded identifiers to those of the server."""

    server: DevCluster
    identifiers: dict[str, str] = field(default_factory=dict)

    async def play(self, exchanges: Sequence[Exchange]) -> AsyncIterator[Replayed]:
        """The responses in the order of the requests; those of watches that stay open come last."""
        await asyncio.sleep(0)
        writes = _UnrecordedWrites(self, exchanges)
        writes.apply_initial()
        self._learn_existing(exchanges)
        watches: list[_OpenWatch] = []
        try:
            for exchange in exchanges:
                writes.apply_before(exchange)
                if _stays_open(exchange):
                    if not _is_partial_watch(exchange):
                        watches.append(await self._open(exchange))
                else:
                    yield await self._send(exchange)
            writes.apply_rest()
            for watch in watches:
                yield await self._close(watch)
        finally:
            for watch in watches:
                watch.task.cancel()

    async def _send(self, exchange: Exchange) -> Replayed:
        result = await self.server.api.handle(self._request(exchange))
        if result.stream is not None:
            events = [msgspec.json.decode(line) async for chunk in result.stream for line in chunk.splitlines()]
            return Replayed(exchange, 200, events, {})
        content = result.body if result.chunks is None else b"".join(result.chunks)
        try:
            if result.content_type == PROTOBUF:
                body = protobuf_object(content)
            else:
                body = msgspec.json.decode(content) if content and exchange.request.method != "HEAD" else None
        except msgspec.DecodeError:
            body = content.decode()
        self.learn(exchange.response.body, body)
        self.identifiers.setdefault(exchange.response.headers.get("Etag", ""), result.headers.get("Etag", ""))
        return Replayed(exchange, result.status, body, result.headers)

    async def _open(self, exchange: Exchange) -> _OpenWatch:
        result = await self.server.api.handle(self._request(exchange))
        assert result.stream is not None, f"{exchange}: {result}"
        events: list[Event] = []
        expected = len(without_bookmarks(exchange.response.events or []))

        async def read(response: HTTPResponse) -> None:
            assert response.stream is not None
            async for chunk in response.stream:
                events.extend(msgspec.json.decode(line) for line in chunk.splitlines())
                if len(without_bookmarks(events)) >= expected:
                    return

        watch = _OpenWatch(exchange, events, asyncio.create_task(read(result)))
        await asyncio.sleep(0)
        return watch

    async def _close(self, watch: _OpenWatch) -> Replayed:
        """As many events as the recorded client received before it closed the watch."""
        expected = without_bookmarks(watch.exchange.response.events or [])
        if watch.exchange.response.events:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(watch.task, _WATCH_TIMEOUT)
        watch.task.cancel()
        return Replayed(watch.exchange, 200, without_bookmarks(watch.events)[: len(expected)], {})

    def _request(self, exchange: Exchange) -> Request:
        recorded = exchange.request
        is_text = not recorded.headers.get("Content-Type", "").endswith("protobuf")
        body = self._translate(recorded.body.decode("utf-8", "replace")).encode() if is_text else recorded.body
        route, _, query = self._translate(recorded.path).partition("?")
        return Request(
            method=recorded.method,
            path=route,
            query=dict(parse_qsl(query, keep_blank_values=True)),
            headers=RequestHeaders(
                accept=recorded.headers.get("Accept", ""),
                content_type=recorded.headers.get("Content-Type", ""),
                user_agent=recorded.headers.get("User-Agent", ""),
                if_none_match=self.identifiers.get(recorded.headers.get("If-None-Match", ""), ""),
            ),
            host="127.0.0.1:6443",
            body=body,
            user=_USERS.get(recorded.user) or UserInfo(recorded.user, (ALL_AUTHENTICATED,)),
        )

    def _learn_existing(self, exchanges: Sequence[Exchange]) -> None:
        """Learn the recorded uids of objects that exist before the session, by name."""
        uids: dict[str, str] = {}
        for resource in self.server.store.counts():
            for stored in self.server.store.collection(resource).snapshot():
                uids.setdefault(stored.name, msgspec.json.decode(stored.data)["metadata"]["uid"])
        for exchange in exchanges:
            for metadata in metadata_objects(exchange.response.body):
                if metadata.get("name") in uids and "uid" in metadata:
                    self.identifiers.setdefault(metadata["uid"], uids[metadata["name"]])

    def learn(self, recorded: Any, actual: Any) -> None:
        """Learn the identifiers that stand at the same places of two bodies."""
        if isinstance(recorded, dict) and isinstance(actual, dict):
            for key in [key for key in recorded if key in actual]:
                before, after = recorded[key], actual[key]
                if key in _IDENTIFIERS and isinstance(before, str) and isinstance(after, str):
                    self.identifiers.setdefault(before, after)
                else:
                    self.learn(before, after)
        elif isinstance(recorded, list) and isinstance(actual, list):
            for before, after in zip(recorded, actual, strict=False):
                self.learn(before, after)

    def _translate(self, text: str) -> str:
        for recorded, actual in self.identifiers.items():
            if len(recorded) > 8:
                text = text.replace(recorded, actual)
        return _RESOURCE_VERSION.sub(lambda match: match[1] + self._resource_version(match[2]), text)

    def _resource_version(self, recorded: str) -> str:
        """The counterpart of a recorded resourceVersion: that of the newest known one that is not later."""
        known = sorted(int(identifier) for identifier in self.identifiers if identifier.isdigit())
        earlier = [version for version in known if version <= int(recorded)]
        is_known = earlier and int(recorded) <= known[-1]
        return self.identifiers[str(earlier[-1])] if is_known else recorded


class _UnrecordedWrites:
    """Objects that existed before the first request, and writes by other clients, both known from watches."""

    def __init__(self, player: Player, exchanges: Sequence[Exchange]) -> None:
        self._player = player
        self._initial: dict[int, Event] = {}
        self._later: dict[int, Event] = {}
        #: The resourceVersions that bindings led to, which their responses do not contain.
        self._bindings: dict[str, int] = {}
        for exchange in exchanges:
            self._collect(exchange)
        for exchange in exchanges:
            if exchange.request.method != "GET" and exchange.response.status < 300:
                self._drop_effects(exchange)

    def apply_initial(self) -> None:
        for version in sorted(self._initial):
            self._write(self._initial[version], only_if_missing=True)

    def apply_before(self, exchange: Exchange) -> None:
        """Apply the writes with an earlier resourceVersion than the recorded response."""
        limit = self._resource_version_of(exchange)
        for version in sorted(self._later):
            if version < limit:
                self._write(self._later.pop(version))

    def apply_rest(self) -> None:
        for version in sorted(self._later):
            self._write(self._later.pop(version))

    def _collect(self, exchange: Exchange) -> None:
        """Sort recorded events into the initial state, up to the bookmark that ends it, and later writes."""
        response = exchange.response
        events = zip(response.events or (), response.delays, strict=True) if _stays_open(exchange) else ()
        is_initial = _starts_with_state(exchange)
        for event, delay in events:
            if event["type"] == "BOOKMARK" or delay > _INITIAL_DELAY:
                is_initial = False
            is_object = event["type"] not in ("BOOKMARK", "ERROR") and event["object"]["kind"] not in _CONVERTED
            if is_object and not _leaves_selection(exchange, event):
                (self._initial if is_initial else self._later).setdefault(_resource_version(event), event)
        if exchange.scenario.startswith("scheduler") and "items" in (response.body or ()):
            listed = response.body
            for item in listed["items"]:
                obj = {"kind": listed["kind"].removesuffix("List"), "apiVersion": listed["apiVersion"], **item}
                self._initial[int(item["metadata"]["resourceVersion"])] = {"type": "ADDED", "object": obj}

    def _drop_effects(self, exchange: Exchange) -> None:
        """Drop the events that the replayed request causes itself."""
        name, version = _object_name(exchange), self._resource_version_of(exchange)
        if exchange.request.path.partition("?")[0].endswith("/binding"):
            bound = (v for v, event in sorted(self._later.items()) if _is_bound(event, name))
            version = self._bindings[str(exchange)] = next(bound, 0)
        self._later.pop(version, None)
        if exchange.request.method == "DELETE":
            for adjacent in (version - 1, version + 1):
                if adjacent in self._later and _is_deletion(self._later[adjacent], name):
                    del self._later[adjacent]

    def _resource_version_of(self, exchange: Exchange) -> int:
        body = exchange.response.body
        metadata = body.get("metadata") if isinstance(body, dict) else None
        version = metadata.get("resourceVersion", "") if isinstance(metadata, dict) else ""
        if _stays_open(exchange) and not _is_partial_watch(exchange):
            return _first_later_version(exchange)
        return int(version) if version.isdigit() else self._bindings.get(str(exchange), 0)

    def _write(self, event: Event, *, only_if_missing: bool = False) -> None:
        recorded = event["object"]
        registry, kind = self._player.server.registry, self._kind(recorded)
        if kind is None:
            return
        new = kind.struct.read(recorded, [])
        new = {field: value for field, value in new.items() if field not in ("kind", "apiVersion")}
        metadata = new["metadata"]
        key = kind.key(metadata.get("namespace", ""), metadata["name"])
        if event["type"] == "DELETED":
            registry.commit_deletion(kind, new)
        elif not only_if_missing or registry.store.collection(kind.storage).get(key) is None:
            registry.commit(kind, new)
        else:
            return
        identifiers = self._player.identifiers
        identifiers.setdefault(recorded["metadata"]["resourceVersion"], new["metadata"]["resourceVersion"])

    def _kind(self, recorded: dict[str, Any]) -> Kind | None:
        group, _, version = recorded["apiVersion"].rpartition("/")
        kinds = self._player.server.registry.scheme.served(group, version)
        return next((kind for kind in kinds if kind.name == recorded["kind"]), None)


def _stays_open(exchange: Exchange) -> bool:
    """Whether this is a watch that stayed open while other requests were sent."""
    return exchange.response.events is not None and exchange.response.end != "server"


def _is_partial_watch(exchange: Exchange) -> bool:
    """Whether the recording has only the events of one phase; another recording has the whole watch."""
    return (
        _stays_open(exchange)
        and "sendInitialEvents=true" in exchange.request.path
        and not any("k8s.io/initial-events-end" in str(event) for event in exchange.response.events or ())
    )


def _starts_with_state(exchange: Exchange) -> bool:
    version = re.search(r"resourceVersion=(\d+)", exchange.request.path)
    return not _is_partial_watch(exchange) and (version is None or version[1] == "0")


def _leaves_selection(exchange: Exchange, event: Event) -> bool:
    """Whether an object is reported as deleted because it no longer matches the selector."""
    is_alive = "deletionTimestamp" not in event["object"]["metadata"]
    return event["type"] == "DELETED" and is_alive and "fieldSelector=" in exchange.request.path


def _first_later_version(exchange: Exchange) -> int:
    """The resourceVersion of the first event soon after the initial state of a watch; 0 without any."""
    response = exchange.response
    later = (
        _resource_version(event)
        for event, delay in zip(response.events or (), response.delays, strict=True)
        if _INITIAL_DELAY < delay < _EARLY_DELAY and event["type"] != "BOOKMARK"
    )
    return next(later, 0)


def _resource_version(event: Event) -> int:
    return int(event["object"]["metadata"]["resourceVersion"])


def _object_name(exchange: Exchange) -> str:
    parts = exchange.request.path.partition("?")[0].split("/")
    if parts[-1] in ("binding", "status", "eviction"):
        return parts[-2]
    return name_of(exchange.response.body) or parts[-1]


def _is_bound(event: Event, name: str) -> bool:
    obj = event["object"]
    return name_of(obj) == name and event["type"] == "MODIFIED" and "nodeName" in obj.get("spec", {})


def _is_deletion(event: Event, name: str) -> bool:
    return name_of(event["object"]) == name and "deletionTimestamp" in event["object"]["metadata"]
