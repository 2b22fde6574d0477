"""The evaluation of a pod: the results of all plugins of a profile for all nodes, put together.

Pods of one group of shapes share an evaluation (:mod:`.evaluation_cache`); evaluations share the results of a plugin
with all shapes of the same signature (:mod:`.result_cache`). Bringing an evaluation up to date takes a few plugin calls
for the rows that have changed; the feasible nodes are then an AND of masks, and their totals a weighted sum of arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.views import Nodes, Rows
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import PluginError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.diagnosis import Diagnosis
from kubestow.framework.evaluation.feasibility import Feasibility, Mask, PreFiltered
from kubestow.framework.evaluation.filter_runner import CycleFilterRunner, over_all_rows
from kubestow.framework.evaluation.plan import Plan
from kubestow.framework.evaluation.ranking import FeasibleRows, Ranking, ScoreSums, best_rows
from kubestow.framework.evaluation.result_cache import PluginResults
from kubestow.framework.interface import Plugin, PreFilterResult
from kubestow.framework.invalidation import ANY_CHANGE, NEVER, Generation
from kubestow.framework.runtime import FrameworkRuntime
from kubestow.framework.status import Code, Status, Verdict

__all__ = ["Evaluation", "ScoreResult"]


class ScoreResult(NamedTuple):
    """One plugin's ``raw`` and ``normalized`` scores of the feasible rows, int64, and the weight that they get."""

    plugin: str
    weight: int
    raw: NDArray[np.int64]
    normalized: NDArray[np.int64]

    @property
    def weighted(self) -> NDArray[np.int64]:
        """What the plugin contributes to the totals, int64."""
        return self.normalized * self.weight


class Evaluation:
    """The results of the plugins that apply to pods of one group of shapes.

    ``results`` are by plugin, in the order of the plan. ``sums`` are those of the scores that are not normalized.
    ``similar`` is an evaluation that has all of the results that have been computed before.
    """

    def __init__(
        self,
        plan: Plan,
        results: Mapping[Plugin, PluginResults],
        sums: ScoreSums,
        runtime: FrameworkRuntime,
        similar: Evaluation | None = None,
    ) -> None:
        self._runtime = runtime
        self._results = list(results.values())
        self._pre_filters = [results[plugin] for plugin in plan.pre_filters]
        self._filters = filters = [results[plugin] for plugin in plan.filters]
        self._scores = [(results[plugin], weight) for plugin, weight in plan.scores]
        #: The plugins with PreScore that do not score.
        self._pre_scores_alone = [results[plugin] for plugin in plan.pre_scores_alone]
        self._uncached = [each for each in self._results if not each.cached]
        #: What most cycles bring up to date row by row; None where plugins are called for all rows in every cycle.
        self._feasible_rows: FeasibleRows | None = None
        self._ranking: Ranking | None = None
        if not self._uncached:
            self._feasible_rows = FeasibleRows(filters, plan.filter_mask)
            if plan.ranks:
                normalizing = [(results[plugin], weight) for plugin, weight in plan.normalizing]
                self._ranking = Ranking(plan, sums, normalizing)
        #: The generations in which all filters, and all scores, were last up to date.
        self._filtered: Generation = NEVER if similar is None else similar._filtered
        self._scored: Generation = NEVER if similar is None else similar._scored
        #: The generation that results are being brought up to, and the event bits of the changes until then.
        self._now, self._changes = NEVER, ANY_CHANGE
        #: How many PreFilter plugins were called in the last cycle; a rejection ends it early.
        self._pre_filters_called = 0
        #: How many cycles have begun, for any pods of the group. Each one replaces the uncached results.
        self.cycle_count = 0

    def state(self) -> CycleState:
        """A cycle state that reads what the plugins have prepared in this cycle, and keeps later writes to itself."""
        skipped = self._pre_filters[self._pre_filters_called :]
        called = [results for results in self._results if results not in skipped] if skipped else self._results
        return CycleState(*[results.state for results in called])

    def is_local(self) -> bool:
        """Whether a further pod of this shape changes nothing but the filter results and the total of its own node.

        The last cycle must have been scored. Then copies of a pod can be placed without evaluating in between.
        """
        if self._uncached or any(results.depends_on_other_nodes for results in self._results):
            return False
        return not any(results.depends_on_feasible_nodes for results, _ in self._scores)

    def filters_are_local(self) -> bool:
        """Whether a further pod of this shape changes nothing but the filter results of its own node.

        The last cycle must have been filtered. Unlike :meth:`is_local`, scores may depend on other nodes.
        """
        filters = (results for results in (*self._pre_filters, *self._filters) if not results.skips_filter)
        return not any(results.depends_on_other_nodes for results in filters)

    # -- filtering -----------------------------------------------------------------------------------------------

    def feasible(self, cluster: Cluster, pod: PodInfo, within: Mask | None = None) -> Feasibility:
        """Find the nodes that pass all filters (semantics 5.3), among some (bool, one per node) or all.

        Plugins see the whole cluster in either case. Raises PluginError.
        """
        began, extension_point = self._runtime.now(), "PreFilter"
        try:
            self._start_cycle(cluster)
            pre_filtered = self._run_pre_filters(cluster, pod)
            filters = CycleFilterRunner(cluster, pod, self._filters)
            if pre_filtered.rejection is not None:
                self._runtime.extension_point_ended("PreFilter", pre_filtered.rejection.code, began)
                return _rejected(len(cluster.nodes), filters, pre_filtered, within)
            self._runtime.extension_point_ended("PreFilter", Code.SUCCESS, began)
            began, extension_point = self._runtime.now(), "Filter"
            found = self._filter_nodes(cluster, pod, filters, pre_filtered, within)
        except PluginError:
            self._runtime.extension_point_ended(extension_point, Code.ERROR, began)
            raise
        self._runtime.extension_point_ended("Filter", Code.SUCCESS if found.error is None else Code.ERROR, began)
        return found

    def run_pre_filter(self, cluster: Cluster, pod: PodInfo) -> tuple[CycleFilterRunner, Mask] | None:
        """Run PreFilter alone: the filters, and the nodes that are left (bool); None when PreFilter rejects the pod.

        Raises PluginError.
        """
        self._start_cycle(cluster)
        pre_filtered = self._run_pre_filters(cluster, pod)
        filters = CycleFilterRunner(cluster, pod, self._filters)
        return None if pre_filtered.rejection is not None else (filters, pre_filtered.mask(cluster))

    def _start_cycle(self, cluster: Cluster) -> None:
        self.cycle_count += 1
        for results in self._uncached:
            results.invalidate()
        self._now, self._changes = Generation.of(cluster), self._filtered.changes(cluster)

    def _run_pre_filters(self, cluster: Cluster, pod: PodInfo) -> PreFiltered:
        """Run PreFilter in order (semantics 4.3): only UnschedulableAndUnresolvable and errors end it at once."""
        rejection: Status | None = None
        names: frozenset[str] | None = None
        plugins: tuple[str, ...] = ()
        for position, results in enumerate(self._pre_filters, 1):
            if self._changes & results.filter_bits:
                results.refresh_pre_filter(cluster, pod, self._now)
            self._pre_filters_called = position
            result = results.pre_filter_result
            plugin = results.plugin.name
            if isinstance(result, PreFilterResult):
                names = result.node_names if names is None else names & result.node_names
                plugins = tuple(sorted((*plugins, plugin)))
                if not names:
                    return PreFiltered(_no_nodes_left(plugins), names, plugins)
            elif result.code is Code.UNSCHEDULABLE:
                rejection = result.by(plugin)
            elif result.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                return PreFiltered(result.by(plugin), names, plugins)
            elif not result.ok and result.code is not Code.SKIP:
                text = f'running PreFilter plugin "{plugin}": {result.message}'
                return PreFiltered(Status(Code.ERROR, (text,), plugin), names, plugins)
        return PreFiltered(rejection, names, plugins)

    def _filter_nodes(
        self,
        cluster: Cluster,
        pod: PodInfo,
        filters: CycleFilterRunner,
        pre_filtered: PreFiltered,
        within: Mask | None,
    ) -> Feasibility:
        """Filter the nodes that PreFilter has left; the node that the pod is nominated to is tried first, alone."""
        every_node = within is None and pre_filtered.node_names is None
        if every_node and not pod.status.nominated_node_name and not cluster.has_nominations:
            kept = self._update_feasible_rows(cluster, pod, filters, pre_filtered)
            if kept is not None:
                return kept
        candidates = pre_filtered.mask(cluster)
        if within is not None:
            candidates = candidates & within
        nominated = cluster.nodes.rows.get(pod.status.nominated_node_name)
        if nominated is not None and (within is None or within[nominated]):
            alone = np.zeros(len(cluster.nodes), np.bool_)
            alone[nominated] = True
            found = self._run_filters(cluster, pod, filters, alone)
            if found.count:
                return found
            candidates = candidates | alone  # it has been filtered, so its status is its own
        found = self._run_filters(cluster, pod, filters, candidates)
        found.pre_filtered, found.within = pre_filtered, within
        return found

    def _update_feasible_rows(
        self, cluster: Cluster, pod: PodInfo, filters: CycleFilterRunner, pre_filtered: PreFiltered
    ) -> Feasibility | None:
        """The feasible nodes of a cycle in which every node is a candidate; None if they have to be found afresh."""
        kept = self._feasible_rows
        if kept is None:
            return None
        verdicts: list[tuple[str, Verdict, Mask]] = []
        for results in self._filters:
            if results.bound_plugin.filters_passing_nodes:
                if not results.skips_filter:
                    return None
                continue
            if self._changes & results.filter_bits:
                results.refresh_filter(cluster, pod, self._now)
            if results.verdict is not None and results.passes is not None:
                if results.verdict.has_errors:
                    return None
                verdicts.append((results.plugin.name, results.verdict, results.passes))
        self._filtered = self._now
        kept.update(cluster, self._now)
        return Feasibility(
            kept.passing,
            kept.count,
            filters,
            candidates=pre_filtered.mask(cluster),
            verdicts=verdicts,
            pre_filtered=pre_filtered,
        )

    def _run_filters(self, cluster: Cluster, pod: PodInfo, filters: CycleFilterRunner, candidates: Mask) -> Feasibility:
        passing = candidates
        nominated_rejections = filters.nominated_rejections(passing)
        for rejection in nominated_rejections:
            if rejection.verdict.has_errors and (
                error := _first_error(cluster, rejection.plugin, rejection.verdict, rejection.where)
            ):
                return _failed(cluster, filters, error)
            passing = passing & ~rejection.where
        verdicts: list[tuple[str, Verdict, Mask]] = []
        for results in self._filters:
            if results.bound_plugin.filters_passing_nodes:
                verdict = self._filter_passing(results, cluster, pod, passing)
                passes = None if verdict is None else verdict.passes
            else:
                if self._changes & results.filter_bits:
                    results.refresh_filter(cluster, pod, self._now)
                verdict, passes = results.verdict, results.passes
            if verdict is None or passes is None:
                continue
            if verdict.has_errors and (error := _first_error(cluster, results.plugin.name, verdict, passing & ~passes)):
                return _failed(cluster, filters, error)
            verdicts.append((results.plugin.name, verdict, passes))
            passing = passing & passes
        self._filtered = self._now
        count = int(np.count_nonzero(passing))
        return Feasibility(
            passing,
            count,
            filters,
            candidates=candidates,
            nominated_rejections=nominated_rejections,
            verdicts=verdicts,
        )

    def _filter_passing(self, results: PluginResults, cluster: Cluster, pod: PodInfo, passing: Mask) -> Verdict | None:
        """The verdict of an uncached filter, which runs only on the nodes that have passed; over all rows."""
        if results.skips_filter or not passing.any():
            return None
        nodes = Nodes(cluster.nodes, np.flatnonzero(passing))
        verdict = results.run_filter(pod, nodes)
        return None if verdict is None else over_all_rows(verdict, nodes)

    # -- scoring -------------------------------------------------------------------------------------------------

    def scores(self, cluster: Cluster, pod: PodInfo, rows: Rows) -> Iterator[ScoreResult]:
        """Each plugin's scores of the feasible rows; plugins that skip are left out. Raises PluginError."""
        nodes = Nodes(cluster.nodes, rows)
        self._run_pre_scores_alone(pod, nodes)
        self._now, self._changes = Generation.of(cluster), self._scored.changes(cluster)
        for results, weight in self._scores:
            raw = self._raw(results, cluster, pod, nodes)
            if raw is not None:
                yield ScoreResult(results.plugin.name, weight, raw, results.normalize(pod, raw, nodes))

    def totals(self, cluster: Cluster, pod: PodInfo, rows: Rows) -> NDArray[np.int64]:
        """The weighted sum of all plugins' scores per feasible row, int64. Raises PluginError."""
        began = self._runtime.now()
        try:
            totals = self._weighted_sum(cluster, pod, Nodes(cluster.nodes, rows))
        except PluginError as error:
            self._scoring_failed(error, began)
            raise
        self._runtime.extension_point_ended("Score", Code.SUCCESS, began)
        return totals

    def best(self, cluster: Cluster, pod: PodInfo, feasibility: Feasibility) -> NDArray[np.intp]:
        """The feasible rows with the highest total, intp, in order; there must be feasible ones. Raises PluginError."""
        ranking, kept = self._ranking, self._feasible_rows
        if ranking is None or kept is None or feasibility.passing is not kept.passing:
            return best_rows(self.totals(cluster, pod, feasibility.rows), feasibility.rows)
        began = self._runtime.now()
        try:
            self._now, self._changes = Generation.of(cluster), self._scored.changes(cluster)
            for results, _ in self._scores:
                if self._changes & results.score_bits:
                    results.refresh_scores(cluster, pod, self._now)
            self._scored = self._now
            ranking.update(cluster, pod, feasibility, self._now)
        except PluginError as error:
            self._scoring_failed(error, began)
            raise
        self._runtime.extension_point_ended("Score", Code.SUCCESS, began)
        return ranking.best()

    def _scoring_failed(self, error: PluginError, began: float) -> None:
        extension_point = "PreScore" if error.extension_point == "PreScore" else "Score"
        self._runtime.extension_point_ended(extension_point, Code.ERROR, began)

    def _weighted_sum(self, cluster: Cluster, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        self._run_pre_scores_alone(pod, nodes)
        constant = 0
        varying: list[NDArray[np.int64]] = []
        self._now, self._changes = Generation.of(cluster), self._scored.changes(cluster)
        for results, weight in self._scores:
            scores = self._normalized(results, cluster, pod, nodes)
            if scores is None:
                continue
            if len(scores) == 1:
                constant += int(scores[0]) * weight
            else:
                varying.append(scores if weight == 1 else scores * weight)
        self._scored = self._now
        totals = varying[0] + constant if varying else np.full(len(nodes), constant, np.int64)
        for scores in varying[1:]:
            totals += scores
        return totals

    def _run_pre_scores_alone(self, pod: PodInfo, nodes: Nodes) -> None:
        for results in self._pre_scores_alone:
            results.skips_scoring(pod, nodes)

    def _normalized(
        self, results: PluginResults, cluster: Cluster, pod: PodInfo, nodes: Nodes
    ) -> NDArray[np.int64] | None:
        """A plugin's normalized scores, int64: one per node, or a single one for all of them; None when it skips."""
        plugin = results.bound_plugin.score_plugin
        assert plugin is not None
        if plugin.scores_feasible_set:
            raw = results.score_feasible(pod, nodes)
            return None if raw is None else results.normalize(pod, raw, nodes)
        if self._changes & results.score_bits:
            results.refresh_scores(cluster, pod, self._now)
        if results.scores is None:
            return None
        if results.scores_are_zero:
            return results.normalized_zero(pod, cluster)
        return results.normalize(pod, results.scores[nodes.rows], nodes)

    def _raw(self, results: PluginResults, cluster: Cluster, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64] | None:
        """A plugin's raw scores, int64, one per node; None when it skips."""
        plugin = results.bound_plugin.score_plugin
        assert plugin is not None
        if plugin.scores_feasible_set:
            return results.score_feasible(pod, nodes)
        if self._changes & results.score_bits:
            results.refresh_scores(cluster, pod, self._now)
        return None if results.scores is None else results.scores[nodes.rows]


def _failed(cluster: Cluster, filters: CycleFilterRunner, error: Status) -> Feasibility:
    return Feasibility(np.zeros(len(cluster.nodes), np.bool_), 0, filters, error)


def _rejected(total: int, filters: CycleFilterRunner, pre_filtered: PreFiltered, within: Mask | None) -> Feasibility:
    rejection = pre_filtered.rejection
    assert rejection is not None
    nothing = np.zeros(total, np.bool_)
    if rejection.code is Code.ERROR:
        return Feasibility(nothing, 0, filters, rejection)
    diagnosis = Diagnosis(
        total,
        filtered=nothing,
        pre_filter_status=rejection,
        absent_nodes_status=rejection,
        narrowed_by=pre_filtered.plugins,
        within=within,
    )
    return Feasibility(nothing, 0, filters, diagnosis=diagnosis)


def _no_nodes_left(plugins: tuple[str, ...]) -> Status:
    if len(plugins) == 1:
        return Status.unresolvable(f"node(s) didn't satisfy plugin {plugins[0]}")
    return Status.unresolvable(f"node(s) didn't satisfy plugin(s) [{' '.join(plugins)}] simultaneously")


def _first_error(cluster: Cluster, plugin: str, verdict: Verdict, where: Mask) -> Status | None:
    """The error of the first node that has one, in the order in which the nodes were added."""
    rows = np.flatnonzero(where)
    for row in rows[np.argsort(cluster.nodes.sequence.values[rows])]:
        status = verdict.status(int(row))
        if status.code is Code.ERROR:
            return Status(Code.ERROR, (f'running "{plugin}" filter plugin: {status.message}',), plugin)
    return None
