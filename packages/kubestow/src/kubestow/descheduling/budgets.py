"""Disruption budgets, applied as the API server does when a pod is evicted.

Pods that are pending, finished or being deleted need no budget. A pod that is not ready may go if its budget always
allows that, or as long as enough other pods are healthy. Otherwise each eviction uses up one allowed disruption.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubestow.api.selectors import Selector, compile_selector
from kubestow.descheduling.cluster_state import AssignedPod
from kubestow.descheduling.eviction import Eviction, Refusal, RefusedBy
from kubestow.descheduling.objects import PodDisruptionBudget
from kubestow.errors import InvalidSelector
from kubestow.rules.pods import TERMINAL_PHASES

__all__ = ["Budgets", "DryRunEvictions"]

_NOT_HELD = ("Pending", *TERMINAL_PHASES)
_SEVERAL = (
    "Internal error occurred: This pod has more than one PodDisruptionBudget, which the eviction subresource does not"
    " support."
)
_VIOLATED = "Cannot evict pod as it would violate the pod's disruption budget."


class Budgets:
    """The disruption budgets of a cluster."""

    def __init__(self, budgets: Iterable[PodDisruptionBudget]) -> None:
        self._by_namespace: dict[str, list[tuple[Selector, PodDisruptionBudget]]] = {}
        for budget in budgets:
            try:
                selector = compile_selector(budget.spec.selector)
            except InvalidSelector:
                continue  # it protects no pod
            self._by_namespace.setdefault(budget.metadata.namespace, []).append((selector, budget))

    def of(self, pod: AssignedPod) -> list[PodDisruptionBudget]:
        """The budgets whose selector matches a pod."""
        of_namespace = self._by_namespace.get(pod.namespace, ())
        return [budget for selector, budget in of_namespace if selector.matches(pod.labels)]


class DryRunEvictions:
    """An eviction backend that evicts nothing, and refuses what the API server would refuse."""

    def __init__(self, budgets: Iterable[PodDisruptionBudget]) -> None:
        self._budgets = Budgets(budgets)
        self._used: dict[tuple[str, str], int] = {}

    def evict(self, eviction: Eviction) -> Refusal | None:
        """Use up a disruption of the pod's budget; the refusal if there is none left."""
        pod = eviction.pod
        if pod.status.phase in _NOT_HELD or pod.terminating or not pod.labels:
            return None
        budgets = self._budgets.of(pod)
        if len(budgets) > 1:
            return Refusal(RefusedBy.API_SERVER, _SEVERAL)
        if not budgets or budgets[0].exempts(pod.status):
            return None
        budget = budgets[0]
        if budget.status.observed_generation < budget.metadata.generation:
            return Refusal(RefusedBy.API_SERVER, _VIOLATED)  # the controller has not seen the current budget yet
        key = budget.metadata.namespace, budget.metadata.name
        if budget.status.disruptions_allowed - self._used.get(key, 0) <= 0:
            return Refusal(RefusedBy.API_SERVER, _VIOLATED)
        self._used[key] = self._used.get(key, 0) + 1
        return None
