"""A heap of waiting pods: by the time until which they wait, then by rank, then first come first served.

A pod that leaves is not removed: its entry goes stale, and goes when it comes to the top. Nobody takes anything from
the queue of a standby, where pods come and go all the same, so stale entries also go all at once when the heap has
doubled. Ranks are what a plugin makes of pods. Should it turn out that they cannot be compared, they count no longer.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable
from typing import Any

from kubestow.scheduling.queue.queued_pod import Place, QueuedPod

__all__ = ["PodHeap"]

_log = logging.getLogger(__name__)

#: A heap with fewer entries than this is not worth cleaning.
_FEW = 64
#: The rank of all when ranks cannot be compared.
_ANY = (1, 0.0)


class PodHeap:
    """The pods of one place."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._entries: list[tuple[float, Any, int, QueuedPod]] = []
        #: How many entries there may be before the stale ones are looked for.
        self._limit = _FEW
        self._is_ranked = True

    def push(self, rank: Any, ticket: int, queued: QueuedPod, *, until: float = 0.0) -> None:
        """A pod waits here from now on, and nowhere else; ``ticket`` is greater than any before."""
        queued.place, queued.ticket = self._place, ticket
        self._change(heapq.heappush, (until, rank if self._is_ranked else _ANY, ticket, queued))
        if len(self._entries) > self._limit:
            self._clean()

    def _clean(self) -> None:
        self._entries = [entry for entry in self._entries if self._is_fresh(entry)]
        self._change(heapq.heapify)
        self._limit = max(_FEW, 2 * len(self._entries))

    def _is_fresh(self, entry: tuple[float, Any, int, QueuedPod]) -> bool:
        _, _, ticket, queued = entry
        return queued.place is self._place and queued.ticket == ticket

    def peek(self) -> QueuedPod | None:
        """The first pod; None when there is none."""
        while self._entries:
            if self._is_fresh(self._entries[0]):
                return self._entries[0][3]
            self._change(heapq.heappop)
        return None

    def pop(self) -> QueuedPod | None:
        """The first pod, which is taken away."""
        queued = self.peek()
        if queued is not None:
            self._change(heapq.heappop)
        return queued

    def _change(self, change: Callable[..., Any], *entry: Any) -> None:
        """Change the entries; what fails halfway has lost nothing but their order."""
        try:
            change(self._entries, *entry)
        except Exception:
            _log.exception("the keys of the QueueSort plugin cannot be compared, and are not used any more")
            self._is_ranked = False
            self._entries = [(until, _ANY, ticket, queued) for until, _, ticket, queued in self._entries]
            heapq.heapify(self._entries)
