"""The strategy of events.k8s.io/v1 events, which are stored as core/v1 events with other field names."""

from __future__ import annotations

from kubestow_devcluster.apiserver.field_errors import FieldError, required_value
from kubestow_devcluster.apiserver.resources.strategy import RESTStrategy
from kubestow_devcluster.apiserver.schema import Object, struct_of

__all__ = ["EventsV1Strategy"]

#: core/v1 field -> events.k8s.io/v1 field, in the order of the latter.
_FIELDS = {
    "metadata": "metadata",
    "eventTime": "eventTime",
    "series": "series",
    "reportingComponent": "reportingController",
    "reportingInstance": "reportingInstance",
    "action": "action",
    "reason": "reason",
    "involvedObject": "regarding",
    "related": "related",
    "message": "note",
    "type": "type",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
_CORE_FIELDS = {events: core for core, events in _FIELDS.items()}
#: Fields that core/v1 writes when empty and events.k8s.io/v1 omits.
_OMIT_EMPTY = ("reportingComponent", "reportingInstance")


class EventsV1Strategy(RESTStrategy):
    needs_conversion = True

    def from_storage(self, stored: Object) -> Object:
        return {
            events: stored[core]
            for core, events in _FIELDS.items()
            if core in stored and (stored[core] or core not in _OMIT_EMPTY)
        }

    def to_storage(self, served: Object) -> Object:
        return struct_of("CoreV1Event").read(
            {_CORE_FIELDS.get(name, name): value for name, value in served.items()}, []
        )

    def validate(self, new: Object) -> list[FieldError]:
        if new.get("eventTime") is None:
            return [required_value("eventTime")]
        required = ("reportingController", "reportingInstance", "action", "reason")
        return [required_value(name) for name in required if not new.get(name)]
