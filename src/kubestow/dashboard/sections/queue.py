"""The scheduling queue: how many pods wait where, which come next, and groups that wait for the same reason.

Pods are listed up to a number per place, those that are tried next first; groups count all of them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

from kubestow.dashboard.plain_words import explain_gate, plain_words
from kubestow.observability.pod_states import PodStates
from kubestow.scheduling.interfaces import Clock
from kubestow.scheduling.queued_pod import Place, QueuedPod
from kubestow.scheduling.scheduler import Scheduler

__all__ = ["WAITING_ON_PERMIT", "QueueSection"]

WAITING_ON_PERMIT = "waiting on permit"

#: Pods listed per place, groups, and example pods of a group.
_MOST_PODS, _MOST_GROUPS, _MOST_EXAMPLES = 50, 100, 5
#: Characters of a message; the rest is for the page of the pod.
_MOST_CHARACTERS = 2_000


class _Reason(NamedTuple):
    """Why pods wait: pods with an equal reason are one group."""

    place: Place
    scheduler_name: str
    gated_by: str
    rejectors: frozenset[str]
    pending: frozenset[str]
    message: str

    @property
    def id(self) -> str:
        """The same for the same reason, in each process."""
        parts = (self.place.value, *self[1:3], *sorted(self.rejectors), "", *sorted(self.pending), "", self.message)
        return blake2b("\0".join(parts).encode(), digest_size=6).hexdigest()


class QueueSection:
    """Implements :class:`~kubestow.dashboard.sections.section.Section` for the queue and the pods after it."""

    name = "queue"

    def __init__(self, scheduler: Scheduler, states: PodStates, clock: Clock) -> None:
        self._scheduler, self._states, self._clock = scheduler, states, clock
        #: What has to be added to the clock's seconds for those since 1970; fixed, so that times do not flicker.
        self._epoch = clock.now().timestamp() - clock.monotonic()
        self._content: dict[str, Any] = {}
        #: Groups by reason as they were sent, without what changes: the texts are made once.
        self._texts: dict[_Reason, dict[str, Any]] = {}

    def refresh(self) -> dict[str, Any] | None:
        former, self._content = self._content, self._read()
        return None if former == self._content else self._content

    def content(self) -> dict[str, Any]:
        return self._content

    def _read(self) -> dict[str, Any]:
        by_place: dict[Place, list[QueuedPod]] = {place: [] for place in Place}
        by_reason: dict[_Reason, list[QueuedPod]] = {}
        for queued in self._scheduler.queue.pending():
            by_place[queued.place].append(queued)
            if queued.place is not Place.ACTIVE:
                by_reason.setdefault(self._reason(queued), []).append(queued)
        waiting, in_flight = list(self._waiting_on_permit()), list(self._in_flight())
        counts: dict[str, int] = {place.value: len(pods) for place, pods in by_place.items()}
        counts |= {Place.IN_FLIGHT.value: len(in_flight), WAITING_ON_PERMIT: len(waiting)}
        return {
            "counts": counts,
            "groups": self._groups(by_reason),
            "pods": [
                *(self._pod(queued) for pods in by_place.values() for queued in _next_of(pods)),
                *waiting[:_MOST_PODS],
                *in_flight[:_MOST_PODS],
            ],
        }

    def _reason(self, queued: QueuedPod) -> _Reason:
        attempt = None if queued.gated_by else self._states.last_attempt(queued.info)
        message = "" if attempt is None else attempt.message[:_MOST_CHARACTERS]
        scheduler_name = queued.info.spec.scheduler_name
        return _Reason(queued.place, scheduler_name, queued.gated_by, queued.rejectors, queued.pending, message)

    # -- groups --------------------------------------------------------------------------------------------------------

    def _groups(self, by_reason: dict[_Reason, list[QueuedPod]]) -> list[dict[str, Any]]:
        """The largest groups, each with the texts that its pods have in common."""
        largest = heapq.nlargest(_MOST_GROUPS, by_reason.items(), key=lambda item: len(item[1]))
        self._texts = {reason: self._texts.get(reason) or self._describe(reason) for reason, _ in largest}
        return [
            {
                **self._texts[reason],
                "count": len(pods),
                "oldest": self._time(min(queued.timestamp for queued in pods)),
                "examples": [queued.info.key for queued in pods[:_MOST_EXAMPLES]],
            }
            for reason, pods in largest
        ]

    def _describe(self, reason: _Reason) -> dict[str, Any]:
        plugins = sorted(reason.rejectors | reason.pending | ({reason.gated_by} - {""}))
        if reason.gated_by:
            words = [explain_gate(reason.gated_by)]
        elif reason.place is Place.ERROR_BACKOFF or not plugins:
            words = ["an internal error ended the last attempt; the pod is tried again after a backoff"]
        else:
            words = plain_words(reason.message)
        return {
            "id": reason.id,
            "place": reason.place.value,
            "plugins": plugins,
            "message": reason.message,
            "words": words,
            "waitsFor": self._states.requeue_events(reason.scheduler_name, plugins),
        }

    # -- pods ----------------------------------------------------------------------------------------------------------

    def _pod(self, queued: QueuedPod) -> dict[str, Any]:
        retry = self._scheduler.queue.retry_time(queued)
        pod = {
            "pod": queued.info.key,
            "place": queued.place.value,
            "since": self._time(queued.timestamp),
            "priority": queued.info.priority,
            "attempts": queued.attempts,
            "retryAt": None if retry is None else self._time(retry),
        }
        if queued.place is not Place.ACTIVE:
            pod["group"] = self._reason(queued).id
        return pod

    def _waiting_on_permit(self) -> Iterator[dict[str, Any]]:
        for waiting in self._scheduler.waiting_pods.all():
            placed_pod = self._scheduler.cluster.placed_pod(waiting.info.uid)
            yield {
                "pod": waiting.info.key,
                "place": WAITING_ON_PERMIT,
                "priority": waiting.info.priority,
                "node": "" if placed_pod is None else placed_pod.node_name,
                "plugins": waiting.pending_plugins,
                "deadline": self._time(waiting.deadline),
            }

    def _in_flight(self) -> Iterator[dict[str, Any]]:
        """The pods between pop and binding, those that wait on Permit left out."""
        for uid in self._scheduler.queue.in_flight():
            info = self._scheduler.pods.get(uid)
            if info is None or self._scheduler.waiting_pods.get(uid) is not None:
                continue
            placed_pod = self._scheduler.cluster.placed_pod(uid)
            yield {
                "pod": info.key,
                "place": Place.IN_FLIGHT.value,
                "priority": info.priority,
                "node": "" if placed_pod is None else placed_pod.node_name,
            }

    def _time(self, seconds: float) -> float:
        """Seconds of the clock as seconds since 1970, to a tenth."""
        return round(self._epoch + seconds, 1)


def _next_of(pods: Iterable[QueuedPod]) -> list[QueuedPod]:
    """The pods of one place that are listed, those that are tried next first."""
    return heapq.nsmallest(_MOST_PODS, pods, key=_order)


def _order(queued: QueuedPod) -> tuple[float, float]:
    if queued.place is Place.ACTIVE:
        return -queued.info.priority, queued.timestamp
    if queued.place in (Place.BACKOFF, Place.ERROR_BACKOFF):
        return queued.backoff_expiration, queued.timestamp
    return 0.0, queued.timestamp
