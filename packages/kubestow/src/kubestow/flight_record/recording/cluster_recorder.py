"""The record of a cluster without a scheduler of our own: what its watches deliver.

It holds which node each pod got from whichever scheduler there is, so a re-decision can be compared with it.
"""

from __future__ import annotations

import asyncio
import platform
from collections import Counter
from collections.abc import Sequence
from typing import Any

from kubestow.flight_record.call_arguments import subscription_arguments
from kubestow.flight_record.entries import Header
from kubestow.flight_record.recording.journal import Journal
from kubestow.flight_record.recording.recorded_ports import RecordedSubscriber
from kubestow.flight_record.recording.recorder import SegmentSink
from kubestow.scheduling.events.resources import WATCHED
from kubestow.scheduling.interfaces import Clock, ClusterAPI, Resource
from kubestow.version import VERSION

__all__ = ["ClusterRecorder"]

_FLUSH_SECONDS = 1.0


class ClusterRecorder:
    """Records all built-in resources of a cluster; ``events`` counts them by kind."""

    def __init__(self, sink: SegmentSink, clock: Clock) -> None:
        self._sink, self._clock = sink, clock
        self.journal = Journal(sink)
        self.events: Counter[str] = Counter()

    async def run(self, api: ClusterAPI) -> None:
        """Record until cancelled. Raises what ends the watch."""
        self._sink.begin_segment(
            Header(
                kubestow=VERSION,
                python=platform.python_version(),
                began=self._clock.now().isoformat(),
                monotonic=self._clock.monotonic(),
                has_scheduler=False,
                resources=subscription_arguments(WATCHED),
            )
        )
        subscriber = RecordedSubscriber(_Counting(self.events), WATCHED, self.journal, self._clock)
        watching = asyncio.create_task(api.subscribe(WATCHED, subscriber))
        try:
            while not watching.done():
                await asyncio.wait((watching,), timeout=_FLUSH_SECONDS)
                self.journal.flush()
            watching.result()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            self.journal.flush()


class _Counting:
    """A subscriber that counts what it receives."""

    def __init__(self, events: Counter[str]) -> None:
        self._events = events

    def replace(self, resource: Resource, objects: Sequence[Any]) -> None:
        self._events[resource.kind] += len(objects)

    def apply(self, resource: Resource, event_type: str, obj: Any) -> None:
        self._events[resource.kind] += 1

    def unreadable(self, resource: Resource, subject: str, problem: str) -> None:
        self._events[resource.kind] += 1
