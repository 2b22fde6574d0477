"""Kubernetes events: recorded without waiting, written in the background, repetitions told as a series.

An event that says the same of the same object (semantics 1.7) is not written again: from the second time on the first
one is patched with a count. That is decided when an event is recorded, synchronously; what waits in the queue are only
the resulting writes. When the queue is full an event is dropped and counted: scheduling never waits for its chronicle.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from types import TracebackType
from typing import Any, Self

import msgspec

from kubestow.api.timestamps import micro_timestamp
from kubestow.client.rest.transport import STRATEGIC_MERGE_PATCH, Transport
from kubestow.errors import APIError, Unreachable
from kubestow.scheduling.ports import Clock, EventRecord, ObjectReference
from kubestow.scheduling.writes.retries import jittered

__all__ = ["EventRecorder"]

_log = logging.getLogger(__name__)
_encode = msgspec.json.Encoder().encode

_TRIES = 12
_RETRY_SECONDS, _RETRY_JITTER = 10.0, 0.25
_SERIES_CLOSES_AFTER = timedelta(minutes=6)
_SERIES_REFRESHED_AFTER = timedelta(minutes=30)
_SWEEP_SECONDS = 60.0
_MAX_NOTE_BYTES = 1024
_MAX_INSTANCE_LENGTH = 128
#: Events remembered, so that a repetition is recognised.
_MEMORY = 20_000
_FLUSH_SECONDS = 1.0


@dataclass(slots=True, eq=False)
class _Series:
    """One event and its repetitions."""

    event: EventRecord
    name: str
    first: datetime
    last: datetime
    count: int = 1
    #: The count that the server knows; 0 before the event is created.
    written: int = 0
    written_at: datetime | None = None
    queued: bool = False

    @property
    def namespace(self) -> str:
        return self.event.regarding.namespace or "default"


class EventRecorder:
    """Records events and writes them from ``async with`` on. ``dropped`` counts those that were lost."""

    def __init__(
        self,
        transport: Transport,
        *,
        host: str,
        clock: Clock,
        random: Random,
        writers: int = 4,
        queue_size: int = 4096,
    ) -> None:
        self._transport, self._host, self._clock, self._random = transport, host, clock, random
        self._writers = writers
        self._queue: asyncio.Queue[_Series] = asyncio.Queue(queue_size)
        self._known: dict[EventRecord, _Series] = {}
        self._last_stamp = 0
        self._tasks: list[asyncio.Task[None]] = []
        self.dropped = 0

    def record(self, event: EventRecord) -> None:
        """Write the event, or its repetition, some time soon. Never blocks; drops it when too many are waiting."""
        now = self._clock.now()
        series = self._known.get(event)
        if series is None:
            series = _Series(event, self._name(event.regarding, now), first=now, last=now)
            if self._enqueue(series):
                self._remember(series)
            return
        series.count += 1
        series.last = now
        if series.count == 2 and not self._enqueue(series):
            series.count = 1  # the next repetition tries again

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._write_forever()) for _ in range(self._writers)]
        self._tasks.append(asyncio.create_task(self._sweep_forever()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Write what is waiting if that takes no more than a moment, then stop."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._queue.join(), _FLUSH_SECONDS)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- recording

    def _name(self, regarding: ObjectReference, now: datetime) -> str:
        """An event is named after its object and the nanosecond; two in one tick of the clock must differ."""
        microseconds = int(now.timestamp()) * 1_000_000 + now.microsecond
        self._last_stamp = max(microseconds * 1000, self._last_stamp + 1)
        return f"{regarding.name}.{self._last_stamp:x}"

    def _enqueue(self, series: _Series) -> bool:
        if series.queued:
            return True
        try:
            self._queue.put_nowait(series)
        except asyncio.QueueFull:
            self.dropped += 1
            if self.dropped.bit_count() == 1:  # at 1, 2, 4, 8, …
                _log.warning("%d events dropped so far: the API server takes them too slowly", self.dropped)
            return False
        series.queued = True
        return True

    def _remember(self, series: _Series) -> None:
        self._known[series.event] = series
        if len(self._known) > _MEMORY:
            del self._known[next(iter(self._known))]

    # -- writing

    async def _write_forever(self) -> None:
        while True:
            series = await self._queue.get()
            try:
                await self._write(series)
            except Exception:  # of what is told about in plugins' words not everything can be written
                _log.exception("event %s (%s) lost", series.name, series.event.reason)
                self._forget(series)
            finally:
                series.queued = False
                self._queue.task_done()

    async def _write(self, series: _Series) -> None:
        """Bring the server's copy up to date: create the event, then tell of repetitions that came meanwhile."""
        for _ in range(_TRIES):
            try:
                if not series.written:
                    await self._create(series)
                if series.written < series.count:
                    await self._patch(series)
                return
            except APIError as error:
                self._refused(series, error)
                return
            except Unreachable as error:
                _log.debug("event %s waits: %s", series.name, error)
                await self._clock.sleep(jittered(_RETRY_SECONDS, _RETRY_JITTER, self._random))
        _log.warning("event %s given up after %d tries", series.name, _TRIES)
        self._forget(series)

    async def _create(self, series: _Series) -> None:
        count = series.count
        body = _body(series, instance=f"{series.event.reporting_controller}-{self._host}")
        path = f"/apis/events.k8s.io/v1/namespaces/{series.namespace}/events"
        await self._transport.request("POST", path, _encode(body))
        series.written, series.written_at = count, self._clock.now()

    async def _patch(self, series: _Series) -> None:
        count = series.count
        path = f"/apis/events.k8s.io/v1/namespaces/{series.namespace}/events/{series.name}"
        body = _encode({"series": _series(series)})
        try:
            await self._transport.request("PATCH", path, body, content_type=STRATEGIC_MERGE_PATCH)
        except APIError as error:
            if error.code != 404:
                raise
            await self._create(series)  # the server keeps events for an hour only
        series.written, series.written_at = count, self._clock.now()

    def _refused(self, series: _Series, error: APIError) -> None:
        level = logging.DEBUG if error.reason == "AlreadyExists" else logging.WARNING
        _log.log(level, "event %s (%s) refused: %s", series.name, series.event.reason, error)
        self._forget(series)

    def _forget(self, series: _Series) -> None:
        if self._known.get(series.event) is series:
            del self._known[series.event]

    # -- series

    async def _sweep_forever(self) -> None:
        while True:
            await self._clock.sleep(_SWEEP_SECONDS)
            self._sweep(self._clock.now())

    def _sweep(self, now: datetime) -> None:
        """Close series that have been idle, with their final count; refresh those that go on for long."""
        for series in list(self._known.values()):
            behind = series.written < series.count
            if now - series.last > _SERIES_CLOSES_AFTER:
                self._forget(series)
                if behind:
                    self._enqueue(series)
            elif behind and series.written_at is not None and now - series.written_at > _SERIES_REFRESHED_AFTER:
                self._enqueue(series)


def _body(series: _Series, *, instance: str) -> dict[str, Any]:
    event = series.event
    body: dict[str, Any] = {
        "kind": "Event",
        "apiVersion": "events.k8s.io/v1",
        "metadata": {"name": series.name, "namespace": series.namespace},
        "eventTime": micro_timestamp(series.first),
    }
    if series.count > 1:
        body["series"] = _series(series)
    body |= {
        "reportingController": event.reporting_controller,
        "reportingInstance": instance[:_MAX_INSTANCE_LENGTH],
        "action": event.action,
        "reason": event.reason,
        "regarding": _reference(event.regarding),
    }
    if event.related is not None:
        body["related"] = _reference(event.related)
    return body | {"note": _cut(event.note), "type": event.type}


def _series(series: _Series) -> dict[str, Any]:
    return {"count": series.count, "lastObservedTime": micro_timestamp(series.last)}


def _reference(reference: ObjectReference) -> dict[str, str]:
    fields = {
        "kind": reference.kind,
        "namespace": reference.namespace,
        "name": reference.name,
        "uid": reference.uid,
        "apiVersion": reference.api_version,
        "resourceVersion": reference.resource_version,
    }
    return {key: value for key, value in fields.items() if value}


def _cut(note: str) -> str:
    encoded = note.encode(errors="replace")
    if len(encoded) <= _MAX_NOTE_BYTES:
        return encoded.decode()
    return encoded[: _MAX_NOTE_BYTES - 4].decode(errors="ignore") + " ..."
