"""The plugins that an evaluation calls, by extension point, and what follows from them alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kubestow.cluster.invalidation import RESULT_CHANGES, InvalidationMask
from kubestow.framework.event_registration import invalidation_mask
from kubestow.framework.interface import FilterPlugin, Plugin, PreFilterPlugin, PreScorePlugin, ScorePlugin
from kubestow.framework.runtime import FrameworkRuntime


class BoundPlugin:
    """A plugin in its profile: the extension points it is enabled at, and what invalidates its results.

    ``filter_plugin`` and the like are the plugin itself where the extension point is enabled, otherwise None.
    """

    def __init__(self, plugin: Plugin, runtime: FrameworkRuntime) -> None:
        self.plugin = plugin
        self.runtime = runtime
        self.filter_plugin = plugin if isinstance(plugin, FilterPlugin) else None
        #: Whether Filter is not cached and runs only on the nodes that all filters before it have passed.
        self.filters_passing_nodes = self.filter_plugin is not None and self.filter_plugin.uncached
        self.caches_filter = self.filter_plugin is not None and not self.filters_passing_nodes
        self.score_plugin = plugin if isinstance(plugin, ScorePlugin) else None
        #: Whether the raw scores depend on the set of feasible nodes, so that they are not cached.
        self.scores_feasible_set = self.score_plugin is None or self.score_plugin.scores_feasible_set
        #: Whether Filter and Score have forms for single rows.
        self.filters_rows = isinstance(plugin, FilterPlugin) and type(plugin).filter_row is not FilterPlugin.filter_row
        self.scores_rows = isinstance(plugin, ScorePlugin) and type(plugin).score_row is not ScorePlugin.score_row
        self.normalizes = isinstance(plugin, ScorePlugin) and type(plugin).normalize is not ScorePlugin.normalize
        runs_pre_filter, runs_pre_score = plugin in runtime.plugins.pre_filter, plugin in runtime.plugins.pre_score
        self.pre_filter_plugin = plugin if runs_pre_filter and isinstance(plugin, PreFilterPlugin) else None
        self.pre_score_plugin = plugin if runs_pre_score and isinstance(plugin, PreScorePlugin) else None
        self.invalidation_mask = invalidation_mask(plugin.events_to_register)
        #: The event bits that may invalidate any of its results.
        self.invalidating_bits = self.invalidation_mask.bits | RESULT_CHANGES


class Plan:
    """The plugins that apply to a pod, in order. Scores have weights; PreScore plugins that do not score are apart."""

    def __init__(
        self,
        bound: Mapping[Plugin, BoundPlugin],
        *,
        pre_filters: Sequence[Plugin],
        filters: Sequence[Plugin],
        scores: Sequence[tuple[Plugin, int]],
        pre_scores_alone: Sequence[Plugin],
    ) -> None:
        self.pre_filters, self.filters, self.scores = pre_filters, filters, scores
        self.pre_scores_alone = pre_scores_alone
        scoring = [plugin for plugin, _ in scores]
        #: All of them, each once.
        self.plugins = tuple(dict.fromkeys((*pre_filters, *filters, *pre_scores_alone, *scoring)))
        #: Those whose results depend on the pod's requests.
        self.request_readers = [plugin for plugin in self.plugins if plugin.reads_requests]
        #: The scores that depend on their row alone, and those that are normalized.
        self.row_wise = [(plugin, weight) for plugin, weight in scores if not bound[plugin].normalizes]
        self.normalizing = [(plugin, weight) for plugin, weight in scores if bound[plugin].normalizes]
        #: What invalidates any result of the filters, any raw score of either kind, and totals of single rows.
        self.filter_mask = _joined(bound[plugin] for plugin in filters)
        self.row_wise_mask = _joined(bound[plugin] for plugin, _ in self.row_wise)
        self.normalizing_mask = _joined(bound[plugin] for plugin, _ in self.normalizing)
        self.ranking_mask = self.filter_mask | self.row_wise_mask
        #: Whether totals can be kept from cycle to cycle, as far as the results are cached.
        self.ranks = not pre_scores_alone and not any(bound[plugin].scores_feasible_set for plugin in scoring)


def _joined(bound_plugins: Iterable[BoundPlugin]) -> InvalidationMask:
    """What invalidates the results of any of some plugins."""
    joined = InvalidationMask()
    for bound in bound_plugins:
        joined |= bound.invalidation_mask
    return joined
