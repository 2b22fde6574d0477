"""When each pod was created and bound, as a watch of all pods shows it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubestow.api.meta import ObjectMeta
from kubestow.scheduling.interfaces import Resource

_NEVER = float("inf")


@dataclass(slots=True)
class PodRecord:
    """A pod that was seen. Times are readings of the tracker's clock in seconds; infinite for what has not happened.

    ``created_at`` is when the driver sent the request that creates it.
    """

    namespace: str
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    created_at: float = _NEVER
    bound_at: float = _NEVER
    #: Whether the scheduler, or the API server for a gated pod, has set a condition.
    attempted: bool = False
    #: Why the pod is pending, if that is known.
    message: str = ""
    exists: bool = False

    @property
    def is_bound(self) -> bool:
        """Whether the pod was bound, even if it was deleted since."""
        return self.bound_at != _NEVER

    @property
    def is_scheduled(self) -> bool:
        """Whether the pod exists and is bound."""
        return self.exists and self.is_bound


class PodTracker:
    """Subscribes to the pods of a cluster. Changes of other kinds, which a cluster in memory delivers too, are ignored.

    A pod is bound at the time its binding arrives here, so the delays of the API server and of its watch are part of
    every measured time. ``on_bound`` is called for each pod when it is bound; ``bound`` counts them. ``synced`` is set
    when the first list has arrived.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        #: The time by which pods are recorded, in seconds.
        self.now = now
        self._pods: dict[str, dict[str, PodRecord]] = {}
        self._scheduled: Counter[str] = Counter()
        self.bound = 0
        self.synced = asyncio.Event()
        self.on_bound: Callable[[PodRecord], None] = lambda record: None

    def creating(self, namespace: str, name: str) -> None:
        """Record that the request which creates a pod is sent now."""
        self._record(namespace, name).created_at = self.now()

    def pods(self, namespace: str, labels: Mapping[str, str] | None = None) -> list[PodRecord]:
        """The pods of a namespace with all these labels, deleted ones included."""
        records = self._pods.get(namespace, {}).values()
        return [record for record in records if not labels or labels.items() <= record.labels.items()]

    def scheduled(self, namespace: str, labels: Mapping[str, str] | None = None) -> int:
        """How many existing pods of a namespace are bound."""
        if not labels:
            return self._scheduled[namespace]
        return sum(record.is_scheduled for record in self.pods(namespace, labels))

    def attempted(self, namespace: str, labels: Mapping[str, str] | None = None) -> int:
        """How many existing pods of a namespace are bound or were attempted at least once."""
        return sum(r.exists and (r.is_bound or r.attempted) for r in self.pods(namespace, labels))

    def bound_between(
        self, namespaces: Iterable[str], labels: Mapping[str, str] | None, start: float, end: float
    ) -> list[PodRecord]:
        """The pods of these namespaces that were bound in this time, in order of binding."""
        pods = (record for namespace in set(namespaces) for record in self.pods(namespace, labels))
        return sorted((pod for pod in pods if start <= pod.bound_at <= end), key=lambda pod: pod.bound_at)

    # -- Subscriber ---------------------------------------------------------------------------------------------------

    def replace(self, resource: Resource, objects: Sequence[Any]) -> None:
        if resource.kind != "Pod":
            return
        seen = {(pod.metadata.namespace, pod.metadata.name) for pod in objects}
        for namespace, records in self._pods.items():
            for name, record in records.items():
                if record.exists and (namespace, name) not in seen:
                    self._deleted(record)
        for pod in objects:
            self._seen(pod)
        self.synced.set()

    def apply(self, resource: Resource, event_type: str, obj: Any) -> None:
        if resource.kind != "Pod":
            return
        if event_type == "DELETED":
            self._deleted(self._record(obj.metadata.namespace, obj.metadata.name))
        else:
            self._seen(obj)

    def unreadable(self, resource: Resource, metadata: ObjectMeta, problem: str) -> None:
        """The few fields that are read here are valid in every pod that an API server stores."""

    def _record(self, namespace: str, name: str) -> PodRecord:
        records = self._pods.setdefault(namespace, {})
        if name not in records:
            records[name] = PodRecord(namespace, name)
        return records[name]

    def _seen(self, pod: Any) -> None:
        record = self._record(pod.metadata.namespace, pod.metadata.name)
        record.labels = pod.metadata.labels
        was_scheduled, record.exists = record.is_scheduled, True
        for condition in pod.status.conditions:
            if condition.type == "PodScheduled":
                record.attempted, record.message = True, condition.message
        if pod.spec.node_name and not record.is_bound:
            record.bound_at = self.now()
            self.bound += 1
            self.on_bound(record)
        self._scheduled[record.namespace] += record.is_scheduled - was_scheduled

    def _deleted(self, record: PodRecord) -> None:
        self._scheduled[record.namespace] -= record.is_scheduled
        record.exists = False
