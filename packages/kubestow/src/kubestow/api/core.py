"""Pods, nodes and their parts (core/v1), as scheduling reads them.

The fields mirror the Kubernetes API in snake case. Volumes of sources that scheduling does not read (config maps,
secrets, empty directories, …) decode to their name only.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import field

from kubestow.api.formats.quantity import Quantity
from kubestow.api.meta import APIObject, LabelSelector, ObjectMeta, Time

ResourceList = dict[str, Quantity]
_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class ResourceRequirements(APIObject, frozen=True):
    """``resources`` of a container or a pod."""

    requests: ResourceList = {}
    limits: ResourceList = {}


class ContainerPort(APIObject, frozen=True):
    """``ports[]`` of a container; only host ports matter to scheduling."""

    host_port: int = 0
    host_ip: str = field(default="", name="hostIP")
    protocol: str = ""


class ContainerRestartRule(APIObject, frozen=True):
    """``restartPolicyRules[]`` of a container."""

    action: str = ""


class SeccompProfile(APIObject, frozen=True):
    """``securityContext.seccompProfile``."""

    type: str = ""
    localhost_profile: str = ""


class SecurityContext(APIObject, frozen=True):
    """``securityContext`` of a pod or a container."""

    seccomp_profile: SeccompProfile | None = None


class Container(APIObject, frozen=True):
    """A container or init container. ``restart_policy`` "Always" makes an init container a sidecar."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: list[ContainerPort] = []
    restart_policy: str = ""
    restart_policy_rules: list[ContainerRestartRule] = []
    security_context: SecurityContext | None = None


class NodeSelectorRequirement(APIObject, frozen=True):
    """One requirement on a node's labels (or fields)."""

    key: str = ""
    operator: str = ""
    values: list[str] = []


class NodeSelectorTerm(APIObject, frozen=True):
    """A conjunction of requirements; an empty term matches no node."""

    match_expressions: list[NodeSelectorRequirement] = []
    match_fields: list[NodeSelectorRequirement] = []


class NodeSelector(APIObject, frozen=True):
    """A disjunction of terms."""

    node_selector_terms: list[NodeSelectorTerm] = []


class PreferredSchedulingTerm(APIObject, frozen=True):
    """A preferred node selector term and its weight (1 to 100)."""

    weight: _Int32 = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(APIObject, frozen=True):
    """``affinity.nodeAffinity``."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: list[PreferredSchedulingTerm] = []


class PodAffinityTerm(APIObject, frozen=True):
    """A set of pods and the topology key within which to co-locate with them, or not."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: list[str] = []
    namespace_selector: LabelSelector | None = None


class WeightedPodAffinityTerm(APIObject, frozen=True):
    """A preferred pod (anti-)affinity term and its weight (1 to 100)."""

    weight: _Int32 = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(APIObject, frozen=True):
    """``affinity.podAffinity`` and, with the same fields, ``affinity.podAntiAffinity``."""

    required_during_scheduling_ignored_during_execution: list[PodAffinityTerm] = []
    preferred_during_scheduling_ignored_during_execution: list[WeightedPodAffinityTerm] = []


class Affinity(APIObject, frozen=True):
    """``spec.affinity``."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Taint(APIObject, frozen=True):
    """``spec.taints[]`` of a node."""

    key: str = ""
    value: str = ""
    effect: str = ""


class Toleration(APIObject, frozen=True):
    """``spec.tolerations[]`` of a pod."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class TopologySpreadConstraint(APIObject, frozen=True):
    """``spec.topologySpreadConstraints[]`` of a pod."""

    max_skew: int = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] = []


class PodSchedulingGate(APIObject, frozen=True):
    """``spec.schedulingGates[]`` of a pod."""

    name: str = ""


class PersistentVolumeClaimVolumeSource(APIObject, frozen=True):
    """``persistentVolumeClaim`` of a volume."""

    claim_name: str = ""
    read_only: bool = False


class EphemeralVolumeSource(APIObject, frozen=True):
    """``ephemeral`` of a volume; the name of its claim is ``<pod>-<volume>``."""


class InTreeVolumeSource(APIObject, frozen=True):
    """``gcePersistentDisk`` and other in-tree sources of a volume: what identifies it. Each has some of the fields."""

    read_only: bool = False
    #: ``awsElasticBlockStore``, ``cinder`` and ``portworxVolume``
    volume_id: str = field(default="", name="volumeID")
    #: ``gcePersistentDisk``
    pd_name: str = ""
    #: ``azureDisk``
    disk_name: str = ""
    disk_uri: str = field(default="", name="diskURI")
    #: ``azureFile``
    share_name: str = ""
    #: ``vsphereVolume``
    volume_path: str = ""
    #: ``iscsi``
    iqn: str = ""
    #: ``rbd``
    monitors: list[str] = []
    image: str = ""
    pool: str = ""


class CSIVolumeSource(APIObject, frozen=True):
    """``csi`` of a volume: a CSI ephemeral inline volume."""

    driver: str = ""


class ImageVolumeSource(APIObject, frozen=True):
    """``image`` of a volume: an OCI image mounted as a volume."""

    reference: str = ""


class Volume(APIObject, frozen=True):
    """``spec.volumes[]`` of a pod, with the sources that scheduling reads."""

    name: str = ""
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    ephemeral: EphemeralVolumeSource | None = None
    gce_persistent_disk: InTreeVolumeSource | None = None
    aws_elastic_block_store: InTreeVolumeSource | None = None
    iscsi: InTreeVolumeSource | None = None
    rbd: InTreeVolumeSource | None = None
    azure_disk: InTreeVolumeSource | None = None
    azure_file: InTreeVolumeSource | None = None
    cinder: InTreeVolumeSource | None = None
    vsphere_volume: InTreeVolumeSource | None = None
    portworx_volume: InTreeVolumeSource | None = None
    csi: CSIVolumeSource | None = None
    image: ImageVolumeSource | None = None


class PodResourceClaim(APIObject, frozen=True):
    """``spec.resourceClaims[]`` of a pod."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSchedulingGroup(APIObject, frozen=True):
    """``spec.schedulingGroup`` of a pod."""

    pod_group_name: str | None = None


class WorkloadReference(APIObject, frozen=True):
    """``spec.workloadRef`` of a pod, as in 1.35: its Workload, a pod group of it, and a replica of the group."""

    name: str = ""
    pod_group: str = ""
    pod_group_replica_key: str = ""


class PodSpec(APIObject, frozen=True):
    """``spec`` of a pod."""

    node_name: str = ""
    scheduler_name: str = ""
    priority: _Int32 | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    containers: list[Container] = []
    init_containers: list[Container] = []
    overhead: ResourceList = {}
    resources: ResourceRequirements | None = None
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: list[Toleration] = []
    topology_spread_constraints: list[TopologySpreadConstraint] = []
    scheduling_gates: list[PodSchedulingGate] = []
    volumes: list[Volume] = []
    resource_claims: list[PodResourceClaim] = []
    host_network: bool = False
    host_users: bool | None = None
    scheduling_group: PodSchedulingGroup | None = None
    workload_ref: WorkloadReference | None = None
    security_context: SecurityContext | None = None
    active_deadline_seconds: int | None = None


class PodCondition(APIObject, frozen=True):
    """``status.conditions[]`` of a pod."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    observed_generation: int = 0
    last_transition_time: str | None = None


class ContainerStatus(APIObject, frozen=True):
    """``status.containerStatuses[]``: the resources that the kubelet reports during an in-place resize."""

    name: str = ""
    resources: ResourceRequirements | None = None
    allocated_resources: ResourceList = {}


class PodResourceClaimStatus(APIObject, frozen=True):
    """``status.resourceClaimStatuses[]``."""

    name: str = ""
    resource_claim_name: str | None = None


class ContainerExtendedResourceRequest(APIObject, frozen=True):
    """``status.extendedResourceClaimStatus.requestMappings[]``."""

    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class PodExtendedResourceClaimStatus(APIObject, frozen=True):
    """``status.extendedResourceClaimStatus``."""

    resource_claim_name: str = ""
    request_mappings: list[ContainerExtendedResourceRequest] = []


class PodStatus(APIObject, frozen=True):
    """``status`` of a pod."""

    phase: str = ""
    nominated_node_name: str = ""
    start_time: Time | None = None
    conditions: list[PodCondition] = []
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []
    resources: ResourceRequirements | None = None
    allocated_resources: ResourceList = {}
    resize: str = ""
    resource_claim_statuses: list[PodResourceClaimStatus] = []
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None


class Pod(APIObject, frozen=True):
    """A pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def key(self) -> str:
        """``namespace/name``, for messages."""
        return f"{self.metadata.namespace}/{self.metadata.name}"


class NodeSpec(APIObject, frozen=True):
    """``spec`` of a node."""

    unschedulable: bool = False
    taints: list[Taint] = []


class ContainerImage(APIObject, frozen=True):
    """``status.images[]`` of a node; ``size_bytes`` in bytes."""

    names: list[str] = []
    size_bytes: int = 0


class NodeCondition(APIObject, frozen=True):
    """``status.conditions[]`` of a node."""

    type: str = ""
    status: str = ""


class NodeStatus(APIObject, frozen=True):
    """``status`` of a node."""

    allocatable: ResourceList = {}
    capacity: ResourceList = {}
    images: list[ContainerImage] = []
    conditions: list[NodeCondition] = []
    declared_features: list[str] = []


class Node(APIObject, frozen=True):
    """A node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Namespace(APIObject, frozen=True):
    """A Namespace; scheduling reads its labels."""

    metadata: ObjectMeta = ObjectMeta()


class ServiceSpec(APIObject, frozen=True):
    """``spec`` of a Service or ReplicationController."""

    selector: dict[str, str] = {}


class Service(APIObject, frozen=True):
    """A Service; PodTopologySpread applies its default constraints to the pods it selects."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()


class ReplicationController(APIObject, frozen=True):
    """A ReplicationController; read for its selector, like a Service."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()
