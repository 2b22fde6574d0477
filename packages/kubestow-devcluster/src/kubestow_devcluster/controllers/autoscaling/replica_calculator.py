"""How many replicas a resource metric asks for, from the usage of the pods.

As kube-controller-manager's: replicas are the ready pods times the ratio of usage to target, rounded up, unless the
ratio is within the tolerance. Pods without a measurement dampen the change: they count as using what is requested when
replicas shrink, and as using nothing when they grow. Pods that are not ready count as using nothing when replicas grow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from kubestow.errors import KubestowError

__all__ = [
    "AverageValueTarget",
    "MeasuredPod",
    "MetricUnavailable",
    "Proposal",
    "Target",
    "Tolerance",
    "UtilizationTarget",
    "propose_replicas",
]


class MetricUnavailable(KubestowError):
    """The usage of the pods, or what they request, is unknown."""


class Tolerance(NamedTuple):
    """By which part of the target usage may differ without a change of scale."""

    scale_down: float = 0.1
    scale_up: float = 0.1

    def includes(self, ratio: float) -> bool:
        return 1.0 - self.scale_down <= ratio <= 1.0 + self.scale_up


class MeasuredPod(NamedTuple):
    """A pod of the target: usage and request in milli-units. ``usage`` is None for a pod without a measurement."""

    usage: int | None
    request: int
    is_ready: bool


class Usage(NamedTuple):
    """The usage of pods: its ratio to the target, the average in milli-units, and in per cent of the requests."""

    ratio: float
    average: int
    utilization: int | None


class Target(Protocol):
    """The target of a metric."""

    def usage(self, pods: Sequence[tuple[int, int]]) -> Usage:
        """The usage of pods, given as usage and request. Raises MetricUnavailable."""

    def assumed(self, request: int) -> int:
        """What a pod without a measurement uses at most."""


@dataclass(frozen=True, slots=True)
class UtilizationTarget:
    """Usage in per cent of what the pods request."""

    percent: int

    def usage(self, pods: Sequence[tuple[int, int]]) -> Usage:
        used, requested = sum(usage for usage, _ in pods), sum(request for _, request in pods)
        if not requested:
            raise MetricUnavailable("no metrics returned matched known pods")
        utilization = used * 100 // requested
        return Usage(utilization / self.percent, used // len(pods), utilization)

    def assumed(self, request: int) -> int:
        return request * max(100, self.percent) // 100


@dataclass(frozen=True, slots=True)
class AverageValueTarget:
    """The average usage of the pods, in milli-units."""

    value: int

    def usage(self, pods: Sequence[tuple[int, int]]) -> Usage:
        average = sum(usage for usage, _ in pods) // len(pods)
        return Usage(average / self.value, average, None)

    def assumed(self, request: int) -> int:
        return self.value


class Proposal(NamedTuple):
    """The replicas that a metric asks for, and the usage of the ready pods."""

    replicas: int
    usage: Usage


def propose_replicas(pods: Sequence[MeasuredPod], target: Target, current: int, tolerance: Tolerance) -> Proposal:
    """The replicas that ``pods`` ask for, which are ``current`` now. Raises MetricUnavailable."""
    measured = [(pod.usage, pod.request) for pod in pods if pod.is_ready and pod.usage is not None]
    if not measured:
        raise MetricUnavailable("did not receive metrics for targeted pods (pods might be unready)")
    usage = target.usage(measured)
    missing = [pod for pod in pods if pod.is_ready and pod.usage is None]
    unready = [pod for pod in pods if not pod.is_ready] if usage.ratio > 1 else []
    if not missing and not unready:
        if tolerance.includes(usage.ratio):
            return Proposal(current, usage)
        return Proposal(math.ceil(usage.ratio * len(measured)), usage)
    if usage.ratio < 1:
        measured += [(target.assumed(pod.request), pod.request) for pod in missing]
    elif usage.ratio > 1:
        measured += [(0, pod.request) for pod in (*missing, *unready)]
    ratio = target.usage(measured).ratio
    if tolerance.includes(ratio) or (usage.ratio < 1) != (ratio < 1):
        return Proposal(current, usage)
    replicas = math.ceil(ratio * len(measured))
    reverses = replicas > current if ratio < 1 else replicas < current
    return Proposal(current if reverses else replicas, usage)
