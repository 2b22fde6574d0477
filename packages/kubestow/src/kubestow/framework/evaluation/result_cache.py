"""The result cache: what one plugin returned for all nodes, for pods of one signature.

Results are arrays over the rows of the node table, kept with the generation of the cluster that they were computed in.
Before they are used again, the plugin is called for the rows that have been invalidated since by the events it
registers; a plugin that gives a pod no signature is called for all rows in every scheduling cycle. A property test
compares cached results with fresh ones after random events.

:mod:`.evaluation_cache` determines which pods share results, and how many results are kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.cache import Cluster
from kubestow.cluster.changes.events import Action, ClusterEvent, EventResource
from kubestow.cluster.changes.journal import ANY_CHANGE, FEW_ROWS, NEVER, RESULT_CHANGES, InvalidationMask
from kubestow.cluster.nodes.views import NodeRows, Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import invalidation_mask
from kubestow.framework.interface import (
    MAX_SCORE,
    FilterPlugin,
    Plugin,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    ScorePlugin,
)
from kubestow.framework.runtime.framework_runtime import FrameworkRuntime
from kubestow.framework.runtime.validation import in_range, out_of_range
from kubestow.framework.status import SUCCESS, Code, Status, Verdict

_POD_ADDED = ClusterEvent(EventResource.ASSIGNED_POD, Action.ADD).bits


#: Up to this many rows, a form for a single row is called for each; more calls take longer than arrays.
_FEW_CALLS = 4


def _most_rows(plugin: Plugin, base: type[Plugin], rows_form: str, row_form: str) -> int:
    """For how many rows the plugin implements one of the optional methods of its base class."""
    kind = type(plugin)
    if getattr(kind, rows_form) is not getattr(base, rows_form):
        return FEW_ROWS
    return _FEW_CALLS if getattr(kind, row_form) is not getattr(base, row_form) else 0


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
        #: For how many rows Filter and Score have forms of their own, at most; 0 if they have none.
        self.most_filtered_rows = self.most_scored_rows = 0
        if isinstance(plugin, FilterPlugin):
            self.most_filtered_rows = _most_rows(plugin, FilterPlugin, "filter_rows", "filter_row")
        if isinstance(plugin, ScorePlugin):
            self.most_scored_rows = _most_rows(plugin, ScorePlugin, "score_rows", "score_row")
        self.normalizes = isinstance(plugin, ScorePlugin) and type(plugin).normalize is not ScorePlugin.normalize
        runs_pre_filter, runs_pre_score = plugin in runtime.plugins.pre_filter, plugin in runtime.plugins.pre_score
        self.pre_filter_plugin = plugin if runs_pre_filter and isinstance(plugin, PreFilterPlugin) else None
        self.pre_score_plugin = plugin if runs_pre_score and isinstance(plugin, PreScorePlugin) else None
        self.invalidation_mask = invalidation_mask(plugin.events_to_register)
        #: The event bits that may invalidate any of its results.
        self.invalidating_bits = self.invalidation_mask.bits | RESULT_CHANGES


class PluginResults:
    """One plugin's results for pods of one signature; with ``cached`` False they are valid for one cycle only.

    A scheduling cycle refreshes them before it reads them; a second refresh in the same cycle has no cost.
    """

    def __init__(self, bound_plugin: BoundPlugin, *, cached: bool) -> None:
        self.bound_plugin = bound_plugin
        self.plugin = bound_plugin.plugin
        self.cached = cached
        #: The filter results, and the scores, may be outdated if the event bits of the changes meet these: the bits of
        #: any change until they have been computed, and always if they are not cached. Else no refresh is needed.
        self.filter_refresh_bits = self.score_refresh_bits = ANY_CHANGE
        self._invalidating_bits = bound_plugin.invalidating_bits if cached else ANY_CHANGE
        #: What PreFilter and PreScore have written.
        self.state = CycleState()
        self.pre_filter_result: Status | PreFilterResult = SUCCESS
        #: Whether PreFilter returned a skip.
        self.skips_filter = False
        #: Filter's verdict over all rows and where they pass (bool); None when every row passes.
        self.verdict: Verdict | None = None
        self.passes: NDArray[np.bool_] | None = None
        #: Raw scores, int64, one per row; None when PreScore returned a skip.
        self.scores: NDArray[np.int64] | None = None
        #: The same, for reading and writing single entries as Python numbers.
        self.passes_entries: memoryview[Any] | None = None
        self.scores_entries: memoryview[Any] | None = None
        #: Whether all of them are 0.
        self.scores_are_zero = False
        #: What a raw score of 0 is normalized to when all scores are 0, int64 of one entry; None if it is not known.
        self.normalized_zero: NDArray[np.int64] | None = None
        self._pre_filtered = self._filtered = self._scored = NEVER
        #: The rows that the next Filter is called for, None for all.
        self._invalid_rows: list[int] | None = None

    @property
    def invalidation_mask(self) -> InvalidationMask | None:
        """What invalidates the filter results; None when they are not cached."""
        if self.bound_plugin.filters_passing_nodes or not self.cached:
            return None
        return self.bound_plugin.invalidation_mask

    @property
    def depends_on_other_nodes(self) -> bool:
        """Whether a pod that is added to one node may change the results of others, or they are not cached."""
        if not self.cached or (self.bound_plugin.filters_passing_nodes and not self.skips_filter):
            return True
        return bool(self.bound_plugin.invalidation_mask.all_bits & _POD_ADDED)

    @property
    def depends_on_feasible_nodes(self) -> bool:
        """Whether the normalized scores may change with the set of feasible nodes, or with a pod on one of them."""
        if self.bound_plugin.scores_feasible_set:
            return True
        if not self.bound_plugin.normalizes or self.scores is None:
            return False
        return not self.scores_are_zero or self.bound_plugin.invalidation_mask.includes_pods

    @property
    def is_new(self) -> bool:
        """Whether nothing has been computed yet, or everything is computed in every cycle."""
        return self.filter_refresh_bits == self.score_refresh_bits == ANY_CHANGE

    def invalidate(self) -> None:
        """Have everything computed again."""
        self._pre_filtered = NEVER
        self._reset(CycleState())

    def _reset(self, state: CycleState) -> None:
        self.state = state  # a new one, since cycles that are still binding hold the old
        self._filtered = self._scored = NEVER
        self.filter_refresh_bits = self.score_refresh_bits = ANY_CHANGE

    # -- filtering -----------------------------------------------------------------------------------------------

    def refresh_pre_filter(self, cluster: Cluster, pod: PodInfo) -> None:
        """Bring the PreFilter result up to date: PreFilter runs when all filter results have been invalidated."""
        window, bound = cluster.change_window, self.bound_plugin
        if self._pre_filtered == window.generation:
            return
        rows = window.invalid_rows(self._filtered, bound.invalidation_mask)
        if rows is None or (rows and not bound.caches_filter):
            state = CycleState()
            if bound.pre_filter_plugin is not None:
                result = bound.runtime.run_pre_filter_plugin(bound.pre_filter_plugin, state, pod, cluster.all_nodes())
                self.pre_filter_result = result
                self.skips_filter = isinstance(result, Status) and result.code is Code.SKIP
            self._reset(state)
        self._invalid_rows, self._pre_filtered = rows, window.generation
        if not bound.caches_filter:
            self._filtered, self.filter_refresh_bits = window.generation, self._invalidating_bits

    def refresh_filter(self, cluster: Cluster, pod: PodInfo) -> None:
        """Bring the verdict up to date; all rows pass when PreFilter returned a skip.

        A few rows are filtered one after another, without arrays, if the plugin has a form for single rows.
        """
        generation, bound = cluster.change_window.generation, self.bound_plugin
        if self._filtered == generation:
            return
        if self._pre_filtered != generation:
            self.refresh_pre_filter(cluster, pod)
        rows, verdict, passes = self._invalid_rows, self.verdict, self.passes_entries
        if rows is None:
            self._set_verdict(None if self.skips_filter else self.run_filter(pod, cluster.all_nodes()))
        elif rows and not self.skips_filter:
            if len(rows) <= bound.most_filtered_rows and verdict is not None and passes is not None:
                for row, key in zip(rows, self.filter_few(pod, cluster.few_nodes(rows)), strict=True):
                    if key or not passes[row]:
                        verdict.keys[row], passes[row] = key, not key
            else:
                self._filter_some(cluster, pod, rows)
        self._filtered, self.filter_refresh_bits = generation, self._invalidating_bits

    def filter_few(self, pod: PodInfo, nodes: NodeRows) -> list[int]:
        """The keys of Filter for a few rows, for which it has a form of its own. Raises PluginError."""
        plugin = self.bound_plugin.filter_plugin
        assert plugin is not None
        return self.bound_plugin.runtime.run_filter_plugin_on_rows(plugin, self.state, pod, nodes)

    def run_filter(self, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        """Run the filter on some nodes, real or hypothetical, without the cache; None when all pass."""
        plugin = self.bound_plugin.filter_plugin
        assert plugin is not None
        return self.bound_plugin.runtime.run_filter_plugin(plugin, self.state, pod, nodes)

    def _set_verdict(self, verdict: Verdict | None) -> None:
        """Replace the verdict over all rows."""
        self.verdict = verdict
        self.passes = None if verdict is None else verdict.passes
        self.passes_entries = None if self.passes is None else self.passes.data

    def _filter_some(self, cluster: Cluster, pod: PodInfo, rows: list[int]) -> None:
        """Filter some rows, and replace their part of the verdict."""
        nodes = cluster.some_nodes(rows)
        update = self.run_filter(pod, nodes)
        if self.verdict is None or self.passes is None:
            if update is None:
                return
            self._set_verdict(Verdict(np.zeros(len(cluster.nodes), np.int32), update.legend))
        assert self.verdict is not None and self.passes is not None
        keys = 0 if update is None else update.keys
        self.verdict.keys[nodes.rows], self.passes[nodes.rows] = keys, np.equal(keys, 0)
        if update is not None:
            self.verdict.legend = update.legend
            self.verdict.has_errors |= update.has_errors

    # -- scoring -------------------------------------------------------------------------------------------------

    def refresh_scores(self, cluster: Cluster, pod: PodInfo) -> None:
        """Bring the raw scores of all rows up to date."""
        window, bound, scores, entries = cluster.change_window, self.bound_plugin, self.scores, self.scores_entries
        rows = window.invalid_rows(self._scored, bound.invalidation_mask)
        if rows is None:
            self.scores = self.score(pod, cluster.all_nodes())
            self.scores_entries = None if self.scores is None else self.scores.data
            self.scores_are_zero = self.scores is not None and not (self.scores[:1].any() or self.scores.any())
            self.normalized_zero = None
        elif rows and entries is not None and len(rows) <= bound.most_scored_rows:
            new_scores = self.score_few(pod, cluster.few_nodes(rows))
            for row, score in zip(rows, new_scores, strict=True):
                entries[row] = score
            self.scores_are_zero = self.scores_are_zero and not any(new_scores)
        elif rows and scores is not None:
            some = cluster.some_nodes(rows)
            replaced = scores[some.rows] = self._run_score(pod, some)
            self.scores_are_zero = self.scores_are_zero and not replaced.any()
        self._scored, self.score_refresh_bits = window.generation, self._invalidating_bits

    def score_few(self, pod: PodInfo, nodes: NodeRows) -> list[int]:
        """The raw scores of a few rows, at least one, for which Score has a form of its own. Raises PluginError."""
        bound = self.bound_plugin
        plugin = bound.score_plugin
        assert plugin is not None
        scores = bound.runtime.run_score_plugin_on_rows(plugin, self.state, pod, nodes)
        if not (bound.normalizes or 0 <= min(scores) <= max(scores) <= MAX_SCORE):
            culprit = next(score for score in scores if not 0 <= score <= MAX_SCORE)
            raise out_of_range(plugin, "Score", culprit)
        return scores

    def run_pre_score(self, pod: PodInfo, nodes: Nodes) -> Status:
        """Run PreScore, if it is enabled: SUCCESS, or SKIP to leave Score out."""
        plugin = self.bound_plugin.pre_score_plugin
        if plugin is None:
            return SUCCESS
        return self.bound_plugin.runtime.run_pre_score_plugin(plugin, self.state, pod, nodes)

    def score(self, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64] | None:
        """Run PreScore and Score on some nodes, without the cache; None when PreScore returns a skip."""
        return self._run_score(pod, nodes) if self.run_pre_score(pod, nodes).ok else None

    def normalize_zero(self, pod: PodInfo, cluster: Cluster) -> NDArray[np.int64]:
        """Determine :attr:`normalized_zero`, unless it is known. Raises PluginError."""
        if self.normalized_zero is None:
            assert self.scores is not None
            self.normalized_zero = self.normalize(pod, self.scores[:1], Nodes(cluster.nodes, slice(0, 1)))
        return self.normalized_zero

    def normalize(self, pod: PodInfo, scores: NDArray[np.int64], nodes: Nodes) -> NDArray[np.int64]:
        """Normalize the raw scores of the feasible nodes to 0 .. MAX_SCORE. Raises PluginError."""
        plugin = self.bound_plugin.score_plugin
        if not self.bound_plugin.normalizes:
            return scores  # their range has been validated with the raw scores
        assert plugin is not None
        return self.bound_plugin.runtime.run_normalize_score_plugin(plugin, self.state, pod, scores, nodes)

    def _run_score(self, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        plugin = self.bound_plugin.score_plugin
        assert plugin is not None
        scores = self.bound_plugin.runtime.run_score_plugin(plugin, self.state, pod, nodes)
        return scores if self.bound_plugin.normalizes else in_range(plugin, "Score", scores)
