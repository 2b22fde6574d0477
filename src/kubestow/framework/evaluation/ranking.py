"""The feasible rows of a group of pods and their totals, kept from one cycle to the next.

A pod that is placed changes one row, so one entry of the mask and one of the totals are computed again. Both hold for
cycles in which all nodes are candidates and no pod is nominated; other cycles put them together afresh.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.views import Nodes, Rows
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.evaluation.feasibility import Feasibility, Mask
from kubestow.framework.evaluation.result_cache import FEW_ROWS, PluginResults
from kubestow.framework.invalidation import NEVER, Generation, InvalidationMask

__all__ = ["FeasibleRows", "Ranking", "best_rows"]

#: The total of rows that are not feasible. Weights may be negative, and so may totals.
_INFEASIBLE = int(np.iinfo(np.int64).min)


class FeasibleRows:
    """Where all filters pass (bool, one per row of the node table), and the number of those rows."""

    def __init__(self, filters: Sequence[PluginResults]) -> None:
        self._filters = filters
        self._invalidation_mask = _joined(filters)
        self._generation = NEVER
        self.passing: Mask = np.zeros(0, np.bool_)
        self.count = 0

    def update(self, cluster: Cluster, now: Generation) -> None:
        """Take over the verdicts of the filters, which have to be up to date."""
        rows = self._generation.invalid_rows(cluster, self._invalidation_mask)
        masks = [results.passes for results in self._filters if results.passes is not None]
        if rows is not None and len(rows) <= FEW_ROWS:
            for row in rows:
                passes = all(mask[row] for mask in masks)
                if passes != self.passing[row]:
                    self.passing[row] = passes
                    self.count += 1 if passes else -1
        else:
            self._update_together(masks, len(cluster.nodes), rows)
        self._generation = now

    def _update_together(self, masks: Sequence[Mask], total: int, numbers: Sequence[int] | None) -> None:
        rows: Rows = slice(0, total)
        if numbers is None:
            self.passing = np.empty(total, np.bool_)
        else:
            rows = np.array(numbers, np.intp)
        self.passing[rows] = True
        for mask in masks:
            self.passing[rows] &= mask[rows]
        self.count = int(np.count_nonzero(self.passing))


class Ranking:
    """The totals of all rows, and which are the highest.

    Normalized scores depend on which nodes are feasible. They are computed again when that changes, unless all raw
    scores are 0, and when any raw score may have changed.
    """

    def __init__(self, filters: Sequence[PluginResults], scores: Sequence[tuple[PluginResults, int]]) -> None:
        self._row_wise = [(results, weight) for results, weight in scores if not results.bound_plugin.normalizes]
        self._normalizing = [(results, weight) for results, weight in scores if results.bound_plugin.normalizes]
        self._normalizing_bits = _joined(results for results, _ in self._normalizing).bits
        self._invalidation_mask = _joined([*filters, *(results for results, _ in scores)])
        self._generation = NEVER
        self._totals: NDArray[np.int64] = np.zeros(0, np.int64)
        #: What the normalizing plugins contribute to the totals, int64.
        self._normalized: NDArray[np.int64] = np.zeros(0, np.int64)
        #: Whether that may change with the set of feasible nodes.
        self._depends_on_feasible_nodes = False
        #: The highest total and the rows that have it, in order (intp); None when they have to be searched for.
        self._highest = _INFEASIBLE
        self._best: NDArray[np.intp] | None = None

    def update(self, cluster: Cluster, pod: PodInfo, feasibility: Feasibility, now: Generation) -> None:
        """Take over the raw scores of the plugins, which have to be up to date. Raises PluginError."""
        rows = self._invalid_rows(cluster, feasibility)
        if rows is not None and len(rows) <= FEW_ROWS:
            for row in rows:
                self._set_total(row, self._total(row) if feasibility.passing[row] else _INFEASIBLE)
        else:
            if rows is None:
                self._generation = NEVER  # should a plugin fail
                self._totals = np.empty(len(cluster.nodes), np.int64)
                self._normalize(cluster, pod, feasibility)
            self._update_together(feasibility, slice(0, len(self._totals)) if rows is None else np.array(rows, np.intp))
        self._generation = now

    def best(self) -> NDArray[np.intp]:
        """The rows with the highest total, intp, in order; valid until the next update."""
        if self._best is None:
            self._highest = int(self._totals.max())
            self._best = np.flatnonzero(self._totals == self._highest)
        return self._best

    def _invalid_rows(self, cluster: Cluster, feasibility: Feasibility) -> list[int] | None:
        """The rows whose totals may have changed, None for all."""
        if self._generation.changes(cluster) & self._normalizing_bits:
            return None
        rows = self._generation.invalid_rows(cluster, self._invalidation_mask)
        if rows and self._depends_on_feasible_nodes:
            was_feasible = self._totals[rows] != _INFEASIBLE
            return rows if np.array_equal(was_feasible, feasibility.passing[rows]) else None
        return rows

    def _normalize(self, cluster: Cluster, pod: PodInfo, feasibility: Feasibility) -> None:
        some = [(results, weight) for results, weight in self._normalizing if results.scores is not None]
        zeros = [int(r.normalized_zero(pod, cluster)[0]) * weight for r, weight in some if r.scores_are_zero]
        self._normalized = np.full(len(cluster.nodes), sum(zeros), np.int64)
        self._depends_on_feasible_nodes = len(zeros) < len(some)
        for results, weight in some:
            if results.scores is None or results.scores_are_zero:
                continue
            rows = feasibility.rows
            self._normalized[rows] += results.normalize(pod, results.scores[rows], Nodes(cluster.nodes, rows)) * weight

    def _total(self, row: int) -> int:
        total: int = self._normalized.item(row)
        for results, weight in self._row_wise:
            if results.scores is not None:
                total += results.scores.item(row) * weight
        return total

    def _set_total(self, row: int, total: int) -> None:
        before = self._totals.item(row)
        self._totals[row] = total
        best = self._best
        if best is None or total == before or (total < self._highest and before < self._highest):
            return
        if total < self._highest and len(best) > 1:
            position = best.searchsorted(row)
            best[position:-1] = best[position + 1 :]
            self._best = best[:-1]
        else:
            self._best = None

    def _update_together(self, feasibility: Feasibility, rows: Rows) -> None:
        totals = self._normalized[rows]
        for results, weight in self._row_wise:
            if results.scores is not None and not results.scores_are_zero:
                totals = totals + (results.scores[rows] if weight == 1 else results.scores[rows] * weight)
        every_row_passes = feasibility.count == len(feasibility.passing)
        self._totals[rows] = totals if every_row_passes else np.where(feasibility.passing[rows], totals, _INFEASIBLE)
        self._best = None


def best_rows(totals: NDArray[np.int64], rows: Rows) -> NDArray[np.intp]:
    """Those of some rows that have the highest of their ``totals`` (int64, one per row), intp, in order."""
    best = np.flatnonzero(totals == totals.max())
    return best if isinstance(rows, slice) else rows[best]


def _joined(results: Iterable[PluginResults]) -> InvalidationMask:
    """What invalidates any of some results."""
    row_bits = all_bits = 0
    for each in results:
        mask = each.bound_plugin.invalidation_mask
        row_bits |= mask.row_bits
        all_bits |= mask.all_bits
    return InvalidationMask(row_bits, all_bits)
