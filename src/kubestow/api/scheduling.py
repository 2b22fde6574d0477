"""Pod groups, as gang scheduling reads them: the kinds of three APIs that say which pods belong together.

``PodGroup`` is Kubernetes' own (scheduling.k8s.io/v1alpha2); the others are custom resources with a life of their own,
that of the co-scheduling plugin (scheduling.x-k8s.io/v1alpha1) and Volcano's (scheduling.volcano.sh/v1beta1).
"""

from __future__ import annotations

from kubestow.api.meta import APIObject, ObjectMeta

__all__ = [
    "BasicSchedulingPolicy",
    "Condition",
    "CoschedulingPodGroup",
    "CoschedulingPodGroupSpec",
    "GangSchedulingPolicy",
    "PodGroup",
    "PodGroupSchedulingConstraints",
    "PodGroupSchedulingPolicy",
    "PodGroupSpec",
    "PodGroupStatus",
    "TopologyConstraint",
    "VolcanoPodGroup",
    "VolcanoPodGroupSpec",
]


class Condition(APIObject, frozen=True):
    """A ``metav1.Condition``, complete: lists of them are written back whole."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    observed_generation: int = 0
    last_transition_time: str | None = None


class BasicSchedulingPolicy(APIObject, frozen=True):
    """``schedulingPolicy.basic``: pods that belong together, each placed if it fits."""


class GangSchedulingPolicy(APIObject, frozen=True):
    """``schedulingPolicy.gang``: so many pods at least are placed, or none."""

    min_count: int = 0


class PodGroupSchedulingPolicy(APIObject, frozen=True):
    """``spec.schedulingPolicy``: one of the two."""

    basic: BasicSchedulingPolicy | None = None
    gang: GangSchedulingPolicy | None = None


class TopologyConstraint(APIObject, frozen=True):
    """All pods of the group go to nodes with the same value of the label ``key``."""

    key: str = ""


class PodGroupSchedulingConstraints(APIObject, frozen=True):
    """``spec.schedulingConstraints``; the API allows one of each sort."""

    topology: list[TopologyConstraint] = []


class PodGroupSpec(APIObject, frozen=True):
    """``spec`` of Kubernetes' pod group.

    The mode of disruption says who is evicted when one of its pods has to be: ``Pod`` or ``PodGroup``, all of them.
    """

    scheduling_policy: PodGroupSchedulingPolicy = PodGroupSchedulingPolicy()
    scheduling_constraints: PodGroupSchedulingConstraints = PodGroupSchedulingConstraints()
    disruption_mode: str = "Pod"
    priority: int | None = None


class PodGroupStatus(APIObject, frozen=True):
    """``status`` of Kubernetes' pod group; its scheduler writes the condition PodGroupScheduled."""

    conditions: list[Condition] = []


class PodGroup(APIObject, frozen=True):
    """Kubernetes' pod group (scheduling.k8s.io/v1alpha2)."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


class CoschedulingPodGroupSpec(APIObject, frozen=True):
    """``spec`` of the co-scheduling plugin's pod group; the timeout is in seconds."""

    min_member: int = 0
    schedule_timeout_seconds: int | None = None


class CoschedulingPodGroup(APIObject, frozen=True):
    """The co-scheduling plugin's pod group (scheduling.x-k8s.io/v1alpha1)."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CoschedulingPodGroupSpec = CoschedulingPodGroupSpec()


class VolcanoPodGroupSpec(APIObject, frozen=True):
    """``spec`` of Volcano's pod group."""

    min_member: int = 0


class VolcanoPodGroup(APIObject, frozen=True):
    """Volcano's pod group (scheduling.volcano.sh/v1beta1)."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VolcanoPodGroupSpec = VolcanoPodGroupSpec()
