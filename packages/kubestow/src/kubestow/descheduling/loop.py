"""The descheduling loop: the Deschedule plugins of all profiles, then the Balance plugins of all profiles.

Profiles have the plugins of a policy, built once, and the evictor that they work with in each loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from kubestow import gc_tuning
from kubestow.api.selector_text import parse_selector
from kubestow.descheduling.cluster_state import AssignedPod, ClusterState
from kubestow.descheduling.descheduler_policy import DeschedulerPolicy, DeschedulerProfile
from kubestow.descheduling.eviction import (
    Eviction,
    EvictionBackend,
    EvictionLimits,
    EvictionObserver,
    EvictionOutcome,
    LoopEvictions,
)
from kubestow.descheduling.interface import (
    BalancePlugin,
    DeschedulePlugin,
    DeschedulingPlugin,
    Evictor,
    ExtensionPoint,
    FilterPlugin,
    PreEvictionFilterPlugin,
    PreSortPlugin,
    Registry,
    SortPlugin,
)
from kubestow.descheduling.snapshot import Snapshot
from kubestow.errors import KubestowError, PluginError

T = TypeVar("T", bound=DeschedulingPlugin)


class DeschedulingProfile:
    """The plugins of one profile by extension point, in their order; a plugin is one object at all of its points."""

    def __init__(self, profile: DeschedulerProfile, registry: Registry) -> None:
        """Raises PluginError when a plugin cannot be constructed."""
        self.name = profile.name
        arguments = {config.name: config.args for config in reversed(profile.plugin_config)}
        built: dict[str, DeschedulingPlugin] = {}

        def plugins(point: ExtensionPoint, base: type[T]) -> list[T]:
            names = profile.plugins.enabled(point)
            for name in names:
                if name not in built:
                    built[name] = _built(registry[name], arguments[name])
            return [plugin for name in names if isinstance(plugin := built[name], base)]

        self.deschedule = plugins(ExtensionPoint.DESCHEDULE, DeschedulePlugin)
        self.balance = plugins(ExtensionPoint.BALANCE, BalancePlugin)
        self.filters = plugins(ExtensionPoint.FILTER, FilterPlugin)
        self.pre_eviction_filters = plugins(ExtensionPoint.PRE_EVICTION_FILTER, PreEvictionFilterPlugin)
        self.pre_sort = plugins(ExtensionPoint.PRE_SORT, PreSortPlugin)
        self.sort = plugins(ExtensionPoint.SORT, SortPlugin)
        self._plugins = built.values()

    def loop_ended(self) -> None:
        """Have all plugins forget what they kept for one loop."""
        for plugin in self._plugins:
            plugin.loop_ended()


def _built(plugin: type[DeschedulingPlugin], args: Any) -> DeschedulingPlugin:
    try:
        return plugin(args)
    except KubestowError:
        raise
    except Exception as error:
        raise PluginError(plugin.name, "construction", f"{type(error).__name__}: {error}") from error


@dataclass(frozen=True)
class ProfileEvictor:
    """The evictor of one plugin in one loop; implements :class:`kubestow.descheduling.interface.Evictor`."""

    profile: DeschedulingProfile
    plugin: str
    cluster: ClusterState
    evictions: LoopEvictions
    grace_period: int | None = None

    def may_evict(self, pod: AssignedPod) -> bool:
        """Whether all filters let a pod pass."""
        return self.filter(pod) and self.pre_eviction_filter(pod)

    def filter(self, pod: AssignedPod) -> bool:
        """Whether the Filter plugins let a pod pass."""
        cluster = self.cluster
        first, *others = self.profile.filters  # DefaultEvictor alone, most of the time
        return first.filter(pod, cluster) and (not others or all(plugin.filter(pod, cluster) for plugin in others))

    def pre_eviction_filter(self, pod: AssignedPod) -> bool:
        """Whether the PreEvictionFilter plugins let a pod pass."""
        return all(plugin.pre_eviction_filter(pod, self.cluster) for plugin in self.profile.pre_eviction_filters)

    def in_order(
        self, pods: Sequence[AssignedPod], key: Callable[[AssignedPod], Any] | None = None
    ) -> list[AssignedPod]:
        """The pods by the Sort plugins, the first of them deciding, or by ``key``; equal ones keep their order."""
        for plugin in self.profile.pre_sort:
            plugin.pre_sort(pods, self.cluster)
        sorting = self.profile.sort
        if sorting:
            return sorted(pods, key=lambda pod: tuple(plugin.sort_key(pod, self.cluster) for plugin in sorting))
        return list(pods) if key is None else sorted(pods, key=key)

    def evict(self, pod: AssignedPod, message: str = "", *, reason: str = "") -> EvictionOutcome:
        """Evict a pod unless a limit or the backend is against it; no filter is applied here."""
        eviction = Eviction(pod, self.profile.name, self.plugin, message, reason, self.grace_period)
        return self.evictions.evict(eviction)


#: With fewer ready nodes than these there is nowhere else to go.
_LEAST_NODES = 2


@dataclass(frozen=True, slots=True)
class LoopResult:
    """What one loop did: the evictions in their order, the refused ones, and plugins that failed.

    ``too_few_nodes`` is set if nothing was done because fewer than two nodes are ready and selected.
    """

    evicted: Sequence[Eviction]
    refused: Sequence[Eviction]
    errors: Sequence[PluginError] = ()
    too_few_nodes: bool = False


class Descheduler:
    """A policy with its plugins; each call of :meth:`run` is one loop."""

    def __init__(self, policy: DeschedulerPolicy, registry: Registry) -> None:
        """``policy`` is loaded for this registry, and its priority thresholds have values.

        Raises PluginError when a plugin cannot be constructed.
        """
        self._grace_period = policy.grace_period_seconds
        self._node_selector = parse_selector(policy.node_selector or "")
        self._limits = EvictionLimits(
            node=policy.max_no_of_pods_to_evict_per_node,
            namespace=policy.max_no_of_pods_to_evict_per_namespace,
            total=policy.max_no_of_pods_to_evict_total,
        )
        self._profiles = [DeschedulingProfile(profile, registry) for profile in policy.profiles]

    def run(
        self,
        snapshot: Snapshot,
        *,
        now: datetime,
        backend: EvictionBackend,
        observers: Sequence[EvictionObserver] = (),
    ) -> LoopResult:
        """Run one loop on a snapshot of the cluster. Raises InvalidQuantity for an invalid amount of a resource.

        A plugin that fails is reported in the result and does not keep the others from running. An exception of the
        KubestowError tree, which backends raise, ends the loop.
        """
        with gc_tuning.paused():
            try:
                return self._run(snapshot, now, backend, observers)
            finally:
                for profile in self._profiles:
                    profile.loop_ended()

    def _run(
        self, snapshot: Snapshot, now: datetime, backend: EvictionBackend, observers: Sequence[EvictionObserver]
    ) -> LoopResult:
        cluster = ClusterState(snapshot, now=now, node_selector=self._node_selector)
        if len(cluster.ready) < _LEAST_NODES:
            return LoopResult((), (), too_few_nodes=True)
        evictions = LoopEvictions(cluster, backend, self._limits, observers)
        errors: list[PluginError] = []
        for profile, plugin, point, strategy in self._strategies():
            evictor = ProfileEvictor(profile, plugin, cluster, evictions, self._grace_period)
            for observer in observers:
                observer.plugin_started(profile.name, plugin)
            try:
                strategy(cluster, evictor)
            except KubestowError:
                raise
            except Exception as error:
                errors.append(PluginError(plugin, point, f"{type(error).__name__}: {error}"))
            for observer in observers:
                observer.plugin_finished(profile.name, plugin)
        return LoopResult(evictions.evicted, evictions.refused, errors)

    def _strategies(self) -> Iterator[tuple[DeschedulingProfile, str, str, Callable[[ClusterState, Evictor], None]]]:
        """The strategies in the order in which they run, each with its profile, its name and its extension point."""
        for profile in self._profiles:
            for descheduling in profile.deschedule:
                yield profile, descheduling.name, ExtensionPoint.DESCHEDULE.value, descheduling.deschedule
        for profile in self._profiles:
            for balancing in profile.balance:
                yield profile, balancing.name, ExtensionPoint.BALANCE.value, balancing.balance
