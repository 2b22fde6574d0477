"""Events about objects that cannot be decoded: their owners see neither the log nor the metrics of the scheduler.

Only the leader reports, one event per object and generation. Users decide how many such objects there are, so there are
at most :data:`_MAX_EVENTS` events in :data:`_PERIOD`; the log and the gauge have the others.
"""

from __future__ import annotations

from kubestow.api.reports import EventType
from kubestow.cluster.pods.caches import BoundedCache
from kubestow.scheduling.environment import Environment, Leadership
from kubestow.scheduling.events.handlers import UnreadableObject
from kubestow.scheduling.interfaces import EventRecord, ObjectReference

_FAILED_DECODING = EventType(
    "FailedDecoding",
    "Decoding",
    "the scheduler cannot decode the object: {problem}",
    type="Warning",
    regarding="any object with a namespace",
    help="The object is ignored, or counts without the fields that cannot be decoded.",
)

#: Events in a period of so many seconds.
_MAX_EVENTS, _PERIOD = 20, 60.0
#: Objects whose generation is known to be reported.
_MOST_REPORTED = 10_000


class UnreadableReports:
    """Records the events, as ``reporting_controller``."""

    def __init__(self, environment: Environment, leadership: Leadership, reporting_controller: str) -> None:
        self._api, self._clock, self._leadership = environment.api, environment.clock, leadership
        self._reporting_controller = reporting_controller
        #: The generation by kind and uid.
        self._reported: BoundedCache[tuple[str, str], int] = BoundedCache(_MOST_REPORTED)
        self._period_began, self._recorded = float("-inf"), 0

    def report(self, unreadable: UnreadableObject) -> None:
        """Record an event about an object, unless its generation has one, or there are too many."""
        resource, metadata = unreadable.resource, unreadable.metadata
        key = (resource.kind, metadata.uid)
        is_identified = metadata.namespace and metadata.name and metadata.uid
        if not is_identified or self._reported.get(key) == metadata.generation or not self._leadership.holds_lease:
            return
        now = self._clock.monotonic()
        if now - self._period_began >= _PERIOD:
            self._period_began, self._recorded = now, 0
        if self._recorded >= _MAX_EVENTS:
            return
        self._recorded += 1
        self._reported.put(key, metadata.generation)
        event = _FAILED_DECODING
        self._api.record(
            EventRecord(
                ObjectReference(
                    resource.kind,
                    metadata.namespace,
                    metadata.name,
                    metadata.uid,
                    api_version=resource.api_version,
                    resource_version=metadata.resource_version,
                ),
                event.reason,
                event.action,
                event.note.format(problem=unreadable.problem),
                event.type,
                reporting_controller=self._reporting_controller,
            )
        )
