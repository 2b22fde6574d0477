"""The comparison of one decision of a scheduler with the decision that is made here about the same pod and cluster.

Random choices are no differences: among nodes with equal scores, among victims that all criteria rate equal (semantics
9.5), and of the nodes that a sample consists of (semantics 5.4). Here all nodes are scored and all are candidates for
preemption, so it can be said whether a choice was among the best, or the best of a sample that may have been drawn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from kubestow import config
from kubestow.api.core import Pod
from kubestow.api.policy import PodDisruptionBudget
from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.config.plugin_args import DefaultPreemptionArgs
from kubestow.engine.explanation.evaluated_nodes import evaluate_nodes
from kubestow.engine.explanation.node_tables import NodeComparison
from kubestow.engine.pipeline.offline_scheduler import with_all_candidate_nodes
from kubestow.engine.pipeline.static_handle import StaticHandle
from kubestow.errors import KubestowError, PluginError
from kubestow.framework.evaluation.evaluation import Evaluation
from kubestow.framework.evaluation.feasibility import Feasibility
from kubestow.framework.profile import Profile, Registry, build_profile
from kubestow.framework.status import Code
from kubestow.plugins.default_preemption.candidates import PreemptionCandidates
from kubestow.plugins.default_preemption.dry_run import DisruptionBudgets
from kubestow.scheduling.decision.node_selection import FirstByName, feasible_nodes_to_find
from kubestow.scheduling.decision.pipeline import DecisionPipeline
from kubestow.scheduling.decision.result import Decision, Scheduled, Unschedulable

#: A sample that is drawn here differs from one that another scheduler draws, so none is.
_ALL_NODES = 100


class Verdict(StrEnum):
    """How a decision compares with the one made here."""

    SAME_NODE = "same node"
    EQUAL_NODE = "node of equal score"
    SAMPLED_NODE = "best of a sample"
    SAME_WORDS = "rejected with the same words"
    SAME_VICTIMS = "same victims"
    EQUAL_VICTIMS = "equal victims"
    SAMPLED_VICTIMS = "best victims of a sample"
    OTHER_NODE = "other node"
    OTHER_WORDS = "rejected with other words"
    OTHER_VICTIMS = "other victims"
    REJECTED = "rejected instead of placed"
    PLACED = "placed instead of rejected"
    OTHER_OUTCOME = "other outcome"
    NOT_COMPARED = "not compared"

    @property
    def agrees(self) -> bool:
        """Whether the scheduler here may have decided so."""
        return self in _AGREEING


_AGREEING = frozenset(
    {
        Verdict.SAME_NODE,
        Verdict.EQUAL_NODE,
        Verdict.SAMPLED_NODE,
        Verdict.SAME_WORDS,
        Verdict.SAME_VICTIMS,
        Verdict.EQUAL_VICTIMS,
        Verdict.SAMPLED_VICTIMS,
    }
)


@dataclass(frozen=True, slots=True)
class ObservedDecision:
    """What a scheduler has decided about a pod, as the API server shows it.

    The pod got a ``node``; or was rejected, with the ``message`` of its condition; or it waits on a ``nominated`` node
    for ``victims`` (uids to names) to leave it. The ``doubtful`` ones (uids) of these may be those of another
    nomination for this node, and pods that were ``gone`` (uids) at about that time may have been victims too.
    """

    node: str = ""
    message: str = ""
    nominated: str = ""
    victims: Mapping[str, str] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()
    doubtful: frozenset[str] = frozenset()

    def evicts(self, victims: Iterable[PodInfo]) -> bool:
        """Whether these are the victims; those that were terminating already are not evicted again."""
        expected = {victim.uid for victim in victims if not victim.terminating}
        possible = self.victims.keys() | self.gone
        return self.victims.keys() - self.doubtful <= expected <= possible

    @property
    def text(self) -> str:
        """The decision in a few words."""
        if self.node:
            return self.node
        if self.nominated:
            return f"preempts {', '.join(sorted(self.victims.values())) or 'nothing'} on {self.nominated}"
        return self.message


@dataclass(frozen=True, slots=True)
class Comparison:
    """A verdict, and what was decided here, in words; ``node`` is the one chosen or nominated here, "" without one."""

    verdict: Verdict
    here: str
    node: str = ""


class DecisionComparer:
    """The profiles of a configuration on a cluster. Raises ConfigurationError and PluginError."""

    def __init__(
        self,
        cluster: Cluster,
        configuration: config.KubeSchedulerConfiguration,
        registry: Registry,
        gates: config.FeatureGates,
    ) -> None:
        self.cluster = cluster
        handle = StaticHandle(cluster, gates)
        self.profiles: dict[str, Profile] = {}
        #: The percentage of nodes that each profile scores; 0 is the adaptive one.
        self._percentages: dict[str, int] = {}
        #: How many candidates for preemption each profile looks for: a percentage, and at least so many.
        self._candidates: dict[str, tuple[int, int]] = {}
        for profile in configuration.profiles:
            name, own = profile.scheduler_name, profile.percentage_of_nodes_to_score
            self._percentages[name] = configuration.percentage_of_nodes_to_score if own is None else own
            for entry in profile.plugin_config:
                if isinstance(args := entry.args, DefaultPreemptionArgs):
                    self._candidates[name] = (args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute)
            profile = replace(with_all_candidate_nodes(profile), percentage_of_nodes_to_score=_ALL_NODES)
            self.profiles[name] = build_profile(profile, registry, handle)
        self._budgets = DisruptionBudgets(cluster.catalog(PodDisruptionBudget))
        self._ties = FirstByName()
        self._pipeline = DecisionPipeline(cluster, self.profiles, self._ties)

    def compare(self, pod: PodInfo, observed: ObservedDecision, *, thoroughly: bool = False) -> Comparison:
        """Decide about a pending pod in the cluster as it is, and compare.

        ``thoroughly`` compares the node with that of each sample around it, in the order of the nodes here.
        """
        if observed.node and (found := self._compare_node(pod, observed.node, thoroughly)) is not None:
            return found
        decision = self._pipeline.decide_by_plugins(pod)
        node, text = _node_and_text(decision)
        return Comparison(self._verdict(pod, decision, observed), text, node)

    def side_by_side(self, pod: PodInfo, node: str) -> NodeComparison | None:
        """A node and the best one in the cluster as it is; None if there are no two such nodes."""
        profile = self.profiles[pod.spec.scheduler_name]
        try:
            evaluated, _ = evaluate_nodes(self.cluster, profile, pod.nominated_to(""))
        except KubestowError:
            return None
        best = evaluated.at(int(evaluated.rows[0])) if len(evaluated.rows) else None
        if best is None or node not in evaluated.positions or best.node == node:
            return None
        return NodeComparison(evaluated.node(node), best)

    def better_nodes(self, pod: PodInfo, node: str) -> frozenset[str]:
        """The feasible nodes with a higher total than a node, or all if the pod does not fit there."""
        evaluation = self.profiles[pod.spec.scheduler_name].evaluations.of(pod)
        feasibility = evaluation.find_feasible(pod)
        if feasibility.error is not None or not feasibility.count:
            return frozenset()
        rows = Nodes(self.cluster.nodes, feasibility.rows).row_numbers
        totals = evaluation.compute_totals(pod, rows)
        own = totals[rows == self.cluster.nodes.rows.get(node, -1)]
        names = self.cluster.nodes.names
        better = rows[totals > own[0]] if len(own) else rows
        return frozenset(names[row] for row in better.tolist())

    def fits(self, pod: Pod, node: str) -> bool:
        """Whether a pod fits on a node. False also for one that cannot be read."""
        try:
            info = self.cluster.shapes.info(pod)
            feasibility = self.profiles[pod.spec.scheduler_name].evaluations.of(info).find_feasible(info)
        except KubestowError:
            return False
        return feasibility.error is None and bool(feasibility.passing[self.cluster.nodes.rows[node]])

    # -- verdicts ----------------------------------------------------------------------------------------------------

    def _compare_node(self, pod: PodInfo, node: str, thoroughly: bool) -> Comparison | None:
        """Compare a node with the best ones, as the pipeline finds them; None if no node is found, or a plugin fails.

        Only the totals of the feasible nodes are computed, which are what the verdict depends on.
        """
        nodes = self.cluster.nodes
        if not len(nodes):
            return None
        evaluation = self.profiles[pod.spec.scheduler_name].evaluations.of(pod)
        try:
            feasibility = evaluation.find_feasible(pod)
            if feasibility.error is not None or not feasibility.count:
                return None
            rows = Nodes(nodes, feasibility.rows).row_numbers
            totals = np.zeros(1, np.int64) if len(rows) == 1 else evaluation.find_totals(pod, feasibility)
            best = rows[totals == totals.max()]
            row = nodes.rows.get(node, -1)
            if row in best:
                return Comparison(Verdict.SAME_NODE if len(best) == 1 else Verdict.EQUAL_NODE, node, node)
            is_sampled = row >= 0 and self._is_best_of_a_sample(pod, evaluation, feasibility, totals, row, thoroughly)
        except PluginError:
            return None
        chosen = nodes.names[self._ties.choose(self.cluster, best)]
        return Comparison(Verdict.SAMPLED_NODE if is_sampled else Verdict.OTHER_NODE, chosen, chosen)

    def _verdict(self, pod: PodInfo, decision: Decision, observed: ObservedDecision) -> Verdict:
        if observed.node:
            return Verdict.REJECTED if isinstance(decision, Unschedulable) else Verdict.OTHER_OUTCOME
        if not isinstance(decision, Unschedulable):
            return Verdict.PLACED if isinstance(decision, Scheduled) else Verdict.OTHER_OUTCOME
        found = decision.post_filter.nominating_result
        nominated = "" if found is None else found.nominated_node_name or ""
        if bool(nominated) != bool(observed.nominated):
            return Verdict.OTHER_OUTCOME
        if not nominated or found is None:
            return Verdict.SAME_WORDS if decision.message == observed.message else Verdict.OTHER_WORDS
        if nominated == observed.nominated:
            if observed.evicts(found.victims):
                return Verdict.SAME_VICTIMS
            return Verdict.EQUAL_VICTIMS if self._evicts_alike(observed, found.victims) else Verdict.OTHER_VICTIMS
        return self._compare_victims(pod, decision, observed)

    def _compare_victims(self, pod: PodInfo, decision: Unschedulable, observed: ObservedDecision) -> Verdict:
        """Of another node than the one here: whether its victims are right, and rated equal."""
        found = decision.post_filter.nominating_result
        candidates = None if found is None else found.extender_candidates
        if not isinstance(candidates, PreemptionCandidates):
            return Verdict.OTHER_VICTIMS
        better = candidates.better_than(observed.nominated)
        if better is None:
            return Verdict.OTHER_VICTIMS
        if not observed.evicts(candidates.victims_by_node()[observed.nominated].pods):
            return Verdict.OTHER_VICTIMS
        if not better:
            return Verdict.EQUAL_VICTIMS
        percentage, least = self._candidates.get(pod.spec.scheduler_name, (_ALL_NODES, 0))
        assert decision.feasibility is not None
        potential = int(np.count_nonzero(decision.feasibility.diagnose().with_code(Code.UNSCHEDULABLE)))
        searched = max(potential * percentage // 100, least, 1)
        return Verdict.SAMPLED_VICTIMS if len(candidates) - better >= searched else Verdict.OTHER_VICTIMS

    def _evicts_alike(self, observed: ObservedDecision, victims: Iterable[PodInfo]) -> bool:
        """Whether as many pods were evicted as these and each as important as one of them, under the same budgets.

        The order among pods of equal priority that started in the same second is not defined (semantics 9.3).
        """
        placed = [self.cluster.placed_pod(uid) for uid in observed.victims]
        evicted = [each.info for each in placed if each is not None]
        expected = [victim for victim in victims if not victim.terminating]
        return len(evicted) == len(placed) and self._importance(evicted) == self._importance(expected)

    def _importance(self, pods: Iterable[PodInfo]) -> Counter[tuple[Any, ...]]:
        return Counter((pod.priority, pod.status.start_time, self._budgets.covering(pod.shape)) for pod in pods)

    def _is_best_of_a_sample(
        self,
        pod: PodInfo,
        evaluation: Evaluation,
        feasibility: Feasibility,
        totals: NDArray[np.int64],
        row: int,
        thoroughly: bool,
    ) -> bool:
        """Whether there is a sample of feasible nodes, as many as the profile scores, of which a node is the best.

        The order in which the scheduler walks over its nodes, and where it begins, are not known here. ``totals`` are
        those of all feasible nodes.
        """
        candidates = feasibility.candidates
        if not feasibility.passing[row] or feasibility.tried_nominated_node_only or candidates is None:
            return False
        percentage = self._percentages[pod.spec.scheduler_name]
        size = feasible_nodes_to_find(int(np.count_nonzero(candidates)), percentage)
        if feasibility.count <= size:
            return False
        rows = Nodes(self.cluster.nodes, feasibility.rows).row_numbers
        if not evaluation.totals_depend_on_rows:
            return bool(np.count_nonzero(totals <= totals[rows.searchsorted(row)]) >= size)

        def is_best_of(sample: NDArray[np.intp]) -> bool:
            some = np.sort(sample)
            of_sample = evaluation.compute_totals(pod, some)
            return bool(of_sample[some == row][0] == of_sample.max())

        worst = rows[np.argpartition(totals, size - 1)[:size]]  # the last of these is no worse than the others
        worst = worst[worst != row]
        if is_best_of(np.append(worst[: size - 1], row)):
            return True
        if not thoroughly:
            return False
        order = self.cluster.nodes.zone_order()
        order = order[np.isin(order, rows)]
        order = np.roll(order, -int(np.flatnonzero(order == row)[0]))
        return any(is_best_of(np.roll(order, shift)[:size]) for shift in range(size))


def _node_and_text(decision: Decision) -> tuple[str, str]:
    """The node that is chosen or nominated, and the decision in the words of :attr:`ObservedDecision.text`."""
    if isinstance(decision, Scheduled):
        return decision.node_name, decision.node_name
    found = decision.post_filter.nominating_result if isinstance(decision, Unschedulable) else None
    if found is not None and found.nominated_node_name:
        victims = {victim.uid: victim.key for victim in found.victims}
        nominated = found.nominated_node_name
        return nominated, ObservedDecision(nominated=nominated, victims=victims).text
    return "", decision.message


def document_of(found: NodeComparison) -> dict[str, Any]:
    """Both nodes with all their scores, as plain data."""
    nodes = (found.one, found.other)
    return {
        "text": found.text,
        "nodes": [
            {
                "node": node.node,
                "total": node.total,
                "rank": node.rank,
                "rejections": [f"{verdict.plugin}: {verdict.status.message}" for verdict in node.rejections],
                "scores": {
                    score.plugin: {"raw": score.raw, "normalized": score.normalized, "weighted": score.weighted}
                    for score in node.scores
                },
            }
            for node in nodes
        ],
    }
