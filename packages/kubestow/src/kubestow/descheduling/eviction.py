"""Evictions: the limits of a policy, and the backend that an eviction is requested from.

A refusal is data: the API server refuses what would violate a disruption budget, and a strategy goes on with the next
pod. Only evictions that took place count against the limits.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from typing import Protocol

from kubestow.descheduling.cluster_state import AssignedPod, ClusterState

__all__ = [
    "Eviction",
    "EvictionBackend",
    "EvictionLimits",
    "EvictionObserver",
    "Evictions",
    "Outcome",
    "Refusal",
    "RefusedBy",
]


class Outcome(Enum):
    """What became of a request to evict a pod."""

    EVICTED = "evicted"
    REFUSED = "refused"
    NAMESPACE_LIMIT = "namespace limit"
    NODE_LIMIT = "node limit"
    TOTAL_LIMIT = "total limit"

    @property
    def evicted(self) -> bool:
        """Whether the pod was evicted."""
        return self is Outcome.EVICTED

    @property
    def ends_node(self) -> bool:
        """Whether no other pod of the node can be evicted in this loop either."""
        return self in (Outcome.NODE_LIMIT, Outcome.TOTAL_LIMIT)

    @property
    def ends_plugin(self) -> bool:
        """Whether no pod at all can be evicted in this loop any more."""
        return self is Outcome.TOTAL_LIMIT


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

    def limited(self, eviction: Eviction, limit: Outcome, most: int) -> None:
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
class Evictions:
    """The evictions of one loop, over all profiles, and its refused ones."""

    cluster: ClusterState
    backend: EvictionBackend
    limits: EvictionLimits = EvictionLimits()
    observer: EvictionObserver = field(default_factory=EvictionObserver)
    evicted: list[Eviction] = field(default_factory=list)
    refused: list[Eviction] = field(default_factory=list)
    _per_node: Counter[str] = field(default_factory=Counter)
    _per_namespace: Counter[str] = field(default_factory=Counter)

    def evict(self, eviction: Eviction) -> Outcome:
        """Evict a pod unless a limit is reached or the backend refuses."""
        pod = eviction.pod
        if not self.cluster.contains(pod):
            return Outcome.REFUSED  # evicted earlier in this loop
        for outcome, count, most in self._limits_of(pod):
            if most is not None and count >= most:
                self.observer.limited(eviction, outcome, most)
                return outcome
        refusal = self.backend.evict(eviction)
        if refusal is not None:
            refused = replace(eviction, refusal=refusal)
            self.refused.append(refused)
            self.observer.refused(refused)
            return Outcome.REFUSED
        self.evicted.append(eviction)
        self._per_node[pod.node_name] += 1
        self._per_namespace[pod.namespace] += 1
        self.cluster.remove(pod)
        self.observer.evicted(eviction)
        return Outcome.EVICTED

    def _limits_of(self, pod: AssignedPod) -> tuple[tuple[Outcome, int, int | None], ...]:
        """The limits that apply to a pod in the order in which they are checked, each with the evictions so far."""
        return (
            (Outcome.TOTAL_LIMIT, len(self.evicted), self.limits.total),
            (Outcome.NODE_LIMIT, self._per_node[pod.node_name], self.limits.node),
            (Outcome.NAMESPACE_LIMIT, self._per_namespace[pod.namespace], self.limits.namespace),
        )
