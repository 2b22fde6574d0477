"""What controllers tell people: Event objects, as ``kubectl describe`` and ``kubectl events`` show them."""

from __future__ import annotations

from collections import Counter

from kubestow.devcluster.apiserver import statuses
from kubestow.devcluster.apiserver.registry.registry import Registry
from kubestow.devcluster.apiserver.resources import Kind, Object

__all__ = ["Recorder"]

#: Events told of one object by one component: as many as a client-go recorder lets through at once.
BURST = 25


class Recorder:
    """Writes events; those of an object that has had its share are dropped, as real controllers drop them."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._events = registry.catalog["events"]
        self._told: dict[str, Counter[str]] = {}

    def normal(self, component: str, kind: Kind, about: Object, reason: str, message: str) -> None:
        self._record(component, kind, about, "Normal", reason, message)

    def warning(self, component: str, kind: Kind, about: Object, reason: str, message: str) -> None:
        self._record(component, kind, about, "Warning", reason, message)

    def forget(self, uid: str) -> None:
        """The object is gone."""
        self._told.pop(uid, None)

    def _record(self, component: str, kind: Kind, about: Object, type_: str, reason: str, message: str) -> None:
        identity, now = about["metadata"], self._registry.now()
        told = self._told.setdefault(identity["uid"], Counter())
        told[component] += 1
        if told[component] > BURST:
            return
        regarding = kind.reference_to(about)
        event = {
            # The version that it will be stored at: no other event has it, whoever wrote that.
            "metadata": {"name": f"{identity['name']}.{self._registry.store.upcoming:016x}"},
            "involvedObject": regarding,
            "reason": reason,
            "message": message,
            "source": {"component": component},
            "reportingComponent": component,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "type": type_,
        }
        try:
            self._registry.create(self._events, regarding["namespace"], self._events.struct.read(event, []))
        except statuses.Failure as refused:
            # A namespace that is going away takes no more events.
            if refused.code != 403:
                raise
