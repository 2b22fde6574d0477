"""The log and the events of evictions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from kubestow.api.reports import EventType
from kubestow.descheduling.eviction import Eviction, EvictionObserver, EvictionOutcome
from kubestow.log_fields import fields
from kubestow.scheduling.interfaces import EventRecord, ObjectReference

_log = logging.getLogger(__name__)

REPORTING_CONTROLLER = "sigs.k8s.io.descheduler"
"""The reporting controller of all events, as the descheduler's."""

_DESCHEDULED = EventType(
    "{reason}",
    "Descheduled",
    "evicted from {node} by {profile}/{strategy}: {message}",
    help="The descheduler evicted the pod. The reason is the strategy's name, or what that gives as a reason.",
)
_EVICTION_FAILED = EventType(
    "EvictionFailed",
    "Descheduled",
    "not evicted from {node} by {profile}/{strategy}: {message}",
    type="Warning",
    help="The descheduler could not evict the pod, or a limit is reached; only with evictionFailureEventNotification.",
)


class EvictionObservers(EvictionObserver):
    """Passes everything on to several observers, in their order."""

    def __init__(self, observers: Sequence[EvictionObserver]) -> None:
        self._observers = observers

    def evicted(self, eviction: Eviction) -> None:
        for observer in self._observers:
            observer.evicted(eviction)

    def refused(self, eviction: Eviction) -> None:
        for observer in self._observers:
            observer.refused(eviction)

    def limited(self, eviction: Eviction, limit: EvictionOutcome, most: int) -> None:
        for observer in self._observers:
            observer.limited(eviction, limit, most)

    def plugin_started(self, profile: str, plugin: str) -> None:
        for observer in self._observers:
            observer.plugin_started(profile, plugin)

    def plugin_finished(self, profile: str, plugin: str) -> None:
        for observer in self._observers:
            observer.plugin_finished(profile, plugin)


class EvictionLog(EvictionObserver):
    """Logs every eviction and why others were refused; in a dry run it says so."""

    def __init__(self, *, dry_run: bool) -> None:
        self._evicted = "Evicted pod in dry run" if dry_run else "Evicted pod"

    def evicted(self, eviction: Eviction) -> None:
        _log.info(self._evicted, extra=_fields(eviction))

    def refused(self, eviction: Eviction) -> None:
        refusal = eviction.refusal
        _log.info("Eviction refused", extra=_fields(eviction, err=refusal.message if refusal else ""))

    def limited(self, eviction: Eviction, limit: EvictionOutcome, most: int) -> None:
        _log.info("Eviction not requested: limit reached", extra=_fields(eviction, limit=limit.value, most=most))


def _fields(eviction: Eviction, **more: object) -> dict[str, object]:
    pod = eviction.pod
    return fields(
        pod=pod.key,
        node=pod.node_name,
        profile=eviction.profile,
        strategy=eviction.plugin,
        why=eviction.message,
        **more,
    )


class EvictionEvents(EvictionObserver):
    """Records an event for every evicted pod, and with ``failures`` for every one that could not be evicted."""

    def __init__(self, record: Callable[[EventRecord], None], *, failures: bool) -> None:
        self._record, self._failures = record, failures

    def evicted(self, eviction: Eviction) -> None:
        self._record_event(_DESCHEDULED, eviction, eviction.message)

    def refused(self, eviction: Eviction) -> None:
        if self._failures and eviction.refusal is not None:
            self._record_event(_EVICTION_FAILED, eviction, eviction.refusal.message)

    def limited(self, eviction: Eviction, limit: EvictionOutcome, most: int) -> None:
        if self._failures:
            self._record_event(_EVICTION_FAILED, eviction, f"{limit.value} of {most} reached")

    def _record_event(self, event: EventType, eviction: Eviction, message: str) -> None:
        pod = eviction.pod
        subject = ObjectReference(
            "Pod", pod.namespace, pod.name, pod.uid, resource_version=pod.metadata.resource_version
        )
        reason = event.reason.format(reason=eviction.reason or eviction.plugin)
        note = event.note.format(
            node=pod.node_name, profile=eviction.profile, strategy=eviction.plugin, message=message
        )
        controller = REPORTING_CONTROLLER
        self._record(EventRecord(subject, reason, event.action, note, event.type, reporting_controller=controller))
