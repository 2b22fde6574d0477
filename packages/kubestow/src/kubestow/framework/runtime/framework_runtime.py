"""The framework runtime: calls the plugins of a profile for the decision which node a pod gets.

There is one :class:`FrameworkRuntime` per profile. It calls the plugins of an extension point in order and validates
their results (:mod:`.validation`); :mod:`.plugin_caller` handles failures. Once the pod has a node,
:mod:`.binding_runtime` calls the plugins; :mod:`.queueing_runtime` calls those of the queue, :mod:`.gang_runtime` those
of gangs.

The runtime is synchronous, so a slow plugin cannot be interrupted, only logged. The scheduler acts on the results (it
assumes and requeues pods and evicts others). The results of PreFilter, Filter and Score are cached: an evaluation
(:mod:`kubestow.framework.evaluation`) goes through those plugins in order, and calls each one where its results are
outdated.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Set

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.nodes.views import NodeRows, Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import PluginError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.diagnosis import Diagnosis
from kubestow.framework.interface import (
    FilterPlugin,
    FilterRunner,
    Plugin,
    PostFilterResult,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    ScorePlugin,
)
from kubestow.framework.runtime.plugin_caller import ExtensionPointTimer, PluginCaller, hashable, truth
from kubestow.framework.runtime.validation import (
    as_post_filter_result,
    as_scores,
    as_status,
    as_verdict,
    in_range,
    unexpected,
)
from kubestow.framework.status import Code, Status, Verdict

Scores = NDArray[np.int64]


class FrameworkRuntime(PluginCaller):
    """Calls the plugins of one profile that decide which node a pod gets."""

    # -- once per shape of pod -------------------------------------------------------------------------------------

    def plugin_applies_to(self, plugin: Plugin, pod: PodInfo) -> bool:
        """Whether the plugin filters or scores pods of this shape. Raises PluginError."""
        return self.call(plugin, "applies_to", truth, plugin.applies_to, pod)

    def plugin_label_keys(self, plugin: Plugin, pod: PodInfo) -> frozenset[str] | None:
        """The label keys on which results for pods of this family depend; None: any. Raises PluginError."""
        return self.call(plugin, "label_keys_for", _label_keys, plugin, pod)

    def plugin_signature(self, plugin: Plugin, pod: PodInfo) -> Hashable | None:
        """What of the pod the plugin's results depend on; None when they must not be cached. Raises PluginError."""
        return self.call(plugin, "signature", lambda: hashable(plugin.signature(pod)))

    # -- filtering and scoring, one plugin at a time ---------------------------------------------------------------

    def run_pre_filter_plugin(
        self, plugin: PreFilterPlugin, state: CycleState, pod: PodInfo, nodes: Nodes
    ) -> Status | PreFilterResult:
        """A status, or the nodes that are left; ``nodes`` are all nodes. Raises PluginError."""
        result = self.call(plugin, "PreFilter", plugin.pre_filter, state, pod, nodes)
        if isinstance(result, PreFilterResult):
            names = result.node_names
            if not isinstance(names, Set):
                raise unexpected(plugin, "PreFilter", names, expected="a frozenset of node names")
            if (stranger := next((name for name in names if not isinstance(name, str)), None)) is not None:
                found = f"a set with {type(stranger).__name__}"
                raise PluginError(plugin.name, "PreFilter", f"returned {found}, expected a frozenset of node names")
            return result
        return as_status(plugin, "PreFilter", result, expected="a Status, a PreFilterResult or None")

    def run_filter_plugin(self, plugin: FilterPlugin, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        """A verdict with a key per node, None when all pass; the caller may write to its array. Raises PluginError."""
        return as_verdict(plugin, self.call(plugin, "Filter", plugin.filter, state, pod, nodes), len(nodes))

    def run_filter_plugin_on_rows(
        self, plugin: FilterPlugin, state: CycleState, pod: PodInfo, nodes: NodeRows
    ) -> list[int]:
        """The keys of a few nodes, by the plugin's form for rows. Raises PluginError."""
        return self.call_on_rows(plugin, "Filter", plugin.filter_rows, state, pod, nodes)

    def run_pre_score_plugin(self, plugin: PreScorePlugin, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status:
        """SUCCESS, or SKIP to leave the plugin's Score out. Raises PluginError."""
        status = as_status(plugin, "PreScore", self.call(plugin, "PreScore", plugin.pre_score, state, pod, nodes))
        if not status.ok and status.code is not Code.SKIP:
            message = f'running PreScore plugin "{plugin.name}": {status.message}'
            raise PluginError(plugin.name, "PreScore", status.message, message=message)
        return status

    def run_score_plugin(self, plugin: ScorePlugin, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
        """Raw scores (int64, one per node); the caller may write to the array. Raises PluginError."""
        scores = as_scores(plugin, "Score", self.call(plugin, "Score", plugin.score, state, pod, nodes), len(nodes))
        return scores if scores.flags.owndata else scores.copy()

    def run_score_plugin_on_rows(
        self, plugin: ScorePlugin, state: CycleState, pod: PodInfo, nodes: NodeRows
    ) -> list[int]:
        """The raw scores of a few nodes, by the plugin's form for rows. Raises PluginError."""
        return self.call_on_rows(plugin, "Score", plugin.score_rows, state, pod, nodes)

    def run_normalize_score_plugin(
        self, plugin: ScorePlugin, state: CycleState, pod: PodInfo, scores: Scores, nodes: Nodes
    ) -> Scores:
        """The raw scores of the feasible nodes normalized to 0 .. MAX_SCORE. Raises PluginError."""
        given = scores.view()
        given.flags.writeable = False
        normalized = self.call(plugin, "NormalizeScore", plugin.normalize, state, pod, given, nodes)
        return in_range(plugin, "NormalizeScore", as_scores(plugin, "NormalizeScore", normalized, len(nodes)))

    # -- PostFilter ------------------------------------------------------------------------------------------------

    def run_post_filter_plugins(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis, filters: FilterRunner
    ) -> Generator[PostFilterResult, None, None]:
        """Call one PostFilter plugin per step of the iteration, so that the caller decides when to stop.

        The extension point ends, with the code of the last result, when the generator does: close it after stopping
        early. Raises PluginError.
        """
        if not self.plugins.post_filter:
            return
        with ExtensionPointTimer(self, "PostFilter") as timer:
            for plugin in self.plugins.post_filter:
                result = self.call(plugin, "PostFilter", plugin.post_filter, state, pod, diagnosis, filters)
                timer.ended_with(as_post_filter_result(plugin, result).status)
                yield result


def _label_keys(plugin: Plugin, pod: PodInfo) -> frozenset[str] | None:
    keys = plugin.label_keys_for(pod)
    return None if keys is None else frozenset(keys)
