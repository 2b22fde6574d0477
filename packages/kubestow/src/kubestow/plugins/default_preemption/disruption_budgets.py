"""Pod disruption budgets as preemption respects them (semantics 9.3).

Each node is evaluated by itself: its pods, the most important first, use up the budgets that cover them, and further
pods violate a budget that is used up. For the pods of many nodes at once, that is a running count per node and budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from kubestow.api.policy import PodDisruptionBudget
from kubestow.api.selectors import NOTHING, Selector, compile_selector
from kubestow.cluster.catalog import Catalog
from kubestow.cluster.pods.shapes import Shape
from kubestow.cluster.pods.table import PodChanges, offsets_of
from kubestow.errors import InvalidSelector

__all__ = ["DisruptionBudgets"]


class DisruptionBudgets:
    """The budgets of a cluster."""

    def __init__(self, catalog: Catalog[PodDisruptionBudget]) -> None:
        self._catalog = catalog
        self._compiled_version = -1
        self._compiled = _CompiledBudgets([])

    @property
    def version(self) -> int:
        """Grows with every change of a budget."""
        return self._catalog.version

    def violated(self, pods: PodChanges) -> NDArray[np.bool_]:
        """Which evictions violate a budget, bool per pod. The pods of each row are the most important first."""
        if self._compiled_version != self._catalog.version:
            self._compiled_version = self._catalog.version
            self._compiled = _CompiledBudgets([_Budget.of(budget) for budget in self._catalog])
        return self._compiled.violated(pods)


class _CompiledBudgets:
    """The budgets between two changes of any of them.

    Budgets have numbers, and so has each distinct set of budgets that cover the pods of a shape; set 0 is empty.
    """

    def __init__(self, budgets: Sequence[_Budget]) -> None:
        self._by_namespace: dict[str, list[tuple[int, _Budget]]] = {}
        for number, budget in enumerate(budgets):
            self._by_namespace.setdefault(budget.namespace, []).append((number, budget))
        self._disrupted_pods = [budget.disrupted_pods for budget in budgets]
        self._has_disrupted_pods = np.fromiter(map(bool, self._disrupted_pods), np.bool_, len(budgets))
        self._allowed = np.fromiter((budget.disruptions_allowed for budget in budgets), np.int64, len(budgets))
        self._sets: dict[tuple[int, ...], int] = {(): 0}
        self._set_of_shape: WeakKeyDictionary[Shape, int] = WeakKeyDictionary()

    def violated(self, pods: PodChanges) -> NDArray[np.bool_]:
        """See :meth:`DisruptionBudgets.violated`."""
        violated = np.zeros(len(pods.slots), np.bool_)
        if not self._by_namespace:
            return violated
        positions, budgets = self._evictions(pods)
        if not len(positions):
            return violated
        by_budget = np.argsort(budgets, kind="stable")
        positions, budgets = positions[by_budget], budgets[by_budget]
        rows = pods.row_of[positions]
        # Consecutive evictions of one row that use the same budget are numbered from 0.
        is_first = np.ones(len(rows), np.bool_)
        is_first[1:] = (rows[1:] != rows[:-1]) | (budgets[1:] != budgets[:-1])
        firsts = np.flatnonzero(is_first)
        used_before = np.arange(len(rows)) - firsts[np.cumsum(is_first) - 1]
        violated[positions[used_before >= self._allowed[budgets]]] = True
        return violated

    def _evictions(self, pods: PodChanges) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Each pair of a pod and a budget that its eviction uses: the pod's position, ascending, and the budget."""
        set_of_pod = pods.values_of(self._covering_set)
        sizes = np.fromiter(map(len, self._sets), np.intp, len(self._sets))
        members = np.fromiter(chain.from_iterable(self._sets), np.intp, int(sizes.sum()))
        lengths = sizes[set_of_pod]
        positions = np.repeat(np.arange(len(lengths)), lengths)
        first_members = offsets_of(sizes)[set_of_pod]
        budgets = members[np.repeat(first_members - offsets_of(lengths)[:-1], lengths) + np.arange(len(positions))]
        counts = np.ones(len(positions), np.bool_)
        for pair in np.flatnonzero(self._has_disrupted_pods[budgets]).tolist():
            name = pods.table.info(int(pods.slots[positions[pair]])).name
            counts[pair] = name not in self._disrupted_pods[budgets[pair]]
        return positions[counts], budgets[counts]

    def _covering_set(self, shape: Shape) -> int:
        """The number of the set of budgets that cover the pods of a shape."""
        number = self._set_of_shape.get(shape)
        if number is None:
            budgets = self._by_namespace.get(shape.namespace, ())
            covering = tuple(number for number, budget in budgets if budget.covers(shape))
            number = self._set_of_shape[shape] = self._sets.setdefault(covering, len(self._sets))
        return number


@dataclass(frozen=True, slots=True)
class _Budget:
    namespace: str
    selector: Selector
    disruptions_allowed: int
    #: Names of pods whose eviction has been counted already.
    disrupted_pods: frozenset[str]

    @classmethod
    def of(cls, budget: PodDisruptionBudget) -> _Budget:
        try:
            selector = compile_selector(budget.spec.selector)
        except InvalidSelector:
            selector = NOTHING
        status = budget.status
        return cls(budget.metadata.namespace, selector, status.disruptions_allowed, frozenset(status.disrupted_pods))

    def covers(self, shape: Shape) -> bool:
        """Whether the budget covers the pods of a shape of its namespace.

        QUIRK: neither an empty selector nor a pod without labels matches, unlike the API defines it.
        """
        return bool(shape.labels) and not self.selector.is_empty and self.selector.matches(shape.labels)
