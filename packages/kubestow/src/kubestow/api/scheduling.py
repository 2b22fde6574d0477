"""The PodGroup of Kubernetes (scheduling.k8s.io/v1alpha2), as gang scheduling reads it."""

from __future__ import annotations

from kubestow.api.meta import APIObject, ObjectMeta


class Condition(APIObject, frozen=True):
    """A ``metav1.Condition`` with all its fields, because lists of them are written back as a whole."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    observed_generation: int = 0
    last_transition_time: str | None = None


class BasicSchedulingPolicy(APIObject, frozen=True):
    """``schedulingPolicy.basic``: pods are scheduled individually."""


class GangSchedulingPolicy(APIObject, frozen=True):
    """``schedulingPolicy.gang``: at least ``min_count`` pods are scheduled, or none."""

    min_count: int = 0


class PodGroupSchedulingPolicy(APIObject, frozen=True):
    """``spec.schedulingPolicy``: exactly one field is set."""

    basic: BasicSchedulingPolicy | None = None
    gang: GangSchedulingPolicy | None = None


class TopologyConstraint(APIObject, frozen=True):
    """All pods of the group are scheduled to nodes with the same value of the label ``key``."""

    key: str = ""


class PodGroupSchedulingConstraints(APIObject, frozen=True):
    """``spec.schedulingConstraints``; the API allows one constraint of each type."""

    topology: list[TopologyConstraint] = []


class PodGroupSpec(APIObject, frozen=True):
    """``spec`` of a PodGroup.

    ``disruption_mode`` is the unit of preemption: ``Pod`` (each pod individually) or ``PodGroup`` (all pods together).
    """

    scheduling_policy: PodGroupSchedulingPolicy = PodGroupSchedulingPolicy()
    scheduling_constraints: PodGroupSchedulingConstraints = PodGroupSchedulingConstraints()
    disruption_mode: str = "Pod"
    priority: int | None = None


class PodGroupStatus(APIObject, frozen=True):
    """``status`` of a PodGroup; the scheduler sets the condition PodGroupScheduled."""

    conditions: list[Condition] = []


class PodGroup(APIObject, frozen=True):
    """The PodGroup of Kubernetes (scheduling.k8s.io/v1alpha2)."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()
