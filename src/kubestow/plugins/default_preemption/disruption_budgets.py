"""Pod disruption budgets as preemption respects them (semantics 9.3).

Each node is evaluated by itself: its pods, the most important first, use up the budgets that cover them, and further
pods violate a budget that is used up. For the pods of many nodes at once, that is a running count per node and budget.
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
from kubestow.cluster.pods.table import PodChanges
from kubestow.errors import InvalidSelector

__all__ = ["DisruptionBudgets"]


class DisruptionBudgets:
    """The budgets of a cluster."""

    def __init__(self, catalog: Catalog[PodDisruptionBudget]) -> None:
        self._catalog = catalog
        self._compiled_version = -1
        self._budgets: list[_Budget] = []
        #: The positions of the budgets that cover pods of a shape.
        self._covering: WeakKeyDictionary[Shape, tuple[int, ...]] = WeakKeyDictionary()

    @property
    def version(self) -> int:
        """Grows with every change of a budget."""
        return self._catalog.version

    def violated(self, pods: PodChanges) -> NDArray[np.bool_]:
        """Which evictions violate a budget, bool per pod. The pods of each row are the most important first."""
        self._compile()
        violated = np.zeros(len(pods.slots), np.bool_)
        if not self._budgets:
            return violated
        for number, covered in self._covered(pods.infos).items():
            positions = np.array(covered, np.intp)
            rows = pods.row_of[positions]
            used_before = np.arange(len(rows)) - np.searchsorted(rows, rows)
            violated[positions[used_before >= self._budgets[number].disruptions_allowed]] = True
        return violated

    def _covered(self, infos: list[PodInfo]) -> dict[int, list[int]]:
        """By position of the budget, the positions of the pods whose eviction uses it up."""
        covered: dict[int, list[int]] = {}
        for position, info in enumerate(infos):
            for number in self._covering_budgets(info.shape):
                if info.name not in self._budgets[number].disrupted_pods:
                    covered.setdefault(number, []).append(position)
        return covered

    def _covering_budgets(self, shape: Shape) -> tuple[int, ...]:
        numbers = self._covering.get(shape)
        if numbers is None:
            numbers = tuple(number for number, budget in enumerate(self._budgets) if budget.covers(shape))
            self._covering[shape] = numbers
        return numbers

    def _compile(self) -> None:
        """Compile the budgets again if one has changed."""
        if self._compiled_version != self._catalog.version:
            self._compiled_version = self._catalog.version
            self._budgets = [_Budget.of(budget) for budget in self._catalog]
            self._covering.clear()


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
        """QUIRK: neither an empty selector nor a pod without labels matches, unlike the API defines it."""
        return (
            self.namespace == shape.namespace
            and bool(shape.labels)
            and not self.selector.is_empty
            and self.selector.matches(shape.labels)
        )
