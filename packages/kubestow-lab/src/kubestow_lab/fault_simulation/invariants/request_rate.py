"""The rate of requests: a server in trouble is not made worse by retries."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence

_WINDOW = 10.0
#: Allowed equal requests in ten seconds, by verb. A process may be killed and started again a few times meanwhile, and
#: a list may have many pages.
_LIMITS = {"WATCH": 20, "GET": 60, "read": 40}
#: The same for writes. A pod whose victims cannot be evicted is considered again at once, as in kube-scheduler: four
#: tries take a third of a second.
_WRITES = 150


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
