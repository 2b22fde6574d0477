"""The groups of Kubernetes (scheduling.k8s.io), as gang scheduling reads them: PodGroup, CompositePodGroup, Workload.

Those of older versions are converted when they are read (:mod:`kubestow.api.conversion`).
"""

from __future__ import annotations

from typing import ClassVar

from kubestow.api.core import PodResourceClaim, PodResourceClaimStatus
from kubestow.api.custom import CustomObject
from kubestow.api.meta import APIObject, ObjectMeta


class Condition(APIObject, frozen=True):
    """A ``metav1.Condition`` with all its fields, because lists of them are written back as a whole."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    observed_generation: int = 0
    last_transition_time: str | None = None


class NoFields(APIObject, frozen=True):
    """A choice without fields, such as ``schedulingPolicy.basic``: pods are scheduled individually."""


class GangSchedulingPolicy(APIObject, frozen=True):
    """``schedulingPolicy.gang``: at least ``min_count`` pods are scheduled, or none."""

    min_count: int = 0


class PodGroupSchedulingPolicy(APIObject, frozen=True):
    """``spec.schedulingPolicy``: exactly one field is set."""

    basic: NoFields | None = None
    gang: GangSchedulingPolicy | None = None


class TopologyConstraint(APIObject, frozen=True):
    """All pods of the group are scheduled to nodes with the same value of the label ``key``."""

    key: str = ""


class PodGroupSchedulingConstraints(APIObject, frozen=True):
    """``spec.schedulingConstraints``; the API allows one constraint of each type."""

    topology: list[TopologyConstraint] = []


class DisruptionMode(APIObject, frozen=True):
    """``spec.disruptionMode``: whether the children of a group are evicted each by itself, or ``all`` together."""

    single: NoFields | None = None
    all: NoFields | None = None


class _GroupSpec(APIObject, frozen=True):
    """What the specs of all groups have; ``preemption_policy`` is None where the server does not have the field."""

    scheduling_constraints: PodGroupSchedulingConstraints = PodGroupSchedulingConstraints()
    disruption_mode: DisruptionMode = DisruptionMode()
    priority: int | None = None
    preemption_policy: str | None = None
    parent_composite_pod_group_name: str | None = None

    @property
    def is_disrupted_as_a_whole(self) -> bool:
        """Whether all pods of the group, and of the groups below, are evicted together."""
        return self.disruption_mode.all is not None


class PodGroupSpec(_GroupSpec, frozen=True):
    """``spec`` of a PodGroup; pods whose entry equals one of ``resource_claims`` share that claim of the group."""

    scheduling_policy: PodGroupSchedulingPolicy = PodGroupSchedulingPolicy()
    resource_claims: list[PodResourceClaim] = []


class PodGroupStatus(APIObject, frozen=True):
    """``status`` of a PodGroup; the scheduler sets one of its conditions.

    The claims that were generated from templates are in ``resource_claim_statuses``.
    """

    conditions: list[Condition] = []
    resource_claim_statuses: list[PodResourceClaimStatus] = []


class PodGroup(APIObject, frozen=True):
    """The PodGroup of Kubernetes (scheduling.k8s.io/v1beta1)."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


class CompositeGangSchedulingPolicy(APIObject, frozen=True):
    """``schedulingPolicy.gang`` of a composite group: at least ``min_group_count`` child groups are scheduled."""

    min_group_count: int = 0


class CompositeSchedulingPolicy(APIObject, frozen=True):
    """``spec.schedulingPolicy`` of a composite group: exactly one field is set."""

    basic: NoFields | None = None
    gang: CompositeGangSchedulingPolicy | None = None


class CompositePodGroupSpec(_GroupSpec, frozen=True):
    """``spec`` of a CompositePodGroup."""

    scheduling_policy: CompositeSchedulingPolicy = CompositeSchedulingPolicy()


class CompositePodGroup(CustomObject, frozen=True):
    """A group of PodGroups and of other such groups (scheduling.k8s.io/v1alpha3), watched with its feature gate."""

    resource: ClassVar[str] = "compositepodgroups.v1alpha3.scheduling.k8s.io"
    is_namespaced: ClassVar[bool] = True
    spec: CompositePodGroupSpec = CompositePodGroupSpec()


class WorkloadPodGroup(APIObject, frozen=True):
    """``spec.podGroups[]`` of a Workload; each of its replicas is a gang."""

    name: str = ""
    policy: PodGroupSchedulingPolicy = PodGroupSchedulingPolicy()


class WorkloadSpec(APIObject, frozen=True):
    """``spec`` of a Workload."""

    pod_groups: list[WorkloadPodGroup] = []


class Workload(CustomObject, frozen=True):
    """The Workload of 1.35 (scheduling.k8s.io/v1alpha1), whose pods name it in ``spec.workloadRef``."""

    resource: ClassVar[str] = "workloads.v1alpha1.scheduling.k8s.io"
    is_namespaced: ClassVar[bool] = True
    spec: WorkloadSpec = WorkloadSpec()
