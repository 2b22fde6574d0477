"""The decision pipeline: which node a pod gets, or why none.

    filter ─► sample ─► extender filter and prioritize ─► score ─► select
       └────────── no node ──────────► PostFilter + extender preempt

Deciding changes nothing: the scheduling cycle commits a decision by assuming the pod, the replay of recorded decisions
compares it, an explanation prints it. The stages are those of kube-scheduler (semantics 5.2 to 5.7), except that every
feasible node is scored unless the profile asks for a sample.

The extender stages are the only ones that await, and they are absent for pods that no extender is interested in; a
decision then runs to its end without suspending. While an extender is awaited the cluster changes and rows of the node
table move. Across an await the pipeline therefore keeps node names, and evaluates again afterwards, which costs next to
nothing where nothing has changed. A node is selected only if the extenders saw it and it fits as the cluster is then.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from contextlib import closing
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.cache import Cluster
from kubestow.cluster.changes.journal import NEVER
from kubestow.cluster.nodes.views import Nodes, Rows
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import ExtenderError, PluginError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.diagnosis import Diagnosis, Rejection
from kubestow.framework.evaluation.evaluation import Evaluation, best_rows
from kubestow.framework.evaluation.feasibility import Feasibility
from kubestow.framework.interface import PostFilterResult
from kubestow.framework.profile import CLEARS_NOMINATION, Profile
from kubestow.framework.status import Status, Verdict
from kubestow.scheduling.decision.copies import Copies
from kubestow.scheduling.decision.node_selection import WHOLE_CLUSTER, NodeSampler, Scope, TieBreak
from kubestow.scheduling.decision.result import Decision, Failed, PostFilterResults, Scheduled, Unschedulable
from kubestow.scheduling.extenders.stages import EXTENDER, ExtenderFilterResult, Extenders

T = TypeVar("T")

_NO_NODES = Status.unresolvable("no nodes available to schedule pods")
_NOT_FILTERED = ExtenderFilterResult()


class DecisionPipeline:
    """Decides about one pod after another. Its only state is where the next sample of nodes starts."""

    def __init__(
        self,
        cluster: Cluster,
        profiles: Mapping[str, Profile],
        ties: TieBreak,
        extenders: Extenders | None = None,
    ) -> None:
        self.cluster = cluster
        self.profiles = profiles
        #: What chooses among nodes of equal score.
        self.ties = ties
        self._extenders = extenders
        self._sampler = NodeSampler(cluster.nodes)

    def decide_by_plugins(self, pod: PodInfo, scope: Scope = WHOLE_CLUSTER) -> Decision:
        """Decide at once. Raises RuntimeError when an extender would be awaited: the scope has to leave them out."""
        return run_synchronously(self.decide(pod, scope))

    def copies(self, pods: Sequence[PodInfo]) -> Copies:
        """Some pods of one profile, at least one, to be decided about together where they are copies of each other."""
        profile = self.profiles[pods[0].spec.scheduler_name]
        return Copies(pods, self.cluster, profile, self.ties, self._extenders)

    async def decide(self, pod: PodInfo, scope: Scope = WHOLE_CLUSTER) -> Decision:
        """Decide with plugins and extenders; without interested extenders this never suspends."""
        extenders = self._extenders
        if extenders is not None and not (scope.calls_extenders and extenders.take_part(pod)):
            extenders = None
        if not len(self.cluster.nodes):
            post_filter = PostFilterResults(nominating_result=CLEARS_NOMINATION)
            return Unschedulable(
                pod=pod, state=CycleState(), status=_NO_NODES, message=_NO_NODES.message, post_filter=post_filter
            )
        in_progress = _DecisionInProgress(self, pod, scope, extenders)
        try:
            return await in_progress.run(self._sampler, self.ties)
        except PluginError as error:
            return Failed(pod=pod, state=in_progress.state(), message=str(error), error=error)
        except _FilterFailed as error:
            return Failed(pod=pod, state=in_progress.state(), message=str(error))
        except ExtenderError as error:
            return Failed(pod=pod, state=in_progress.state(), message=error.problem)


class _FilterFailed(Exception):
    """A PreFilter or Filter plugin returned an ERROR status, which ends the cycle."""


class _DecisionInProgress:
    """One decision in progress."""

    __slots__ = (
        "_cluster",
        "_evaluated_pod",
        "_evaluation",
        "_extender_result",
        "_extenders",
        "_feasibility",
        "_generation",
        "_pod",
        "_profile",
        "_run_number",
        "_scope",
    )

    def __init__(self, pipeline: DecisionPipeline, pod: PodInfo, scope: Scope, extenders: Extenders | None) -> None:
        self._cluster = pipeline.cluster
        self._profile = pipeline.profiles[pod.spec.scheduler_name]
        self._pod, self._scope, self._extenders = pod, scope, extenders
        #: The pod that plugins see: without its nomination once extenders have rejected the nominated node.
        self._evaluated_pod = pod
        self._evaluation: Evaluation | None = None
        self._feasibility: Feasibility | None = None
        #: The generation of the cluster in which the feasible nodes were found, and the number of the run of the
        #: evaluation that found them; needed across awaits only.
        self._generation, self._run_number = NEVER, 0
        self._extender_result = _NOT_FILTERED

    def state(self) -> CycleState:
        """The pod's cycle state, as far as plugins have filled it."""
        return CycleState() if self._evaluation is None else self._evaluation.state()

    async def run(self, sampler: NodeSampler, ties: TieBreak) -> Decision:
        """From filtering to the selected node. Raises PluginError, ExtenderError and _FilterFailed."""
        if self._extenders is not None and (row := await self._try_nominated_node(self._extenders)) is not None:
            return self._scheduled(np.array([row], np.intp), 1, row)
        feasibility = self._filter()
        rows: Rows | None = None  # those that are scored, None for all feasible ones
        count = feasibility.count
        extra_scores: NDArray[np.int64] | None = None
        candidates = None if feasibility.tried_nominated_node_only else feasibility.candidates
        if self._profile.samples_nodes and candidates is not None:
            percentage, within = self._profile.percentage_of_nodes_to_score, self._scope.rows(self._cluster)
            rows, count = sampler.sample(percentage, feasibility.rows, count, candidates=candidates, within=within)
        if count and self._extenders is not None:
            rows, extra_scores = await self._run_extenders(self._extenders, feasibility.rows if rows is None else rows)
            count = len(rows)
        if not count:
            return await self._give_up(feasibility if self._extenders is None else self._filter())
        return self._scheduled(rows, count, self._select(feasibility, rows, count, extra_scores, ties))

    def _select(
        self,
        feasibility: Feasibility,
        rows: Rows | None,
        count: int,
        extra_scores: NDArray[np.int64] | None,
        ties: TieBreak,
    ) -> int:
        """The row with the highest total; plugins score only where there is a choice. Raises PluginError."""
        if count == 1:
            scored = feasibility.rows if rows is None else rows
            return int(Nodes(self._cluster.nodes, scored).row_numbers[0])
        assert self._evaluation is not None
        if rows is None:
            best = self._evaluation.find_best(self._evaluated_pod, feasibility)
        else:
            totals = self._evaluation.compute_totals(self._evaluated_pod, rows)
            best = best_rows(totals if extra_scores is None else totals + extra_scores, rows)
        return int(best[0]) if len(best) == 1 else ties.choose(self._cluster, best)

    def _filter(self) -> Feasibility:
        """Which nodes fit, evaluated again if that may have changed since."""
        feasibility = self._feasibility
        if feasibility is not None and (self._extenders is None or self._is_current()):
            return feasibility
        # The plugins that apply to the pod may be others by now, too.
        self._evaluation = evaluation = self._profile.evaluations.of(self._pod)
        within = None if self._scope.is_whole else self._scope.rows(self._cluster)
        self._feasibility = feasibility = evaluation.find_feasible(self._evaluated_pod, within)
        if self._extenders is not None:
            self._generation, self._run_number = self._cluster.change_window.generation, evaluation.run_count
        if feasibility.error is not None:
            raise _FilterFailed(feasibility.error.message)
        return feasibility

    def _is_current(self) -> bool:
        """Whether the feasible nodes and what plugins have prepared for the pod are still valid, with extenders.

        While extenders are awaited, the cluster may change, and a debug page may evaluate another pod of the group.
        """
        assert self._evaluation is not None
        window = self._cluster.change_window
        return (
            self._evaluation.run_count == self._run_number
            and self._generation == window.generation
            and not window.is_outdated
        )

    # -- extenders -----------------------------------------------------------------------------------------------

    async def _try_nominated_node(self, extenders: Extenders) -> int | None:
        """The nominated node's row if the pod fits there and the extenders agree (semantics 5.3).

        An extender that fails counts as one that rejects the node.
        """
        nominated = self._pod.status.nominated_node_name
        if not nominated or self._names(self._filter().rows) != [nominated]:
            return None
        try:
            result = await extenders.filter(self._pod, [nominated])
        except ExtenderError:
            result = ExtenderFilterResult()
        rows = self._still_feasible(result.passed)
        if len(rows):
            return int(rows[0])
        self._evaluated_pod = self._pod.nominated_to("")
        self._feasibility = None
        return None

    async def _run_extenders(
        self, extenders: Extenders, rows: Rows
    ) -> tuple[NDArray[np.intp], NDArray[np.int64] | None]:
        """The rows that the extenders leave (intp), and the scores that they add (int64, one per row)."""
        self._extender_result = result = await extenders.filter(self._pod, self._names(rows))
        left = self._still_feasible(result.passed)
        if len(left) < 2:
            return left, None
        scores = await extenders.prioritize(self._pod, self._names(left))
        left = self._still_feasible(result.passed)
        return left, np.array([scores.get(name, 0) for name in self._names(left)], np.int64)

    def _still_feasible(self, names: Sequence[str]) -> NDArray[np.intp]:
        """The rows of those of some nodes that exist and fit the pod as the cluster is now."""
        rows = self._cluster.nodes.rows
        feasible = np.zeros(len(rows), np.bool_)
        feasible[self._filter().rows] = True
        passed = np.zeros(len(rows), np.bool_)
        passed[[row for row in map(rows.get, names) if row is not None]] = True
        return np.flatnonzero(passed & feasible)

    def _names(self, rows: Rows) -> list[str]:
        return Nodes(self._cluster.nodes, rows).names

    # -- results -------------------------------------------------------------------------------------------------

    def _scheduled(self, rows: Rows | None, count: int, row: int) -> Scheduled:
        assert self._evaluation is not None and self._feasibility is not None
        return Scheduled(
            pod=self._pod,
            state=self._evaluation.state(),
            node_name=self._cluster.nodes.names[row],
            scored_rows=rows,
            candidate_count=count,
            feasibility=self._feasibility,
            evaluation=self._evaluation,
        )

    async def _give_up(self, feasibility: Feasibility) -> Unschedulable:
        """No node is left: diagnose why, and run the PostFilter plugins (semantics 4.4, 5.9)."""
        result = self._extender_result
        assert self._evaluation is not None
        state, diagnosis = self._evaluation.state(), feasibility.diagnose()
        if result.rejected and (rejection := _extender_rejection(self._cluster, result)) is not None:
            diagnosis = diagnosis.overridden_by(rejection)
        message, rejectors = diagnosis.message(), frozenset(diagnosis.unschedulable_plugins)
        if result.passed or result.rejected:
            rejectors |= {EXTENDER}  # extenders register no events, so any event may help
        post_filter = await self._run_post_filter(state, diagnosis, feasibility)
        return Unschedulable(
            pod=self._pod,
            state=state,
            status=Status.unschedulable(message),
            message=f"{message} {post_filter.message}" if post_filter.message else message,
            rejectors=rejectors,
            pending_plugins=frozenset(diagnosis.pending_plugins),
            post_filter=post_filter,
            vetoed=result.vetoed,
            feasibility=feasibility,
            evaluation=self._evaluation,
        )

    async def _run_post_filter(
        self, state: CycleState, diagnosis: Diagnosis, feasibility: Feasibility
    ) -> PostFilterResults:
        """Run the PostFilter plugins in order; with extenders, no further one once an await has outdated the state."""
        if not self._profile.runtime.plugins.post_filter:
            return PostFilterResults(nominating_result=self._profile.result_without_post_filter)
        results = PostFilterResults()
        if not self._scope.preempts:
            return results
        plugins = self._profile.runtime.run_post_filter_plugins(state, self._pod, diagnosis, feasibility.filters)
        with closing(plugins):
            for result in plugins:
                if self._extenders is not None:
                    result = await _preempt_with_extenders(self._extenders, self._pod, result)
                ends = results.add(result)
                if ends or (self._extenders is not None and not self._is_current()):
                    break
        return results


async def _preempt_with_extenders(extenders: Extenders, pod: PodInfo, result: PostFilterResult) -> PostFilterResult:
    """A preemption's result after the extenders have narrowed down its candidates (semantics 9.4)."""
    candidates = result.extender_candidates
    if candidates is None or not extenders.take_part_in_preemption(pod):
        return result
    victims = candidates.victims_by_node()
    try:
        return candidates.select(await extenders.preempt(pod, victims))
    except ExtenderError as error:
        return PostFilterResult(Status.error(f"preemption: {error.problem}"))


def _extender_rejection(cluster: Cluster, result: ExtenderFilterResult) -> Rejection | None:
    """The nodes that the extenders rejected, as if the extenders were one plugin; None if they rejected none."""
    rows = cluster.nodes.rows
    keys = np.zeros(len(rows), np.int32)
    legend: dict[Status, int] = {}
    for name, status in result.rejected.items():
        if name in rows:
            keys[rows[name]] = legend.setdefault(status, len(legend) + 1)
    if not legend:
        return None
    verdict = Verdict.of(keys, {key: status for status, key in legend.items()})
    return Rejection(EXTENDER, ~verdict.passes, verdict)


def run_synchronously(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that has nothing to await, such as a decision without extenders.

    Raises what it raises, and RuntimeError if it suspends.
    """
    try:
        work.send(None)
    except StopIteration as finished:
        result: T = finished.value
        return result
    work.close()
    raise RuntimeError(f"{work!r} suspended, expected it to run to its end")
