"""The objects of Kueue that decide about admission, in its API versions v1beta1 and v1beta2.

Only the fields that admission reads are decoded. Where the versions differ in the name of a field, a struct has both,
and a property the meaning. Defaults are those of the API server.
"""

from __future__ import annotations

from typing import ClassVar

from kubestow.api.core import PodSpec, Taint, Toleration
from kubestow.api.custom import CustomObject
from kubestow.api.formats.quantity import Quantity, millis, nanos, units
from kubestow.api.meta import APIObject, LabelSelector, ObjectMeta

GROUP = "kueue.x-k8s.io"
VERSIONS = ("v1beta2", "v1beta1")

QUEUE_LABEL = f"{GROUP}/queue-name"
PRIORITY_CLASS_LABEL = f"{GROUP}/priority-class"


def amount(resource: str, quantity: Quantity) -> int:
    """A quantity of a resource as an integer: CPU in millicores, everything else in units. Raises InvalidQuantity."""
    return millis(quantity) if resource == "cpu" else units(quantity)


class FairSharing(APIObject, frozen=True):
    """``spec.fairSharing``."""

    weight: Quantity | None = None

    def as_number(self) -> float:
        """The weight, 1 by default. Raises InvalidQuantity."""
        return 1.0 if self.weight is None else nanos(self.weight) / 1e9


class ResourceQuota(APIObject, frozen=True):
    """The quota of a resource in a flavor."""

    name: str = ""
    nominal_quota: Quantity = 0
    borrowing_limit: Quantity | None = None
    lending_limit: Quantity | None = None


class FlavorQuotas(APIObject, frozen=True):
    """The quotas of all resources of a group in one flavor."""

    name: str = ""
    resources: list[ResourceQuota] = []


class ResourceGroup(APIObject, frozen=True):
    """Resources that are assigned the same flavor, and the flavors in the order in which they are tried."""

    covered_resources: list[str] = []
    flavors: list[FlavorQuotas] = []


NEVER, ANY, LOWER_PRIORITY, LOWER_OR_NEWER = "Never", "Any", "LowerPriority", "LowerOrNewerEqualPriority"


class BorrowWithinCohort(APIObject, frozen=True):
    """``spec.preemption.borrowWithinCohort``."""

    policy: str = NEVER
    max_priority_threshold: int | None = None


class ClusterQueuePreemption(APIObject, frozen=True):
    """``spec.preemption``."""

    reclaim_within_cohort: str = NEVER
    borrow_within_cohort: BorrowWithinCohort | None = None
    within_cluster_queue: str = NEVER

    @property
    def may_borrow(self) -> bool:
        """Whether a Workload may preempt others of the cohort while its own queue borrows."""
        borrowing = self.borrow_within_cohort
        return borrowing is not None and borrowing.policy not in ("", NEVER)


TRY_NEXT_FLAVOR, PREEMPTION_OVER_BORROWING = "TryNextFlavor", "PreemptionOverBorrowing"


class FlavorFungibility(APIObject, frozen=True):
    """``spec.flavorFungibility``: whether a further flavor is tried before Workloads borrow, or preempt.

    ``Borrow`` and ``Preempt`` of v1beta1 mean the same as ``MayStopSearch``.
    """

    when_can_borrow: str = "MayStopSearch"
    when_can_preempt: str = TRY_NEXT_FLAVOR
    preference: str | None = None


class AdmissionCheckStrategyRule(APIObject, frozen=True):
    """An admission check, and the flavors to which it applies; without any to all."""

    name: str = ""
    on_flavors: list[str] = []


class AdmissionChecksStrategy(APIObject, frozen=True):
    """``spec.admissionChecksStrategy``."""

    admission_checks: list[AdmissionCheckStrategyRule] = []


class AdmissionScope(APIObject, frozen=True):
    """``spec.admissionScope``."""

    admission_mode: str = ""


class Condition(APIObject, frozen=True):
    """A condition of a status."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class ClusterQueueSpec(APIObject, frozen=True):
    """``spec``. A selector of namespaces that is not given selects none; an empty one selects all."""

    resource_groups: list[ResourceGroup] = []
    cohort_name: str = ""
    cohort: str = ""
    queueing_strategy: str = "BestEffortFIFO"
    namespace_selector: LabelSelector | None = None
    flavor_fungibility: FlavorFungibility = FlavorFungibility()
    preemption: ClusterQueuePreemption = ClusterQueuePreemption()
    admission_checks: list[str] = []
    admission_checks_strategy: AdmissionChecksStrategy = AdmissionChecksStrategy()
    stop_policy: str = "None"
    fair_sharing: FairSharing = FairSharing()
    admission_scope: AdmissionScope = AdmissionScope()


class ClusterQueue(CustomObject, frozen=True):
    """A queue with quotas, which is cluster-scoped."""

    resource: ClassVar[str] = f"clusterqueues.v1beta2.{GROUP}"
    spec: ClusterQueueSpec = ClusterQueueSpec()

    @property
    def cohort_name(self) -> str:
        """The cohort, "" for none."""
        return self.spec.cohort_name or self.spec.cohort

    @property
    def checks(self) -> tuple[AdmissionCheckStrategyRule, ...]:
        """The admission checks."""
        named = (AdmissionCheckStrategyRule(name=name) for name in self.spec.admission_checks)
        return (*named, *self.spec.admission_checks_strategy.admission_checks)


class CohortSpec(APIObject, frozen=True):
    """``spec``."""

    parent_name: str = ""
    parent: str = ""
    resource_groups: list[ResourceGroup] = []
    fair_sharing: FairSharing = FairSharing()


class Cohort(CustomObject, frozen=True):
    """ClusterQueues and cohorts that lend each other what they do not use, with quotas of its own; cluster-scoped."""

    resource: ClassVar[str] = f"cohorts.v1beta2.{GROUP}"
    spec: CohortSpec = CohortSpec()

    @property
    def parent_name(self) -> str:
        """The parent cohort, "" for none."""
        return self.spec.parent_name or self.spec.parent


class ResourceFlavorSpec(APIObject, frozen=True):
    """``spec``."""

    node_labels: dict[str, str] = {}
    node_taints: list[Taint] = []
    tolerations: list[Toleration] = []
    topology_name: str | None = None


class ResourceFlavor(CustomObject, frozen=True):
    """A kind of node; cluster-scoped."""

    resource: ClassVar[str] = f"resourceflavors.v1beta2.{GROUP}"
    spec: ResourceFlavorSpec = ResourceFlavorSpec()


class TopologyLevel(APIObject, frozen=True):
    """A level of a topology, by the node label whose values are the domains."""

    node_label: str = ""


class TopologySpec(APIObject, frozen=True):
    """``spec``: the levels from the highest to the lowest."""

    levels: list[TopologyLevel] = []


class Topology(CustomObject, frozen=True):
    """How the nodes of flavors are arranged; cluster-scoped."""

    resource: ClassVar[str] = f"topologies.v1beta2.{GROUP}"
    spec: TopologySpec = TopologySpec()

    @property
    def levels(self) -> tuple[str, ...]:
        """The node labels, from the highest level to the lowest."""
        return tuple(level.node_label for level in self.spec.levels)


class AdmissionFairSharingStatus(APIObject, frozen=True):
    """What a LocalQueue has consumed, decayed, at a time."""

    consumed_resources: dict[str, Quantity] = {}
    last_update: str | None = None


class LocalQueueFairSharingStatus(APIObject, frozen=True):
    """``status.fairSharing``."""

    admission_fair_sharing_status: AdmissionFairSharingStatus = AdmissionFairSharingStatus()


class LocalQueueSpec(APIObject, frozen=True):
    """``spec``."""

    cluster_queue: str = ""
    stop_policy: str = "None"
    fair_sharing: FairSharing = FairSharing()


class LocalQueueStatus(APIObject, frozen=True):
    """``status``."""

    fair_sharing: LocalQueueFairSharingStatus = LocalQueueFairSharingStatus()


class LocalQueue(CustomObject, frozen=True):
    """The queue of a namespace that leads to a ClusterQueue."""

    resource: ClassVar[str] = f"localqueues.v1beta2.{GROUP}"
    is_namespaced: ClassVar[bool] = True
    spec: LocalQueueSpec = LocalQueueSpec()
    status: LocalQueueStatus = LocalQueueStatus()


class AdmissionCheckSpec(APIObject, frozen=True):
    """``spec``."""

    controller_name: str = ""


class AdmissionCheckStatus(APIObject, frozen=True):
    """``status``."""

    conditions: list[Condition] = []


class AdmissionCheck(CustomObject, frozen=True):
    """What has to agree to the admission of a Workload once it has quota; cluster-scoped."""

    resource: ClassVar[str] = f"admissionchecks.v1beta2.{GROUP}"
    spec: AdmissionCheckSpec = AdmissionCheckSpec()
    status: AdmissionCheckStatus = AdmissionCheckStatus()

    @property
    def is_active(self) -> bool:
        """Whether its controller serves it."""
        return any(one.type == "Active" and one.status == "True" for one in self.status.conditions)


class WorkloadPriorityClass(CustomObject, frozen=True):
    """A priority of Workloads that their pods do not have; cluster-scoped."""

    resource: ClassVar[str] = f"workloadpriorityclasses.v1beta2.{GROUP}"
    value: int = 0


# -- Workloads ---------------------------------------------------------------------------------------------------------


class PodTemplate(APIObject, frozen=True):
    """The template of a pod set."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class SliceConstraint(APIObject, frozen=True):
    """So many consecutive pods have to be in one domain of a level of the topology."""

    topology: str = ""
    size: int = 0


class TopologyRequest(APIObject, frozen=True):
    """``podSets[].topologyRequest``."""

    required: str | None = None
    preferred: str | None = None
    unconstrained: bool | None = None
    pod_set_group_name: str | None = None
    pod_set_slice_required_topology: str | None = None
    pod_set_slice_size: int | None = None
    podset_slice_required_topology_constraints: list[SliceConstraint] = []

    @property
    def slice_constraints(self) -> tuple[SliceConstraint, ...]:
        """What has to share domains, the largest slices first."""
        if self.podset_slice_required_topology_constraints:
            return tuple(self.podset_slice_required_topology_constraints)
        if self.pod_set_slice_required_topology is None:
            return ()
        return (SliceConstraint(topology=self.pod_set_slice_required_topology, size=self.pod_set_slice_size or 0),)

    @property
    def is_explicit(self) -> bool:
        """Whether it asks for topology-aware scheduling."""
        asked = (self.required, self.preferred, self.pod_set_slice_required_topology, self.pod_set_slice_size)
        slices = bool(self.podset_slice_required_topology_constraints)
        return self.unconstrained is not None or slices or any(one is not None for one in asked)


class PodSet(APIObject, frozen=True):
    """Equal pods of a Workload: ``count`` of them, at least ``minCount`` if fewer are admitted."""

    name: str = "main"
    count: int = 1
    min_count: int | None = None
    template: PodTemplate = PodTemplate()
    topology_request: TopologyRequest | None = None


class DomainLabels(APIObject, frozen=True):
    """The values of one level for several domains: ``prefix``, one of ``roots`` for each, ``suffix``."""

    prefix: str = ""
    suffix: str = ""
    roots: list[str] = []


class LevelValues(APIObject, frozen=True):
    """The values of one level: one for all domains, or one for each."""

    universal: str | None = None
    individual: DomainLabels = DomainLabels()

    def of(self, index: int) -> str:
        """The value of the domain with an index."""
        if self.universal is not None:
            return self.universal
        return f"{self.individual.prefix}{self.individual.roots[index]}{self.individual.suffix}"


class PodCounts(APIObject, frozen=True):
    """Numbers of pods: one for all domains, or one for each."""

    universal: int | None = None
    individual: list[int] = []

    def of(self, index: int) -> int:
        """The number of pods in the domain with an index."""
        return self.individual[index] if self.universal is None else self.universal


class AssignmentSlice(APIObject, frozen=True):
    """Some domains of a topology assignment, in a form without repetition (v1beta2)."""

    domain_count: int = 0
    values_per_level: list[LevelValues] = []
    pod_counts: PodCounts = PodCounts()


class AssignedDomain(APIObject, frozen=True):
    """A domain of a topology assignment (v1beta1)."""

    values: list[str] = []
    count: int = 0


class TopologyAssignmentStatus(APIObject, frozen=True):
    """``podSetAssignments[].topologyAssignment``."""

    levels: list[str] = []
    slices: list[AssignmentSlice] = []
    domains: list[AssignedDomain] = []

    def all_domains(self) -> list[AssignedDomain]:
        """The domains with their numbers of pods, in either version. Raises IndexError for an incomplete slice."""
        found = list(self.domains)
        for one in self.slices:
            for index in range(one.domain_count):
                values = [level.of(index) for level in one.values_per_level]
                found.append(AssignedDomain(values=values, count=one.pod_counts.of(index)))
        return found


class PodSetAssignment(APIObject, frozen=True):
    """What is admitted of a pod set: the number of pods, the flavor and the amount of each resource."""

    name: str = "main"
    flavors: dict[str, str] = {}
    resource_usage: dict[str, Quantity] = {}
    count: int | None = None
    topology_assignment: TopologyAssignmentStatus | None = None


class Admission(APIObject, frozen=True):
    """``status.admission``."""

    cluster_queue: str = ""
    pod_set_assignments: list[PodSetAssignment] = []


class AdmissionCheckState(APIObject, frozen=True):
    """``status.admissionChecks[]``."""

    name: str = ""
    state: str = "Pending"
    message: str = ""


class ReclaimablePod(APIObject, frozen=True):
    """How many pods of a pod set need their resources no longer."""

    name: str = ""
    count: int = 0


class RequeueState(APIObject, frozen=True):
    """``status.requeueState``: when the Workload may be considered again."""

    requeue_at: str | None = None


class WorkloadSpec(APIObject, frozen=True):
    """``spec``."""

    pod_sets: list[PodSet] = []
    queue_name: str = ""
    priority: int | None = None
    active: bool = True
    maximum_execution_time_seconds: int | None = None


class WorkloadStatus(APIObject, frozen=True):
    """``status``."""

    conditions: list[Condition] = []
    admission: Admission | None = None
    requeue_state: RequeueState = RequeueState()
    reclaimable_pods: list[ReclaimablePod] = []
    admission_checks: list[AdmissionCheckState] = []


QUOTA_RESERVED, ADMITTED, EVICTED, PREEMPTED = "QuotaReserved", "Admitted", "Evicted", "Preempted"
FINISHED, REQUEUED = "Finished", "Requeued"


class Workload(CustomObject, frozen=True):
    """A job as Kueue admits it: all of its pods or none, or a part as ``minCount`` allows."""

    resource: ClassVar[str] = f"workloads.v1beta2.{GROUP}"
    is_namespaced: ClassVar[bool] = True
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()

    def condition(self, kind: str) -> Condition | None:
        """The condition of a type if it is true."""
        return next((one for one in self.status.conditions if one.type == kind and one.status == "True"), None)

    def is_in(self, kind: str) -> bool:
        """Whether the condition of a type is true."""
        return self.condition(kind) is not None
