"""Scheduling cycles of an engine that nothing observes: most find the node of a pod from totals that were kept.

The first pod of a group is decided about by the pipeline. While only single nodes change after that, those of its
copies follow from :class:`~kubestow.framework.evaluation.kept_totals.KeptTotals`: the same nodes, with the same random
choices, without what a decision tells an observer, an explanation or a failure handler. Where no node is feasible, or
anything else has changed, the pipeline decides.
"""

from __future__ import annotations

from collections.abc import Callable

from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import PluginError
from kubestow.framework.evaluation.evaluation import Evaluation
from kubestow.framework.evaluation.kept_totals import KeptTotals
from kubestow.scheduling.cycle.binding_context import BindingContext
from kubestow.scheduling.cycle.scheduling_cycle import SchedulingCycle
from kubestow.scheduling.decision.node_selection import WHOLE_CLUSTER, Scope
from kubestow.scheduling.decision.result import Decision, Scheduled
from kubestow.scheduling.queued_pod import QueuedPod


class KeepingSchedulingCycle(SchedulingCycle):
    """Schedules single pods without extenders, and keeps the totals of nodes."""

    #: Starts a binding cycle in which nothing but the binding is left to do.
    start_binding_only: Callable[[QueuedPod, str], None]

    async def schedule(self, queued: QueuedPod, start_binding: Callable[[BindingContext], None] | None = None) -> None:
        """Schedule one pod."""
        info = queued.info
        evaluation = self.known_evaluation(info)
        node_name = None if evaluation is None else self.find_node(info, evaluation)
        if evaluation is None or node_name is None:
            await super().schedule(queued, start_binding)
        elif evaluation.kept_totals is not None and evaluation.kept_totals.binds_at_once and start_binding is None:
            self._cluster.assume(info, node_name)
            self.start_binding_only(queued, node_name)
        else:
            self._assume(queued, evaluation.state(), node_name, start_binding)

    async def decide(self, info: PodInfo, scope: Scope = WHOLE_CLUSTER) -> Decision:
        """Decide about a pod by the pipeline, and keep the totals that it has found."""
        decision = await super().decide(info, scope)
        if isinstance(decision, Scheduled) and scope.is_whole and decision.scored_rows is None:
            evaluation, feasibility = decision.evaluation, decision.feasibility
            if decision.candidate_count > 1:
                evaluation.kept_totals = KeptTotals.of(evaluation, info, feasibility, self._cluster)
        return decision

    def known_evaluation(self, info: PodInfo) -> Evaluation | None:
        """The evaluation of a pod; None unless it has totals that were kept."""
        if info.status.nominated_node_name or self._cluster.has_nominations:
            return None
        try:
            evaluation = self._pipeline.profiles[info.spec.scheduler_name].evaluations.of(info)
        except PluginError:
            return None  # the decision fails with it, too
        return None if evaluation.kept_totals is None else evaluation

    def find_node(self, info: PodInfo, evaluation: Evaluation) -> str | None:
        """The node of a pod by the totals that were kept, reported; None where the pipeline has to decide."""
        assert evaluation.kept_totals is not None
        try:
            best = evaluation.kept_totals.find_best(info)
        except PluginError:  # the decision may fail with it, too
            best = None
        if best is None:
            evaluation.kept_totals = None
            return None
        row = int(best[0]) if len(best) == 1 else self._pipeline.ties.choose(self._cluster, best)
        self._observer.node_found(info)
        return self._cluster.nodes.names[row]
