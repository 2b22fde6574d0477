"""Scheduling cycles of an engine that nothing observes: most find the node of a pod from totals that were kept.

The first pod of a group is decided about by the pipeline. While only single nodes change after that, those of its
copies follow from :class:`~kubestow.framework.evaluation.kept_totals.KeptTotals`: the same nodes, with the same random
choices, without what a decision has for an observer, an explanation or a failure handler. Where no node is feasible, or
anything else has changed, the pipeline decides.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from weakref import WeakKeyDictionary

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
    """Schedules single pods without extenders, and keeps the totals of nodes by evaluation."""

    #: Starts a binding cycle in which nothing but the binding is left to do.
    start_binding_only: Callable[[QueuedPod, str], None]

    @cached_property
    def _kept(self) -> WeakKeyDictionary[Evaluation, KeptTotals]:
        return WeakKeyDictionary()

    async def schedule(self, queued: QueuedPod, start_binding: Callable[[BindingContext], None] | None = None) -> None:
        """Schedule one pod."""
        info = queued.info
        known = self.known_totals(info)
        node_name = None if known is None else self.find_node(info, *known)
        if known is None or node_name is None:
            await super().schedule(queued, start_binding)
            return
        evaluation, totals = known
        if totals.binds_at_once and start_binding is None:
            self._cluster.assume(info, node_name)
            self.start_binding_only(queued, node_name)
        else:
            self._assume(queued, evaluation.state(), node_name, start_binding)

    async def decide(self, info: PodInfo, scope: Scope = WHOLE_CLUSTER) -> Decision:
        """Decide about a pod by the pipeline, and keep the totals that it has found."""
        decision = await super().decide(info, scope)
        if isinstance(decision, Scheduled) and scope.is_whole and decision.scored_rows is None:
            evaluation, feasibility = decision.evaluation, decision.feasibility
            if decision.candidate_count > 1 and (totals := KeptTotals.of(evaluation, info, feasibility, self._cluster)):
                self._kept[evaluation] = totals
        return decision

    def known_totals(self, info: PodInfo) -> tuple[Evaluation, KeptTotals] | None:
        """The evaluation of a pod with the totals that were kept; None if there are none, or if they do not hold."""
        if info.status.nominated_node_name or self._cluster.has_nominations:
            return None
        try:
            evaluation = self._pipeline.profiles[info.spec.scheduler_name].evaluations.of(info)
        except PluginError:
            return None  # the decision fails with it, too
        totals = self._kept.get(evaluation)
        return None if totals is None else (evaluation, totals)

    def find_node(self, info: PodInfo, evaluation: Evaluation, totals: KeptTotals) -> str | None:
        """The node of a pod by the totals that were kept, reported; None where the pipeline has to decide."""
        try:
            best = totals.find_best(info)
        except PluginError:  # the decision may fail with it, too
            best = None
        if best is None:
            del self._kept[evaluation]
            return None
        row = int(best[0]) if len(best) == 1 else self._pipeline.ties.choose(self._cluster, best)
        self._observer.node_found(info)
        return self._cluster.nodes.names[row]
