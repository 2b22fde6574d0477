"""The event recorder: Kubernetes events are recorded synchronously, written in the background, and grouped into series.

An event that differs from an earlier one in nothing but its note (semantics 1.7) is not written again; from its second
occurrence on, the first event is patched with a series. :meth:`EventRecorder.record` decides that, and only the
resulting writes are queued. If the queue is full, the event is dropped and counted, so scheduling never waits for
events.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any, Self

import msgspec

from kubestow.api.formats.timestamps import micro_timestamp
from kubestow.client.rest.transport import STRATEGIC_MERGE_PATCH, Transport
from kubestow.errors import APIError, Unreachable
from kubestow.log_fields import fields
from kubestow.scheduling.api_calls.retries import Backoff, jittered
from kubestow.scheduling.interfaces import Clock, EventRecord, ObjectReference

_log = logging.getLogger(__name__)
_encode = msgspec.json.Encoder().encode

_TRIES_PER_EVENT = 12
_RETRY_SECONDS, _RETRY_JITTER = 10.0, 0.25
#: Between the tries of an event that a busy server asks to retry later; all writers together must not keep it busy.
_BUSY_BACKOFF = Backoff(initial=1.0, factor=2.0, jitter=_RETRY_JITTER, limit=_RETRY_SECONDS)
_SERIES_FINISHED_AFTER = timedelta(minutes=6)
_SERIES_REFRESHED_AFTER = timedelta(minutes=30)
_REFRESH_SECONDS = 60.0
_MAX_NOTE_BYTES = 1024
_MAX_INSTANCE_LENGTH = 128
#: Events in the cache that recognizes repetitions, about 1.5 kB each.
_CACHE_SIZE = 20_000
#: Events that are yet to be written, as large. Preempting for a thousand pods records ten thousand events in seconds.
_QUEUE_SIZE = 20_000
_FLUSH_SECONDS = 1.0
#: Events written at the same time. There is one for each bound pod, so a few would fall behind the bindings, of which
#: hundreds are sent at once, as soon as the server takes some time for each.
_WRITERS = 32


_Key = tuple[str, str, str, str, ObjectReference, ObjectReference | None]
"""What repetitions of an event have in common."""


def _key(event: EventRecord) -> _Key:
    return event.type, event.action, event.reason, event.reporting_controller, event.regarding, event.related


@dataclass(slots=True, eq=False)
class _Series:
    event: EventRecord
    name: str
    first: datetime
    last: datetime
    count: int = 1
    #: The count in the server's copy; 0 before the event is created.
    written: int = 0
    written_at: datetime | None = None
    queued: bool = False

    @property
    def namespace(self) -> str:
        return self.event.regarding.namespace or "default"


class EventRecorder:
    """Implements ``record`` of the scheduler's ClusterAPI; ``async with`` runs the writers.

    ``dropped`` counts the events that were lost because the queue was full; ``on_drop`` is called for each.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        host: str,
        clock: Clock,
        random: Random,
        writers: int = _WRITERS,
        queue_size: int = _QUEUE_SIZE,
    ) -> None:
        self._transport, self._host, self._clock, self._random = transport, host, clock, random
        self._writers = writers
        self._queue: asyncio.Queue[_Series] = asyncio.Queue(queue_size)
        self._cache: dict[_Key, _Series] = {}
        self._last_suffix = 0
        self._tasks: list[asyncio.Task[None]] = []
        self.dropped = 0
        self.on_drop: Callable[[], None] = lambda: None

    def record(self, event: EventRecord) -> None:
        """Queue the event, or the series that it repeats. Never blocks; drops the event if the queue is full."""
        now = self._clock.now()
        series = self._cache.get(_key(event))
        if series is None:
            series = _Series(event, self._name(event.regarding, now), first=now, last=now)
            if self._enqueue(series):
                self._cache[_key(event)] = series
                if len(self._cache) > _CACHE_SIZE:
                    del self._cache[next(iter(self._cache))]
            return
        series.count += 1
        series.last = now
        if series.count == 2 and not self._enqueue(series):
            series.count = 1  # the next repetition tries again

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._run_writer()) for _ in range(self._writers)]
        self._tasks.append(asyncio.create_task(self._run_series_refresh()))
        return self

    async def __aexit__(self, *error: object) -> None:
        """Flush the queue for up to a second, then stop the writers."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._queue.join(), _FLUSH_SECONDS)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- recording -----------------------------------------------------------------------------------------------------

    def _name(self, regarding: ObjectReference, now: datetime) -> str:
        """The object's name and the time in nanoseconds, increased where two events fall into one clock tick."""
        microseconds = int(now.timestamp()) * 1_000_000 + now.microsecond
        self._last_suffix = max(microseconds * 1000, self._last_suffix + 1)
        return f"{regarding.name}.{self._last_suffix:x}"

    def _enqueue(self, series: _Series) -> bool:
        if series.queued:
            return True
        try:
            self._queue.put_nowait(series)
        except asyncio.QueueFull:
            self.dropped += 1
            self.on_drop()
            if self.dropped.bit_count() == 1:  # at 1, 2, 4, 8, …
                _log.warning(
                    "event queue is full, %d events dropped so far", self.dropped, extra=fields(dropped=self.dropped)
                )
            return False
        series.queued = True
        return True

    def _remove_from_cache(self, series: _Series) -> None:
        key = _key(series.event)
        if self._cache.get(key) is series:
            del self._cache[key]

    # -- writing -------------------------------------------------------------------------------------------------------

    async def _run_writer(self) -> None:
        while True:
            series = await self._queue.get()
            try:
                await self._write(series)
            except Exception:  # plugins choose reasons and notes, and not every text can be encoded
                extra = fields(event=series.name, reason=series.event.reason)
                _log.exception("event %s (%s) lost", series.name, series.event.reason, extra=extra)
                self._remove_from_cache(series)
            finally:
                series.queued = False
                self._queue.task_done()

    async def _write(self, series: _Series) -> None:
        """Create the event unless it exists, then patch it with the repetitions recorded meanwhile."""
        busy_delays = _BUSY_BACKOFF.delays(self._random)
        for _ in range(_TRIES_PER_EVENT):
            try:
                if not series.written:
                    await self._create(series)
                if series.written < series.count:
                    await self._patch(series)
                return
            except APIError as error:
                if error.retry_after is None:
                    self._rejected(series, error)
                    return
                problem, delay = str(error), max(next(busy_delays), error.retry_after)
            except Unreachable as error:
                problem, delay = str(error), jittered(_RETRY_SECONDS, _RETRY_JITTER, self._random)
            extra = fields(event=series.name, err=problem)
            _log.debug("unable to write event %s, may retry after sleeping: %s", series.name, problem, extra=extra)
            await self._clock.sleep(delay)
        extra = fields(event=series.name, tries=_TRIES_PER_EVENT)
        _log.warning(
            "unable to write event %s: retry limit exceeded after %d tries", series.name, _TRIES_PER_EVENT, extra=extra
        )
        self._remove_from_cache(series)

    async def _create(self, series: _Series) -> None:
        count = series.count
        body = _body(series, instance=f"{series.event.reporting_controller}-{self._host}")
        path = f"/apis/events.k8s.io/v1/namespaces/{series.namespace}/events"
        await self._transport.request("POST", path, _encode(body), retries=0)
        series.written, series.written_at = count, self._clock.now()

    async def _patch(self, series: _Series) -> None:
        count = series.count
        path = f"/apis/events.k8s.io/v1/namespaces/{series.namespace}/events/{series.name}"
        body = _encode({"series": _series(series)})
        try:
            await self._transport.request("PATCH", path, body, content_type=STRATEGIC_MERGE_PATCH, retries=0)
        except APIError as error:
            if error.code != 404:
                raise
            await self._create(series)  # API servers delete events after an hour
        series.written, series.written_at = count, self._clock.now()

    def _rejected(self, series: _Series, error: APIError) -> None:
        level = logging.DEBUG if error.reason == "AlreadyExists" else logging.WARNING
        reason = series.event.reason
        extra = fields(event=series.name, reason=reason, err=str(error))
        _log.log(level, "server rejected event %s (%s): %s", series.name, reason, error, extra=extra)
        self._remove_from_cache(series)

    # -- series --------------------------------------------------------------------------------------------------------

    async def _run_series_refresh(self) -> None:
        """Finish idle series by writing their final count; refresh the count of those that continue."""
        while True:
            await self._clock.sleep(_REFRESH_SECONDS)
            now = self._clock.now()
            for series in list(self._cache.values()):
                outdated = series.written < series.count
                if now - series.last > _SERIES_FINISHED_AFTER:
                    self._remove_from_cache(series)
                    if outdated:
                        self._enqueue(series)
                elif outdated and series.written_at is not None and now - series.written_at > _SERIES_REFRESHED_AFTER:
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
    return body | {"note": _truncate(event.note), "type": event.type}


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


def _truncate(note: str) -> str:
    encoded = note.encode(errors="replace")
    if len(encoded) <= _MAX_NOTE_BYTES:
        return encoded.decode()
    return encoded[: _MAX_NOTE_BYTES - 4].decode(errors="ignore") + " ..."
