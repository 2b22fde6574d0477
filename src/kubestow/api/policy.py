"""Disruption budgets (policy/v1), as preemption reads them."""

from __future__ import annotations

from kubestow.api.meta import APIObject, LabelSelector, ObjectMeta

__all__ = ["PodDisruptionBudget", "PodDisruptionBudgetSpec", "PodDisruptionBudgetStatus"]


class PodDisruptionBudgetSpec(APIObject, frozen=True):
    """``spec`` of a budget: which pods it protects."""

    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(APIObject, frozen=True):
    """``status`` of a budget; ``disrupted_pods`` are being evicted already, by name with the time of eviction."""

    disruptions_allowed: int = 0
    disrupted_pods: dict[str, str] = {}


class PodDisruptionBudget(APIObject, frozen=True):
    """How many of some pods may be evicted."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()
