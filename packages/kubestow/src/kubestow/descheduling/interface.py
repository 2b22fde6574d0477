"""The plugin interface of descheduling: one small base class per extension point.

A plugin is a class with a ``name`` that derives from the base classes of the extension points it implements. The
extension points are the descheduler's:

    Deschedule, Balance               decide which pods to evict; all Deschedule plugins run before the Balance plugins
    Filter, PreEvictionFilter         protect pods: Filter when candidates are collected, PreEvictionFilter at the end
    PreSort, Sort                     the order in which candidates are evicted

A strategy gets the cluster and an :class:`Evictor`. What it decides on takes effect at once: later decisions of the
same loop no longer see the pod.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Protocol

import msgspec

from kubestow.descheduling.cluster_state import AssignedPod, ClusterState
from kubestow.descheduling.eviction import EvictionOutcome


@dataclass(frozen=True, slots=True)
class ArgumentProblem:
    """A mistake in the arguments of a plugin: the path of the field in the arguments, and what is wrong."""

    path: str
    message: str


class NoArgs(msgspec.Struct, frozen=True):
    """The arguments of a plugin that takes none."""


class DeschedulingPlugin:
    """The base of all plugins. ``args`` are the decoded arguments, an instance of :attr:`Args`."""

    name: ClassVar[str]
    #: The arguments as a msgspec Struct, with a default for every field; ``rename="camel"`` spells them as Kubernetes.
    Args: ClassVar[type[msgspec.Struct]] = NoArgs

    def __init__(self, args: Any) -> None:
        self.args = args

    @classmethod
    def validate(cls, args: Any) -> Iterable[ArgumentProblem]:
        """The mistakes in arguments of the right types."""
        return ()

    @classmethod
    def prometheus_queries(cls, args: Any) -> Iterable[str]:
        """The Prometheus queries whose results a loop with these arguments needs (``cluster.query_results``)."""
        return ()

    def loop_ended(self) -> None:
        """Forget what was kept for one loop: the next one has another cluster. Does nothing by default."""


class Evictor(Protocol):
    """What a strategy evicts pods with; it applies the filters of the profile and the limits of the policy."""

    def may_evict(self, pod: AssignedPod) -> bool:
        """Whether the Filter and the PreEvictionFilter plugins let a pod pass."""

    def filter(self, pod: AssignedPod) -> bool:
        """Whether the Filter plugins let a pod pass, for strategies that check the rest right before the eviction."""

    def pre_eviction_filter(self, pod: AssignedPod) -> bool:
        """Whether the PreEvictionFilter plugins let a pod pass."""

    def in_order(
        self, pods: Sequence[AssignedPod], key: Callable[[AssignedPod], Any] | None = None
    ) -> list[AssignedPod]:
        """The pods, those to evict first in front.

        The order is that of the profile's Sort plugins; if it has none, by ``key`` or as they are.
        """

    def evict(self, pod: AssignedPod, message: str = "", *, reason: str = "") -> EvictionOutcome:
        """Evict a pod. The outcome says whether it was, and otherwise why not; it can be ignored.

        ``message`` says why, for people, ``reason`` in a word for events.
        """


class DeschedulePlugin(DeschedulingPlugin, ABC):
    """Evicts pods for what they are."""

    @abstractmethod
    def deschedule(self, cluster: ClusterState, evictor: Evictor) -> None:
        """Evict pods."""


class BalancePlugin(DeschedulingPlugin, ABC):
    """Evicts pods to distribute them better."""

    @abstractmethod
    def balance(self, cluster: ClusterState, evictor: Evictor) -> None:
        """Evict pods."""


class FilterPlugin(DeschedulingPlugin, ABC):
    """Protects pods from eviction."""

    @abstractmethod
    def filter(self, pod: AssignedPod, cluster: ClusterState) -> bool:
        """Whether a pod may be evicted."""


class PreEvictionFilterPlugin(DeschedulingPlugin, ABC):
    """Protects pods from eviction, by checks that are made right before it."""

    @abstractmethod
    def pre_eviction_filter(self, pod: AssignedPod, cluster: ClusterState) -> bool:
        """Whether a pod may be evicted."""


class PreSortPlugin(DeschedulingPlugin, ABC):
    """Sees all candidates before they are sorted."""

    @abstractmethod
    def pre_sort(self, pods: Sequence[AssignedPod], cluster: ClusterState) -> None:
        """Prepare the order of these pods, for example compute what a Sort plugin then looks up."""


class SortPlugin(DeschedulingPlugin, ABC):
    """Orders candidates."""

    @abstractmethod
    def sort_key(self, pod: AssignedPod, cluster: ClusterState) -> Any:
        """The key by which a pod is sorted; the pods with the smallest keys are evicted first."""


class ExtensionPoint(StrEnum):
    """The extension points; the values are the field names of ``plugins`` in a policy."""

    DESCHEDULE = "deschedule"
    BALANCE = "balance"
    FILTER = "filter"
    PRE_EVICTION_FILTER = "preevictionfilter"
    PRE_SORT = "presort"
    SORT = "sort"


BASES: Mapping[ExtensionPoint, type[DeschedulingPlugin]] = {
    ExtensionPoint.DESCHEDULE: DeschedulePlugin,
    ExtensionPoint.BALANCE: BalancePlugin,
    ExtensionPoint.FILTER: FilterPlugin,
    ExtensionPoint.PRE_EVICTION_FILTER: PreEvictionFilterPlugin,
    ExtensionPoint.PRE_SORT: PreSortPlugin,
    ExtensionPoint.SORT: SortPlugin,
}
"""The base class of the plugins of each extension point, in the order in which the descheduler checks them."""

Registry = Mapping[str, type[DeschedulingPlugin]]
"""Plugin classes by name."""


def evict_of_node(pods: Iterable[tuple[AssignedPod, str]], evictor: Evictor) -> bool:
    """Evict pods of one node, each with the reason why, as far as the limits allow.

    False if no pod at all can be evicted any more.
    """
    for pod, why in pods:
        outcome = evictor.evict(pod, why)
        if outcome.ends_plugin:
            return False
        if outcome.ends_node:
            break
    return True
