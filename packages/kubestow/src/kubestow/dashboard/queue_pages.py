"""Pods in the scheduling queue and after it, page by page: where each is, why, and when it is tried again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from math import inf
from typing import Any, NamedTuple

from kubestow.engine.explanation.plain_words import explain_gate, plain_words
from kubestow.observability.pod_states import PodStates
from kubestow.scheduling.interfaces import Clock
from kubestow.scheduling.queued_pod import Place, QueuedPod
from kubestow.scheduling.scheduler import Scheduler

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
        return Reason(queued.place, scheduler_name, queued.gated_by, queued.rejectors, queued.pending_plugins, message)

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


#: The places of a pod, in the order in which they are listed.
PLACES = (
    Place.ACTIVE.value,
    Place.IN_FLIGHT.value,
    WAITING_ON_PERMIT,
    Place.BACKOFF.value,
    Place.ERROR_BACKOFF.value,
    Place.UNSCHEDULABLE.value,
    Place.GATED.value,
)
_PAGE = 100
#: An order is used again for so many seconds, and for so many times what it took to make: it costs at most 2 % CPU.
_ORDER_SECONDS, _ORDER_FACTOR = 1.0, 50.0

_Listed = tuple[str, QueuedPod | dict[str, Any]]


class QueuePages:
    """The pages of one scheduler's queue."""

    def __init__(self, scheduler: Scheduler, create_rows: Callable[[], QueueRows], clock: Clock) -> None:
        self._scheduler, self._create_rows, self._clock = scheduler, create_rows, clock
        self._rows = create_rows()
        #: All pods by place, and until when they are used, in seconds of the clock.
        self._listed_until = -inf
        self._listed: dict[str, list[_Listed]] = {}
        #: The pods that have been rejected or gated, by the id of their reason; made when it is first needed.
        self._by_group: dict[str, list[tuple[str, QueuedPod]]] | None = None

    def page(self, place: str, group: str, text: str, offset: int) -> dict[str, Any]:
        """Pods of a place and of a group ("" for all) whose ``namespace/name`` contains a text, from an offset on.

        A group is that of the pods with the reason of this id. With the page come the number of ``matches``, and the
        ``groups`` of the same reason that its pods belong to.
        """
        self._refresh()
        listed: Iterable[_Listed]
        if group:
            listed = (entry for entry in self._group(group) if place in ("", entry[1].place.value))
        else:
            listed = (entry for one in ([place] if place else PLACES) for entry in self._listed.get(one, ()))
        matching = [pod for key, pod in listed if text in key]
        shown = matching[offset : offset + _PAGE]
        queued = (pod for pod in shown if isinstance(pod, QueuedPod) and pod.place is not Place.ACTIVE)
        reasons = dict.fromkeys(map(self._rows.reason, queued))
        return {
            "matches": len(matching),
            "offset": offset,
            "pods": [self._rows.queued(pod) if isinstance(pod, QueuedPod) else pod for pod in shown],
            "groups": [self._rows.describe(reason) for reason in reasons],
        }

    def pods_of(self, group: str) -> list[QueuedPod]:
        """The pods with the reason of this id, those that are tried next first."""
        self._refresh()
        return [queued for _, queued in self._group(group)]

    def _refresh(self) -> None:
        began = self._clock.monotonic()
        if began >= self._listed_until:
            self._rows, self._by_group = self._create_rows(), None
            self._listed = self._list()
            ended = self._clock.monotonic()
            self._listed_until = ended + max(_ORDER_SECONDS, _ORDER_FACTOR * (ended - began))

    def _group(self, group: str) -> list[tuple[str, QueuedPod]]:
        if self._by_group is None:
            began = self._clock.monotonic()
            by_reason: dict[Reason, list[tuple[str, QueuedPod]]] = {}
            for entries in self._listed.values():
                for key, pod in entries:
                    if isinstance(pod, QueuedPod) and pod.place is not Place.ACTIVE:
                        by_reason.setdefault(self._rows.reason(pod), []).append((key, pod))
            self._by_group = {reason.id: entries for reason, entries in by_reason.items()}
            self._listed_until += _ORDER_FACTOR * (self._clock.monotonic() - began)
        return self._by_group.get(group, [])

    def _list(self) -> dict[str, list[_Listed]]:
        by_place: dict[str, list[QueuedPod]] = {}
        for queued in self._scheduler.queue.pods.values():
            by_place.setdefault(queued.place.value, []).append(queued)
        listed: dict[str, list[_Listed]] = {
            place: [(queued.info.key, queued) for queued in sorted(pods, key=next_first)]
            for place, pods in by_place.items()
        }
        listed[Place.IN_FLIGHT.value] = [(pod["pod"], pod) for pod in self._rows.in_flight()]
        listed[WAITING_ON_PERMIT] = [(pod["pod"], pod) for pod in self._rows.waiting_on_permit()]
        return listed
