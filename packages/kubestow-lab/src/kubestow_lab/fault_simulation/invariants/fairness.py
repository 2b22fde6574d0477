"""Fairness: to pods that wait for their first attempt while another one is tried twice, and to a server in trouble.

Neither a pod that fails nor a request that fails may be repeated at the cost of all others.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kubestow.api.core import Pod

_WINDOW = 10.0
#: Allowed equal requests in ten seconds, by verb. A process may be killed and started again a few times meanwhile, and
#: a list may have many pages.
_LIMITS = {"WATCH": 20, "GET": 60, "read": 40}
#: The same for writes. A pod whose victims cannot be evicted is considered again at once, as in kube-scheduler: four
#: tries take a third of a second.
_WRITES = 150


@dataclass(frozen=True)
class Overtaken:
    """A pod that waits, and how often another one has been tried meanwhile."""

    name: str
    attempts: int


def _priority(pod: Pod) -> int:
    return pod.spec.priority or 0


class FirstAttempts:
    """The pods of one start of a scheduler that it has not tried yet, with the attempts of others since.

    A pod begins to wait anew when it changes, because another priority changes its place in the queue.
    """

    def __init__(self) -> None:
        self._tried: set[str] = set()
        #: The version of each waiting pod, and the attempts of others since, by uid.
        self._waiting: dict[str, tuple[str, Counter[str]]] = {}

    def has_tried(self, uid: str) -> bool:
        """Whether a pod has been tried."""
        return uid in self._tried

    def attempted(self, pod: Pod, waiting: Iterable[Pod]) -> Iterator[Overtaken]:
        """A pod is tried; those overtaken of the pods that wait now, all of which are ready."""
        uid = pod.metadata.uid
        self._tried.add(uid)
        known = {each.metadata.uid: each for each in waiting if each.metadata.uid not in self._tried}
        self._waiting = {
            each.metadata.uid: before
            if (before := self._waiting.get(each.metadata.uid)) and before[0] == each.metadata.resource_version
            else (each.metadata.resource_version, Counter())
            for each in known.values()
        }
        for other, (_, attempts) in self._waiting.items():
            if _priority(known[other]) >= _priority(pod):
                attempts[uid] += 1
                if attempts[uid] > 1:
                    yield Overtaken(known[other].metadata.name, attempts[uid])


def request_storms(name: str, requests: Sequence[tuple[float, str]]) -> Iterator[str]:
    """Where a process has sent too many requests, each given as its time and what it requested."""
    window: deque[tuple[float, str]] = deque()
    counts: Counter[str] = Counter()
    for time, what in requests:
        window.append((time, what))
        counts[what] += 1
        while window[0][0] < time - _WINDOW:
            counts[window.popleft()[1]] -= 1
        if counts[what] > _LIMITS.get(what.partition(" ")[0], _WRITES):
            yield f"{name} has sent {what} {counts[what]} times in {_WINDOW:g} s"
            return
