"""Disruption budgets, applied as the API server does when a pod is evicted (:mod:`kubestow.rules.disruption`)."""

from __future__ import annotations

from collections.abc import Iterable

from kubestow.descheduling.eviction import Eviction, Refusal, RefusedBy
from kubestow.descheduling.objects import PodDisruptionBudget
from kubestow.rules.disruption import SEVERAL_BUDGETS, VIOLATION, BudgetIndex, denial, is_disruption, is_exempt


class DryRunEvictions:
    """An eviction backend that evicts nothing, and refuses what the API server would refuse."""

    def __init__(self, budgets: Iterable[PodDisruptionBudget]) -> None:
        self._budgets = BudgetIndex(budgets)
        self._used: dict[tuple[str, str], int] = {}

    def evict(self, eviction: Eviction) -> Refusal | None:
        """Use up a disruption of the pod's budget; the refusal if there is none left."""
        pod = eviction.pod
        if not is_disruption(pod.status.phase, is_terminating=pod.terminating):
            return None
        budgets = self._budgets.limiting(pod.namespace, pod.labels)
        if len(budgets) > 1:
            return Refusal(RefusedBy.API_SERVER, f"Internal error occurred: {SEVERAL_BUDGETS}")
        if not budgets or is_exempt(pod.status, budgets[0]):
            return None
        metadata = budgets[0].metadata
        used = self._used.get((metadata.namespace, metadata.name), 0)
        if denial(budgets[0], used=used) is not None:
            return Refusal(RefusedBy.API_SERVER, VIOLATION)
        self._used[metadata.namespace, metadata.name] = used + 1
        return None
