"""Pods in flight, and what has happened since each of them was popped (semantics 6.7).

A pod in flight cannot be told of an event; its attempt may end in a refusal that the event has cured already. So events
are kept in one list for as long as a pod is in flight that was popped before them, and replayed when it comes back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kubestow.cluster.events import ClusterEvent

__all__ = ["Happened", "PodsInFlight"]

#: Events that nobody needs any more are cut off when there are more than this, and half of them can go.
_MANY = 1024


@dataclass(frozen=True, slots=True)
class Happened:
    """An event, with the object as it was and as it is. ``only`` is the uid of the one pod it concerns, "" for any."""

    event: ClusterEvent
    old: Any
    new: Any
    only: str = ""


class PodsInFlight:
    """Which pods are in flight, by uid, and the events of that time."""

    def __init__(self) -> None:
        self._events: list[Happened] = []
        #: How many events have been cut off the list; positions count them.
        self._cut = 0
        #: When each pod was popped, as a position in the list of events; in that order.
        self._popped_at: dict[str, int] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._popped_at

    def __len__(self) -> int:
        return len(self._popped_at)

    def counts(self) -> Counter[str]:
        """How many events are kept, by their label; the taking of each pod is one too."""
        counts = Counter(happened.event.label for happened in self._events)
        if self._popped_at:
            counts["PodPopped"] = len(self._popped_at)
        return counts

    def add(self, uid: str) -> None:
        """A pod has been popped; it was not in flight."""
        self._popped_at[uid] = self._cut + len(self._events)

    def keep(self, event: ClusterEvent, old: Any = None, new: Any = None, *, only: str = "") -> None:
        """Something happened that pods in flight may want to hear of; ``only`` is the uid of the one that may."""
        if self._popped_at:
            self._events.append(Happened(event, old, new, only))

    def since(self, uid: str) -> Iterator[Happened]:
        """What has happened since a pod was popped and concerns it; nothing for one that is not in flight."""
        position = self._popped_at.get(uid)
        if position is not None:
            yield from (each for each in self._events[position - self._cut :] if each.only in ("", uid))

    def remove(self, uid: str) -> None:
        """A pod is not in flight any more."""
        self._popped_at.pop(uid, None)
        if not self._popped_at:
            self._cut_off(len(self._events))
        elif len(self._events) > _MANY:
            unneeded = next(iter(self._popped_at.values())) - self._cut
            if unneeded > _MANY // 2:
                self._cut_off(unneeded)

    def _cut_off(self, count: int) -> None:
        del self._events[:count]
        self._cut += count
