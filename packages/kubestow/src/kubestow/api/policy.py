"""PodDisruptionBudgets (policy/v1), as preemption and evictions read them."""

from __future__ import annotations

from kubestow.api.core import PodStatus
from kubestow.api.meta import APIObject, LabelSelector, ObjectMeta

__all__ = ["PodDisruptionBudget", "PodDisruptionBudgetSpec", "PodDisruptionBudgetStatus"]


class PodDisruptionBudgetSpec(APIObject, frozen=True):
    """``spec`` of a PodDisruptionBudget: the pods it protects."""

    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str = ""


class PodDisruptionBudgetStatus(APIObject, frozen=True):
    """``status`` of a PodDisruptionBudget; ``disrupted_pods`` maps pods under eviction to the time of eviction."""

    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    observed_generation: int = 0
    disrupted_pods: dict[str, str] = {}


class PodDisruptionBudget(APIObject, frozen=True):
    """A limit on voluntary disruptions of the selected pods."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()

    def exempts(self, pod_status: PodStatus) -> bool:
        """Whether a pod may be evicted without using up a disruption, because it is not ready (KEP-3017)."""
        if any(condition.type == "Ready" and condition.status == "True" for condition in pod_status.conditions):
            return False
        if self.spec.unhealthy_pod_eviction_policy == "AlwaysAllow":
            return True
        return self.status.current_healthy >= self.status.desired_healthy > 0
