"""The evaluation of a pod: the results of all plugins of a profile for all nodes, put together.

Pods of one group of shapes share an evaluation (:mod:`.evaluation_cache`); evaluations share the results of a plugin
with all shapes of the same signature (:mod:`.result_cache`). Bringing an evaluation up to date takes a few plugin calls
for the rows that have changed; the feasible nodes are then an AND of masks, and their totals a weighted sum of arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.cache import Cluster
from kubestow.cluster.invalidation import ANY_CHANGE, NEVER, Generation
from kubestow.cluster.nodes.views import Nodes, Rows
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.diagnosis import Diagnosis, Rejection
from kubestow.framework.evaluation.feasibility import Feasibility, Mask, PreFiltered
from kubestow.framework.evaluation.filter_runner import CycleFilterRunner, over_all_rows
from kubestow.framework.evaluation.plan import Plan
from kubestow.framework.evaluation.ranking import FeasibleRows, Ranking, ScoreSums, best_rows
from kubestow.framework.evaluation.result_cache import PluginResults
from kubestow.framework.interface import Plugin, PreFilterResult
from kubestow.framework.plugin_caller import ExtensionPointTimer
from kubestow.framework.runtime import FrameworkRuntime
from kubestow.framework.status import Code, Status, Verdict


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

    ``results`` are by plugin, in the order of the plan; ``sums`` are those of the scores that are not normalized; the
    ``similar`` is an evaluation that has all of the results that
    have been computed before.
    """

    def __init__(
        self,
        plan: Plan,
        results: Mapping[Plugin, PluginResults],
        sums: ScoreSums,
        runtime: FrameworkRuntime,
        cluster: Cluster,
        similar: Evaluation | None = None,
    ) -> None:
        self.plan, self.results = plan, results
        self._runtime, self._cluster = runtime, cluster
        self._pre_filters = [results[plugin] for plugin in plan.pre_filters]
        self._filters = filters = [results[plugin] for plugin in plan.filters]
        self._scores = [(results[plugin], weight) for plugin, weight in plan.scores]
        #: The plugins with PreScore that do not score.
        self._pre_scores_alone = [results[plugin] for plugin in plan.pre_scores_alone]
        self._uncached = [each for each in results.values() if not each.cached]
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
        #: The event bits of the changes between the last of these and the cycle.
        self._changes = ANY_CHANGE
        #: How many PreFilter plugins were called in the last cycle; a rejection ends it early.
        self._pre_filters_called = 0
        #: How many cycles have begun, for any pods of the group. Each one replaces the uncached results.
        self.cycle_count = 0

    def state(self) -> CycleState:
        """A cycle state that reads what the plugins have prepared in this cycle, and keeps later writes to itself."""
        skipped = self._pre_filters[self._pre_filters_called :]
        return CycleState(*[results.state for results in self.results.values() if results not in skipped])

    def is_local(self) -> bool:
        """Whether a further pod of this shape changes nothing but the filter results and the total of its own node.

        The last cycle must have been scored. Then copies of a pod can be placed without evaluating in between.
        """
        if self._uncached or any(results.depends_on_other_nodes for results in self.results.values()):
            return False
        return not any(results.depends_on_feasible_nodes for results, _ in self._scores)

    def filters_are_local(self) -> bool:
        """Whether a further pod of this shape changes nothing but the filter results of its own node.

        The last cycle must have been filtered. Unlike :meth:`is_local`, scores may depend on other nodes.
        """
        filters = (results for results in (*self._pre_filters, *self._filters) if not results.skips_filter)
        return not any(results.depends_on_other_nodes for results in filters)

    # -- filtering -----------------------------------------------------------------------------------------------

    def find_feasible(self, pod: PodInfo, within: Mask | None = None) -> Feasibility:
        """Find the nodes that pass all filters (semantics 5.3), among some (bool, one per node) or all.

        Plugins see the whole cluster in either case. Raises PluginError.
        """
        cluster = self._cluster
        with ExtensionPointTimer(self._runtime, "PreFilter") as timer:
            self._begin_cycle()
            pre_filtered = self._run_pre_filters(pod)
            filters = CycleFilterRunner(cluster, pod, self._filters)
            if pre_filtered.rejection is not None:
                timer.ended_with(pre_filtered.rejection)
                return _rejected(len(cluster.nodes), filters, pre_filtered, within)
        with ExtensionPointTimer(self._runtime, "Filter") as timer:
            found = self._filter_nodes(pod, filters, pre_filtered, within)
            if found.error is not None:
                timer.ended_with(found.error)
            return found

    def run_pre_filter(self, pod: PodInfo) -> tuple[CycleFilterRunner, Mask] | None:
        """Run PreFilter alone: the filters, and the nodes that are left (bool); None when PreFilter rejects the pod.

        Raises PluginError.
        """
        cluster = self._cluster
        self._begin_cycle()
        pre_filtered = self._run_pre_filters(pod)
        filters = CycleFilterRunner(cluster, pod, self._filters)
        return None if pre_filtered.rejection is not None else (filters, pre_filtered.mask(cluster))

    def _begin_cycle(self) -> None:
        self.cycle_count += 1
        for results in self._uncached:
            results.invalidate()
        self._cluster.cycle.begin()
        self._changes = self._cluster.cycle.bits(self._filtered)

    def _run_pre_filters(self, pod: PodInfo) -> PreFiltered:
        """Run PreFilter in order (semantics 4.3): only UnschedulableAndUnresolvable and errors end it at once."""
        rejection: Status | None = None
        names: frozenset[str] | None = None
        plugins: tuple[str, ...] = ()
        for position, results in enumerate(self._pre_filters, 1):
            if self._changes & results.filter_bits:
                results.refresh_pre_filter(self._cluster, pod)
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
        self, pod: PodInfo, filters: CycleFilterRunner, pre_filtered: PreFiltered, within: Mask | None
    ) -> Feasibility:
        """Filter the nodes that PreFilter has left; the node that the pod is nominated to is tried first, alone."""
        cluster = self._cluster
        candidates = pre_filtered.mask(cluster)
        if within is not None:
            candidates = candidates & within
        nomination = pod.status.nominated_node_name
        nominated = cluster.nodes.rows.get(nomination) if nomination else None
        if nominated is not None and (within is None or within[nominated]):
            alone = np.zeros(len(cluster.nodes), np.bool_)
            alone[nominated] = True
            found = self._run_filters(pod, filters, alone)
            if found.count:
                return found
            candidates = candidates | alone  # it has been filtered, so its status is its own
        every_node = within is None and pre_filtered.node_names is None and not nomination
        kept = self._feasible_rows if every_node and not cluster.has_nominations else None
        found = self._run_filters(pod, filters, candidates, kept)
        found.pre_filtered, found.within = pre_filtered, within
        return found

    def _run_filters(
        self, pod: PodInfo, filters: CycleFilterRunner, candidates: Mask, kept: FeasibleRows | None = None
    ) -> Feasibility:
        """Filter the candidates in order; what is ``kept`` of earlier cycles is used only when these are all nodes."""
        cluster = self._cluster
        passing = candidates
        nominated_rejections: Sequence[Rejection] = filters.nominated_rejections(candidates) if kept is None else ()
        for rejection in nominated_rejections:
            if rejection.verdict.has_errors and (
                error := _first_error(cluster, rejection.plugin, rejection.verdict, rejection.where)
            ):
                return _failed(cluster, filters, error)
            passing = passing & ~rejection.where
        verdicts: list[tuple[str, Verdict, Mask]] = []
        for results in self._filters:
            among_passing = results.bound_plugin.filters_passing_nodes
            if among_passing:
                if results.skips_filter:
                    continue
            elif self._changes & results.filter_bits:
                results.refresh_filter(self._cluster, pod)
            if kept is not None and (among_passing or (results.verdict is not None and results.verdict.has_errors)):
                for _, _, passes in verdicts:
                    passing = passing & passes
                kept = None
            if among_passing:
                verdict = _filter_passing(results, cluster, pod, passing)
                passes_filter = None if verdict is None else verdict.passes
            else:
                verdict, passes_filter = results.verdict, results.passes
            if verdict is None or passes_filter is None:
                continue
            if verdict.has_errors and (
                error := _first_error(cluster, results.plugin.name, verdict, passing & ~passes_filter)
            ):
                return _failed(cluster, filters, error)
            verdicts.append((results.plugin.name, verdict, passes_filter))
            if kept is None:
                passing = passing & passes_filter
        self._filtered = self._cluster.cycle.generation
        if kept is not None:
            kept.update(cluster)
        return Feasibility(
            passing if kept is None else kept.passing,
            int(np.count_nonzero(passing)) if kept is None else kept.count,
            filters,
            ranked_in=0 if kept is None else self.cycle_count,
            candidates=candidates,
            nominated_rejections=nominated_rejections,
            verdicts=verdicts,
        )

    # -- scoring -------------------------------------------------------------------------------------------------

    def score_by_plugin(self, pod: PodInfo, rows: Rows) -> Iterator[ScoreResult]:
        """Each plugin's scores of the feasible rows; plugins that skip are left out. Raises PluginError."""
        nodes = Nodes(self._cluster.nodes, rows)
        self._begin_scoring(pod, nodes)
        for results, weight in self._scores:
            if results.bound_plugin.scores_feasible_set:
                raw = results.score(pod, nodes)
            else:
                if self._changes & results.score_bits:
                    results.refresh_scores(self._cluster, pod)
                raw = None if results.scores is None else results.scores[rows]
            if raw is not None:
                yield ScoreResult(results.plugin.name, weight, raw, results.normalize(pod, raw, nodes))

    def compute_totals(self, pod: PodInfo, rows: Rows) -> NDArray[np.int64]:
        """The weighted sum of all plugins' scores per feasible row, int64. Raises PluginError."""
        with ExtensionPointTimer(self._runtime, "Score"):
            nodes = Nodes(self._cluster.nodes, rows)
            self._begin_scoring(pod, nodes)
            totals = np.zeros(len(nodes), np.int64)
            constant = 0
            for results, weight in self._scores:
                if results.bound_plugin.scores_feasible_set:
                    raw = results.score(pod, nodes)
                else:
                    if self._changes & results.score_bits:
                        results.refresh_scores(self._cluster, pod)
                    if results.scores is not None and results.scores_are_zero:
                        constant += results.normalize_zero(pod, self._cluster).item(0) * weight
                        continue
                    raw = None if results.scores is None else results.scores[rows]
                if raw is not None:
                    scores = results.normalize(pod, raw, nodes)
                    totals += scores if weight == 1 else scores * weight
            self._scored = self._cluster.cycle.generation
            totals += constant
            return totals

    def find_best(self, pod: PodInfo, feasibility: Feasibility) -> NDArray[np.intp]:
        """The feasible rows with the highest total, intp, in order; there must be feasible ones. Raises PluginError."""
        ranking = self._ranking
        if ranking is None or feasibility.ranked_in != self.cycle_count:
            return best_rows(self.compute_totals(pod, feasibility.rows), feasibility.rows)
        with ExtensionPointTimer(self._runtime, "Score"):
            self._cluster.cycle.begin()
            self._changes = self._cluster.cycle.bits(self._scored)
            for results, _ in self._scores:
                if self._changes & results.score_bits:
                    results.refresh_scores(self._cluster, pod)
            self._scored = self._cluster.cycle.generation
            ranking.update(self._cluster, pod, feasibility)
        return ranking.find_best()

    def _begin_scoring(self, pod: PodInfo, nodes: Nodes) -> None:
        for results in self._pre_scores_alone:
            results.run_pre_score(pod, nodes)
        self._cluster.cycle.begin()
        self._changes = self._cluster.cycle.bits(self._scored)


def _filter_passing(results: PluginResults, cluster: Cluster, pod: PodInfo, passing: Mask) -> Verdict | None:
    """The verdict of an uncached filter, which runs only on the nodes that have passed; over all rows."""
    if not passing.any():
        return None
    nodes = Nodes(cluster.nodes, np.flatnonzero(passing))
    verdict = results.run_filter(pod, nodes)
    return None if verdict is None else over_all_rows(verdict, nodes)


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
