"""Evictions: their order, the limits of a policy, and the backend that an eviction is requested from.

A refusal is data: the API server refuses what would violate a disruption budget, and a strategy goes on with the next
pod. Only evictions that took place count against the limits. The pods of a node are evicted by priority, then quality
of service, then preference: pods without a priority go first, then those of lower priority; of equal priority
BestEffort goes before Burstable and Guaranteed; at last go those that prefer not to be evicted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from typing import Protocol

from kubestow.api.core import Container
from kubestow.api.formats import quantity
from kubestow.descheduling.cluster_state import AssignedPod, ClusterState
from kubestow.descheduling.snapshot import PodDisruptionBudget
from kubestow.rules.disruption import SEVERAL_BUDGETS, VIOLATION, BudgetIndex, denial, is_disruption, is_exempt
from kubestow.rules.requests import CPU, MEMORY


class EvictionOutcome(Enum):
    """What became of a request to evict a pod."""

    EVICTED = "evicted"
    REFUSED = "refused"
    NAMESPACE_LIMIT = "namespace limit"
    NODE_LIMIT = "node limit"
    TOTAL_LIMIT = "total limit"

    @property
    def evicted(self) -> bool:
        """Whether the pod was evicted."""
        return self is EvictionOutcome.EVICTED

    @property
    def ends_node(self) -> bool:
        """Whether no other pod of the node can be evicted in this loop either."""
        return self in (EvictionOutcome.NODE_LIMIT, EvictionOutcome.TOTAL_LIMIT)

    @property
    def ends_plugin(self) -> bool:
        """Whether no pod at all can be evicted in this loop any more."""
        return self is EvictionOutcome.TOTAL_LIMIT


class RefusedBy(StrEnum):
    """What refused an eviction: the API server, or the prediction where the pod would come back."""

    API_SERVER = "APIServer"
    RESCHEDULING = "Rescheduling"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a pod was not evicted."""

    by: RefusedBy
    message: str


@dataclass(frozen=True, slots=True)
class Eviction:
    """An eviction: the pod, and the profile and the plugin that decided on it.

    ``message`` says why, for people; ``reason`` is a word for events, if the plugin gives one. ``grace_period`` is in
    seconds; None stands for that of the pod. ``refusal`` is set if it did not take place.
    """

    pod: AssignedPod
    profile: str
    plugin: str
    message: str = ""
    reason: str = ""
    grace_period: int | None = None
    refusal: Refusal | None = None

    @property
    def explanation(self) -> str:
        """Which plugin of which profile decided on it, and why: the annotation of an eviction request."""
        return f"triggered by {self.profile}/{self.plugin}: {self.reason}"


class EvictionBackend(Protocol):
    """Evicts pods: on an API server, or only as one would."""

    def evict(self, eviction: Eviction) -> Refusal | None:
        """Evict a pod; the refusal if that was not possible."""


class EvictionObserver:
    """Observes evictions and the plugins that run. The methods do nothing by default."""

    def evicted(self, eviction: Eviction) -> None:
        """A pod was evicted."""

    def refused(self, eviction: Eviction) -> None:
        """An eviction was refused; ``eviction.refusal`` says why."""

    def limited(self, eviction: Eviction, limit: EvictionOutcome, most: int) -> None:
        """A limit of the policy, of ``most`` pods, prevented an eviction."""

    def plugin_started(self, profile: str, plugin: str) -> None:
        """A plugin starts to deschedule or balance."""

    def plugin_finished(self, profile: str, plugin: str) -> None:
        """The plugin is done."""


@dataclass(frozen=True, slots=True)
class EvictionLimits:
    """How many pods one loop may evict: per node, per namespace and in total; None for any number."""

    node: int | None = None
    namespace: int | None = None
    total: int | None = None


@dataclass(slots=True)
class LoopEvictions:
    """The evictions of one loop, over all profiles, and its refused ones."""

    cluster: ClusterState
    backend: EvictionBackend
    limits: EvictionLimits = EvictionLimits()
    observers: Sequence[EvictionObserver] = ()
    evicted: list[Eviction] = field(default_factory=list)
    refused: list[Eviction] = field(default_factory=list)
    _per_node: Counter[str] = field(default_factory=Counter)
    _per_namespace: Counter[str] = field(default_factory=Counter)

    def evict(self, eviction: Eviction) -> EvictionOutcome:
        """Evict a pod unless a limit is reached or the backend refuses."""
        pod = eviction.pod
        if not self.cluster.contains(pod):
            return EvictionOutcome.REFUSED  # evicted earlier in this loop
        for outcome, count, most in (
            (EvictionOutcome.TOTAL_LIMIT, len(self.evicted), self.limits.total),
            (EvictionOutcome.NODE_LIMIT, self._per_node[pod.node_name], self.limits.node),
            (EvictionOutcome.NAMESPACE_LIMIT, self._per_namespace[pod.namespace], self.limits.namespace),
        ):
            if most is not None and count >= most:
                for observer in self.observers:
                    observer.limited(eviction, outcome, most)
                return outcome
        refusal = self.backend.evict(eviction)
        if refusal is not None:
            refused = replace(eviction, refusal=refusal)
            self.refused.append(refused)
            for observer in self.observers:
                observer.refused(refused)
            return EvictionOutcome.REFUSED
        self.evicted.append(eviction)
        self._per_node[pod.node_name] += 1
        self._per_namespace[pod.namespace] += 1
        self.cluster.remove(pod)
        for observer in self.observers:
            observer.evicted(eviction)
        return EvictionOutcome.EVICTED


PREFER_NO_EVICTION = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
"""The annotation of pods that should rather not be evicted, whatever its value."""

_BEST_EFFORT, _BURSTABLE, _GUARANTEED = "BestEffort", "Burstable", "Guaranteed"
_RANKS = {_BEST_EFFORT: 0, _BURSTABLE: 1, _GUARANTEED: 2}
_COMPUTE = (CPU, MEMORY)


def eviction_order(pod: AssignedPod) -> tuple[bool, int, int, bool]:
    """The sort key of a pod; the smallest goes first."""
    priority = pod.priority
    rank = _RANKS.get(quality_of_service(pod), 0)
    return priority is not None, priority or 0, rank, PREFER_NO_EVICTION in pod.annotations


def quality_of_service(pod: AssignedPod) -> str:
    """``status.qosClass``, computed from the spec if it is not set."""
    if pod.status.qos_class:
        return pod.status.qos_class
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    requests, limits = _sums(containers, "requests"), _sums(containers, "limits")
    if not requests and not limits:
        return _BEST_EFFORT
    limited = all(_positive(container.resources.limits, name) for container in containers for name in _COMPUTE)
    return _GUARANTEED if limited and requests == limits else _BURSTABLE


def _sums(containers: tuple[Container, ...], kind: str) -> dict[str, int]:
    """The sum of the positive amounts of CPU and memory, in nano units."""
    sums: dict[str, int] = {}
    for container in containers:
        amounts = getattr(container.resources, kind)
        for name in _COMPUTE:
            if amount := _positive(amounts, name):
                sums[name] = sums.get(name, 0) + amount
    return sums


def _positive(amounts: dict[str, quantity.Quantity], name: str) -> int:
    return max(0, quantity.nanos(amounts[name])) if name in amounts else 0


class DryRunEvictions:
    """An eviction backend that evicts nothing, and refuses what the API server would refuse."""

    def __init__(self, budgets: Iterable[PodDisruptionBudget]) -> None:
        self._budgets = BudgetIndex(budgets)
        self._used: dict[tuple[str, str], int] = {}

    def evict(self, eviction: Eviction) -> Refusal | None:
        """Use up a disruption of the pod's budget; the refusal if there is none left."""
        pod = eviction.pod
        if not is_disruption(pod.status.phase, is_terminating=pod.terminating):
            return None
        budgets = self._budgets.limiting(pod.namespace, pod.labels)
        if len(budgets) > 1:
            return Refusal(RefusedBy.API_SERVER, f"Internal error occurred: {SEVERAL_BUDGETS}")
        if not budgets or is_exempt(pod.status, budgets[0]):
            return None
        metadata = budgets[0].metadata
        used = self._used.get((metadata.namespace, metadata.name), 0)
        if denial(budgets[0], used=used) is not None:
            return Refusal(RefusedBy.API_SERVER, VIOLATION)
        self._used[metadata.namespace, metadata.name] = used + 1
        return None
