"""PodDisruptionBudgets in the eviction subresource: which evictions use up a disruption, and which are denied.

Preemption counts budgets in its own way (semantics 9.3, :mod:`kubestow.plugins.default_preemption.dry_run`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kubestow.api.core import PodStatus
from kubestow.api.policy import PodDisruptionBudget
from kubestow.api.selectors import Selector, compile_selector
from kubestow.errors import InvalidSelector
from kubestow.rules.pods import is_terminal

#: The messages of kube-apiserver for a pod with several budgets (a code 500), and for a violated budget (429).
SEVERAL_BUDGETS = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
VIOLATION = "Cannot evict pod as it would violate the pod's disruption budget."

#: Seconds after which clients retry while the disruption controller has not seen the latest budget.
_RETRY_AFTER = 10


class BudgetIndex:
    """The budgets of pods. One with an invalid selector selects none."""

    def __init__(self, budgets: Iterable[PodDisruptionBudget]) -> None:
        self._by_namespace: dict[str, list[tuple[Selector, PodDisruptionBudget]]] = {}
        for budget in budgets:
            try:
                selector = compile_selector(budget.spec.selector)
            except InvalidSelector:
                continue
            self._by_namespace.setdefault(budget.metadata.namespace, []).append((selector, budget))

    def selecting(self, namespace: str, labels: Mapping[str, str]) -> list[PodDisruptionBudget]:
        """The budgets whose selector matches a pod."""
        return [budget for selector, budget in self._by_namespace.get(namespace, ()) if selector.matches(labels)]

    def limiting(self, namespace: str, labels: Mapping[str, str]) -> list[PodDisruptionBudget]:
        """The budgets that limit evictions of a pod; none if it has no labels (``getPodDisruptionBudgets``)."""
        return self.selecting(namespace, labels) if labels else []


def is_disruption(phase: str, *, is_terminating: bool) -> bool:
    """Whether an eviction counts: not that of a pod that is pending, finished or being deleted (``canIgnorePDB``)."""
    return not (is_terminating or phase == "Pending" or is_terminal(phase))


def is_exempt(status: PodStatus, budget: PodDisruptionBudget) -> bool:
    """Whether a pod may be evicted without using up a disruption, because it is not ready (KEP-3017).

    The budget allows that always, or while enough other pods are healthy.
    """
    if any(condition.type == "Ready" and condition.status == "True" for condition in status.conditions):
        return False
    if budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow":
        return True
    return budget.status.current_healthy >= budget.status.desired_healthy > 0


class Denial(NamedTuple):
    """Why a budget denies an eviction; ``retry_after`` are seconds, None if the server does not say."""

    cause: str
    retry_after: int | None = None


def denial(budget: PodDisruptionBudget, *, used: int = 0) -> Denial | None:
    """The denial of an eviction, None if it uses up a disruption (``checkAndDecrement``).

    ``used`` disruptions are not in the budget's status yet.
    """
    name, status = budget.metadata.name, budget.status
    if status.observed_generation < budget.metadata.generation:
        return Denial(f"The disruption budget {name} is still being processed by the server.", _RETRY_AFTER)
    if status.disruptions_allowed - used > 0:
        return None
    for condition in status.conditions:
        if condition.reason == "SyncFailed":
            problem = f"because it failed sync: {condition.message}"
            return Denial(f"The disruption budget {name} does not allow evicting pods currently {problem}")
    desired, healthy = status.desired_healthy, status.current_healthy
    if healthy <= desired:
        return Denial(f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently")
    return Denial(f"The disruption budget {name} does not allow evicting pods currently")
