"""The event stream: server-sent events, encoded and compressed once per tick for all viewers.

A viewer gets a snapshot of all sections, then what changes. Sections are read while there are viewers only. The longer
a tick takes and the more viewers there are, the longer is the pause after it, so that all of them together cost at most
a fixed share of the CPU. A viewer that does not keep up loses deltas and gets a new snapshot instead, so that the
memory for each is bounded.

Compression is shared as well. The events of a gzip stream are segments of raw deflate data, each of which ends at a
byte and refers to nothing before it; any sequence of them after a gzip header is a valid stream.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from kubestow.dashboard.sections import StreamSection
from kubestow.errors import KubestowError
from kubestow.log_fields import fields
from kubestow.scheduling.interfaces import Clock

_log = logging.getLogger(__name__)

MAX_VIEWERS = 128
#: Between two ticks at least so many seconds, and so many times what the tick costs.
_INTERVAL, _PAUSE_FACTOR = 1.0, 50.0
#: What it takes to send an event to one viewer, in seconds, encryption included.
_SENDING = 0.0002
#: Without a change an event is sent all the same after so many seconds, which shows that the connection works.
_KEEP_ALIVE = 15.0
#: Events that a slow viewer is behind at most.
_MAX_BEHIND = 4
#: A stream ends after so many seconds. The page reconnects, and its user is authorized again.
_MAX_SECONDS = 300.0

_GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"


class TooManyViewers(KubestowError):
    """The number of viewers is at its maximum."""


class _Event(NamedTuple):
    """An encoded event: as it is, and compressed."""

    plain: bytes
    deflated: bytes

    @classmethod
    def of(cls, name: str, content: Any) -> _Event:
        plain = b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(content))
        return cls.encoded(plain)

    @classmethod
    def encoded(cls, plain: bytes) -> _Event:
        deflate = zlib.compressobj(6 if len(plain) < 1 << 16 else 2, zlib.DEFLATED, -15)
        return cls(plain, deflate.compress(plain) + deflate.flush(zlib.Z_SYNC_FLUSH))


_COMMENT = _Event.encoded(b":\n\n")


class _Viewer:
    """One connection: the events that it has not taken yet, None for a snapshot."""

    def __init__(self) -> None:
        self.events: deque[_Event | None] = deque([None])
        self.is_woken = asyncio.Event()
        self.is_woken.set()

    def send(self, event: _Event) -> None:
        if None in self.events:
            return  # the snapshot will contain it
        if len(self.events) >= _MAX_BEHIND:
            self.send_snapshot()
        else:
            self.events.append(event)
            self.is_woken.set()

    def send_snapshot(self) -> None:
        """Have the viewer start anew."""
        self.events.clear()
        self.events.append(None)
        self.is_woken.set()


class EventStream:
    """The stream of some sections, which ``create_sections`` makes when the first viewer comes."""

    def __init__(self, create_sections: Callable[[], Sequence[StreamSection]], clock: Clock) -> None:
        self._create_sections, self._clock = create_sections, clock
        self._sections: Sequence[StreamSection] = ()
        self._viewers: set[_Viewer] = set()
        self._snapshot: _Event | None = None
        self._ticking: asyncio.Task[None] | None = None
        self._is_closed = False
        self._last_event = 0.0

    @property
    def viewers(self) -> int:
        """How many viewers there are."""
        return len(self._viewers)

    def events(self, *, compressed: bool) -> AsyncGenerator[bytes, None]:
        """The bytes of the stream for one more viewer, as a gzip stream if ``compressed``. Raises TooManyViewers."""
        if len(self._viewers) >= MAX_VIEWERS:
            raise TooManyViewers(f"{MAX_VIEWERS} viewers are connected to the dashboard, which is the maximum")
        return self._events(compressed)

    async def _events(self, compressed: bool) -> AsyncGenerator[bytes, None]:
        if len(self._viewers) >= MAX_VIEWERS:
            return  # so many have come since the request of this one was accepted
        viewer = _Viewer()
        self._add(viewer)
        ends = self._clock.monotonic() + _MAX_SECONDS
        try:
            if compressed:
                yield _GZIP_HEADER
            while not self._is_closed and self._clock.monotonic() < ends:
                await viewer.is_woken.wait()
                while viewer.events and not self._is_closed:
                    event = viewer.events.popleft() or self._current_snapshot()
                    yield event.deflated if compressed else event.plain
                viewer.is_woken.clear()
        finally:
            self._remove(viewer)

    def close(self) -> None:
        """End the streams of all viewers."""
        self._is_closed = True
        for viewer in self._viewers:
            viewer.is_woken.set()

    def tick(self) -> None:
        """Read all sections, and send every viewer what has changed."""
        changes = {section.name: change for section in self._sections if (change := section.refresh()) is not None}
        now = self._clock.monotonic()
        if changes:
            event = _Event.of("delta", {"time": self._time(), **changes})
            self._snapshot = None
        elif now - self._last_event >= _KEEP_ALIVE:
            event = _COMMENT
        else:
            return
        self._last_event = now
        for viewer in self._viewers:
            viewer.send(event)

    def _add(self, viewer: _Viewer) -> None:
        if not self._viewers:
            self._sections = self._create_sections()
            for section in self._sections:
                section.refresh()
            self._snapshot, self._last_event = None, self._clock.monotonic()
            self._ticking = asyncio.create_task(self._run(), name="dashboard")
        self._viewers.add(viewer)

    def _remove(self, viewer: _Viewer) -> None:
        self._viewers.discard(viewer)
        if not self._viewers and self._ticking is not None:
            self._ticking.cancel()
            self._ticking, self._sections, self._snapshot = None, (), None

    def _current_snapshot(self) -> _Event:
        if self._snapshot is None:
            content = {section.name: section.content() for section in self._sections}
            self._snapshot = _Event.of("snapshot", {"time": self._time(), **content})
        return self._snapshot

    def _time(self) -> float:
        return round(self._clock.now().timestamp(), 1)

    async def _run(self) -> None:
        pause = _INTERVAL
        while True:
            await self._clock.sleep(pause)
            began = self._clock.monotonic()
            try:
                self.tick()
            except Exception as error:  # the stream must not end because one section is in error
                _log.exception("Unable to update the dashboard", extra=fields(err=str(error)))
                self._snapshot = None
                for viewer in self._viewers:  # changes that were read may not have been sent
                    viewer.send_snapshot()
            cost = self._clock.monotonic() - began + _SENDING * len(self._viewers)
            pause = max(_INTERVAL, _PAUSE_FACTOR * cost)
