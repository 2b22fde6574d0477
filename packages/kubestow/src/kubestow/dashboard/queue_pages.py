"""The scheduling queue page by page, and searched: what does not fit into the stream of all viewers.

The order is made once per second at most, and less often the longer it takes, whatever the number of viewers. A page
costs a comparison per pod and the rows of the page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import Any

from kubestow.dashboard.queue_rows import WAITING_ON_PERMIT, QueueRows, Reason, next_first
from kubestow.scheduling.interfaces import Clock
from kubestow.scheduling.queued_pod import Place, QueuedPod
from kubestow.scheduling.scheduler import Scheduler

__all__ = ["PLACES", "QueuePages"]

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
        """Make the order again if it is too old."""
        began = self._clock.monotonic()
        if began >= self._listed_until:
            self._rows, self._by_group = self._create_rows(), None
            self._listed = self._list()
            ended = self._clock.monotonic()
            self._listed_until = ended + max(_ORDER_SECONDS, _ORDER_FACTOR * (ended - began))

    def _group(self, group: str) -> list[tuple[str, QueuedPod]]:
        if self._by_group is None:
            began = self._clock.monotonic()
            self._by_group = self._grouped()
            self._listed_until += _ORDER_FACTOR * (self._clock.monotonic() - began)
        return self._by_group.get(group, [])

    def _grouped(self) -> dict[str, list[tuple[str, QueuedPod]]]:
        by_reason: dict[Reason, list[tuple[str, QueuedPod]]] = {}
        for entries in self._listed.values():
            for key, pod in entries:
                if isinstance(pod, QueuedPod) and pod.place is not Place.ACTIVE:
                    by_reason.setdefault(self._rows.reason(pod), []).append((key, pod))
        return {reason.id: entries for reason, entries in by_reason.items()}

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
