"""Pod disruption budgets, as preemption respects them (semantics 9.3).

Every node is looked at by itself: its pods, the most important first, use up the budgets that cover them, and those
that come when a budget is empty would violate it. That is a running count per node and budget, so it is done for the
pods of many nodes at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from kubestow.api.policy import PodDisruptionBudget
from kubestow.api.selectors import NOTHING, Selector, compile_selector
from kubestow.cluster.catalog import Catalog
from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.cluster.pods.table import Deltas
from kubestow.errors import InvalidSelector

__all__ = ["DisruptionBudgets"]


@dataclass(frozen=True, slots=True)
class _Budget:
    namespace: str
    selector: Selector
    allowed: int
    #: Names of pods that are being evicted already and have been counted.
    disrupted: frozenset[str]

    @classmethod
    def of(cls, budget: PodDisruptionBudget) -> _Budget:
        try:
            selector = compile_selector(budget.spec.selector)
        except InvalidSelector:
            selector = NOTHING
        status = budget.status
        return cls(budget.metadata.namespace, selector, status.disruptions_allowed, frozenset(status.disrupted_pods))

    def covers(self, shape: Shape) -> bool:
        """QUIRK: an empty selector covers nothing, though the API says everything; nor are unlabelled pods covered."""
        return (
            self.namespace == shape.namespace
            and bool(shape.labels)
            and not self.selector.is_empty
            and self.selector.matches(shape.labels)
        )


class DisruptionBudgets:
    """The budgets of a cluster, and which of them cover pods of a shape."""

    def __init__(self, catalog: Catalog[PodDisruptionBudget]) -> None:
        self._catalog = catalog
        self._as_of = -1
        self._budgets: list[_Budget] = []
        self._covering: WeakKeyDictionary[Shape, tuple[int, ...]] = WeakKeyDictionary()

    @property
    def version(self) -> int:
        """Grows with every change of a budget."""
        return self._catalog.version

    def violated(self, pods: Deltas) -> NDArray[np.bool_]:
        """Whose eviction violates a budget, bool per pod. Each row's pods come the most important first."""
        self._refresh()
        violated = np.zeros(len(pods.slots), np.bool_)
        if not self._budgets:
            return violated
        for number, covered in self._covered(pods.infos).items():
            entries = np.array(covered, np.intp)
            rows = pods.row_of[entries]
            used_before = np.arange(len(rows)) - np.searchsorted(rows, rows)
            violated[entries[used_before >= self._budgets[number].allowed]] = True
        return violated

    def _covered(self, infos: list[PodInfo]) -> dict[int, list[int]]:
        """By number of the budget, the positions of the pods that use it up."""
        covered: dict[int, list[int]] = {}
        for position, info in enumerate(infos):
            for number in self._covering_budgets(info.shape):
                if info.name not in self._budgets[number].disrupted:
                    covered.setdefault(number, []).append(position)
        return covered

    def _covering_budgets(self, shape: Shape) -> tuple[int, ...]:
        numbers = self._covering.get(shape)
        if numbers is None:
            numbers = tuple(number for number, budget in enumerate(self._budgets) if budget.covers(shape))
            self._covering[shape] = numbers
        return numbers

    def _refresh(self) -> None:
        if self._as_of != self._catalog.version:
            self._as_of = self._catalog.version
            self._budgets = [_Budget.of(budget) for budget in self._catalog]
            self._covering.clear()
