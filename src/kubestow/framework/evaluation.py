"""The evaluation of a pod: what all plugins of a profile say of all nodes.

Pods of one shape share an evaluation (:mod:`.evaluations`); evaluations share the answers of each plugin with every
other shape of the same signature for that plugin (:mod:`.answers`). Bringing one up to date costs a few calls on the
rows that changed; putting it together (a mask, then a weighted sum) is a handful of passes over arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.views import Nodes, Rows
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import PluginError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.diagnosis import Diagnosis, Refusal
from kubestow.framework.filters import Filters, spread_out
from kubestow.framework.interface import PreFilterResult
from kubestow.framework.result_cache import Answers, Round
from kubestow.framework.runtime import FrameworkRuntime
from kubestow.framework.status import Code, Status, Verdict

__all__ = ["Evaluation", "Feasible"]

Mask = NDArray[np.bool_]


@dataclass(slots=True)
class Feasible:
    """Where a pod fits: ``rows`` of the node table, a whole slice when every node fits; ``error`` ends the cycle.

    Good until the next scheduling cycle, like the diagnosis it gives.
    """

    rows: Rows
    count: int
    #: The filters that were asked, ready to be asked about other nodes than the real ones.
    filters: Filters
    error: Status | None = None
    diagnosis: Diagnosis | None = None
    #: What :meth:`diagnose` is made of: the nodes in question, who spoke of them and where each lets pass.
    _candidates: Mask | None = None
    _beside_nominated: Sequence[Refusal] = ()
    _verdicts: Sequence[tuple[str, Verdict, Mask]] = ()
    _narrowing: _Narrowing | None = None
    _within: Mask | None = None

    def diagnose(self) -> Diagnosis:
        """Why the nodes that do not fit do not."""
        if self.diagnosis is not None:
            return self.diagnosis
        assert self._candidates is not None
        standing = self._candidates.copy()
        refusals = list(self._beside_nominated)
        for refusal in refusals:
            standing &= ~refusal.where
        for plugin, verdict, passes in self._verdicts:
            where = standing & ~passes
            if where.any():
                refusals.append(Refusal(plugin, where, verdict))
                standing &= passes
        diagnosis = Diagnosis(len(standing), refusals, asked=self._candidates, within=self._within)
        if self._narrowing is not None:
            diagnosis.absent, diagnosis.narrowed_by = self._narrowing.absent, self._narrowing.by
        self.diagnosis = diagnosis
        return diagnosis


@dataclass(frozen=True, slots=True)
class _Narrowing:
    """What PreFilter made of the pod: refused by a status, or nodes narrowed to ``names`` (None: all)."""

    refused: Status | None
    names: frozenset[str] | None
    by: tuple[str, ...]

    def mask(self, cluster: Cluster) -> Mask:
        """The nodes that are left, bool, not to be written to."""
        rows = cluster.nodes.rows
        if self.names is None:
            return cluster.nodes.every.readonly
        mask = np.zeros(len(rows), np.bool_)
        mask[[rows[name] for name in self.names if name in rows]] = True
        return mask

    @property
    def absent(self) -> Status:
        """What is said of the nodes that were left out."""
        if self.names is None:
            return Status.unresolvable()
        return Status.unresolvable(f"node(s) didn't satisfy plugin(s) [{' '.join(self.by)}]")


class _Stale:
    """Which answers one scheduling cycle has to bring up to date: those that mind what is in the ``news``."""

    __slots__ = ("_news", "_rows")

    def __init__(self, news: int) -> None:
        self._news = news
        self._rows: dict[Answers, list[int] | None] = {}

    def pre_filter(self, answers: Answers, cluster: Cluster, pod: PodInfo) -> None:
        """Bring PreFilter's outcome up to date."""
        if self._news & answers.minds:
            self._rows[answers] = answers.refresh_pre_filter(cluster, pod)

    def filter(self, answers: Answers, cluster: Cluster, pod: PodInfo) -> None:
        """Bring the verdict up to date, once."""
        if not self._news & answers.minds:
            return
        rows = self._rows[answers] if answers in self._rows else answers.refresh_pre_filter(cluster, pod)
        answers.refresh_filter(cluster, pod, rows)
        self._rows[answers] = []


class Evaluation:
    """The plugins' answers for pods of one shape, put together."""

    def __init__(
        self,
        pre_filters: Sequence[Answers],
        filters: Sequence[Answers],
        scores: Sequence[tuple[Answers, int]],
        preparing: Sequence[Answers],
        runtime: FrameworkRuntime,
    ) -> None:
        self._runtime = runtime
        self._pre_filters = pre_filters
        self._filters = filters
        self._scores = scores
        self._preparing = preparing
        everything = (*pre_filters, *filters, *preparing, *(answers for answers, _ in scores))
        self._answers = list({id(answers): answers for answers in everything}.values())
        self._filter_round, self._score_round = Round(), Round()
        self._forgetful = [answers for answers in self._answers if not answers.remembered]
        #: How many of the PreFilters ran in the last cycle: a refusal leaves out the plugins after it.
        self._reached = 0

    def state(self) -> CycleState:
        """A cycle state that reads what the plugins prepared in this cycle and keeps what they write later."""
        unreached = self._pre_filters[self._reached :]
        reached = [a for a in self._answers if a not in unreached] if unreached else self._answers
        return CycleState(*[answers.state for answers in reached])

    # -- filtering -----------------------------------------------------------------------------------------------

    def feasible(self, cluster: Cluster, pod: PodInfo, within: Mask | None = None) -> Feasible:
        """Find the nodes that can take a pod (semantics 5.3), among some (bool, one per node) or all.

        Plugins see the whole cluster in any case. Raises PluginError when a plugin breaks its contract.
        """
        for answers in self._forgetful:
            answers.begin()
        stale = _Stale(self._filter_round.news(cluster))
        began, extension_point = self._runtime.now(), "PreFilter"
        try:
            narrowing = self._pre_filter(cluster, pod, stale)
            filters = Filters(cluster, pod, self._filters)
            if narrowing.refused is not None:
                self._runtime.extension_point_ended("PreFilter", narrowing.refused.code, began)
                return _refused(len(cluster.nodes), filters, narrowing, within)
            self._runtime.extension_point_ended("PreFilter", Code.SUCCESS, began)
            began, extension_point = self._runtime.now(), "Filter"
            found = self._narrowed(cluster, pod, filters, narrowing, stale, within)
        except PluginError:
            self._runtime.extension_point_ended(extension_point, Code.ERROR, began)
            raise
        self._runtime.extension_point_ended("Filter", Code.SUCCESS if found.error is None else Code.ERROR, began)
        return found

    def questions(self, cluster: Cluster, pod: PodInfo) -> tuple[Filters, Mask] | None:
        """The filters after PreFilter, and the nodes that it left (bool); None when it refused the pod altogether.

        Raises PluginError when a plugin breaks its contract.
        """
        for answers in self._forgetful:
            answers.begin()
        narrowing = self._pre_filter(cluster, pod, _Stale(self._filter_round.news(cluster)))
        filters = Filters(cluster, pod, self._filters)
        return None if narrowing.refused is not None else (filters, narrowing.mask(cluster))

    def _narrowed(
        self,
        cluster: Cluster,
        pod: PodInfo,
        filters: Filters,
        narrowing: _Narrowing,
        stale: _Stale,
        within: Mask | None,
    ) -> Feasible:
        """What the filters leave of the nodes that PreFilter left; a node the pod was promised is tried first."""
        candidates = narrowing.mask(cluster)
        if within is not None:
            candidates = candidates & within
        promised = cluster.nodes.rows.get(pod.status.nominated_node_name)
        if promised is not None and (within is None or within[promised]):
            alone = np.zeros(len(cluster.nodes), np.bool_)
            alone[promised] = True
            found = self._filter(cluster, pod, filters, alone, stale)
            if found.count:
                return found
            candidates = candidates | alone  # it was asked, so it has a status of its own
        found = self._filter(cluster, pod, filters, candidates, stale)
        found._narrowing, found._within = narrowing, within
        return found

    def _pre_filter(self, cluster: Cluster, pod: PodInfo, stale: _Stale) -> _Narrowing:
        """Semantics 4.3: a UAU ends it at once, a U is remembered while the others still run."""
        refused: Status | None = None
        names: frozenset[str] | None = None
        by: tuple[str, ...] = ()
        for position, answers in enumerate(self._pre_filters, 1):
            stale.pre_filter(answers, cluster, pod)
            self._reached = position
            outcome = answers.outcome
            plugin = answers.plugin.name
            if isinstance(outcome, PreFilterResult):
                names = outcome.node_names if names is None else names & outcome.node_names
                by = tuple(sorted((*by, plugin)))
                if not names:
                    return _Narrowing(_nothing_left(by), names, by)
            elif outcome.code is Code.UNSCHEDULABLE:
                refused = outcome.by(plugin)
            elif outcome.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                return _Narrowing(outcome.by(plugin), names, by)
            elif not outcome.ok and outcome.code is not Code.SKIP:
                text = f'running PreFilter plugin "{plugin}": {outcome.message}'
                return _Narrowing(Status(Code.ERROR, (text,), plugin), names, by)
        return _Narrowing(refused, names, by)

    def _filter(
        self,
        cluster: Cluster,
        pod: PodInfo,
        filters: Filters,
        candidates: Mask,
        stale: _Stale,
    ) -> Feasible:
        alive = candidates
        beside = filters.refusals_beside_promised(alive)
        for refusal in beside:
            if refusal.verdict.has_errors and (
                error := _first_error(cluster, refusal.plugin, refusal.verdict, refusal.where)
            ):
                return Feasible(slice(0, 0), 0, filters, error)
            alive = alive & ~refusal.where
        verdicts: list[tuple[str, Verdict, Mask]] = []
        for answers in self._filters:
            verdict, passes = self._verdict(answers, cluster, pod, alive, stale)
            if passes is None or verdict is None:
                continue
            if verdict.has_errors and (error := _first_error(cluster, answers.plugin.name, verdict, alive & ~passes)):
                return Feasible(slice(0, 0), 0, filters, error)
            verdicts.append((answers.plugin.name, verdict, passes))
            alive = alive & passes
        self._filter_round.note(cluster)
        count = int(np.count_nonzero(alive))
        rows = slice(0, count) if count == len(alive) else np.flatnonzero(alive)
        return Feasible(rows, count, filters, None, None, candidates, beside, verdicts)

    def _verdict(
        self, answers: Answers, cluster: Cluster, pod: PodInfo, alive: Mask, stale: _Stale
    ) -> tuple[Verdict | None, Mask | None]:
        """A filter's verdict over all rows, from memory as far as that goes."""
        plugin = answers.bound_plugin.filter_plugin
        assert plugin is not None
        if not plugin.uncached:
            stale.filter(answers, cluster, pod)
            return answers.verdict, answers.passes
        if answers.skips_filter or not alive.any():
            return None, None
        nodes = Nodes(cluster.nodes, np.flatnonzero(alive))
        verdict = answers.ask_filter(pod, nodes)
        if verdict is None:
            return None, None
        whole = spread_out(verdict, nodes)
        return whole, whole.passes

    # -- scoring -------------------------------------------------------------------------------------------------

    def scores(self, cluster: Cluster, pod: PodInfo, rows: Rows) -> Iterator[tuple[str, NDArray[np.int64]]]:
        """Each score plugin's normalised and weighted scores of the feasible rows, int64; skipping ones are left out.

        Raises PluginError when a score is out of range.
        """
        nodes = Nodes(cluster.nodes, rows)
        self._prepare(pod, nodes)
        news = self._score_round.news(cluster)
        for answers, weight in self._scores:
            scores = self._normalized(answers, cluster, pod, nodes, news)
            if scores is not None:
                yield answers.plugin.name, np.broadcast_to(scores, len(nodes)) * weight

    def totals(self, cluster: Cluster, pod: PodInfo, rows: Rows) -> NDArray[np.int64]:
        """The weighted sum of all scores per feasible row, int64."""
        began = self._runtime.now()
        try:
            total = self._weighted_sum(cluster, pod, Nodes(cluster.nodes, rows))
        except PluginError as error:
            extension_point = "PreScore" if error.extension_point == "PreScore" else "Score"
            self._runtime.extension_point_ended(extension_point, Code.ERROR, began)
            raise
        self._runtime.extension_point_ended("Score", Code.SUCCESS, began)
        return total

    def _weighted_sum(self, cluster: Cluster, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        self._prepare(pod, nodes)
        constant = 0
        varying: list[NDArray[np.int64]] = []
        news = self._score_round.news(cluster)
        for answers, weight in self._scores:
            scores = self._normalized(answers, cluster, pod, nodes, news)
            if scores is None:
                continue
            if len(scores) == 1:
                constant += int(scores[0]) * weight
            else:
                varying.append(scores if weight == 1 else scores * weight)
        self._score_round.note(cluster)
        total = varying[0] + constant if varying else np.full(len(nodes), constant, np.int64)
        for scores in varying[1:]:
            total += scores
        return total

    def _prepare(self, pod: PodInfo, nodes: Nodes) -> None:
        """Ask the PreScore of plugins that do not score themselves."""
        for answers in self._preparing:
            answers.prepare(pod, nodes)

    def _normalized(
        self, answers: Answers, cluster: Cluster, pod: PodInfo, nodes: Nodes, news: int
    ) -> NDArray[np.int64] | None:
        """A plugin's normalised scores, int64: one per node, or a single one that holds for all; None if it skips."""
        plugin = answers.bound_plugin.score_plugin
        assert plugin is not None
        if plugin.scores_feasible_set:
            raw = answers.score_feasible(pod, nodes)
            return None if raw is None else answers.normalized(pod, raw, nodes)
        if news & answers.minds:
            answers.refresh_scores(cluster, pod)
        if answers.scores is None:
            return None
        if answers.scores_nothing:
            return answers.normalized_nothing(pod, cluster)
        return answers.normalized(pod, answers.scores[nodes.rows], nodes)


def _refused(total: int, filters: Filters, narrowing: _Narrowing, within: Mask | None) -> Feasible:
    assert narrowing.refused is not None
    if narrowing.refused.code is Code.ERROR:
        return Feasible(slice(0, 0), 0, filters, narrowing.refused)
    nobody = np.zeros(total, np.bool_)
    diagnosis = Diagnosis(
        total,
        asked=nobody,
        pre_filter=narrowing.refused,
        absent=narrowing.refused,
        narrowed_by=narrowing.by,
        within=within,
    )
    return Feasible(slice(0, 0), 0, filters, None, diagnosis)


def _nothing_left(by: tuple[str, ...]) -> Status:
    if len(by) == 1:
        return Status.unresolvable(f"node(s) didn't satisfy plugin {by[0]}")
    return Status.unresolvable(f"node(s) didn't satisfy plugin(s) [{' '.join(by)}] simultaneously")


def _first_error(cluster: Cluster, plugin: str, verdict: Verdict, where: Mask) -> Status | None:
    """The error of the first erring node, in the order in which the nodes were added."""
    rows = np.flatnonzero(where)
    for row in rows[np.argsort(cluster.nodes.sequence.values[rows])]:
        status = verdict.status(int(row))
        if status.code is Code.ERROR:
            return Status(Code.ERROR, (f'running "{plugin}" filter plugin: {status.message}',), plugin)
    return None
