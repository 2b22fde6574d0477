"""PodDisruptionBudgets (policy/v1), as preemption and evictions read them."""

from __future__ import annotations

from kubestow.api.meta import APIObject, LabelSelector, ObjectMeta


class PodDisruptionBudgetSpec(APIObject, frozen=True):
    """``spec`` of a PodDisruptionBudget: the pods it protects."""

    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str = ""


class PodDisruptionBudgetCondition(APIObject, frozen=True):
    """``status.conditions[]`` of a PodDisruptionBudget."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class PodDisruptionBudgetStatus(APIObject, frozen=True):
    """``status`` of a PodDisruptionBudget; ``disrupted_pods`` maps pods under eviction to the time of eviction."""

    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    observed_generation: int = 0
    disrupted_pods: dict[str, str] = {}
    conditions: list[PodDisruptionBudgetCondition] = []


class PodDisruptionBudget(APIObject, frozen=True):
    """A limit on voluntary disruptions of the selected pods."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()
