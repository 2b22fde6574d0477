"""Pod groups, as gang scheduling reads them.

``PodGroup`` is Kubernetes' own (scheduling.k8s.io/v1alpha2). The others are custom resources: that of the Coscheduling
plugin (scheduling.x-k8s.io/v1alpha1) and that of Volcano (scheduling.volcano.sh/v1beta1).
"""

from __future__ import annotations

import msgspec

from kubestow.api.formats.quantity import Quantity
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


class CoschedulingPodGroupSpec(APIObject, frozen=True):
    """``spec`` of the Coscheduling plugin's PodGroup; the timeout is in seconds."""

    min_member: int = 0
    schedule_timeout_seconds: int | None = None


class CoschedulingPodGroup(APIObject, frozen=True):
    """The PodGroup of the Coscheduling plugin (scheduling.x-k8s.io/v1alpha1)."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CoschedulingPodGroupSpec = CoschedulingPodGroupSpec()


class VolcanoPodGroupSpec(APIObject, frozen=True):
    """``spec`` of Volcano's PodGroup; ``queue``, ``min_resources`` and the priority are read by the plugin Volcano."""

    min_member: int = 0
    queue: str = ""
    min_resources: dict[str, Quantity] | None = None
    priority_class_name: str = ""


class VolcanoPodGroupCondition(APIObject, frozen=True):
    """``status.conditions[]`` of Volcano's PodGroup."""

    type: str = ""
    status: str = ""
    transition_id: str = msgspec.field(default="", name="transitionID")
    last_transition_time: str = ""
    reason: str = ""
    message: str = ""


class VolcanoPodGroupStatus(APIObject, frozen=True):
    """``status`` of Volcano's PodGroup, with numbers of pods; the plugin Volcano writes it."""

    phase: str = ""
    conditions: list[VolcanoPodGroupCondition] = []
    running: int = 0
    succeeded: int = 0
    failed: int = 0


class VolcanoPodGroup(APIObject, frozen=True):
    """The PodGroup of Volcano (scheduling.volcano.sh/v1beta1)."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VolcanoPodGroupSpec = VolcanoPodGroupSpec()
    status: VolcanoPodGroupStatus = VolcanoPodGroupStatus()
