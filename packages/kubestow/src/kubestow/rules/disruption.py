"""PodDisruptionBudgets in the eviction subresource: which evictions use up a disruption, and which are denied.

Preemption counts budgets in its own way (semantics 9.3, :mod:`kubestow.plugins.default_preemption.dry_run`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kubestow.api.core import Pod, PodStatus
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


class EvictionBudgets:
    """The disruptions that the budgets among the ``objects`` of a cluster still allow, as evictions use them up."""

    def __init__(self, objects: Iterable[Any]) -> None:
        budgets = [obj for obj in objects if isinstance(obj, PodDisruptionBudget)]
        self._index = BudgetIndex(budgets)
        self._allowed = {_key(budget): budget.status.disruptions_allowed for budget in budgets}

    def covering(self, pod: Pod) -> list[PodDisruptionBudget]:
        """The budgets that an eviction counts against: none for a pod that has not started, or is exempt."""
        metadata = pod.metadata
        if not is_disruption(pod.status.phase, is_terminating=metadata.deletion_timestamp is not None):
            return []
        covering = self._index.limiting(metadata.namespace, metadata.labels)
        return [] if len(covering) == 1 and is_exempt(pod.status, covering[0]) else covering

    def evictable(self, pods: Iterable[Pod]) -> list[Pod]:
        """Those of some pods that may be evicted at the same time. The API refuses a pod with several budgets."""
        used, found = Counter[tuple[str, str]](), []
        for pod in pods:
            covering = [_key(budget) for budget in self.covering(pod)]
            if len(covering) > 1 or any(used[key] >= self._allowed[key] for key in covering):
                continue
            used.update(covering)
            found.append(pod)
        return found

    def use(self, pods: Iterable[Pod]) -> None:
        """Count pods that were evicted and have not come back."""
        for pod in pods:
            for budget in self.covering(pod):
                self._allowed[_key(budget)] -= 1

    def reason(self, pod: Pod) -> str:
        """Why a pod may not be evicted."""
        names = [budget.metadata.name for budget in self.covering(pod)]
        if len(names) > 1:
            return f"more than one PodDisruptionBudget selects it: {', '.join(names)}"
        return f"PodDisruptionBudget {names[0]} allows no further disruption"


def _key(budget: PodDisruptionBudget) -> tuple[str, str]:
    return budget.metadata.namespace, budget.metadata.name
