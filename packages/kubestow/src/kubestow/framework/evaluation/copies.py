"""Copies of a pod that are placed one after another, where each changes the results of its own node only.

What the next copy finds on a node then depends on how many copies are there already, and on nothing else. So the totals
of all nodes are computed once for each number of copies, on hypothetical nodes, and the placement of any number of
copies in any part of the cluster is a walk through these tables. The nodes are those that evaluating the pod anew
after each copy would lead to; a property test compares both.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.evaluation.evaluation import Evaluation
from kubestow.framework.evaluation.feasibility import Counts, PodCapacity
from kubestow.framework.evaluation.result_cache import PluginResults
from kubestow.framework.evaluation.row_totals import INFEASIBLE

Int64s = NDArray[np.int64]


class CopyTotals:
    """The totals of all rows by the number of copies of a pod that are there, up to ``most`` copies in all.

    They are those of the state of the cluster in which they were made by :meth:`of`. Scores that are normalized are
    added where copies are placed, because they depend on which nodes are feasible there.
    """

    def __init__(
        self,
        pod: PodInfo,
        cluster: Cluster,
        copies: PodCapacity,
        *,
        capacity: Counts,
        first: Int64s,
        unchanging: Int64s,
        changing: list[tuple[PluginResults, int]],
        normalizing: list[tuple[PluginResults, int, Int64s]],
    ) -> None:
        self._pod, self._cluster, self._copies = pod, cluster, copies
        #: How many copies fit on each node, int64, one per row; at most as many as the totals are for.
        self.capacity = capacity
        #: The weighted sum per row of the scores that copies do not change; those that they do, with weights; and those
        #: that are normalized, with weights and raw scores per row, which copies do not change either.
        self._unchanging, self._changing, self._normalizing = unchanging, changing, normalizing
        #: By number of copies: the weighted sums of all rows for one more, without what is normalized.
        self._sums = [first]

    @classmethod
    def of(cls, evaluation: Evaluation, pod: PodInfo, most: int, cluster: Cluster) -> CopyTotals | None:
        """The totals for copies of a pod; None if they may depend on more than which nodes fit how many copies.

        So they do unless a copy changes the results of its own node only, capacity can be counted, and Reserve does
        nothing. Raises PluginError.
        """
        copies = evaluation.capacity(pod, most)
        if copies is None or pod.status.nominated_node_name or evaluation.plan.pre_scores_alone:
            return None
        feasibility = evaluation.find_feasible(pod)
        if feasibility.error is not None or not feasibility.count or not evaluation.reserves_nothing():
            return None
        evaluation.compute_totals(pod, feasibility.rows)
        if any(results.depends_on_other_nodes for results in evaluation.results.values()):
            return None
        capacity, unchanging, first = np.zeros((3, len(cluster.nodes)), np.int64)
        changing, normalizing = [], []
        for plugin, weight in evaluation.plan.scores:
            results = evaluation.results[plugin]
            bound, scores = results.bound_plugin, results.scores
            is_changed_by_copies = bound.invalidation_mask.includes_pods
            if bound.score_plugin is None or bound.scores_feasible_set:
                return None
            if scores is None:
                continue
            if bound.normalizes:
                if is_changed_by_copies:
                    return None
                if not results.scores_are_zero:  # else the same is added to all totals
                    normalizing.append((results, weight, scores.copy()))
            elif not is_changed_by_copies:
                unchanging += scores * weight
            elif bound.score_plugin.scores_hypothetical_nodes:
                changing.append((results, weight))
                first += scores * weight
            else:
                return None
        capacity[feasibility.rows] = copies.on_feasible(Nodes(cluster.nodes, feasibility.rows))
        return cls(
            pod,
            cluster,
            copies,
            capacity=capacity,
            first=np.where(capacity > 0, first + unchanging, INFEASIBLE),
            unchanging=unchanging,
            changing=changing,
            normalizing=normalizing,
        )

    def place(self, rows: NDArray[np.intp], count: int, choose: Callable[[NDArray[np.intp]], int]) -> list[int] | None:
        """The rows that so many copies get of some rows (intp, ascending), in order; None unless all of them fit.

        ``choose`` chooses one of the best rows where there are several. Raises PluginError.
        """
        if self.capacity[rows].sum() < count:
            return None
        sums, numbers, added, chosen = self._with(0)[rows], rows.tolist(), [0] * len(rows), []
        totals = self._totals(rows, sums)
        while True:
            best = np.equal(totals, totals[totals.argmax()]).nonzero()[0]
            position = best.item(0) if len(best) == 1 else numbers.index(choose(rows[best]))
            row = numbers[position]
            chosen.append(row)
            if len(chosen) == count:
                return chosen
            added[position] += 1
            before, sums[position] = sums[position], self._with(added[position])[row]
            if self._normalizing and sums[position] == INFEASIBLE:
                totals = self._totals(rows, sums)
            elif self._normalizing:
                totals[position] += sums[position] - before

    def _totals(self, rows: NDArray[np.intp], sums: Int64s) -> Int64s:
        """The totals of some rows, given their weighted sums of what is not normalized; these if nothing is."""
        if not self._normalizing:
            return sums
        totals, positions = sums.copy(), np.flatnonzero(sums != INFEASIBLE)
        feasible = Nodes(self._cluster.nodes, rows[positions])
        for results, weight, scores in self._normalizing:
            totals[positions] += results.normalize(self._pod, scores[feasible.rows], feasible) * weight
        return totals

    def _with(self, number: int) -> Int64s:
        """The weighted sums of all rows for one more copy where there are so many."""
        while len(self._sums) <= number:
            self._sums.append(self._compute(len(self._sums)))
        return self._sums[number]

    def _compute(self, number: int) -> Int64s:
        sums = np.full(len(self._unchanging), INFEASIBLE)
        rows = np.flatnonzero(self.capacity > number)
        if len(rows):
            nodes = self._copies.with_copies(Nodes(self._cluster.nodes, rows), np.full(len(rows), number))
            of_rows = self._unchanging[rows]
            for results, weight in self._changing:
                scores = results.score(self._pod, nodes)
                if scores is not None:
                    of_rows += scores * weight
            sums[rows] = of_rows
        return sums
