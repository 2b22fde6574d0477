"""Profiles: the plugins of a policy, built once, and the evictor that they work with in each loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from kubestow.descheduling.cluster_state import AssignedPod, ClusterState
from kubestow.descheduling.eviction import Eviction, Evictions, Outcome
from kubestow.descheduling.interface import (
    BalancePlugin,
    DeschedulePlugin,
    DeschedulingPlugin,
    FilterPlugin,
    PreEvictionFilterPlugin,
    PreSortPlugin,
    Registry,
    SortPlugin,
)
from kubestow.descheduling.policy import DeschedulerProfile, ExtensionPoint
from kubestow.errors import KubestowError, PluginError

__all__ = ["Profile", "ProfileEvictor"]

T = TypeVar("T", bound=DeschedulingPlugin)


class Profile:
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

    profile: Profile
    plugin: str
    cluster: ClusterState
    evictions: Evictions
    grace_period: int | None = None

    @cached_property
    def _filters(self) -> Sequence[Callable[[AssignedPod, ClusterState], bool]]:
        return [plugin.filter for plugin in self.profile.filters]

    @cached_property
    def _pre_eviction_filters(self) -> Sequence[Callable[[AssignedPod, ClusterState], bool]]:
        return [plugin.pre_eviction_filter for plugin in self.profile.pre_eviction_filters]

    def may_evict(self, pod: AssignedPod) -> bool:
        """Whether all filters let a pod pass."""
        return self.filter(pod) and self.pre_eviction_filter(pod)

    def filter(self, pod: AssignedPod) -> bool:
        """Whether the Filter plugins let a pod pass."""
        cluster = self.cluster
        first, *others = self._filters  # DefaultEvictor alone, most of the time
        return first(pod, cluster) and (not others or all(accepts(pod, cluster) for accepts in others))

    def pre_eviction_filter(self, pod: AssignedPod) -> bool:
        """Whether the PreEvictionFilter plugins let a pod pass."""
        cluster = self.cluster
        return all(accepts(pod, cluster) for accepts in self._pre_eviction_filters)

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

    def evict(self, pod: AssignedPod, message: str = "", *, reason: str = "") -> Outcome:
        """Evict a pod unless a limit or the backend is against it; no filter is applied here."""
        eviction = Eviction(pod, self.profile.name, self.plugin, message, reason, self.grace_period)
        return self.evictions.evict(eviction)
