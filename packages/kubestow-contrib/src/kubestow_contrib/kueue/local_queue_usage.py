"""The decayed usage of LocalQueues, by which admission fair sharing orders the Workloads of a ClusterQueue.

What a LocalQueue has consumed approaches what it uses, by half in each half-life. A Workload that is admitted counts
at once for what one sampling interval will add, so that many are not admitted between two samples.
(Source: Kueue ``pkg/util/admissionfairsharing``.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

_Key = tuple[str, str]


@dataclass(slots=True)
class _Account:
    consumed: dict[str, float] = field(default_factory=dict)
    current: dict[str, int] = field(default_factory=dict)
    updated: float = 0.0


@dataclass(slots=True)
class LocalQueueUsage:
    """The accounts of LocalQueues, named by namespace and name. Times are in seconds.

    ``resource_weights`` are weights of resources, 1 by default; usage of CPU is in cores.
    """

    half_life: float
    sampling_interval: float
    resource_weights: Mapping[str, float] = field(default_factory=dict)
    _weights: dict[_Key, float] = field(default_factory=dict, init=False)
    _accounts: dict[_Key, _Account] = field(default_factory=dict, init=False)

    def open_account(self, queue: _Key, weight: float, consumed: Mapping[str, int], updated: float) -> None:
        """Begin with what a queue has consumed at a time."""
        self._weights[queue] = weight
        self._accounts[queue] = _Account(dict(consumed), {}, updated)

    def run(self, queue: _Key, requests: Mapping[str, int], now: float) -> None:
        """A Workload uses its requests from now on."""
        account = self._decayed(queue, now)
        for resource, amount in requests.items():
            account.current[resource] = account.current.get(resource, 0) + amount

    def admit(self, queue: _Key, requests: Mapping[str, int], now: float) -> None:
        """A Workload was admitted: it runs, and counts at once for what one sampling interval adds."""
        self.run(queue, requests, now)
        consumed, rate = self._accounts[queue].consumed, self._rate(self.sampling_interval)
        for resource, amount in requests.items():
            consumed[resource] = consumed.get(resource, 0.0) + amount * rate

    def release(self, queue: _Key, requests: Mapping[str, int], now: float) -> None:
        """A Workload has ended, or lost its quota."""
        account = self._decayed(queue, now)
        for resource, amount in requests.items():
            account.current[resource] = account.current.get(resource, 0) - amount

    def usage(self, queue: _Key, now: float) -> float:
        """The usage by weight of a queue; infinite for the weight 0."""
        consumed = self._decayed(queue, now).consumed
        total = sum(
            self.resource_weights.get(resource, 1.0) * (amount / 1000 if resource == "cpu" else amount)
            for resource, amount in sorted(consumed.items())
        )
        weight = self._weights.get(queue, 1.0)
        return total / weight if weight > 0 else math.inf

    def _rate(self, elapsed: float) -> float:
        return 1.0 - 0.5 ** (elapsed / self.half_life) if self.half_life else 0.0

    def _decayed(self, queue: _Key, now: float) -> _Account:
        account = self._accounts.setdefault(queue, _Account(updated=now))
        elapsed = max(0.0, now - account.updated)
        if elapsed:
            rate = self._rate(elapsed) if self.half_life else 1.0
            for resource in {*account.consumed, *account.current}:
                old, current = account.consumed.get(resource, 0.0), account.current.get(resource, 0)
                account.consumed[resource] = old * (1 - rate) + (current * rate if self.half_life else 0.0)
            account.updated = now
        return account
