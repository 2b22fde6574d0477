"""The evaluations of a profile, one per shape of pods.

An evaluation holds the plugins that apply to the pods of its shape. Which those are is determined when the shape is
first seen, and again after events that may change it: InterPodAffinity applies to pods without affinity as soon as some
other pod has anti-affinity, PodTopologySpread as soon as a service selects them. The cache is bounded, and so are the
plugin results, which evaluations share and which are dropped with the last of them.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from weakref import WeakValueDictionary

from kubestow.cluster.bounded_cache import BoundedCache
from kubestow.cluster.cache import Cluster
from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.framework.evaluation.evaluation import Evaluation
from kubestow.framework.evaluation.result_cache import BoundPlugin, PluginResults
from kubestow.framework.interface import MAX_SCORE, Plugin, PreScorePlugin, ScorePlugin
from kubestow.framework.invalidation import NEVER, Generation
from kubestow.framework.runtime import FrameworkRuntime

__all__ = ["EvaluationCache"]

#: Evaluations may take about this many bytes …
_BUDGET = 64 * 2**20
#: … of which one that shares no results takes about this many per node.
_BYTES_PER_NODE = 120
_FEWEST = 32


@dataclass(slots=True)
class _Cached:
    """An evaluation, the selective plugins that it was made with, and the epoch in which those were determined."""

    evaluation: Evaluation
    applicable: frozenset[Plugin]
    epoch: int


class EvaluationCache:
    """The evaluations of a profile."""

    def __init__(self, runtime: FrameworkRuntime) -> None:
        self._runtime = runtime
        plugins = runtime.plugins
        self._pre_filters, self._filters, self._scores = plugins.pre_filter, plugins.filter, plugins.score
        scoring: set[Plugin] = {plugin for plugin, _ in self._scores}
        self._pre_scores_alone = [plugin for plugin in plugins.pre_score if plugin not in scoring]
        every: set[Plugin] = {*self._pre_filters, *self._filters, *plugins.pre_score, *scoring}
        self._bound_plugins = {
            plugin: BoundPlugin(
                plugin,
                runtime,
                runs_pre_filter=plugin in self._pre_filters,
                runs_pre_score=plugin in plugins.pre_score,
            )
            for plugin in every
        }
        #: The plugins that do not apply to every pod.
        self._selective = [plugin for plugin in every if type(plugin).applies_to is not Plugin.applies_to]
        #: The event bits after which they may apply to other pods; each such event begins an epoch.
        self._applicability_bits = 0
        for plugin in self._selective:
            for event in plugin.applicability_events:
                self._applicability_bits |= event.bits
        self._epoch, self._generation = 0, NEVER
        self._by_shape: BoundedCache[Shape, _Cached] = BoundedCache(_FEWEST)
        self._results: WeakValueDictionary[tuple[Plugin, Hashable], PluginResults] = WeakValueDictionary()

    @property
    def max_total(self) -> int:
        """The highest total that a node can have."""
        return sum(weight for _, weight in self._scores) * MAX_SCORE

    @property
    def has_filters(self) -> bool:
        """Whether any plugin can reject a node."""
        return bool(self._pre_filters or self._filters)

    def of(self, cluster: Cluster, pod: PodInfo) -> Evaluation:
        """The evaluation for pods of this shape. Raises PluginError."""
        if self._generation.changes(cluster) & self._applicability_bits:
            self._epoch += 1
        self._generation = Generation.of(cluster)
        cached = self._by_shape.get(pod.shape)
        if cached is None:
            self._by_shape.resize(max(_FEWEST, _BUDGET // (_BYTES_PER_NODE * max(1, len(cluster.nodes)))))
            cached = self._by_shape.put(pod.shape, self._new(pod, self._applicable(pod)))
        elif cached.epoch != self._epoch:
            applicable = self._applicable(pod)
            if applicable != cached.applicable:
                cached = self._by_shape.put(pod.shape, self._new(pod, applicable))
            cached.epoch = self._epoch
        return cached.evaluation

    def _applicable(self, pod: PodInfo) -> frozenset[Plugin]:
        """The selective plugins that apply to a pod."""
        return frozenset(plugin for plugin in self._selective if self._runtime.plugin_applies_to(plugin, pod))

    def _new(self, pod: PodInfo, applicable: frozenset[Plugin]) -> _Cached:
        found: dict[Plugin, PluginResults] = {}
        skipped = set(self._selective) - applicable

        def results(plugin: Plugin) -> PluginResults:
            if plugin not in found:
                found[plugin] = self._results_of(plugin, pod)
            return found[plugin]

        evaluation = Evaluation(
            [results(plugin) for plugin in self._pre_filters if plugin not in skipped],
            [results(plugin) for plugin in self._filters if plugin not in skipped],
            [(results(p), weight) for p, weight in self._scores if p not in skipped or self._scores_every_pod(p)],
            [results(plugin) for plugin in self._pre_scores_alone if plugin not in skipped],
            self._runtime,
        )
        return _Cached(evaluation, applicable, self._epoch)

    def _scores_every_pod(self, plugin: ScorePlugin) -> bool:
        """Whether the plugin's PreScore, which would skip scoring, is disabled in this profile."""
        return isinstance(plugin, PreScorePlugin) and self._bound_plugins[plugin].pre_score_plugin is None

    def _results_of(self, plugin: Plugin, pod: PodInfo) -> PluginResults:
        signature = self._runtime.plugin_signature(plugin, pod)
        if signature is None:
            return PluginResults(self._bound_plugins[plugin], cached=False)
        shared = self._results.get((plugin, signature))
        if shared is None:
            shared = self._results[plugin, signature] = PluginResults(self._bound_plugins[plugin], cached=True)
        return shared
