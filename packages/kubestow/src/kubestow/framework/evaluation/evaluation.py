"""The evaluation of a pod: the results of all plugins of a profile for all nodes, put together.

Pods of one group of shapes share an evaluation (:mod:`.evaluation_cache`); evaluations share the results of a plugin
with all shapes of the same signature (:mod:`.result_cache`). Bringing an evaluation up to date takes a few plugin calls
for the rows that have changed; the feasible nodes are then an AND of masks, and their totals a weighted sum of arrays.

The mask and the totals are kept from one cycle to the next. Take three cycles with pods of the same shape:

1. The first pod: no result has been computed, so every plugin is called for all rows (``refresh_filter``,
   ``refresh_scores``), and the mask and the totals are put together from the arrays.
2. A copy, before anything has changed: the generation is that of every result, so no plugin is called, and the mask and
   the best rows are those of the first pod.
3. A copy, after the first pod was assumed: one row has changed. Plugins with an event of pods in their mask are called
   for that row, and one entry of the mask and of the totals is computed again.

After more than a few changes both are put together from the results of all rows, which takes less time than to find out
which rows have changed. Both hold for cycles in which all nodes are candidates and no pod is nominated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.cache import Cluster
from kubestow.cluster.changes.journal import ANY_CHANGE, FEW_ROWS, NEVER, Generation, InvalidationMask
from kubestow.cluster.nodes.views import Nodes, Rows
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.diagnosis import Diagnosis, Rejection
from kubestow.framework.evaluation.feasibility import (
    CycleFilterRunner,
    Feasibility,
    Mask,
    PodCapacity,
    PreFiltered,
    over_all_rows,
)
from kubestow.framework.evaluation.result_cache import BoundPlugin, PluginResults
from kubestow.framework.evaluation.row_totals import INFEASIBLE, BestRows, RowTotals
from kubestow.framework.interface import Plugin, PreFilterResult
from kubestow.framework.runtime.framework_runtime import FrameworkRuntime
from kubestow.framework.status import Code, Status, Verdict


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


class FeasibleRows:
    """Where all filters pass (bool, one per row of the node table), and the number of those rows."""

    def __init__(self, filters: Sequence[PluginResults], invalidation_mask: InvalidationMask) -> None:
        self._filters = filters
        self._invalidation_mask = invalidation_mask
        self._generation = NEVER
        self.passing: Mask = np.zeros(0, np.bool_)
        self._entries = self.passing.data
        self.count = 0

    def update(self, cluster: Cluster) -> None:
        """Take over the verdicts of the filters, which have to be up to date."""
        rows = cluster.change_window.invalid_rows(self._generation, self._invalidation_mask, FEW_ROWS)
        if rows is None:
            masks = [results.passes for results in self._filters if results.passes is not None]
            self.passing = masks[0].copy() if masks else np.ones(len(cluster.nodes), np.bool_)
            for mask in masks[1:]:
                self.passing &= mask
            self._entries = self.passing.data
            self.count = int(np.count_nonzero(self.passing))
        else:
            passing = self._entries
            entries = [results.passes_entries for results in self._filters if results.passes_entries is not None]
            for row in rows:
                passes = True
                for of_filter in entries:
                    if not of_filter[row]:
                        passes = False
                        break
                if passes is not passing[row]:
                    passing[row] = passes
                    self.count += 1 if passes else -1
        self._generation = cluster.change_window.generation


class ScoreSums:
    """The weighted sum per row of the scores that are not normalized. Evaluations with the same of them share it."""

    def __init__(self, scores: Sequence[tuple[PluginResults, int]], invalidation_mask: InvalidationMask) -> None:
        self._scores = scores
        self._invalidation_mask = invalidation_mask
        self._generation = NEVER
        #: The sums, int64, one per row.
        self.sums: NDArray[np.int64] = np.zeros(0, np.int64)
        self.entries = self.sums.data

    def update(self, cluster: Cluster, before: Generation, rows: list[int] | None) -> None:
        """Take over the scores of the plugins, which have to be up to date.

        ``rows`` are those that may have been invalidated since ``before``, None if these are many.
        """
        if self._generation == cluster.change_window.generation:
            return
        if self._generation != before:
            rows = cluster.change_window.invalid_rows(self._generation, self._invalidation_mask, FEW_ROWS)
        scoring = [(results, weight) for results, weight in self._scores if not results.scores_are_zero]
        if rows is None:
            scores = [(results.scores, weight) for results, weight in scoring if results.scores is not None]
            weighted = [of_plugin if weight == 1 else of_plugin * weight for of_plugin, weight in scores]
            if len(weighted) > 1:
                self.sums = weighted[0] + weighted[1]
            else:
                self.sums = weighted[0].copy() if weighted else np.zeros(len(cluster.nodes), np.int64)
            for of_plugin in weighted[2:]:
                self.sums += of_plugin
            self.entries = self.sums.data
        else:
            sums = self.entries
            entries = [(r.scores_entries, weight) for r, weight in scoring if r.scores_entries is not None]
            for row in rows:
                total = 0
                for of_entries, weight in entries:
                    total += of_entries[row] * weight
                sums[row] = total
        self._generation = cluster.change_window.generation


class Ranking:
    """The totals of all rows, and which are the highest.

    A total is the sum of the scores that are not normalized, and of those that are. These depend on which nodes are
    feasible; they are kept until that or any of the raw scores may have changed. A normalizing plugin whose raw scores
    are all 0 adds the same to every total and is left out.
    """

    def __init__(self, plan: Plan, sums: ScoreSums, normalizing: Sequence[tuple[PluginResults, int]]) -> None:
        self._sums, self._normalizing = sums, normalizing
        self._normalizing_bits = plan.normalizing_mask.bits
        self._invalidation_mask = plan.ranking_mask
        self._generation = NEVER
        #: What the normalizing plugins contribute, int64; None if it is the same for all feasible nodes.
        self._normalized: NDArray[np.int64] | None = None
        #: The totals without what is the same for all feasible nodes.
        self.totals = RowTotals()

    def update(self, cluster: Cluster, pod: PodInfo, feasibility: Feasibility) -> None:
        """Take over the raw scores of the plugins, which have to be up to date. Raises PluginError."""
        before, self._generation = self._generation, NEVER  # should a plugin fail
        rows = cluster.change_window.invalid_rows(before, self._invalidation_mask, FEW_ROWS)
        self._sums.update(cluster, before, rows)
        if self._normalize(cluster, pod, feasibility, before) or rows is None:
            sums = self._sums.sums
            totals = sums.copy() if self._normalized is None else sums + self._normalized
            if feasibility.count < len(sums):
                np.copyto(totals, INFEASIBLE, where=~feasibility.passing)
            self.totals.replace(totals)
        else:
            passing, summed = feasibility.passing.data, self._sums.entries
            if self._normalized is None:
                changed = [summed[row] if passing[row] else INFEASIBLE for row in rows]
            else:
                normalized = self._normalized.data
                changed = [summed[row] + normalized[row] if passing[row] else INFEASIBLE for row in rows]
            self.totals.update(rows, changed)
        self._generation = cluster.change_window.generation

    def find_best(self) -> BestRows:
        """The rows with the highest total, in order; valid until the next update."""
        return self.totals.find_best()

    def _normalize(self, cluster: Cluster, pod: PodInfo, feasibility: Feasibility, before: Generation) -> bool:
        """Bring the normalized scores up to date; whether any may have changed since a generation."""
        some = []
        for results, weight in self._normalizing:
            if results.scores is None:
                continue
            if results.scores_are_zero:
                if results.normalized_zero is None:
                    results.normalize_zero(pod, cluster)  # the plugin may fail
            else:
                some.append((results, results.scores, weight))
        if not some:
            changed, self._normalized = self._normalized is not None, None
            return changed
        if (
            self._normalized is not None
            and not cluster.change_window.bits(before) & self._normalizing_bits
            and np.array_equal(self.totals.values != INFEASIBLE, feasibility.passing)
        ):
            return False
        rows = feasibility.rows
        nodes = Nodes(cluster.nodes, rows)
        parts = [results.normalize(pod, scores[rows], nodes) * weight for results, scores, weight in some]
        normalized = sum(parts[1:], start=parts[0])
        if feasibility.count == len(feasibility.passing):
            self._normalized = normalized
        else:
            self._normalized = np.zeros(len(cluster.nodes), np.int64)
            self._normalized[rows] = normalized
        return True


def best_rows(totals: NDArray[np.int64], rows: Rows) -> NDArray[np.intp]:
    """Those of some rows that have the highest of their ``totals`` (int64, one per row), intp, in order."""
    best = np.flatnonzero(totals == totals.max())
    return best if isinstance(rows, slice) else rows[best]


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

    ``results`` are by plugin, in the order of the plan; ``sums`` are those of the scores that are not normalized.
    ``similar`` is an evaluation that has all of the results that have been computed before. A diagnosis has the nodes
    that PreFilter leaves out if ``reports_nodes_left_out``.
    """

    def __init__(
        self,
        plan: Plan,
        results: Mapping[Plugin, PluginResults],
        sums: ScoreSums,
        runtime: FrameworkRuntime,
        cluster: Cluster,
        similar: Evaluation | None = None,
        *,
        reports_nodes_left_out: bool = True,
    ) -> None:
        self.plan, self.results = plan, results
        self._runtime, self._cluster = runtime, cluster
        self._reports_nodes_left_out = reports_nodes_left_out
        #: The usual outcome of PreFilter.
        self._every_node = PreFiltered(None, None, (), reports_nodes_left_out)
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
        #: How many times PreFilter has run, for any pods of the group. Each run replaces the uncached results.
        self.run_count = 0

    def state(self) -> CycleState:
        """A cycle state that reads what the plugins have prepared in this cycle, and keeps later writes to itself."""
        skipped = self._pre_filters[self._pre_filters_called :]
        if not skipped:
            return CycleState(*[results.state for results in self.results.values()])
        return CycleState(*[results.state for results in self.results.values() if results not in skipped])

    def is_local(self) -> bool:
        """Whether a further pod of this shape changes nothing but the filter results and the total of its own node.

        The last cycle must have been scored. Then copies of a pod can be placed without evaluating in between.
        """
        if self._uncached or any(results.depends_on_other_nodes for results in self.results.values()):
            return False
        return not any(results.depends_on_feasible_nodes for results, _ in self._scores)

    def reserves_nothing(self) -> bool:
        """Whether Reserve has no effect and cannot fail for pods of this shape.

        The last cycle must have been filtered.
        """
        reserving = self._runtime.plugins.reserve
        return all(plugin.reserves_only_for_filtered_pods and self._skips_filter(plugin) for plugin in reserving)

    def binds_at_once(self) -> bool:
        """Whether nothing but the binding is left to do once a pod of this shape has a node, from Reserve to PostBind.

        The last cycle must have been filtered.
        """
        plugins = self._runtime.plugins
        has_work = plugins.permit or plugins.post_bind or not self.reserves_nothing()
        return not has_work and all(
            plugin.pre_binds_only_filtered_pods and self._skips_filter(plugin) for plugin in plugins.pre_bind
        )

    def _skips_filter(self, plugin: Plugin) -> bool:
        """Whether a plugin does not apply to the pods, or its PreFilter returned a skip."""
        results = self.results.get(plugin)
        return results is None or results.skips_filter

    def filters_are_local(self) -> bool:
        """Whether a further pod of this shape changes nothing but the filter results of its own node.

        The last cycle must have been filtered. Unlike :meth:`is_local`, scores may depend on other nodes.
        """
        filters = (results for results in (*self._pre_filters, *self._filters) if not results.skips_filter)
        return not any(results.depends_on_other_nodes for results in filters)

    @property
    def totals_depend_on_rows(self) -> bool:
        """Whether the total of a row, as computed last, depends on which other rows are scored with it."""
        return any(
            results.bound_plugin.scores_feasible_set
            or (results.bound_plugin.normalizes and results.scores is not None and not results.scores_are_zero)
            for results, _ in self._scores
        )

    # -- filtering -----------------------------------------------------------------------------------------------

    def find_feasible(self, pod: PodInfo, within: Mask | None = None) -> Feasibility:
        """Find the nodes that pass all filters (semantics 5.3), among some (bool, one per node) or all.

        The node that the pod is nominated to is tried first, alone. Plugins see the whole cluster in any case. Raises
        PluginError.
        """
        cluster = self._cluster
        with self._runtime.timer("PreFilter") as timer:
            pre_filtered = self._run_pre_filters(pod)
            filters = CycleFilterRunner(cluster, pod, self._filters)
            if pre_filtered.rejection is not None:
                timer.ended_with(pre_filtered.rejection)
                return _rejected(len(cluster.nodes), filters, pre_filtered, within)
        with self._runtime.timer("Filter", began=timer.last_reading) as timer:
            candidates = pre_filtered.mask(cluster)
            if within is not None:
                candidates = candidates & within
            nomination = pod.status.nominated_node_name
            nominated = cluster.nodes.rows.get(nomination) if nomination else None
            found: Feasibility | None = None
            if nominated is not None and (within is None or within[nominated]):
                alone = np.zeros(len(cluster.nodes), np.bool_)
                alone[nominated] = True
                found = self._run_filters(pod, filters, alone)
                found.tried_nominated_node_only = True
                candidates = candidates | alone  # it has been filtered, so its status is its own
            if found is None or not found.count:
                every_node = within is None and pre_filtered.node_names is None and not nomination
                kept = self._feasible_rows if every_node and not cluster.has_nominations else None
                found = self._run_filters(pod, filters, candidates, kept)
                found.pre_filtered, found.within = pre_filtered, within
            if found.error is not None:
                timer.ended_with(found.error)
        found.ended = timer.last_reading
        return found

    def capacity(self, pod: PodInfo, most: int, within: Mask | None = None) -> PodCapacity | None:
        """The capacity for a pod on the nodes ``within`` (bool, one per row; None for all), up to ``most`` per node.

        Runs PreFilter. None when it cannot be counted, or when PreFilter rejects the pod. Raises PluginError.
        """
        if pod.shape.spec.volumes or pod.spec.resource_claims:
            return None
        pre_filtered = self._run_pre_filters(pod)
        filters = CycleFilterRunner(self._cluster, pod, self._filters)
        if pre_filtered.rejection is not None or not filters.is_node_local:
            return None
        candidates = pre_filtered.mask(self._cluster)
        return PodCapacity(pod, filters, candidates if within is None else candidates & within, most)

    def _run_pre_filters(self, pod: PodInfo) -> PreFiltered:
        """Begin a cycle, and run PreFilter in order.

        Only UnschedulableAndUnresolvable and errors end it at once (semantics 4.3).
        """
        self.run_count += 1
        for results in self._uncached:
            results.invalidate()
        self._cluster.change_window.begin()
        self._changes = self._cluster.change_window.bits(self._filtered)
        rejection: Status | None = None
        names: frozenset[str] | None = None
        plugins: tuple[str, ...] = ()
        for position, results in enumerate(self._pre_filters, 1):
            if self._changes & results.filter_refresh_bits:
                results.refresh_pre_filter(self._cluster, pod)
            self._pre_filters_called = position
            result = results.pre_filter_result
            plugin = results.plugin.name
            if isinstance(result, PreFilterResult):
                names = result.node_names if names is None else names & result.node_names
                plugins = tuple(sorted((*plugins, plugin)))
                if not names:
                    several = f"plugin(s) [{' '.join(plugins)}] simultaneously"
                    text = f"node(s) didn't satisfy {several if len(plugins) > 1 else f'plugin {plugins[0]}'}"
                    return PreFiltered(Status.unresolvable(text), names, plugins)
            elif result.code is Code.UNSCHEDULABLE:
                rejection = result.by(plugin)
            elif result.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                return PreFiltered(result.by(plugin), names, plugins)
            elif result.code is not Code.SUCCESS and result.code is not Code.SKIP:
                text = f'running PreFilter plugin "{plugin}": {result.message}'
                return PreFiltered(Status(Code.ERROR, (text,), plugin), names, plugins)
        if rejection is None and names is None:
            return self._every_node
        return PreFiltered(rejection, names, plugins, self._reports_nodes_left_out)

    def _run_filters(
        self, pod: PodInfo, filters: CycleFilterRunner, candidates: Mask, kept: FeasibleRows | None = None
    ) -> Feasibility:
        """Filter the candidates; what is ``kept`` of earlier cycles is used only when these are all nodes.

        The nodes that pass as they are have to pass with their nominated pods too. kube-scheduler filters with those
        first, which makes no difference to the nodes that pass; so it is done for all candidates only where it matters
        why none does, or a filter runs on what has passed before, or fails.
        """
        cluster = self._cluster
        verdicts: list[tuple[str, Verdict, Mask]] = []
        is_in_turn = False
        for results in self._filters:
            if results.bound_plugin.filters_passing_nodes:
                is_in_turn |= not results.skips_filter
                continue
            if self._changes & results.filter_refresh_bits:
                results.refresh_filter(cluster, pod)
            verdict, passes = results.verdict, results.passes
            if verdict is not None and passes is not None:
                verdicts.append((results.plugin.name, verdict, passes))
                is_in_turn |= verdict.has_errors
        if is_in_turn:
            return self._filter_in_turn(pod, filters, candidates)
        self._filtered = cluster.change_window.generation
        if kept is not None:
            kept.update(cluster)
            passing, count = kept.passing, kept.count
        else:
            passing = candidates
            for _, _, passes in verdicts:
                passing = passing & passes
            count = int(np.count_nonzero(passing))
        ranked_in = 0 if kept is None else self.run_count
        found = Feasibility(passing, count, filters, ranked_in=ranked_in, candidates=candidates, verdicts=verdicts)
        rejections = filters.nominated_rejections(passing)
        for rejection in rejections:
            found.passing = found.passing & ~rejection.where
        if rejections:
            found.count, found.ranked_in = int(np.count_nonzero(found.passing)), 0
        error = _first_error(cluster, rejections if found.count else found.nominated_rejections)
        return found if error is None else _failed(cluster, filters, error)

    def _filter_in_turn(self, pod: PodInfo, filters: CycleFilterRunner, candidates: Mask) -> Feasibility:
        """Filter the candidates with their nominated pods, and those that pass, with one filter after the other."""
        cluster = self._cluster
        passing = candidates
        found = Feasibility(candidates, 0, filters, candidates=candidates)
        if (error := _first_error(cluster, found.nominated_rejections)) is not None:
            return _failed(cluster, filters, error)
        for rejection in found.nominated_rejections:
            passing = passing & ~rejection.where
        verdicts: list[tuple[str, Verdict, Mask]] = []
        for results in self._filters:
            if results.bound_plugin.filters_passing_nodes:
                if results.skips_filter:
                    continue
                verdict = _filter_passing(results, cluster, pod, passing)
                passes = None if verdict is None else verdict.passes
            else:
                verdict, passes = results.verdict, results.passes
            if verdict is None or passes is None:
                continue
            rejection = Rejection(results.plugin.name, passing & ~passes, verdict)
            if (error := _first_error(cluster, [rejection])) is not None:
                return _failed(cluster, filters, error)
            verdicts.append((results.plugin.name, verdict, passes))
            passing = passing & passes
        self._filtered = cluster.change_window.generation
        found.passing, found.count, found.verdicts = passing, int(np.count_nonzero(passing)), verdicts
        return found

    # -- scoring -------------------------------------------------------------------------------------------------

    def score_by_plugin(self, pod: PodInfo, rows: Rows) -> Iterator[ScoreResult]:
        """Each plugin's scores of the feasible rows; plugins that skip are left out. Raises PluginError."""
        nodes = Nodes(self._cluster.nodes, rows)
        changes = self._begin_scoring(pod, nodes)
        for results, weight in self._scores:
            if results.bound_plugin.scores_feasible_set:
                raw = results.score(pod, nodes)
            else:
                if changes & results.score_refresh_bits:
                    results.refresh_scores(self._cluster, pod)
                raw = None if results.scores is None else results.scores[rows]
            if raw is not None:
                yield ScoreResult(results.plugin.name, weight, raw, results.normalize(pod, raw, nodes))

    def compute_totals(self, pod: PodInfo, rows: Rows) -> NDArray[np.int64]:
        """The weighted sum of all plugins' scores per feasible row, int64. Raises PluginError."""
        with self._runtime.timer("Score"):
            nodes = Nodes(self._cluster.nodes, rows)
            changes = self._begin_scoring(pod, nodes)
            totals = np.zeros(len(nodes), np.int64)
            constant = 0
            for results, weight in self._scores:
                if results.bound_plugin.scores_feasible_set:
                    raw = results.score(pod, nodes)
                else:
                    if changes & results.score_refresh_bits:
                        results.refresh_scores(self._cluster, pod)
                    if results.scores is not None and results.scores_are_zero:
                        constant += results.normalize_zero(pod, self._cluster).item(0) * weight
                        continue
                    raw = None if results.scores is None else results.scores[rows]
                if raw is not None:
                    scores = results.normalize(pod, raw, nodes)
                    totals += scores if weight == 1 else scores * weight
            self._scored = self._cluster.change_window.generation
            totals += constant
            return totals

    def find_best(self, pod: PodInfo, feasibility: Feasibility) -> BestRows:
        """The feasible rows with the highest total, in order, until the next call; there must be feasible ones.

        Raises PluginError.
        """
        ranking = self._updated_ranking(pod, feasibility)
        if ranking is None:
            return best_rows(self.compute_totals(pod, feasibility.rows), feasibility.rows)
        return ranking.find_best()

    def find_totals(self, pod: PodInfo, feasibility: Feasibility) -> NDArray[np.int64]:
        """The totals of the feasible rows, int64, which may all lack the same amount. Raises PluginError."""
        ranking = self._updated_ranking(pod, feasibility)
        return (
            self.compute_totals(pod, feasibility.rows) if ranking is None else ranking.totals.values[feasibility.rows]
        )

    def _updated_ranking(self, pod: PodInfo, feasibility: Feasibility) -> Ranking | None:
        """The ranking of the feasible rows; None where their totals have to be computed. Raises PluginError."""
        ranking = self._ranking
        if ranking is None or feasibility.ranked_in != self.run_count:
            return None
        with self._runtime.timer("Score", began=feasibility.ended):
            changes = self._cluster.change_window.bits(self._scored)
            for results, _ in self._scores:
                if changes & results.score_refresh_bits:
                    results.refresh_scores(self._cluster, pod)
            self._scored = self._cluster.change_window.generation
            ranking.update(self._cluster, pod, feasibility)
        return ranking

    def _begin_scoring(self, pod: PodInfo, nodes: Nodes) -> int:
        """Run PreScore of plugins that do not score; the event bits of the changes since the scores were computed."""
        for results in self._pre_scores_alone:
            results.run_pre_score(pod, nodes)
        self._cluster.change_window.begin()
        return self._cluster.change_window.bits(self._scored)


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


def _first_error(cluster: Cluster, rejections: Iterable[Rejection]) -> Status | None:
    """The error of the first plugin that has one on a rejected node, and there of the node that was added first."""
    for rejection in rejections:
        plugin, verdict = rejection.plugin, rejection.verdict
        if not verdict.has_errors:
            continue
        rows = np.flatnonzero(rejection.where)
        for row in rows[np.argsort(cluster.nodes.sequence.values[rows])].tolist():
            status = verdict.status(row)
            if status.code is Code.ERROR:
                return Status(Code.ERROR, (f'running "{plugin}" filter plugin: {status.message}',), plugin)
    return None
