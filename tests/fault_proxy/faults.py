"""What a proxy does to a request, and how often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from random import Random


class Fault(StrEnum):
    """What happens to one request or one watch."""

    LOST_REQUEST = "request lost"
    LOST_ANSWER = "answer lost after it took effect"
    TORN_ANSWER = "connection reset in the answer"
    ERROR_500 = "500"
    ERROR_503 = "503"
    ERROR_429 = "429"
    SLOW_REQUEST = "slow request"
    SLOW_ANSWER = "slow answer"
    WATCH_TRUNCATED = "watch cut in an event"
    WATCH_RESET = "watch reset"
    WATCH_SILENT = "watch silent, then reset"
    PARTITION = "request in a partition"


#: How often a request has a fault, and a watch at each of its parts.
REQUEST_RATES: Mapping[Fault, float] = {
    Fault.LOST_REQUEST: 0.01,
    Fault.LOST_ANSWER: 0.01,
    Fault.TORN_ANSWER: 0.005,
    Fault.ERROR_500: 0.01,
    Fault.ERROR_503: 0.01,
    Fault.ERROR_429: 0.01,
    Fault.SLOW_REQUEST: 0.02,
    Fault.SLOW_ANSWER: 0.02,
}
WATCH_RATES: Mapping[Fault, float] = {
    Fault.WATCH_TRUNCATED: 0.002,
    Fault.WATCH_RESET: 0.002,
    Fault.WATCH_SILENT: 0.0005,
}


class Faults:
    """Draws faults until they are stopped, and counts them. ``scale`` multiplies all rates."""

    def __init__(self, random: Random, *, scale: float = 1.0) -> None:
        self.random, self._scale = random, scale
        self.counts = Counter[Fault]()
        self._partitioned: set[str] = set()

    def stop(self) -> None:
        """From now on nothing has a fault."""
        self._scale = 0.0
        self._partitioned.clear()

    def set_partitioned(self, client: str, is_partitioned: bool) -> None:
        """Whether all requests of a client are lost."""
        if is_partitioned and self._scale:
            self._partitioned.add(client)
        else:
            self._partitioned.discard(client)

    def is_partitioned(self, client: str) -> bool:
        return client in self._partitioned

    def for_request(self, client: str) -> Fault | None:
        if client in self._partitioned:
            return self._counted(Fault.PARTITION)
        return self._draw(REQUEST_RATES)

    def for_watch_part(self, client: str) -> Fault | None:
        if client in self._partitioned:
            return self._counted(Fault.PARTITION)
        return self._draw(WATCH_RATES)

    def _draw(self, rates: Mapping[Fault, float]) -> Fault | None:
        drawn = self.random.random()
        for fault, rate in rates.items():
            drawn -= rate * self._scale
            if drawn < 0:
                return self._counted(fault)
        return None

    def _counted(self, fault: Fault) -> Fault:
        self.counts[fault] += 1
        return fault
