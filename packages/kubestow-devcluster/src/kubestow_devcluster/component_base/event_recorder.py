"""Recording Events about objects, as ``kubectl describe`` and ``kubectl events`` show them.

The controllers and the simulated kubelets record through this; the scheduler has a recorder of its own
(:mod:`kubestow.client.event_recorder`). Events are not aggregated: each call creates one. An event that the registry
rejects is dropped: recording never fails its caller.
"""

from __future__ import annotations

import logging
from collections import Counter

from kubestow.log_fields import fields
from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.kinds.kind import Kind
from kubestow_devcluster.apiserver.registry.registry import Registry
from kubestow_devcluster.apiserver.schema.types import Object

_log = logging.getLogger(__name__)

#: Seconds from the last update of an event to its deletion; the default of ``--event-ttl``.
EVENT_TTL = 3600.0
#: Events per object and component: the burst of client-go's event spam filter, here without a refill.
BURST = 25


class RegistryEventRecorder:
    """Creates Events in the registry; drops those about an object that has used up its burst."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._events = registry.scheme["events"]
        #: The number of events by the object's uid and the component.
        self._counts: dict[str, Counter[str]] = {}

    def __len__(self) -> int:
        """The number of objects whose events are counted."""
        return len(self._counts)

    def normal(self, component: str, kind: Kind, involved: Object, reason: str, message: str) -> None:
        """Record an event of type Normal about the object ``involved``."""
        self._record(component, kind, involved, "Normal", reason, message)

    def warning(self, component: str, kind: Kind, involved: Object, reason: str, message: str) -> None:
        """Record an event of type Warning about the object ``involved``."""
        self._record(component, kind, involved, "Warning", reason, message)

    def discard(self, uid: str) -> None:
        """Drop the event counts of a deleted object."""
        self._counts.pop(uid, None)

    def _record(self, component: str, kind: Kind, involved: Object, type_: str, reason: str, message: str) -> None:
        metadata, now = involved["metadata"], self._registry.now()
        counts = self._counts.setdefault(metadata["uid"], Counter())
        counts[component] += 1
        if counts[component] > BURST:
            return
        reference = kind.object_reference(involved)
        event = {
            # The suffix is the version that this write will have, so the name is unique.
            "metadata": {"name": f"{metadata['name']}.{self._registry.store.next_resource_version:016x}"},
            "involvedObject": reference,
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
            self._registry.create(self._events, reference["namespace"], self._events.struct.read(event, []))
        except statuses.StatusError as failure:
            # Usually the namespace is terminating (403) or gone (404).
            extra = fields(reason=reason, object=metadata["name"], err=failure.message)
            _log.info("event %s about %s dropped: %s", reason, metadata["name"], failure.message, extra=extra)
