"""A profile: the plugins of one schedulerName, in order, at each extension point.

Built from the configuration and a registry of plugin classes. A plugin is made once per profile even if it extends
several points; which of them it is asked at is the configuration's choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from kubestow import config
from kubestow.api.custom import CustomObject
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.config import ExtensionPoint
from kubestow.errors import KubestowError, PluginError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.evaluation.evaluation_cache import EvaluationCache
from kubestow.framework.event_registration import EventRegistration
from kubestow.framework.gang import GangPlugin, GangPreemptionPlugin, GangSource
from kubestow.framework.interface import (
    BindPlugin,
    FilterPlugin,
    Handle,
    PermitPlugin,
    Plugin,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    QueueSortPlugin,
    ReservePlugin,
    ScorePlugin,
)
from kubestow.framework.observer import PluginObserver
from kubestow.framework.placement import PlacementGeneratePlugin, PlacementScorePlugin
from kubestow.framework.plugin_arguments import arguments
from kubestow.framework.profile_plugins import ProfilePlugins
from kubestow.framework.runtime import FrameworkRuntime
from kubestow.framework.status import Status, Verdict

__all__ = ["EXTENSION_POINTS", "Profile", "Registry", "build_profile", "implements"]

#: Plugin classes by name.
Registry = Mapping[str, type[Plugin]]

P = TypeVar("P", bound=Plugin)

EXTENSION_POINTS: Mapping[ExtensionPoint, type[Plugin]] = MappingProxyType(
    {
        ExtensionPoint.PRE_ENQUEUE: PreEnqueuePlugin,
        ExtensionPoint.QUEUE_SORT: QueueSortPlugin,
        ExtensionPoint.PRE_FILTER: PreFilterPlugin,
        ExtensionPoint.FILTER: FilterPlugin,
        ExtensionPoint.POST_FILTER: PostFilterPlugin,
        ExtensionPoint.PRE_SCORE: PreScorePlugin,
        ExtensionPoint.SCORE: ScorePlugin,
        ExtensionPoint.RESERVE: ReservePlugin,
        ExtensionPoint.PERMIT: PermitPlugin,
        ExtensionPoint.PRE_BIND: PreBindPlugin,
        ExtensionPoint.BIND: BindPlugin,
        ExtensionPoint.POST_BIND: PostBindPlugin,
        ExtensionPoint.PLACEMENT_GENERATE: PlacementGeneratePlugin,
        ExtensionPoint.PLACEMENT_SCORE: PlacementScorePlugin,
    }
)
"""The base class that stands for each extension point."""


def implements(registry: Registry) -> dict[str, frozenset[str]]:
    """Every plugin of a registry with the extension points it implements."""
    return {
        name: frozenset(point for point, base in EXTENSION_POINTS.items() if issubclass(plugin, base))
        for name, plugin in registry.items()
    }


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """One way of scheduling: plugins, the runtime that calls them, and the cache of their results."""

    scheduler_name: str
    #: Percent of the nodes to find before scoring, 0 for all.
    percentage_of_nodes_to_score: int
    #: All plugins, each once.
    plugins: Sequence[Plugin]
    runtime: FrameworkRuntime
    evaluations: EvaluationCache

    @property
    def pre_enqueue(self) -> Sequence[PreEnqueuePlugin]:
        """The PreEnqueue plugins."""
        return self.runtime.plugins.pre_enqueue

    @property
    def post_filter(self) -> Sequence[PostFilterPlugin]:
        """The PostFilter plugins."""
        return self.runtime.plugins.post_filter

    @property
    def reserve(self) -> Sequence[ReservePlugin]:
        """The Reserve plugins."""
        return self.runtime.plugins.reserve

    @property
    def permit(self) -> Sequence[PermitPlugin]:
        """The Permit plugins."""
        return self.runtime.plugins.permit

    @property
    def pre_bind(self) -> Sequence[PreBindPlugin]:
        """The PreBind plugins."""
        return self.runtime.plugins.pre_bind

    @property
    def gangs(self) -> GangSource | None:
        """The plugin that defines which pods are a gang; without one every pod is scheduled by itself."""
        return self.runtime.plugins.gang_source

    @property
    def gang_preemption(self) -> GangPreemptionPlugin | None:
        """The plugin that lists the pods which may be evicted for a gang as a whole."""
        return self.runtime.plugins.gang_preemption

    @property
    def placement_generator(self) -> PlacementGeneratePlugin | None:
        """The plugin that lists the placements of a gang."""
        return self.runtime.plugins.placement_generate


def build_profile(
    configured: config.KubeSchedulerProfile,
    registry: Registry,
    handle: Handle,
    *,
    percentage_of_nodes_to_score: int = 0,
    monotonic: Callable[[], float] | None = None,
    observer: PluginObserver | None = None,
) -> Profile:
    """Make the plugins of a profile. ``monotonic`` measures their calls, in seconds, which ``observer`` is told of.

    Raises ConfigurationError when the profile cannot be built from the registry or the args of a plugin are not what it
    declares, PluginError when a plugin cannot be made.
    """
    instances = _Instances(configured, registry, handle)
    runtime = FrameworkRuntime(_by_extension_point(instances), monotonic=monotonic, observer=observer)
    percentage = configured.percentage_of_nodes_to_score
    return Profile(
        configured.scheduler_name,
        percentage_of_nodes_to_score if percentage is None else percentage,
        tuple(instances.made.values()),
        runtime,
        EvaluationCache(runtime),
    )


class _Instances:
    """The plugin objects of a profile, by name; each is made when an extension point first lists it."""

    def __init__(self, configured: config.KubeSchedulerProfile, registry: Registry, handle: Handle) -> None:
        self.made: dict[str, Plugin] = {}
        self._configured, self._registry, self._handle = configured, registry, handle
        self._enabled = config.expand(configured, implements(registry))

    def at(self, point: ExtensionPoint, base: type[P]) -> list[P]:
        """The plugins of an extension point in order."""
        return [plugin for plugin, _ in self.weighted(point, base)]

    def weighted(self, point: ExtensionPoint, base: type[P]) -> list[tuple[P, int]]:
        """The same with their weights."""
        found = []
        for name, weight in self._enabled[point]:
            if name not in self.made:
                self.made[name] = _make(self._registry[name], self._configured, self._handle)
            plugin = self.made[name]
            assert isinstance(plugin, base)
            found.append((plugin, weight))
        return found


def _by_extension_point(instances: _Instances) -> ProfilePlugins:
    pre_filters = instances.at(ExtensionPoint.PRE_FILTER, PreFilterPlugin)
    pre_scores = instances.at(ExtensionPoint.PRE_SCORE, PreScorePlugin)
    filters = [_prepared_filter(p, pre_filters) for p in instances.at(ExtensionPoint.FILTER, FilterPlugin)]
    scores = [(_prepared_score(p, pre_scores), w) for p, w in instances.weighted(ExtensionPoint.SCORE, ScorePlugin)]
    post_filters = instances.at(ExtensionPoint.POST_FILTER, PostFilterPlugin)
    generators = instances.at(ExtensionPoint.PLACEMENT_GENERATE, PlacementGeneratePlugin)
    return ProfilePlugins(
        queue_sort=instances.at(ExtensionPoint.QUEUE_SORT, QueueSortPlugin)[0],
        pre_enqueue=instances.at(ExtensionPoint.PRE_ENQUEUE, PreEnqueuePlugin),
        pre_filter=pre_filters,
        filter=filters,
        post_filter=post_filters,
        pre_score=pre_scores,
        score=scores,
        reserve=instances.at(ExtensionPoint.RESERVE, ReservePlugin),
        permit=instances.at(ExtensionPoint.PERMIT, PermitPlugin),
        pre_bind=instances.at(ExtensionPoint.PRE_BIND, PreBindPlugin),
        bind=instances.at(ExtensionPoint.BIND, BindPlugin),
        post_bind=instances.at(ExtensionPoint.POST_BIND, PostBindPlugin),
        placement_generate=next(iter(generators), None),
        placement_score=instances.weighted(ExtensionPoint.PLACEMENT_SCORE, PlacementScorePlugin),
        gang_source=_gang_source(instances.made.values()),
        gang_preemption=next((plugin for plugin in post_filters if isinstance(plugin, GangPreemptionPlugin)), None),
    )


def _gang_source(plugins: Iterable[Plugin]) -> GangSource | None:
    """The first plugin that also keeps gangs out of the queue, or else the first that defines them."""
    sources = [plugin for plugin in plugins if isinstance(plugin, GangSource)]
    return next((plugin for plugin in sources if isinstance(plugin, GangPlugin)), next(iter(sources), None))


def _make(kind: type[Plugin], configured: config.KubeSchedulerProfile, handle: Handle) -> Plugin:
    args = arguments(configured, kind)
    try:
        plugin = kind(args, handle)
        invalid = [event for event in plugin.events_to_register if not isinstance(event, EventRegistration)]
    except KubestowError:
        raise
    except Exception as error:
        raise PluginError(kind.name, "construction", f"{type(error).__name__}: {error}") from error
    if invalid:
        problem = (
            f"events_to_register holds {type(invalid[0]).__name__}, expected EventRegistration "
            "(see kubestow.framework.event_registration.on)"
        )
        raise PluginError(kind.name, "construction", problem)
    for watched in plugin.watched_kinds():
        _check_address(kind, watched)
    return plugin


def _check_address(plugin: type[Plugin], watched: type) -> None:
    if issubclass(watched, CustomObject):
        try:
            watched.address()
        except ValueError as error:
            raise PluginError(plugin.name, "construction", str(error)) from None


def _prepared_filter(plugin: FilterPlugin, pre_filters: Sequence[Plugin]) -> FilterPlugin:
    needs = plugin.missing_pre_filter_error
    return plugin if needs is None or plugin in pre_filters else _UnpreparedFilter(plugin.name, needs)


def _prepared_score(plugin: ScorePlugin, pre_scores: Sequence[Plugin]) -> ScorePlugin:
    needs = plugin.missing_pre_score_error
    return plugin if needs is None or plugin in pre_scores else _UnpreparedScore(plugin.name, needs)


class _UnpreparedFilter(FilterPlugin):
    """Stands in for a filter whose PreFilter the profile has disabled, and that cannot do without."""

    def __init__(self, name: str, problem: str) -> None:
        self.name = name  # type: ignore[misc]  # takes the place of another plugin
        self._problem = problem

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict:
        """Fails on every node, like the reference when it misses the plugin's state."""
        return Verdict.of(np.ones(len(nodes), np.int32), {1: Status.error(self._problem)})


class _UnpreparedScore(ScorePlugin):
    """Stands in for a score whose PreScore the profile has disabled, and that cannot do without."""

    def __init__(self, name: str, problem: str) -> None:
        self.name = name  # type: ignore[misc]  # takes the place of another plugin
        self._problem = problem

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        """Fails."""
        raise PluginError(self.name, "Score", self._problem)
