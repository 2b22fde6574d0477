"""The evaluations of a profile, one per group of shapes that no plugin can tell apart.

An evaluation holds the plugins that apply to the pods of its group. Which those are is determined when a pod of the
group is first seen, and again after events that may change it: InterPodAffinity applies to pods without affinity as
soon as some other pod has anti-affinity, PodTopologySpread as soon as a service selects them. On which labels the
results of the plugins depend is determined at the same times, so a label that a new selector reads tells pods apart
from then on. The cache is bounded, and so are the plugin results, which evaluations share and which are dropped with
the last of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kubestow.cluster.cache import Cluster
from kubestow.cluster.pods.shape_cache import ShapeCache
from kubestow.cluster.pods.shapes import PodInfo, Shape, ShapeFamily, ShapeGroup
from kubestow.cluster.weak_cache import WeakCache
from kubestow.framework.evaluation.evaluation import Evaluation
from kubestow.framework.evaluation.plan import Plan
from kubestow.framework.evaluation.ranking import ScoreSums
from kubestow.framework.evaluation.result_cache import BoundPlugin, PluginResults
from kubestow.framework.interface import MAX_SCORE, Plugin, PreScorePlugin, ScorePlugin
from kubestow.framework.invalidation import NEVER, Generation
from kubestow.framework.runtime import FrameworkRuntime

__all__ = ["EvaluationCache"]

#: Evaluations may take about this many bytes, 260 of them with 5,000 nodes …
_BUDGET = 192 * 2**20
#: … of which one that shares no results takes about this many per node.
_BYTES_PER_NODE = 144
#: … and this many besides.
_BYTES = 16 * 2**10
_FEWEST = 32
#: With more than this, evaluations of groups without placed pods are dropped.
_SWEEP_ABOVE = 256
#: What is determined once for several shapes is kept for at most this many.
_MOST_IN_COMMON = 1024

#: What an evaluation is made from that may be different in the next epoch: the selective plugins that apply, and the
#: signatures for plugins that then depend on other properties of pods.
_Premises = tuple[frozenset[Plugin], tuple[Hashable, ...]]


@dataclass(frozen=True, slots=True)
class _Common:
    """What pods have in common that differ in their requests only: of the plugins that do not read these, the selective
    ones that apply, and the signatures that they give."""

    applicable: frozenset[Plugin]
    signatures: dict[Plugin, Hashable | None]


class _Made(NamedTuple):
    """An evaluation with what it was made from. The next pod often differs from its pod in the requests only."""

    common: _Common
    plan: Plan
    results: dict[Plugin, PluginResults]
    evaluation: Evaluation


@dataclass(slots=True)
class _Cached:
    """An evaluation, what it was made from, and the epoch in which that was determined."""

    evaluation: Evaluation
    premises: _Premises
    epoch: int


class EvaluationCache:
    """The evaluations of a profile. ``is_in_use`` says whether there are placed pods of a family."""

    def __init__(self, runtime: FrameworkRuntime, is_in_use: Callable[[ShapeFamily], bool]) -> None:
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
        self._selective = frozenset(p for p in every if type(p).applies_to is not Plugin.applies_to)
        self._request_readers = [plugin for plugin in self._bound_plugins if plugin.reads_requests]
        self._other_plugins = [plugin for plugin in self._bound_plugins if not plugin.reads_requests]
        #: Those whose PreScore, which would skip scoring, is disabled in this profile.
        self._scoring_every_pod = frozenset(
            plugin
            for plugin, bound in self._bound_plugins.items()
            if isinstance(plugin, ScorePlugin) and isinstance(plugin, PreScorePlugin) and bound.pre_score_plugin is None
        )
        self._selective_by_requests = [plugin for plugin in self._selective if plugin.reads_requests]
        self._other_selective = [plugin for plugin in self._selective if not plugin.reads_requests]
        #: By the selective plugins that apply.
        self._plans: dict[frozenset[Plugin], Plan] = {}
        #: The plugins on whose results it depends which pods form a group.
        self._grouping = list(dict.fromkeys((*every, *plugins.post_filter)))
        #: Of these, those that depend on different labels at different times, or for different families.
        self._regrouping = [p for p in self._grouping if type(p).label_keys_for is not Plugin.label_keys_for]
        #: Those whose signatures may change from epoch to epoch.
        self._resigning = [p for p in self._grouping if p in self._regrouping or p.applicability_events]
        #: The event bits after which plugins may apply to other pods or depend on others of their properties; each
        #: begins an epoch.
        self._applicability_bits = 0
        for plugin in {*self._selective, *self._resigning}:
            for event in plugin.applicability_events:
                self._applicability_bits |= event.bits
        self._epoch, self._generation = 0, NEVER
        #: The label keys on which results depend in this epoch (None: any label), by the key of the family without
        #: its requests, if these are of no importance.
        self._label_keys: dict[ShapeFamily | bytes, frozenset[str] | None] = {}
        self._label_keys_depend_on_requests = any(plugin.reads_requests for plugin in self._regrouping)
        #: By the key of the family without its requests, and the labels of the group; valid in this epoch.
        self._common: dict[tuple[bytes, tuple[tuple[str, str], ...]], _Common] = {}
        self._by_group: ShapeCache[_Cached] = ShapeCache(
            is_in_use, budget=_FEWEST, minimum=_FEWEST, sweep_above=_SWEEP_ABOVE
        )
        #: The shape that was looked up last, since most pods are copies of the one before.
        self._latest: tuple[Shape | None, _Cached | None] = (None, None)
        self._latest_made: _Made | None = None
        self._results: WeakCache[tuple[Plugin, Hashable], PluginResults] = WeakCache()
        self._sums: WeakCache[tuple[tuple[PluginResults, int], ...], ScoreSums] = WeakCache()

    @property
    def max_total(self) -> int:
        """The highest total that a node can have."""
        return sum(weight for _, weight in self._scores) * MAX_SCORE

    @property
    def has_filters(self) -> bool:
        """Whether any plugin can reject a node."""
        return bool(self._pre_filters or self._filters)

    def of(self, cluster: Cluster, pod: PodInfo) -> Evaluation:
        """The evaluation for pods of this group; a new one for a pod that names its node. Raises PluginError."""
        self._enter_epoch(cluster)
        if pod.spec.node_name:
            return self._of_one_pod(pod)
        shape, cached = self._latest
        if shape is pod.shape and cached is not None and cached.epoch == self._epoch:
            return cached.evaluation
        group = self._group(pod)
        cached = self._by_group.get(group)
        if cached is None:
            self._by_group.resize(_BUDGET // (_BYTES + _BYTES_PER_NODE * len(cluster.nodes)))
        if cached is None or cached.epoch != self._epoch:
            common = self._common_of(pod, group)
            applicable = common.applicable | self._applicable(pod, self._selective_by_requests)
            signatures = common.signatures | self._signatures(pod, self._request_readers, applicable)
            premises = applicable, tuple([signatures[plugin] for plugin in self._resigning if plugin in signatures])
            if cached is None or premises != cached.premises:
                cached = self._by_group.put(group, self._new(premises, common, signatures))
            cached.epoch = self._epoch
        self._latest = pod.shape, cached
        return cached.evaluation

    def _of_one_pod(self, pod: PodInfo) -> Evaluation:
        """A new evaluation for a pod that names its node, which is not part of its shape. No queued pod names one."""
        applicable = self._applicable(pod, self._selective)
        signatures = self._signatures(pod, self._bound_plugins, applicable)
        return self._new((applicable, ()), _Common(applicable, signatures), signatures).evaluation

    def group(self, cluster: Cluster, pod: PodInfo) -> ShapeGroup:
        """The group of a pod: all plugins have the same results for pods of one group. Raises PluginError."""
        self._enter_epoch(cluster)
        return self._group(pod)

    def _enter_epoch(self, cluster: Cluster) -> None:
        if self._generation.is_current(cluster):
            return
        if self._generation.changes(cluster) & self._applicability_bits:
            self._epoch += 1
            self._label_keys.clear()
            self._common.clear()
        self._generation = Generation.of(cluster)

    def _group(self, pod: PodInfo) -> ShapeGroup:
        family = pod.shape.family
        key = family if self._label_keys_depend_on_requests else family.key_without_requests
        if key not in self._label_keys:
            if len(self._label_keys) >= _MOST_IN_COMMON:
                self._label_keys.clear()
            self._label_keys[key] = self._label_keys_for(pod)
        return pod.shape.group(self._label_keys[key])

    def _label_keys_for(self, pod: PodInfo) -> frozenset[str] | None:
        """The keys of the labels on which any plugin's results for pods of this family depend; None: any label."""
        joined: set[str] = set()
        for plugin in self._grouping:
            keys = self._runtime.plugin_label_keys(plugin, pod) if plugin in self._regrouping else plugin.label_keys
            if keys is None:
                return None
            joined.update(keys)
        return frozenset(joined)

    def _common_of(self, pod: PodInfo, group: ShapeGroup) -> _Common:
        key = pod.shape.family.key_without_requests, group.labels
        common = self._common.get(key)
        if common is None:
            if len(self._common) >= _MOST_IN_COMMON:
                self._common.clear()
            applicable = self._applicable(pod, self._other_selective)
            common = self._common[key] = _Common(applicable, self._signatures(pod, self._other_plugins, applicable))
        return common

    def _applicable(self, pod: PodInfo, selective: Iterable[Plugin]) -> frozenset[Plugin]:
        """The plugins that apply to a pod, among some of the selective ones."""
        return frozenset(plugin for plugin in selective if self._runtime.plugin_applies_to(plugin, pod))

    def _signatures(
        self, pod: PodInfo, plugins: Iterable[Plugin], applicable: frozenset[Plugin]
    ) -> dict[Plugin, Hashable | None]:
        """The signatures that some plugins give a pod; without the selective ones that leave it out."""
        return {
            plugin: self._runtime.plugin_signature(plugin, pod)
            for plugin in plugins
            if plugin in applicable or plugin not in self._selective or plugin in self._scoring_every_pod
        }

    def _new(self, premises: _Premises, common: _Common, signatures: dict[Plugin, Hashable | None]) -> _Cached:
        applicable, _ = premises
        plan = self._plans.get(applicable)
        if plan is None:
            if len(self._plans) >= _MOST_IN_COMMON:
                self._plans.clear()
            plan = self._plans[applicable] = self._plan(applicable)
        made, similar = self._latest_made, None
        if made is not None and made.common is common and made.plan is plan:
            results = made.results.copy()
            for plugin in plan.plugins:
                if plugin.reads_requests or signatures[plugin] is None:
                    results[plugin] = self._results_of(plugin, signatures[plugin])
            if all(results[p].is_new or results[p] is made.results[p] for p in plan.request_readers):
                similar = made.evaluation
        else:
            results = {p: self._results_of(p, signatures[p]) for p in plan.plugins}
        evaluation = Evaluation(plan, results, self._sums_of(plan, results), self._runtime, similar)
        self._latest_made = _Made(common, plan, results, evaluation)
        return _Cached(evaluation, premises, self._epoch)

    def _plan(self, applicable: frozenset[Plugin]) -> Plan:
        skipped = self._selective - applicable
        pre_filters = [plugin for plugin in self._pre_filters if plugin not in skipped]
        filters = [plugin for plugin in self._filters if plugin not in skipped]
        scores = [(p, weight) for p, weight in self._scores if p not in skipped or p in self._scoring_every_pod]
        pre_scores_alone = [plugin for plugin in self._pre_scores_alone if plugin not in skipped]
        return Plan(
            self._bound_plugins,
            pre_filters=pre_filters,
            filters=filters,
            scores=scores,
            pre_scores_alone=pre_scores_alone,
        )

    def _sums_of(self, plan: Plan, results: Mapping[Plugin, PluginResults]) -> ScoreSums:
        summed = tuple([(results[plugin], weight) for plugin, weight in plan.row_wise])
        shared = self._sums.get(summed)
        if shared is None:
            shared = self._sums.put(summed, ScoreSums(summed, plan.row_wise_mask))
        return shared

    def _results_of(self, plugin: Plugin, signature: Hashable | None) -> PluginResults:
        if signature is None:
            return PluginResults(self._bound_plugins[plugin], cached=False)
        key = plugin, signature
        shared = self._results.get(key)
        if shared is None:
            shared = self._results.put(key, PluginResults(self._bound_plugins[plugin], cached=True))
        return shared
