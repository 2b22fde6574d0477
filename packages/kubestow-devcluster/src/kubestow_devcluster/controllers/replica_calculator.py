"""How many replicas a resource metric asks for, from the usage of the pods.

As kube-controller-manager's: replicas are the ready pods times the ratio of usage to target, rounded up, unless the
ratio is within the tolerance. Pods without a measurement dampen the change: they count as using what is requested when
replicas shrink, and as using nothing when they grow. Pods that are not ready count as using nothing when replicas grow.

The history of scaling limits how far and how fast replicas follow the recommendations.
Stabilization takes the highest recent recommendation when scaling down, and the lowest when scaling up. Policies bound
the change in a period. Times are Unix times in seconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from kubestow.errors import KubestowError
from kubestow_devcluster.apiserver.schema.types import Object


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


class ReplicaProposal(NamedTuple):
    """The replicas that a metric asks for, and the usage of the ready pods."""

    replicas: int
    usage: Usage


def propose_replicas(
    pods: Sequence[MeasuredPod], target: Target, current: int, tolerance: Tolerance
) -> ReplicaProposal:
    """The replicas that ``pods`` ask for, which are ``current`` now. Raises MetricUnavailable."""
    measured = [(pod.usage, pod.request) for pod in pods if pod.is_ready and pod.usage is not None]
    if not measured:
        raise MetricUnavailable("did not receive metrics for targeted pods (pods might be unready)")
    usage = target.usage(measured)
    missing = [pod for pod in pods if pod.is_ready and pod.usage is None]
    unready = [pod for pod in pods if not pod.is_ready] if usage.ratio > 1 else []
    if not missing and not unready:
        if tolerance.includes(usage.ratio):
            return ReplicaProposal(current, usage)
        return ReplicaProposal(math.ceil(usage.ratio * len(measured)), usage)
    if usage.ratio < 1:
        measured += [(target.assumed(pod.request), pod.request) for pod in missing]
    elif usage.ratio > 1:
        measured += [(0, pod.request) for pod in (*missing, *unready)]
    ratio = target.usage(measured).ratio
    if tolerance.includes(ratio) or (usage.ratio < 1) != (ratio < 1):
        return ReplicaProposal(current, usage)
    replicas = math.ceil(ratio * len(measured))
    reverses = replicas > current if ratio < 1 else replicas < current
    return ReplicaProposal(current if reverses else replicas, usage)


#: The stabilization window of scaling down, in seconds, where the autoscaler sets none.
DOWNSCALE_STABILIZATION = 300
#: Without a behavior, replicas at most double, from at least this many.
_SCALE_UP_FACTOR, _SCALE_UP_MINIMUM = 2, 4
#: The longest window and period that are valid.
_LONGEST_WINDOW, _LONGEST_PERIOD = 3600, 1800


class Limits(NamedTuple):
    """minReplicas and maxReplicas of an autoscaler, and its behavior, if it has one."""

    least: int
    most: int
    behavior: Object | None


class ScalingDecision(NamedTuple):
    """The replicas to scale to, with reason and message of the conditions AbleToScale and ScalingLimited."""

    replicas: int
    able: tuple[str, str]
    limited: tuple[str, str]
    is_limited: bool


_READY = ("ReadyForNewScale", "recommended size matches current size")
_STABILIZED_DOWN = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
)
_STABILIZED_UP = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
)
_WITHIN_RANGE = ("DesiredWithinRange", "the desired count is within the acceptable range")
_TOO_MANY = ("TooManyReplicas", "the desired replica count is more than the maximum replica count")
_TOO_FEW = ("TooFewReplicas", "the desired replica count is less than the minimum replica count")
_UP_LIMIT = ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate")
_DOWN_LIMIT = ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate")


class ScalingHistory:
    """The recent recommendations and changes of scale of one autoscaler, which was first seen at ``replicas``."""

    def __init__(self, now: float, replicas: int) -> None:
        self._recommendations = [(now, replicas)]
        self._changes: list[tuple[float, int]] = []

    def record_change(self, now: float, change: int) -> None:
        """Note that replicas were added, or removed if ``change`` is negative."""
        self._changes = [one for one in self._changes if one[0] > now - _LONGEST_PERIOD]
        self._changes.append((now, change))

    def decide(self, now: float, current: int, recommended: int, limits: Limits) -> ScalingDecision:
        """The replicas to scale to from ``current`` when metrics recommend ``recommended``."""
        behavior = limits.behavior
        if behavior is None:
            stabilized = max(recommended, *self._within(now, DOWNSCALE_STABILIZATION, recommended))
            able = _READY if stabilized == recommended else _STABILIZED_DOWN
            limit, reason = self._default_limit(current, stabilized, limits)
        else:
            up: int = behavior["scaleUp"].get("stabilizationWindowSeconds", 0)
            down: int = behavior["scaleDown"].get("stabilizationWindowSeconds", DOWNSCALE_STABILIZATION)
            lowest = min(recommended, *self._within(now, up, recommended))
            highest = max(recommended, *self._within(now, down, recommended))
            stabilized = min(max(current, lowest), highest)
            able = _READY
            if stabilized != recommended:
                able = _STABILIZED_UP if recommended >= current else _STABILIZED_DOWN
            limit, reason = self._limit(now, current, stabilized, limits, behavior)
        self._recommendations = [one for one in self._recommendations if one[0] > now - _LONGEST_WINDOW]
        self._recommendations.append((now, recommended))
        return ScalingDecision(limit, able, reason, is_limited=limit != stabilized)

    def _within(self, now: float, window: float, otherwise: int) -> list[int]:
        """The recommendations of a window, or only ``otherwise``."""
        return [replicas for when, replicas in self._recommendations if when > now - window] or [otherwise]

    @staticmethod
    def _default_limit(current: int, desired: int, limits: Limits) -> tuple[int, tuple[str, str]]:
        fastest = max(_SCALE_UP_FACTOR * current, _SCALE_UP_MINIMUM)
        if desired < limits.least:
            return limits.least, _TOO_FEW
        if desired > min(fastest, limits.most):
            return min(fastest, limits.most), _UP_LIMIT if limits.most > fastest else _TOO_MANY
        return desired, _WITHIN_RANGE

    def _limit(
        self, now: float, current: int, desired: int, limits: Limits, behavior: Object
    ) -> tuple[int, tuple[str, str]]:
        if desired > current:
            fastest = max(current, self._fastest(now, current, behavior["scaleUp"], 1))
            if desired > min(fastest, limits.most):
                return min(fastest, limits.most), _UP_LIMIT if limits.most > fastest else _TOO_MANY
        elif desired < current:
            fastest = min(current, self._fastest(now, current, behavior["scaleDown"], -1))
            if desired < max(fastest, limits.least):
                return max(fastest, limits.least), _DOWN_LIMIT if limits.least < fastest else _TOO_FEW
        return desired, _WITHIN_RANGE

    def _fastest(self, now: float, current: int, rules: Object, sign: int) -> int:
        """The replicas that the policies allow at most (``sign`` 1) or at least (-1)."""
        if rules["selectPolicy"] == "Disabled":
            return current
        allowed: list[int] = []
        for policy in rules["policies"]:
            since = now - policy["periodSeconds"]
            start: int = current - sum(change for when, change in self._changes if when > since)
            if policy["type"] == "Pods":
                allowed.append(start + sign * policy["value"])
            else:
                scaled = start * (100 + sign * policy["value"])
                allowed.append(math.ceil(scaled / 100) if sign > 0 else scaled // 100)
        # The policy with the largest change, unless the smallest is selected.
        return max(allowed) if (rules["selectPolicy"] == "Min") == (sign < 0) else min(allowed)
