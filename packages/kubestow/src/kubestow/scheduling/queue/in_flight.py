"""Pods in flight, and the cluster events since each of them was popped (semantics 6.7).

An event cannot requeue a pod that is in flight, yet the pod's attempt may end in a rejection that the event has already
resolved. Events are therefore kept while any pod is in flight that was popped before them, and replayed when that pod
returns to the queue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kubestow.cluster.changes.events import ClusterEvent

#: Events that no pod in flight needs any more are dropped once there are this many and half of them can go.
_COMPACTION_THRESHOLD = 1024


@dataclass(frozen=True, slots=True)
class InFlightEvent:
    """An event with the object before and after. ``only`` is the uid of the one pod that it concerns, "" for any."""

    event: ClusterEvent
    old: Any
    new: Any
    only: str = ""


class PodsInFlight:
    """The pods in flight by uid, and the events since the first of them was popped."""

    def __init__(self) -> None:
        self._events: list[InFlightEvent] = []
        #: How many events have been dropped from the front of the list; positions include them.
        self._dropped = 0
        #: When each pod was popped, as a position in the event list; in that order.
        self._popped_at: dict[str, int] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._popped_at

    def __len__(self) -> int:
        return len(self._popped_at)

    def uids(self) -> list[str]:
        """The uids of the pods, in the order in which they were popped."""
        return list(self._popped_at)

    def counts(self) -> Counter[str]:
        """How many events are kept, by label; each pop counts as an event of its own."""
        counts = Counter(kept.event.label for kept in self._events)
        if self._popped_at:
            counts["PodPopped"] = len(self._popped_at)
        return counts

    def add(self, uid: str) -> None:
        """A pod has been popped; it was not in flight."""
        self._popped_at[uid] = self._dropped + len(self._events)

    def keep(self, event: ClusterEvent, old: Any = None, new: Any = None, *, only: str = "") -> None:
        """Keep an event for the pods in flight, or for the ``only`` one of this uid."""
        if self._popped_at:
            self._events.append(InFlightEvent(event, old, new, only))

    def since(self, uid: str) -> Iterator[InFlightEvent]:
        """The events since a pod was popped that concern it; none for a pod that is not in flight."""
        position = self._popped_at.get(uid)
        if position is not None:
            yield from (kept for kept in self._events[position - self._dropped :] if kept.only in ("", uid))

    def done(self, uid: str) -> None:
        """A pod is no longer in flight; no further events are kept for it."""
        self._popped_at.pop(uid, None)
        unneeded = len(self._events)
        if self._popped_at:
            if unneeded <= _COMPACTION_THRESHOLD:
                return
            unneeded = next(iter(self._popped_at.values())) - self._dropped
            if unneeded <= _COMPACTION_THRESHOLD // 2:
                return
        del self._events[:unneeded]
        self._dropped += unneeded
