"""Rules for the CPU and memory that containers and nodes use.

An amount is a quantity (``250m``, ``1Gi``) or a percentage of what a container requests, or of what a node has
allocatable. It is constant, or moves between two amounts with a period. The usage at a time depends on nothing but the
rule, the object and the time, so it is the same after a restart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple
from zlib import crc32

import msgspec

from kubestow.api.formats import quantity
from kubestow.api.formats.duration import Duration
from kubestow.errors import InvalidQuantity
from kubestow_devcluster.behaviour.pod_behaviour import NodePatterns, PodPatterns

Quantity = str | int | float


class UsedAmounts(NamedTuple):
    """Amounts of CPU in cores and memory in bytes."""

    cpu: float
    memory: float


class ContainerResources(NamedTuple):
    """What a container requests, and its limits (infinity without one)."""

    requests: UsedAmounts
    limits: UsedAmounts


#: What percentages of a container without requests refer to, as in the scheduler's resource scores.
DEFAULT_REQUESTS = UsedAmounts(0.1, 200 * 1024 * 1024)
_UNLIMITED = UsedAmounts(math.inf, math.inf)


class Wave(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An amount that moves between ``min`` and ``max`` with a period, from midnight UTC on 1970-01-01.

    ``sine`` starts in the middle and rises, ``square`` is ``max`` in the first half, ``ramp`` rises and drops. With
    ``spread`` every object is shifted by a part of the period, which depends on its uid.
    """

    min: Quantity
    max: Quantity
    period: str
    shape: Literal["sine", "square", "ramp"] = "sine"
    spread: bool = False

    def __post_init__(self) -> None:
        _Amount.parse(self.min)
        _Amount.parse(self.max)
        if self.period_seconds <= 0:
            raise ValueError(f"expected a positive period such as 10m, got {self.period!r}")

    @property
    def period_seconds(self) -> float:
        return Duration.parse(self.period).seconds

    def level(self, time: float, uid: str) -> float:
        """Where the amount is between min (0) and max (1) at a Unix time."""
        shift = crc32(uid.encode()) / 2**32 if self.spread else 0.0
        phase = (time / self.period_seconds + shift) % 1.0
        if self.shape == "sine":
            return (1 + math.sin(2 * math.pi * phase)) / 2
        return phase if self.shape == "ramp" else float(phase < 0.5)


class _Amount(NamedTuple):
    """A number, or a fraction of a base."""

    value: float
    is_fraction: bool

    @classmethod
    @lru_cache(maxsize=1024)
    def parse(cls, amount: Quantity) -> _Amount:
        """Raises ValueError for an amount that is no quantity or percentage, or is negative."""
        text = str(amount)
        is_fraction = text.endswith("%")
        try:
            value = quantity.parse(text.removesuffix("%")) / (100 if is_fraction else 1)
        except InvalidQuantity:
            value = None
        if value is None or value < 0:
            raise ValueError(f"expected a quantity such as 250m, or a percentage such as 50%, got {text!r}")
        return cls(float(value), is_fraction)

    def of(self, base: float) -> float:
        return self.value * base if self.is_fraction else self.value


Level = Quantity | Wave


class PodUsageRule(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The spec of a PodUsage: what each container of the selected pods uses."""

    selector: PodPatterns = PodPatterns()
    cpu: Level | None = None
    memory: Level | None = None

    def __post_init__(self) -> None:
        _check(self.cpu, self.memory)


class NodeUsageRule(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The spec of a NodeUsage: what the selected nodes use in addition to their pods."""

    selector: NodePatterns = NodePatterns()
    cpu: Level | None = None
    memory: Level | None = None

    def __post_init__(self) -> None:
        _check(self.cpu, self.memory)


class ResourceUsageRules:
    """All rules for usage; the first that selects an object and sets a resource applies.

    Without a rule, containers use what they request, and nodes what their pods use.
    """

    def __init__(self, pods: Sequence[PodUsageRule] = (), nodes: Sequence[NodeUsageRule] = ()) -> None:
        self._pods, self._nodes = tuple(pods), tuple(nodes)

    def pod_levels(self, pod: dict[str, Any]) -> tuple[Level, Level]:
        """The levels of CPU and memory of a pod's containers."""
        return _first_levels([rule for rule in self._pods if rule.selector.matches(pod)], "100%")

    def node_levels(self, name: str, labels: dict[str, str]) -> tuple[Level, Level]:
        """The levels of CPU and memory of a node without its pods."""
        return _first_levels([rule for rule in self._nodes if rule.selector.matches(name, labels)], 0)


def amount_at(level: Level, base: float, time: float, uid: str) -> float:
    """The amount at a Unix time; percentages refer to ``base``."""
    if not isinstance(level, Wave):
        return _Amount.parse(level).of(base)
    least, greatest = _Amount.parse(level.min).of(base), _Amount.parse(level.max).of(base)
    return least + (greatest - least) * level.level(time, uid)


def container_resources(container: dict[str, Any]) -> ContainerResources:
    """The requests and limits of a container; a limit is a request too. Raises InvalidQuantity."""
    resources = container.get("resources") or {}
    limits = resources.get("limits") or {}
    requests = limits | (resources.get("requests") or {})
    return ContainerResources(_resources(requests, DEFAULT_REQUESTS), _resources(limits, _UNLIMITED))


def _resources(amounts: dict[str, Quantity], default: UsedAmounts) -> UsedAmounts:
    return UsedAmounts(
        *(
            float(quantity.parse(amounts[name])) if name in amounts else getattr(default, name)
            for name in UsedAmounts._fields
        )
    )


def _first_levels(rules: Sequence[PodUsageRule | NodeUsageRule], default: Level) -> tuple[Level, Level]:
    cpu = next((rule.cpu for rule in rules if rule.cpu is not None), default)
    memory = next((rule.memory for rule in rules if rule.memory is not None), default)
    return cpu, memory


def _check(*levels: Level | None) -> None:
    """Raises ValueError for an invalid amount; waves have checked their own."""
    for level in levels:
        if level is not None and not isinstance(level, Wave):
            _Amount.parse(level)
