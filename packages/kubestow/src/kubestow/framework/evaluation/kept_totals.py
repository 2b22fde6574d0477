"""The totals of all rows for pods of one group, brought up to date in one pass while only single rows change.

An evaluation brings the results of each plugin up to date, then the feasible rows, the sums of scores, and the ranking.
Others share these results, and a diagnosis or a report reads them. Where nothing but the best rows is asked for, and
every change since concerns single rows for which the plugins have forms of their own, the totals of those rows follow
from the plugins' keys and scores at once. They are the totals that the evaluation would have; a property test compares
both.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import or_
from typing import Any

import numpy as np

from kubestow.cluster.cache import Cluster
from kubestow.cluster.changes.journal import FEW_ROWS, InvalidationMask
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.evaluation.evaluation import Evaluation
from kubestow.framework.evaluation.feasibility import Feasibility
from kubestow.framework.evaluation.result_cache import PluginResults
from kubestow.framework.evaluation.row_totals import INFEASIBLE, BestRows, RowTotals

#: With more rows changed than this, an evaluation takes less time.
_MOST_ROWS = 3 * FEW_ROWS


class KeptTotals:
    """Totals of the state of the cluster in which they were made by :meth:`of`, or found last by :meth:`find_best`.

    ``filters`` and ``scores``, with weights, are those that change with single rows. ``unchanging`` (int64, one per
    row) is the weighted sum of the other scores, INFEASIBLE where one of the other filters rejects the row.
    """

    def __init__(
        self,
        cluster: Cluster,
        totals: RowTotals,
        *,
        filters: Sequence[PluginResults],
        scores: Sequence[tuple[PluginResults, int]],
        unchanging: memoryview[Any],
        invalidation_mask: InvalidationMask,
        binds_at_once: bool,
    ) -> None:
        self._cluster, self._totals = cluster, totals
        self._filters, self._scores, self._unchanging = filters, scores, unchanging
        #: What changes single rows, and what ends the validity of the totals.
        self._invalidation_mask = invalidation_mask
        self._generation = cluster.change_window.generation
        #: Whether nothing but the binding is left to do for a pod that has a node.
        self.binds_at_once = binds_at_once

    @classmethod
    def of(cls, evaluation: Evaluation, pod: PodInfo, feasibility: Feasibility, cluster: Cluster) -> KeptTotals | None:
        """The totals of an evaluation that has just scored the feasible rows for a pod; None if they cannot be kept.

        That is so if they depend on nominations, on which rows are feasible, or on the pods of other rows. Raises
        PluginError.
        """
        if not (evaluation.plan.ranks and feasibility.ranked_in and evaluation.is_local()):
            return None
        filters: list[PluginResults] = []
        scores: list[tuple[PluginResults, int]] = []
        unchanging, row_bits, ending_bits = np.zeros(len(cluster.nodes), np.int64), 0, 0
        for plugin in evaluation.plan.pre_filters:  # they would run again
            bound = evaluation.results[plugin].bound_plugin
            ending_bits |= bound.invalidation_mask.all_bits if bound.caches_filter else bound.invalidation_mask.bits
        for plugin, weight in evaluation.plan.scores:
            results = evaluation.results[plugin]
            mask = results.bound_plugin.invalidation_mask
            if results.scores is None:
                ending_bits |= mask.all_bits
            elif results.bound_plugin.most_scored_rows and not results.bound_plugin.normalizes:
                scores.append((results, weight))
                row_bits, ending_bits = row_bits | mask.row_bits, ending_bits | mask.all_bits
            else:
                ending_bits |= mask.bits
                if not results.bound_plugin.normalizes:  # else all of them are 0
                    unchanging += results.scores * weight
        for plugin in evaluation.plan.filters:
            results = evaluation.results[plugin]
            mask, verdict = results.bound_plugin.invalidation_mask, results.verdict
            if results.skips_filter:
                continue
            if verdict is not None and verdict.has_errors:
                return None
            if verdict is not None and results.bound_plugin.most_filtered_rows:
                filters.append(results)
                row_bits, ending_bits = row_bits | mask.row_bits, ending_bits | mask.all_bits
            else:
                ending_bits |= mask.bits
                if verdict is not None:
                    unchanging[~verdict.passes] = INFEASIBLE
        totals = RowTotals()
        values = np.full(len(cluster.nodes), INFEASIBLE)
        values[feasibility.rows] = evaluation.find_totals(pod, feasibility)
        totals.replace(values)
        return cls(
            cluster,
            totals,
            filters=filters,
            scores=scores,
            unchanging=unchanging.data,
            invalidation_mask=InvalidationMask(row_bits, ending_bits),
            binds_at_once=evaluation.binds_at_once(),
        )

    def find_best(self, pod: PodInfo) -> BestRows | None:
        """The feasible rows with the highest total in the cycle that has begun, in order, until the next call.

        None if there is none, or if the totals are no longer known. Raises PluginError, after which they are not.
        """
        window = self._cluster.change_window
        rows = window.invalid_rows(self._generation, self._invalidation_mask, _MOST_ROWS)
        if rows is None:
            return None
        for start in range(0, len(rows), FEW_ROWS):
            self._update(pod, rows[start : start + FEW_ROWS] if len(rows) > FEW_ROWS else rows)
        self._generation = window.generation
        best = self._totals.find_best()
        return best if self._totals.has_feasible else None

    def _update(self, pod: PodInfo, rows: list[int]) -> None:
        """Compute the totals of some rows."""
        nodes = self._cluster.few_nodes(rows)
        totals: list[int] = [self._unchanging[row] for row in rows]
        rejected: list[int] = [total == INFEASIBLE for total in totals]
        for results in self._filters:
            rejected = list(map(or_, rejected, results.filter_few(pod, nodes)))
        for results, weight in self._scores:
            scores = results.score_few(pod, nodes)
            totals = [total + score * weight for total, score in zip(totals, scores, strict=True)]
        self._totals.update(rows, [INFEASIBLE if key else total for key, total in zip(rejected, totals, strict=True)])
