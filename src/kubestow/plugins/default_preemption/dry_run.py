"""The dry run of a preemption: whom one would have to evict, on many nodes at once (semantics 9.3).

All nodes are tried in lock-step. First every pod of lower priority is imagined gone from its node; where the pod still
does not fit, nothing helps. Then each node gets its pods back one by one, in step k the k-th of every node: first those
whose eviction would violate a disruption budget, and always the more important before the less. Where the pod still
fits beside it, the k-th is spared; where not, it is a victim. So the filters are asked as often as the fullest node has
pods, whatever the number of nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.nodes.table import NodeTable
from kubestow.cluster.nodes.views import HypotheticalNodes
from kubestow.cluster.pods.table import Deltas, PodTable, offsets_of
from kubestow.framework.diagnosis import Refusal
from kubestow.framework.filters import Filters
from kubestow.plugins.default_preemption.disruption_budgets import DisruptionBudgets

__all__ = ["DryRun", "dry_run"]

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class DryRun:
    """What came out for ``rows`` (intp) of the node table.

    ``victims`` are a run per row, the most important first; it is empty where the pod fits even without evictions,
    where evictions do not help (``refusals`` say why), and where there is nobody to evict (``nobody``, bool per row).
    ``violations`` (int64 per row) counts the victims whose eviction violates a budget.
    """

    rows: NDArray[np.intp]
    victims: Deltas
    violations: NDArray[np.int64]
    nobody: Mask
    refusals: Sequence[Refusal]


def dry_run(
    filters: Filters, table: NodeTable, rows: NDArray[np.intp], *, priority: int, budgets: DisruptionBudgets
) -> DryRun:
    """Try to make room on each row by itself for the pod that the filters speak of, by evicting lower priorities."""
    lower = _of_lower_priority(table.pod_table, rows, priority)
    nobody: Mask = np.equal(lower.lengths, 0)
    some = np.flatnonzero(~nobody)
    refusals = filters.refusals(HypotheticalNodes(table, rows[some], deltas=(lower.select(some),)))
    helped = ~nobody
    for refusal in refusals:
        helped &= ~refusal.where[rows]
    reprieve = _Reprieve(table, rows, lower.among(helped[lower.row_of]), budgets)
    reprieve.run(filters)
    return DryRun(rows, reprieve.victims(), reprieve.violations(), nobody, refusals)


def _of_lower_priority(pods: PodTable, rows: NDArray[np.intp], priority: int) -> Deltas:
    """The pods of each row that may be evicted, imagined gone; the most important first."""
    slots, offsets = pods.on(rows.tolist())
    everybody = Deltas(pods, slots, offsets, -1)
    return _most_important_first(everybody.among(pods.priority[slots] < priority))


def _most_important_first(deltas: Deltas) -> Deltas:
    """Sorted row by row: higher priority, then earlier start; equals as the node has them."""
    pods, slots = deltas.table, deltas.slots
    order = np.lexsort((pods.started[slots], -pods.priority[slots], deltas.row_of))
    return Deltas(pods, slots[order], deltas.offsets, deltas.sign)


class _Reprieve:
    """Gives pods back to their rows, one per row and step. ``gone`` (bool per pod) are those not given back (yet)."""

    def __init__(
        self, table: NodeTable, rows: NDArray[np.intp], evictable_units: Deltas, budgets: DisruptionBudgets
    ) -> None:
        self._table = table
        self._rows = rows
        self._evictable = evictable_units
        self._violating = budgets.violated(evictable_units)
        self._gone = np.ones(len(evictable_units.slots), np.bool_)

    def run(self, filters: Filters) -> None:
        """Go through all steps."""
        turn = self._turns()
        by_turn = np.argsort(turn, kind="stable")
        steps = offsets_of(np.bincount(turn, minlength=1))
        for k in range(len(steps) - 1):
            returning = by_turn[steps[k] : steps[k + 1]]
            self._gone[returning] = False
            self._gone[returning] = ~self._fits(filters, self._evictable.row_of[returning])

    def _turns(self) -> NDArray[np.intp]:
        """For each pod the number of pods on its row that are given back before it."""
        row_of = self._evictable.row_of
        order = np.lexsort((~self._violating, row_of))
        turn = np.empty(len(order), np.intp)
        turn[order] = np.arange(len(order)) - self._evictable.offsets[row_of]
        return turn

    def _fits(self, filters: Filters, positions: NDArray[np.intp]) -> Mask:
        gone = self._evictable.among(self._gone)
        nodes = HypotheticalNodes(self._table, self._rows, deltas=(gone,))
        return filters.still_pass(nodes if len(positions) == len(self._rows) else nodes.select(positions))

    def victims(self) -> Deltas:
        """Who has not been given back."""
        return self._evictable.among(self._gone)

    def violations(self) -> NDArray[np.int64]:
        """How many victims of each row are protected by a budget, int64."""
        return self._evictable.among(self._gone & self._violating).count() * self._evictable.sign
