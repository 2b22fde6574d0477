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

Totals = NDArray[np.int64]

#: Lower than the total of any feasible row.
_INFEASIBLE = int(np.iinfo(np.int64).min)


class CopyTotals:
    """The totals of all rows by the number of copies of a pod that are there, up to ``most`` copies in all.

    They are those of the state of the cluster in which they were made by :meth:`of`.
    """

    def __init__(
        self,
        pod: PodInfo,
        cluster: Cluster,
        *,
        copies: PodCapacity,
        unchanging: Totals,
        changing: list[tuple[PluginResults, int]],
    ) -> None:
        self._pod, self._cluster, self._copies = pod, cluster, copies
        #: How many copies fit on each node, int64, one per row; at most as many as the totals are for.
        self.capacity: Counts = copies.on(cluster.all_nodes())
        #: The part of the totals that copies do not change (per row), and the scores that they do, with weights.
        self._unchanging, self._changing = unchanging, changing
        #: By number of copies: the totals of all rows for one more.
        self._totals: list[Totals] = []

    @classmethod
    def of(cls, evaluation: Evaluation, pod: PodInfo, most: int, cluster: Cluster) -> CopyTotals | None:
        """The totals for copies of a pod; None if they may depend on more than the number of copies on the node.

        That is so unless all results of the evaluation are local, capacity can be counted, and Reserve does nothing.
        Raises PluginError.
        """
        copies = evaluation.capacity(pod, most)
        if copies is None or pod.status.nominated_node_name or evaluation.plan.pre_scores_alone:
            return None
        feasibility = evaluation.find_feasible(pod)
        if feasibility.error is not None or not feasibility.count or not evaluation.reserves_nothing():
            return None
        unchanging = np.zeros(len(cluster.nodes), np.int64)
        unchanging[feasibility.rows] = evaluation.compute_totals(pod, feasibility.rows)
        if not evaluation.is_local():
            return None
        changing = []
        for plugin, weight in evaluation.plan.scores:
            results = evaluation.results[plugin]
            if results.scores is not None and results.bound_plugin.invalidation_mask.includes_pods:
                scoring = results.bound_plugin.score_plugin
                if scoring is None or not scoring.scores_hypothetical_nodes:
                    return None
                changing.append((results, weight))
                unchanging -= results.scores * weight
        return cls(pod, cluster, copies=copies, unchanging=unchanging, changing=changing)

    def place(self, rows: NDArray[np.intp], count: int, choose: Callable[[NDArray[np.intp]], int]) -> list[int] | None:
        """The rows that so many copies get of some rows (intp, ascending), in order; None unless all of them fit.

        ``choose`` chooses one of the best rows where there are several. Raises PluginError.
        """
        if self.capacity[rows].sum() < count:
            return None
        totals, numbers, added, chosen = self._with(0)[rows], rows.tolist(), [0] * len(rows), []
        for _ in range(count):
            best = np.equal(totals, totals[totals.argmax()]).nonzero()[0]
            position = best.item(0) if len(best) == 1 else numbers.index(choose(rows[best]))
            row = numbers[position]
            chosen.append(row)
            added[position] += 1
            totals[position] = self._with(added[position])[row]
        return chosen

    def _with(self, number: int) -> Totals:
        """The totals of all rows for one more copy where there are so many."""
        while len(self._totals) <= number:
            self._totals.append(self._compute(len(self._totals)))
        return self._totals[number]

    def _compute(self, number: int) -> Totals:
        totals = np.full(len(self._unchanging), _INFEASIBLE)
        rows = np.flatnonzero(self.capacity > number)
        if len(rows):
            nodes = self._copies.with_copies(Nodes(self._cluster.nodes, rows), np.full(len(rows), number))
            sums = self._unchanging[rows]
            for results, weight in self._changing:
                scores = results.score(self._pod, nodes)
                if scores is not None:
                    sums += scores * weight
            totals[rows] = sums
        return totals
