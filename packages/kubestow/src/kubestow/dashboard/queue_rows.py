"""Pods in the scheduling queue and after it as plain data: where each is, why, and when it is tried again."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

from kubestow.engine.explanation.plain_words import explain_gate, plain_words
from kubestow.observability.pod_states import PodStates
from kubestow.scheduling.interfaces import Clock
from kubestow.scheduling.queued_pod import Place, QueuedPod
from kubestow.scheduling.scheduler import Scheduler

__all__ = ["WAITING_ON_PERMIT", "QueueRows", "Reason", "next_first"]

WAITING_ON_PERMIT = "waiting on permit"

#: Characters of a message; the rest is for the page of the pod.
_MOST_CHARACTERS = 2_000


class Reason(NamedTuple):
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


class QueueRows:
    """The rows of one scheduler's queue. Times are seconds since 1970, to a tenth."""

    def __init__(self, scheduler: Scheduler, states: PodStates, clock: Clock) -> None:
        self._scheduler, self._states = scheduler, states
        #: What has to be added to the clock's seconds for those since 1970; fixed, so that times do not flicker. Rows
        #: that are made anew follow a wall clock that has been set.
        self._epoch = clock.now().timestamp() - clock.monotonic()

    def queued(self, queued: QueuedPod) -> dict[str, Any]:
        """A pod in the queue. ``group`` is the id of its reason; one that is about to be tried has none."""
        retry = self._scheduler.queue.moves.retry_time(queued)
        pod = {
            "pod": queued.info.key,
            "place": queued.place.value,
            "since": self.time(queued.timestamp),
            "priority": queued.info.priority,
            "attempts": queued.attempts,
            "retryAt": None if retry is None else self.time(retry),
        }
        if queued.place is not Place.ACTIVE:
            pod["group"] = self.reason(queued).id
        return pod

    def waiting_on_permit(self) -> Iterator[dict[str, Any]]:
        """The pods that plugins keep from being bound."""
        for waiting in self._scheduler.waiting_pods.all():
            placed_pod = self._scheduler.cluster.placed_pod(waiting.info.uid)
            yield {
                "pod": waiting.info.key,
                "place": WAITING_ON_PERMIT,
                "priority": waiting.info.priority,
                "node": "" if placed_pod is None else placed_pod.node_name,
                "plugins": waiting.pending_plugins,
                "deadline": self.time(waiting.deadline),
            }

    def in_flight(self) -> Iterator[dict[str, Any]]:
        """The pods between pop and binding, those that wait on Permit left out."""
        for uid in self._scheduler.queue.in_flight.uids():
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

    def reason(self, queued: QueuedPod) -> Reason:
        """Why a pod in the queue waits."""
        attempt = None if queued.gated_by else self._states.last_attempt(queued.info)
        message = "" if attempt is None else attempt.message[:_MOST_CHARACTERS]
        scheduler_name = queued.info.spec.scheduler_name
        return Reason(queued.place, scheduler_name, queued.gated_by, queued.rejectors, queued.pending, message)

    def describe(self, reason: Reason) -> dict[str, Any]:
        """A reason in the scheduler's and in plain words, and the events after which its pods are tried again."""
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

    def time(self, seconds: float) -> float:
        """Seconds of the clock as seconds since 1970."""
        return round(self._epoch + seconds, 1)


def next_first(queued: QueuedPod) -> tuple[float, float]:
    """Sorts the pods of one place, those that are tried next first."""
    if queued.place is Place.ACTIVE:
        return -queued.info.priority, queued.timestamp
    if queued.place in (Place.BACKOFF, Place.ERROR_BACKOFF):
        return queued.backoff_expiration, queued.timestamp
    return 0.0, queued.timestamp
