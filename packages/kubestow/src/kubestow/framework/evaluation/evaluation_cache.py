"""The evaluations of a profile, one per group of shapes that no plugin can tell apart.

An evaluation holds the plugins that apply to the pods of its group. Which those are is determined when a pod of the
group is first seen, and again after events that may change it: InterPodAffinity applies to pods without affinity as
soon as some other pod has anti-affinity, PodTopologySpread as soon as a service selects them. On which labels the
results of the plugins depend is determined at the same times, so a label that a new selector reads tells pods apart
from then on. The cache is bounded, and so are the plugin results, which evaluations share and which are dropped with
the last of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from kubestow.cluster.cache import Cluster
from kubestow.cluster.changes.journal import NEVER
from kubestow.cluster.pods.caches import WeakCache
from kubestow.cluster.pods.shapes import PodInfo, Shape, ShapeCache, ShapeFamily, ShapeGroup
from kubestow.framework.evaluation.evaluation import Evaluation, Plan, ScoreSums
from kubestow.framework.evaluation.result_cache import BoundPlugin, PluginResults
from kubestow.framework.interface import MAX_SCORE, Plugin, PreScorePlugin
from kubestow.framework.runtime.framework_runtime import FrameworkRuntime

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

Signatures = dict[Plugin, Hashable | None]

#: The key of a family without what is of no importance, and the labels of the group.
_Likeness = tuple[bytes, tuple[tuple[str, str], ...]]

#: What an evaluation is made from that may be different in the next epoch: the selective plugins that apply, and the
#: signatures for plugins that then depend on other properties of pods.
_Premises = tuple[frozenset[Plugin], tuple[Hashable, ...]]


@dataclass(frozen=True, slots=True)
class _Common:
    """What pods have in common that differ in their requests only, or in requests and volumes: of the plugins that do
    not read these, the selective ones that apply, and the signatures that they give."""

    applicable: frozenset[Plugin]
    signatures: Signatures

    def __or__(self, other: _Common) -> _Common:
        """The same of these plugins and others."""
        return _Common(self.applicable | other.applicable, self.signatures | other.signatures)


class _Dependencies:
    """Which plugins of a profile apply to a pod, and on what of the pod their results depend."""

    def __init__(self, runtime: FrameworkRuntime) -> None:
        self._runtime, self._plugins = runtime, runtime.plugins
        plugins = runtime.plugins
        scoring: list[Plugin] = [plugin for plugin, _ in plugins.score]
        every: list[Plugin] = [*plugins.pre_filter, *plugins.filter, *plugins.pre_score, *scoring]
        self.bound_plugins = {plugin: BoundPlugin(plugin, runtime) for plugin in every}
        #: The plugins that do not apply to every pod.
        self.selective = frozenset(p for p in every if type(p).applies_to is not Plugin.applies_to)
        #: Those that score every pod all the same: their PreScore, which would skip, is disabled in this profile.
        self.scoring_every_pod = frozenset(
            p for p in scoring if isinstance(p, PreScorePlugin) and p not in plugins.pre_score
        )
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
        self.bits = 0
        for plugin in {*self.selective, *self._resigning}:
            for event in plugin.applicability_events:
                self.bits |= event.bits
        #: The plugins that read requests, those of the others that read volumes, and those that read neither.
        self._reading_requests = [p for p in self.bound_plugins if p.reads_requests]
        self._reading_volumes = [p for p in self.bound_plugins if p.reads_volumes and not p.reads_requests]
        self._reading_neither = [p for p in self.bound_plugins if not (p.reads_volumes or p.reads_requests)]
        #: The label keys on which results depend in this epoch (None: any label), by the key of the family without
        #: its requests and volumes, if these are of no importance.
        self._label_keys: dict[ShapeFamily | bytes, frozenset[str] | None] = {}
        self._label_keys_depend_on_more = any(p.reads_requests or p.reads_volumes for p in self._regrouping)
        #: By the key of the family without its requests, and the labels of the group; valid in this epoch.
        self._common: dict[_Likeness, _Common] = {}
        #: The same without volumes, of the plugins that do not read these either.
        self._common_without_volumes: dict[_Likeness, _Common] = {}

    def begin_epoch(self) -> None:
        """Drop what may be different now."""
        self._label_keys.clear()
        self._common.clear()
        self._common_without_volumes.clear()

    def group(self, pod: PodInfo) -> ShapeGroup:
        """The group of a pod. Raises PluginError."""
        family = pod.shape.family
        key = family if self._label_keys_depend_on_more else family.key_without_volumes
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

    def common(self, pod: PodInfo, group: ShapeGroup) -> _Common:
        """What a pod has in common with those of the same group that differ in their requests. Raises PluginError."""
        key = pod.shape.family.key_without_requests, group.labels
        common = self._common.get(key)
        if common is None:
            if len(self._common) >= _MOST_IN_COMMON:
                self._common.clear()
            key_without_volumes = pod.shape.family.key_without_volumes, group.labels
            rest = self._common_without_volumes.get(key_without_volumes)
            if rest is None:
                if len(self._common_without_volumes) >= _MOST_IN_COMMON:
                    self._common_without_volumes.clear()
                rest = self._common_without_volumes[key_without_volumes] = self._of(self._reading_neither, pod)
            common = self._common[key] = rest | self._of(self._reading_volumes, pod)
        return common

    def of_requests(self, pod: PodInfo) -> _Common:
        """The same of the plugins that read requests, for one pod. Raises PluginError."""
        return self._of(self._reading_requests, pod)

    def of_rest(self, pod: PodInfo) -> _Common:
        """The same of the plugins that do not, for one pod. Raises PluginError."""
        return self._of([*self._reading_neither, *self._reading_volumes], pod)

    def _of(self, plugins: Iterable[Plugin], pod: PodInfo) -> _Common:
        """Which of some plugins apply to a pod, and the signatures of those that do. Raises PluginError."""
        applicable = frozenset(p for p in plugins if p in self.selective and self._runtime.plugin_applies_to(p, pod))
        left_out = self.selective - applicable - self.scoring_every_pod
        return _Common(applicable, {p: self._runtime.plugin_signature(p, pod) for p in plugins if p not in left_out})

    def plan(self, applicable: frozenset[Plugin]) -> Plan:
        """The plugins to call for a pod that these selective ones apply to."""
        plan = self._plans.get(applicable)
        if plan is None:
            if len(self._plans) >= _MOST_IN_COMMON:
                self._plans.clear()
            skipped, plugins = self.selective - applicable, self._plugins
            scoring: set[Plugin] = {plugin for plugin, _ in plugins.score}
            plan = self._plans[applicable] = Plan(
                self.bound_plugins,
                pre_filters=[p for p in plugins.pre_filter if p not in skipped],
                filters=[p for p in plugins.filter if p not in skipped],
                scores=[(p, weight) for p, weight in plugins.score if p not in skipped - self.scoring_every_pod],
                pre_scores_alone=[p for p in plugins.pre_score if p not in skipped and p not in scoring],
            )
        return plan

    def premises(self, applicable: frozenset[Plugin], signatures: Signatures) -> _Premises:
        """What an evaluation with these is made from that the next epoch may change."""
        return applicable, tuple([signatures[plugin] for plugin in self._resigning if plugin in signatures])


@dataclass(slots=True)
class _Cached:
    """An evaluation, what it was made from, and the epoch in which that was determined."""

    evaluation: Evaluation
    common: _Common
    premises: _Premises
    epoch: int


class EvaluationCache:
    """The evaluations of a profile, and the results that they share."""

    def __init__(self, runtime: FrameworkRuntime, cluster: Cluster, *, reports_nodes_left_out: bool = True) -> None:
        self._runtime, self._cluster = runtime, cluster
        self._reports_nodes_left_out = reports_nodes_left_out
        self._dependencies = _Dependencies(runtime)
        self._epoch, self._epoch_checked = 0, NEVER
        self._by_group: ShapeCache[_Cached] = ShapeCache(
            cluster.has_placed, budget=_FEWEST, minimum=_FEWEST, sweep_above=_SWEEP_ABOVE
        )
        #: The shape that was looked up last, since most pods are copies of the one before, or differ from it in the
        #: requests only.
        self._latest: tuple[Shape, _Cached] | None = None
        self._results: WeakCache[tuple[Plugin, Hashable], PluginResults] = WeakCache()
        self._sums: WeakCache[tuple[tuple[PluginResults, int], ...], ScoreSums] = WeakCache()

    @property
    def max_total(self) -> int:
        """The highest total that a node can have."""
        return sum(weight for _, weight in self._runtime.plugins.score) * MAX_SCORE

    @property
    def has_filters(self) -> bool:
        """Whether any plugin can reject a node."""
        return bool(self._runtime.plugins.pre_filter or self._runtime.plugins.filter)

    def of(self, pod: PodInfo) -> Evaluation:
        """The evaluation for pods of this group; a new one for a pod that names its node. Raises PluginError."""
        self._enter_epoch()
        if pod.spec.node_name:  # which is not part of its shape; no queued pod names one
            return self._new(pod, self._dependencies.of_rest(pod)).evaluation
        if self._latest is not None:
            shape, cached = self._latest
            if shape is pod.shape and cached.epoch == self._epoch:
                return cached.evaluation
        group = self._dependencies.group(pod)
        found = self._by_group.get(group)
        if found is None:
            self._by_group.resize(_BUDGET // (_BYTES + _BYTES_PER_NODE * len(self._cluster.nodes)))
        if found is None or found.epoch != self._epoch:
            made = self._new(pod, self._dependencies.common(pod, group), found)
            found = made if made is found else self._by_group.put(group, made)
        self._latest = pod.shape, found
        return found.evaluation

    def group(self, pod: PodInfo) -> ShapeGroup:
        """The group of a pod: all plugins have the same results for pods of one group. Raises PluginError."""
        self._enter_epoch()
        return self._dependencies.group(pod)

    def _enter_epoch(self) -> None:
        window = self._cluster.change_window
        if self._epoch_checked != window.begin():
            if window.bits(self._epoch_checked) & self._dependencies.bits:
                self._epoch += 1
                self._dependencies.begin_epoch()
            self._epoch_checked = window.generation

    def _new(self, pod: PodInfo, common: _Common, earlier: _Cached | None = None) -> _Cached:
        """An evaluation for pods like this one; the earlier one if it would be made from the same in this epoch."""
        every = common | self._dependencies.of_requests(pod)
        applicable, signatures = every.applicable, every.signatures
        premises = self._dependencies.premises(applicable, signatures)
        if earlier is not None and premises == earlier.premises:
            earlier.common, earlier.epoch = common, self._epoch
            return earlier
        plan = self._dependencies.plan(applicable)
        latest, similar = None if self._latest is None else self._latest[1], None
        if latest is not None and latest.common is common and latest.evaluation.plan is plan:
            shared = latest.evaluation.results
            results = {
                p: self._results_of(p, signatures[p]) if p.reads_requests or signatures[p] is None else shared[p]
                for p in plan.plugins
            }
            if all(results[p].is_new or results[p] is shared[p] for p in plan.plugins):
                similar = latest.evaluation
        else:
            results = {p: self._results_of(p, signatures[p]) for p in plan.plugins}
        summed = tuple([(results[plugin], weight) for plugin, weight in plan.row_wise])
        sums = self._sums.get(summed) or self._sums.put(summed, ScoreSums(summed, plan.row_wise_mask))
        evaluation = Evaluation(
            plan,
            results,
            sums,
            self._runtime,
            self._cluster,
            similar,
            reports_nodes_left_out=self._reports_nodes_left_out,
        )
        return _Cached(evaluation, common, premises, self._epoch)

    def _results_of(self, plugin: Plugin, signature: Hashable | None) -> PluginResults:
        bound_plugin = self._dependencies.bound_plugins[plugin]
        if signature is None:
            return PluginResults(bound_plugin, cached=False)
        key = plugin, signature
        return self._results.get(key) or self._results.put(key, PluginResults(bound_plugin, cached=True))
