"""A profile: the plugins of one schedulerName, in order, at each extension point.

Built from the configuration and a registry of plugin classes. A plugin is made once per profile even if it extends
several points; which of them it is asked at is the configuration's choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
from kubestow.framework.evaluation_cache import Evaluations, Weighted
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
from kubestow.framework.placement import PlacementGeneratePlugin, PlacementPlugins, PlacementScorePlugin
from kubestow.framework.plugin_arguments import arguments
from kubestow.framework.runtime import Asking
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
    """One way of scheduling. The sequences are in the order in which plugins are called."""

    scheduler_name: str
    #: Percent of the nodes to find before scoring, 0 for all.
    percentage_of_nodes_to_score: int
    queue_sort: QueueSortPlugin
    pre_enqueue: Sequence[PreEnqueuePlugin]
    post_filter: Sequence[PostFilterPlugin]
    reserve: Sequence[ReservePlugin]
    permit: Sequence[PermitPlugin]
    pre_bind: Sequence[PreBindPlugin]
    bind: Sequence[BindPlugin]
    post_bind: Sequence[PostBindPlugin]
    evaluations: Evaluations
    #: How its plugins are asked.
    asking: Asking
    #: All plugins, each once.
    plugins: Sequence[Plugin]
    #: Which part of the cluster a gang gets.
    placements: PlacementPlugins
    #: Says which pods are a gang; without it every pod is scheduled by itself.
    gangs: GangSource | None = None
    #: Says whom one may evict for a gang as a whole.
    gang_preemption: GangPreemptionPlugin | None = None


def build_profile(
    configured: config.Profile,
    registry: Registry,
    handle: Handle,
    *,
    percentage_of_nodes_to_score: int = 0,
    asking: Asking | None = None,
) -> Profile:
    """Make the plugins of a profile; ``asking`` is how they will be asked.

    Raises ConfigurationError when the profile cannot be built from the registry or the args of a plugin are not what it
    declares, PluginError when a plugin cannot be made.
    """
    asking = asking or Asking()
    enabled = config.expand(configured, implements(registry))
    made: dict[str, Plugin] = {}

    def at(point: ExtensionPoint, base: type[P]) -> list[P]:
        found = []
        for name, _ in enabled[point]:
            if name not in made:
                made[name] = _make(registry[name], configured, handle)
            plugin = made[name]
            assert isinstance(plugin, base)
            found.append(plugin)
        return found

    pre_filters = at(ExtensionPoint.PRE_FILTER, PreFilterPlugin)
    pre_scores = at(ExtensionPoint.PRE_SCORE, PreScorePlugin)
    filters = [_prepared_filter(plugin, pre_filters) for plugin in at(ExtensionPoint.FILTER, FilterPlugin)]
    scores = [_prepared_score(plugin, pre_scores) for plugin in at(ExtensionPoint.SCORE, ScorePlugin)]
    weights = [weight for _, weight in enabled[ExtensionPoint.SCORE]]
    post_filters = at(ExtensionPoint.POST_FILTER, PostFilterPlugin)
    percentage = configured.percentage_of_nodes_to_score
    placement_weights = [weight for _, weight in enabled[ExtensionPoint.PLACEMENT_SCORE]]
    generators = at(ExtensionPoint.PLACEMENT_GENERATE, PlacementGeneratePlugin)
    return Profile(
        scheduler_name=configured.scheduler_name,
        percentage_of_nodes_to_score=percentage_of_nodes_to_score if percentage is None else percentage,
        queue_sort=at(ExtensionPoint.QUEUE_SORT, QueueSortPlugin)[0],
        pre_enqueue=at(ExtensionPoint.PRE_ENQUEUE, PreEnqueuePlugin),
        post_filter=post_filters,
        reserve=at(ExtensionPoint.RESERVE, ReservePlugin),
        permit=at(ExtensionPoint.PERMIT, PermitPlugin),
        pre_bind=at(ExtensionPoint.PRE_BIND, PreBindPlugin),
        bind=at(ExtensionPoint.BIND, BindPlugin),
        post_bind=at(ExtensionPoint.POST_BIND, PostBindPlugin),
        evaluations=Evaluations(
            pre_filters=pre_filters,
            filters=filters,
            pre_scores=pre_scores,
            scores=[Weighted(plugin, weight) for plugin, weight in zip(scores, weights, strict=True)],
            asking=asking,
        ),
        asking=asking,
        placements=PlacementPlugins(
            generator=next(iter(generators), None),
            scores=list(zip(at(ExtensionPoint.PLACEMENT_SCORE, PlacementScorePlugin), placement_weights, strict=True)),
            asking=asking,
        ),
        plugins=tuple(made.values()),
        gangs=_source_of_gangs(made.values()),
        gang_preemption=next((plugin for plugin in post_filters if isinstance(plugin, GangPreemptionPlugin)), None),
    )


def _source_of_gangs(plugins: Iterable[Plugin]) -> GangSource | None:
    sources = [plugin for plugin in plugins if isinstance(plugin, GangSource)]
    return next((plugin for plugin in sources if isinstance(plugin, GangPlugin)), next(iter(sources), None))


def _make(kind: type[Plugin], configured: config.Profile, handle: Handle) -> Plugin:
    args = arguments(configured, kind)
    try:
        plugin = kind(args, handle)
        strangers = [interest for interest in plugin.events_to_register if not isinstance(interest, EventRegistration)]
    except KubestowError:
        raise
    except Exception as error:
        raise PluginError(kind.name, "construction", f"{type(error).__name__}: {error}") from error
    if strangers:
        problem = f"interests hold {type(strangers[0]).__name__}, expected what kubestow.framework.event_registration.on() gives"
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
