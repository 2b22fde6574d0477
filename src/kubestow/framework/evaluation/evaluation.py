"""The evaluation of a pod: the results of all plugins of a profile for all nodes, put together.

Pods of one shape share an evaluation (:mod:`.evaluation_cache`); evaluations share the results of a plugin with all
shapes of the same signature (:mod:`.result_cache`). Bringing an evaluation up to date takes a few plugin calls for the
rows that have changed; the feasible nodes are then an AND of masks, and their totals a weighted sum of arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.views import Nodes, Rows
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import PluginError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.diagnosis import Diagnosis, Rejection
from kubestow.framework.evaluation.filter_runner import CycleFilterRunner, over_all_rows
from kubestow.framework.evaluation.result_cache import PluginResults
from kubestow.framework.interface import PreFilterResult
from kubestow.framework.invalidation import ANY_CHANGE, NEVER, Generation
from kubestow.framework.runtime import FrameworkRuntime
from kubestow.framework.status import Code, Status, Verdict

__all__ = ["Evaluation", "Feasibility"]

Mask = NDArray[np.bool_]


@dataclass(slots=True)
class Feasibility:
    """The feasible nodes of a pod: ``rows`` of the node table, a slice over all rows when every node is feasible.

    ``error`` ends the cycle. Valid until the next scheduling cycle, like the diagnosis made from it.
    """

    rows: Rows
    count: int
    #: The filters of this cycle, for hypothetical nodes.
    filters: CycleFilterRunner
    error: Status | None = None
    diagnosis: Diagnosis | None = None
    #: What the diagnosis is made from: the nodes that were filtered, the verdicts on them, and where those pass.
    _candidates: Mask | None = None
    _nominated_rejections: Sequence[Rejection] = ()
    _verdicts: Sequence[tuple[str, Verdict, Mask]] = ()
    _pre_filtered: _PreFiltered | None = None
    _within: Mask | None = None

    def diagnose(self) -> Diagnosis:
        """Why the other nodes are not feasible. Raises PluginError."""
        if self.diagnosis is not None:
            return self.diagnosis
        assert self._candidates is not None
        passing = self._candidates.copy()
        rejections = list(self._nominated_rejections)
        for rejection in rejections:
            passing &= ~rejection.where
        for plugin, verdict, passes in self._verdicts:
            where = passing & ~passes
            if where.any():
                rejections.append(Rejection(plugin, where, verdict))
                passing &= passes
        diagnosis = Diagnosis(len(passing), rejections, filtered=self._candidates, within=self._within)
        if self._pre_filtered is not None:
            diagnosis.absent_nodes_status = self._pre_filtered.absent_nodes_status
            diagnosis.narrowed_by = self._pre_filtered.plugins
        self.diagnosis = diagnosis
        return diagnosis


class _PreFiltered(NamedTuple):
    """The outcome of PreFilter: a rejection, or the ``node_names`` that are left by some plugins (None: all)."""

    rejection: Status | None
    node_names: frozenset[str] | None
    plugins: tuple[str, ...]

    def mask(self, cluster: Cluster) -> Mask:
        """The nodes that are left, bool, read-only."""
        rows = cluster.nodes.rows
        if self.node_names is None:
            return cluster.nodes.every.readonly
        mask = np.zeros(len(rows), np.bool_)
        mask[[rows[name] for name in self.node_names if name in rows]] = True
        return mask

    @property
    def absent_nodes_status(self) -> Status:
        """The status of the nodes that are not left."""
        if self.node_names is None:
            return Status.unresolvable()
        return Status.unresolvable(f"node(s) didn't satisfy plugin(s) [{' '.join(self.plugins)}]")


class Evaluation:
    """The results of the plugins that apply to pods of one shape."""

    def __init__(
        self,
        pre_filters: Sequence[PluginResults],
        filters: Sequence[PluginResults],
        scores: Sequence[tuple[PluginResults, int]],
        pre_scores_alone: Sequence[PluginResults],
        runtime: FrameworkRuntime,
    ) -> None:
        self._runtime = runtime
        self._pre_filters = pre_filters
        self._filters = filters
        self._scores = scores
        #: The plugins with PreScore that do not score.
        self._pre_scores_alone = pre_scores_alone
        everything = (*pre_filters, *filters, *pre_scores_alone, *(results for results, _ in scores))
        self._results = list(dict.fromkeys(everything))
        self._uncached = [results for results in self._results if not results.cached]
        #: The generations in which all filters, and all scores, were last up to date.
        self._filtered = self._scored = NEVER
        #: The generation that results are being brought up to, and the event bits of the changes until then.
        self._now, self._changes = NEVER, ANY_CHANGE
        #: How many PreFilter plugins were called in the last cycle; a rejection ends it early.
        self._pre_filters_called = 0

    def state(self) -> CycleState:
        """A cycle state that reads what the plugins have prepared in this cycle, and keeps later writes to itself."""
        skipped = self._pre_filters[self._pre_filters_called :]
        called = [results for results in self._results if results not in skipped] if skipped else self._results
        return CycleState(*[results.state for results in called])

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
        for results in self._uncached:
            results.invalidate()
        self._now, self._changes = Generation.of(cluster), self._filtered.changes(cluster)

    def _run_pre_filters(self, cluster: Cluster, pod: PodInfo) -> _PreFiltered:
        """Run PreFilter in order (semantics 4.3): only UnschedulableAndUnresolvable and errors end it at once."""
        rejection: Status | None = None
        names: frozenset[str] | None = None
        plugins: tuple[str, ...] = ()
        for position, results in enumerate(self._pre_filters, 1):
            if self._changes & results.invalidated_by:
                results.refresh_pre_filter(cluster, pod, self._now)
            self._pre_filters_called = position
            result = results.pre_filter_result
            plugin = results.plugin.name
            if isinstance(result, PreFilterResult):
                names = result.node_names if names is None else names & result.node_names
                plugins = tuple(sorted((*plugins, plugin)))
                if not names:
                    return _PreFiltered(_no_nodes_left(plugins), names, plugins)
            elif result.code is Code.UNSCHEDULABLE:
                rejection = result.by(plugin)
            elif result.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                return _PreFiltered(result.by(plugin), names, plugins)
            elif not result.ok and result.code is not Code.SKIP:
                text = f'running PreFilter plugin "{plugin}": {result.message}'
                return _PreFiltered(Status(Code.ERROR, (text,), plugin), names, plugins)
        return _PreFiltered(rejection, names, plugins)

    def _filter_nodes(
        self,
        cluster: Cluster,
        pod: PodInfo,
        filters: CycleFilterRunner,
        pre_filtered: _PreFiltered,
        within: Mask | None,
    ) -> Feasibility:
        """Filter the nodes that PreFilter has left; the node that the pod is nominated to is tried first, alone."""
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
        found._pre_filtered, found._within = pre_filtered, within
        return found

    def _run_filters(self, cluster: Cluster, pod: PodInfo, filters: CycleFilterRunner, candidates: Mask) -> Feasibility:
        passing = candidates
        nominated_rejections = filters.nominated_rejections(passing)
        for rejection in nominated_rejections:
            if rejection.verdict.has_errors and (
                error := _first_error(cluster, rejection.plugin, rejection.verdict, rejection.where)
            ):
                return Feasibility(slice(0, 0), 0, filters, error)
            passing = passing & ~rejection.where
        verdicts: list[tuple[str, Verdict, Mask]] = []
        for results in self._filters:
            if results.bound_plugin.filters_passing_nodes:
                verdict = self._filter_passing(results, cluster, pod, passing)
                passes = None if verdict is None else verdict.passes
            else:
                if self._changes & results.invalidated_by:
                    results.refresh_filter(cluster, pod, self._now)
                verdict, passes = results.verdict, results.passes
            if verdict is None or passes is None:
                continue
            if verdict.has_errors and (error := _first_error(cluster, results.plugin.name, verdict, passing & ~passes)):
                return Feasibility(slice(0, 0), 0, filters, error)
            verdicts.append((results.plugin.name, verdict, passes))
            passing = passing & passes
        self._filtered = self._now
        count = int(np.count_nonzero(passing))
        rows = slice(0, count) if count == len(passing) else np.flatnonzero(passing)
        return Feasibility(rows, count, filters, None, None, candidates, nominated_rejections, verdicts)

    def _filter_passing(self, results: PluginResults, cluster: Cluster, pod: PodInfo, passing: Mask) -> Verdict | None:
        """The verdict of an uncached filter, which runs only on the nodes that have passed; over all rows."""
        if results.skips_filter or not passing.any():
            return None
        nodes = Nodes(cluster.nodes, np.flatnonzero(passing))
        verdict = results.run_filter(pod, nodes)
        return None if verdict is None else over_all_rows(verdict, nodes)

    # -- scoring -------------------------------------------------------------------------------------------------

    def scores(self, cluster: Cluster, pod: PodInfo, rows: Rows) -> Iterator[tuple[str, NDArray[np.int64]]]:
        """Each plugin's normalized and weighted scores of the feasible rows, int64; plugins that skip are left out.

        Raises PluginError.
        """
        nodes = Nodes(cluster.nodes, rows)
        self._run_pre_scores_alone(pod, nodes)
        self._now, self._changes = Generation.of(cluster), self._scored.changes(cluster)
        for results, weight in self._scores:
            scores = self._normalized(results, cluster, pod, nodes)
            if scores is not None:
                yield results.plugin.name, np.broadcast_to(scores, len(nodes)) * weight

    def totals(self, cluster: Cluster, pod: PodInfo, rows: Rows) -> NDArray[np.int64]:
        """The weighted sum of all plugins' scores per feasible row, int64. Raises PluginError."""
        began = self._runtime.now()
        try:
            totals = self._weighted_sum(cluster, pod, Nodes(cluster.nodes, rows))
        except PluginError as error:
            extension_point = "PreScore" if error.extension_point == "PreScore" else "Score"
            self._runtime.extension_point_ended(extension_point, Code.ERROR, began)
            raise
        self._runtime.extension_point_ended("Score", Code.SUCCESS, began)
        return totals

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
        if self._changes & results.invalidated_by:
            results.refresh_scores(cluster, pod, self._now)
        if results.scores is None:
            return None
        if results.scores_are_zero:
            return results.normalized_zero(pod, cluster)
        return results.normalize(pod, results.scores[nodes.rows], nodes)


def _rejected(total: int, filters: CycleFilterRunner, pre_filtered: _PreFiltered, within: Mask | None) -> Feasibility:
    rejection = pre_filtered.rejection
    assert rejection is not None
    if rejection.code is Code.ERROR:
        return Feasibility(slice(0, 0), 0, filters, rejection)
    diagnosis = Diagnosis(
        total,
        filtered=np.zeros(total, np.bool_),
        pre_filter_status=rejection,
        absent_nodes_status=rejection,
        narrowed_by=pre_filtered.plugins,
        within=within,
    )
    return Feasibility(slice(0, 0), 0, filters, None, diagnosis)


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
