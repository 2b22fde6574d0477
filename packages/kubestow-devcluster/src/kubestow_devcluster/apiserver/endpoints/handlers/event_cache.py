"""Encoded watch events, cached so that watchers of the same resource share them."""

from __future__ import annotations

import msgspec

from kubestow_devcluster.apiserver.resources.kind import Kind
from kubestow_devcluster.apiserver.serialization import protobuf
from kubestow_devcluster.apiserver.serialization.negotiation import PROTOBUF
from kubestow_devcluster.apiserver.storage.store import EventType, StoredObject

__all__ = ["EventCache", "encode_event"]

#: Events in the cache at most, and bytes of their encodings.
_MAX_EVENTS = 4096
_MAX_BYTES = 64 * 1024 * 1024


def encode_event(type_: str, body: bytes, media_type: str) -> bytes:
    """One event of a watch response; in JSON with a trailing newline. ``body`` is the object in JSON."""
    if media_type == PROTOBUF:
        return protobuf.encode_event(type_, msgspec.json.decode(body))
    return b'{"type":"%s","object":%s}\n' % (type_.encode(), body)


class EventCache:
    """The encodings of the most recent events with whole objects."""

    def __init__(self) -> None:
        self._bytes = 0
        self._events: dict[tuple[str, str, int, EventType, str], bytes] = {}

    def encoded(self, kind: Kind, type_: EventType, stored: StoredObject, media_type: str) -> bytes:
        key = (kind.group, kind.plural, stored.resource_version, type_, media_type)
        found = self._events.get(key)
        if found is None:
            found = encode_event(type_, kind.encode(stored), media_type)
            self._events[key] = found
            self._bytes += len(found)
            while len(self._events) > _MAX_EVENTS or self._bytes > _MAX_BYTES:
                self._bytes -= len(self._events.pop(next(iter(self._events))))
        return found
