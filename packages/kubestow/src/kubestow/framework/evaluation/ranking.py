"""The feasible rows of a group of pods and their totals, kept from one cycle to the next.

A pod that is placed changes one row, so one entry of the mask and one of the totals are computed again. After more than
a few changes both are put together from the results of all rows, which takes less time than to find out which rows have
changed. Both hold for cycles in which all nodes are candidates and no pod is nominated.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.cache import Cluster
from kubestow.cluster.invalidation import NEVER, Generation, InvalidationMask
from kubestow.cluster.nodes.views import Nodes, Rows
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.evaluation.feasibility import Feasibility, Mask
from kubestow.framework.evaluation.plan import Plan
from kubestow.framework.evaluation.result_cache import PluginResults

#: The total of rows that are not feasible. Weights may be negative, and so may totals.
_INFEASIBLE = int(np.iinfo(np.int64).min)


class FeasibleRows:
    """Where all filters pass (bool, one per row of the node table), and the number of those rows."""

    def __init__(self, filters: Sequence[PluginResults], invalidation_mask: InvalidationMask) -> None:
        self._filters = filters
        self._invalidation_mask = invalidation_mask
        self._generation = NEVER
        self.passing: Mask = np.zeros(0, np.bool_)
        self.count = 0

    def update(self, cluster: Cluster) -> None:
        """Take over the verdicts of the filters, which have to be up to date."""
        rows = cluster.cycle.few_invalid_rows(self._generation, self._invalidation_mask)
        masks = [results.passes for results in self._filters if results.passes is not None]
        if rows is None:
            self.passing = masks[0].copy() if masks else np.ones(len(cluster.nodes), np.bool_)
            for mask in masks[1:]:
                self.passing &= mask
            self.count = int(np.count_nonzero(self.passing))
        else:
            for row in rows:
                passes = all(mask[row] for mask in masks)
                if passes != self.passing[row]:
                    self.passing[row] = passes
                    self.count += 1 if passes else -1
        self._generation = cluster.cycle.generation


class ScoreSums:
    """The weighted sum per row of the scores that are not normalized. Evaluations with the same of them share it."""

    def __init__(self, scores: Sequence[tuple[PluginResults, int]], invalidation_mask: InvalidationMask) -> None:
        self._scores = scores
        self._invalidation_mask = invalidation_mask
        self._generation = NEVER
        #: The sums, int64, one per row.
        self.sums: NDArray[np.int64] = np.zeros(0, np.int64)

    def update(self, cluster: Cluster, before: Generation, rows: list[int] | None) -> None:
        """Take over the scores of the plugins, which have to be up to date.

        ``rows`` are those that may have been invalidated since ``before``, None if these are many.
        """
        if self._generation == cluster.cycle.generation:
            return
        if self._generation != before:
            rows = cluster.cycle.few_invalid_rows(self._generation, self._invalidation_mask)
        scores = [(r.scores, weight) for r, weight in self._scores if r.scores is not None and not r.scores_are_zero]
        if rows is None:
            weighted = [of_plugin if weight == 1 else of_plugin * weight for of_plugin, weight in scores]
            self.sums = weighted[0].copy() if weighted else np.zeros(len(cluster.nodes), np.int64)
            for of_plugin in weighted[1:]:
                self.sums += of_plugin
        else:
            for row in rows:
                self.sums[row] = sum([of_plugin.item(row) * weight for of_plugin, weight in scores])
        self._generation = cluster.cycle.generation


class Ranking:
    """The totals of all rows, and which are the highest.

    A total is the sum of the scores that are not normalized, and of those that are. These depend on which nodes are
    feasible; they are kept until that or any of the raw scores may have changed. A normalizing plugin whose raw scores
    are all 0 adds the same to every total and is left out.
    """

    def __init__(self, plan: Plan, sums: ScoreSums, normalizing: Sequence[tuple[PluginResults, int]]) -> None:
        self._sums, self._normalizing = sums, normalizing
        self._normalizing_bits = plan.normalizing_mask.bits
        self._invalidation_mask = plan.ranking_mask
        self._generation = NEVER
        #: What the normalizing plugins contribute, int64; None if it is the same for all feasible nodes.
        self._normalized: NDArray[np.int64] | None = None
        self._totals: NDArray[np.int64] = np.zeros(0, np.int64)
        #: The highest total and the rows that have it, in order (intp); None when they have to be searched for.
        self._highest = _INFEASIBLE
        self._best: NDArray[np.intp] | None = None

    def update(self, cluster: Cluster, pod: PodInfo, feasibility: Feasibility) -> None:
        """Take over the raw scores of the plugins, which have to be up to date. Raises PluginError."""
        before, self._generation = self._generation, NEVER  # should a plugin fail
        rows = cluster.cycle.few_invalid_rows(before, self._invalidation_mask)
        self._sums.update(cluster, before, rows)
        if self._normalize(cluster, pod, feasibility, before) or rows is None:
            self._add_up(feasibility)
        else:
            for row in rows:
                total = _INFEASIBLE
                if feasibility.passing[row]:
                    total = self._sums.sums.item(row)
                    if self._normalized is not None:
                        total += self._normalized.item(row)
                self._set_total(row, total)
        self._generation = cluster.cycle.generation

    def find_best(self) -> NDArray[np.intp]:
        """The rows with the highest total, intp, in order; valid until the next update."""
        if self._best is None:
            self._highest = self._totals.item(self._totals.argmax())
            self._best = np.equal(self._totals, self._highest).nonzero()[0]
        return self._best

    def _normalize(self, cluster: Cluster, pod: PodInfo, feasibility: Feasibility, before: Generation) -> bool:
        """Bring the normalized scores up to date; whether any may have changed since a generation."""
        some = []
        for results, weight in self._normalizing:
            if results.scores is None:
                continue
            if results.scores_are_zero:
                if results.normalized_zero is None:
                    results.normalize_zero(pod, cluster)  # the plugin may fail
            else:
                some.append((results, results.scores, weight))
        if not some:
            changed, self._normalized = self._normalized is not None, None
            return changed
        if (
            self._normalized is not None
            and not cluster.cycle.bits(before) & self._normalizing_bits
            and np.array_equal(self._totals != _INFEASIBLE, feasibility.passing)
        ):
            return False
        rows = feasibility.rows
        nodes = Nodes(cluster.nodes, rows)
        parts = [results.normalize(pod, scores[rows], nodes) * weight for results, scores, weight in some]
        normalized = sum(parts[1:], start=parts[0])
        if feasibility.count == len(feasibility.passing):
            self._normalized = normalized
        else:
            self._normalized = np.zeros(len(cluster.nodes), np.int64)
            self._normalized[rows] = normalized
        return True

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

    def _add_up(self, feasibility: Feasibility) -> None:
        """Compute all totals again."""
        sums = self._sums.sums
        self._totals = sums.copy() if self._normalized is None else sums + self._normalized
        if feasibility.count < len(sums):
            np.copyto(self._totals, _INFEASIBLE, where=~feasibility.passing)
        self._best = None


def best_rows(totals: NDArray[np.int64], rows: Rows) -> NDArray[np.intp]:
    """Those of some rows that have the highest of their ``totals`` (int64, one per row), intp, in order."""
    best = np.flatnonzero(totals == totals.max())
    return best if isinstance(rows, slice) else rows[best]
