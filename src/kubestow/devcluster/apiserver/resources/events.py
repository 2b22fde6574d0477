"""Events: one stored object, two faces. Stored as core/v1; events.k8s.io/v1 renames the fields."""

from __future__ import annotations

from kubestow.devcluster.apiserver.field_errors import Cause, required_value
from kubestow.devcluster.apiserver.resources.kind import Object, Strategy
from kubestow.devcluster.apiserver.schema import struct_of

__all__ = ["EventStrategy", "NewEventStrategy"]

#: core/v1 name -> events.k8s.io/v1 name, in the latter's order.
_RENAMED = {
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
_RESTORED = {new: old for old, new in _RENAMED.items()}
#: core/v1 writes these even when empty, events.k8s.io/v1 does not.
_LEFT_OUT_WHEN_EMPTY = ("reportingComponent", "reportingInstance")


class EventStrategy(Strategy):
    """core/v1: taken nearly as it comes."""


class NewEventStrategy(Strategy):
    """events.k8s.io/v1: reporter, action and reason are required."""

    converts = True

    def served(self, stored: Object) -> Object:
        return {
            new: stored[old]
            for old, new in _RENAMED.items()
            if old in stored and (stored[old] or old not in _LEFT_OUT_WHEN_EMPTY)
        }

    def stored(self, served: Object) -> Object:
        return struct_of("CoreV1Event").read({_RESTORED.get(name, name): value for name, value in served.items()}, [])

    def validate(self, new: Object) -> list[Cause]:
        if new.get("eventTime") is None:
            return [required_value("eventTime")]
        required = ("reportingController", "reportingInstance", "action", "reason")
        return [required_value(name) for name in required if not new.get(name)]
