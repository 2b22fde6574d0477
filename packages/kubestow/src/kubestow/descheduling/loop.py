"""The descheduling loop: the Deschedule plugins of all profiles, then the Balance plugins of all profiles."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from kubestow import gc_tuning
from kubestow.api.selector_text import parse_selector
from kubestow.descheduling.cluster_state import ClusterState
from kubestow.descheduling.eviction import (
    Eviction,
    EvictionBackend,
    EvictionLimits,
    EvictionObserver,
    Evictions,
)
from kubestow.descheduling.interface import Evictor, Registry
from kubestow.descheduling.policy import DeschedulerPolicy, ExtensionPoint
from kubestow.descheduling.profile import Profile, ProfileEvictor
from kubestow.descheduling.snapshot import Snapshot
from kubestow.errors import KubestowError, PluginError

__all__ = ["Descheduler", "LoopResult"]

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
        self._profiles = [Profile(profile, registry) for profile in policy.profiles]

    def run(
        self,
        snapshot: Snapshot,
        *,
        now: datetime,
        backend: EvictionBackend,
        observer: EvictionObserver | None = None,
    ) -> LoopResult:
        """Run one loop on a snapshot of the cluster. Raises InvalidQuantity for an invalid amount of a resource.

        A plugin that fails is reported in the result and does not keep the others from running. An exception of the
        KubestowError tree, which backends raise, ends the loop.
        """
        with gc_tuning.paused():
            try:
                return self._run(snapshot, now, backend, observer or EvictionObserver())
            finally:
                for profile in self._profiles:
                    profile.loop_ended()

    def _run(
        self, snapshot: Snapshot, now: datetime, backend: EvictionBackend, observer: EvictionObserver
    ) -> LoopResult:
        cluster = ClusterState(snapshot, now=now, node_selector=self._node_selector)
        if len(cluster.ready) < _LEAST_NODES:
            return LoopResult((), (), too_few_nodes=True)
        evictions = Evictions(cluster, backend, self._limits, observer)
        errors: list[PluginError] = []
        for profile, plugin, point, strategy in self._strategies():
            evictor = ProfileEvictor(profile, plugin, cluster, evictions, self._grace_period)
            observer.plugin_started(profile.name, plugin)
            try:
                strategy(cluster, evictor)
            except KubestowError:
                raise
            except Exception as error:
                errors.append(PluginError(plugin, point, f"{type(error).__name__}: {error}"))
            observer.plugin_finished(profile.name, plugin)
        return LoopResult(evictions.evicted, evictions.refused, errors)

    def _strategies(self) -> Iterator[tuple[Profile, str, str, Callable[[ClusterState, Evictor], None]]]:
        """The strategies in the order in which they run, each with its profile, its name and its extension point."""
        for profile in self._profiles:
            for descheduling in profile.deschedule:
                yield profile, descheduling.name, ExtensionPoint.DESCHEDULE.value, descheduling.deschedule
        for profile in self._profiles:
            for balancing in profile.balance:
                yield profile, balancing.name, ExtensionPoint.BALANCE.value, balancing.balance
