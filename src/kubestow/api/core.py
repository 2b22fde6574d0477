"""Pods, nodes and what they are made of (core/v1), as scheduling reads them.

Field for field the Kubernetes API in Python spelling. Volumes without any of the sources below (config maps, secrets,
empty directories, …) decode to a bare name: scheduling never looks at them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import field

from kubestow.api.meta import APIObject, LabelSelector, ObjectMeta
from kubestow.api.quantity import Quantity

__all__ = [
    "AWSElasticBlockStoreVolumeSource",
    "Affinity",
    "AzureDiskVolumeSource",
    "AzureFileVolumeSource",
    "CinderVolumeSource",
    "Container",
    "ContainerPort",
    "GCEPersistentDiskVolumeSource",
    "Namespace",
    "Node",
    "NodeAffinity",
    "NodeSelector",
    "NodeSelectorRequirement",
    "NodeSelectorTerm",
    "Pod",
    "PodAffinity",
    "PodAffinityTerm",
    "PodCondition",
    "PodSpec",
    "PodStatus",
    "PortworxVolumeSource",
    "PreferredSchedulingTerm",
    "ReplicationController",
    "ResourceList",
    "ResourceRequirements",
    "Service",
    "Taint",
    "Toleration",
    "TopologySpreadConstraint",
    "Volume",
    "VsphereVirtualDiskVolumeSource",
    "WeightedPodAffinityTerm",
]

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


class Container(APIObject, frozen=True):
    """A container or init container. ``restart_policy`` "Always" makes an init container a sidecar."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: list[ContainerPort] = []
    restart_policy: str = ""
    restart_policy_rules: list[ContainerRestartRule] = []


class NodeSelectorRequirement(APIObject, frozen=True):
    """One requirement on a node's labels (or fields)."""

    key: str = ""
    operator: str = ""
    values: list[str] = []


class NodeSelectorTerm(APIObject, frozen=True):
    """Requirements that must all hold; a term without any matches nothing."""

    match_expressions: list[NodeSelectorRequirement] = []
    match_fields: list[NodeSelectorRequirement] = []


class NodeSelector(APIObject, frozen=True):
    """Terms of which one must hold."""

    node_selector_terms: list[NodeSelectorTerm] = []


class PreferredSchedulingTerm(APIObject, frozen=True):
    """A weighted preference for nodes."""

    weight: _Int32 = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(APIObject, frozen=True):
    """``affinity.nodeAffinity``."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: list[PreferredSchedulingTerm] = []


class PodAffinityTerm(APIObject, frozen=True):
    """Pods to be near to, or far from, within one topology domain."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: list[str] = []
    namespace_selector: LabelSelector | None = None


class WeightedPodAffinityTerm(APIObject, frozen=True):
    """A weighted preference for (or against) the company of pods."""

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
    """A volume that names a PersistentVolumeClaim."""

    claim_name: str = ""
    read_only: bool = False


class EphemeralVolumeSource(APIObject, frozen=True):
    """A generic ephemeral volume; its claim is named after pod and volume."""


class GCEPersistentDiskVolumeSource(APIObject, frozen=True):
    """A legacy inline volume."""

    pd_name: str = ""
    read_only: bool = False


class AWSElasticBlockStoreVolumeSource(APIObject, frozen=True):
    """A legacy inline volume."""

    volume_id: str = field(default="", name="volumeID")
    read_only: bool = False


class ISCSIVolumeSource(APIObject, frozen=True):
    """A legacy inline volume."""

    iqn: str = ""
    read_only: bool = False


class RBDVolumeSource(APIObject, frozen=True):
    """A legacy inline volume."""

    monitors: list[str] = []
    image: str = ""
    pool: str = ""
    read_only: bool = False


class AzureDiskVolumeSource(APIObject, frozen=True):
    """A legacy inline volume."""

    disk_name: str = ""
    disk_uri: str = field(default="", name="diskURI")


class AzureFileVolumeSource(APIObject, frozen=True):
    """A legacy inline volume."""

    share_name: str = ""


class CinderVolumeSource(APIObject, frozen=True):
    """A legacy inline volume."""

    volume_id: str = field(default="", name="volumeID")


class VsphereVirtualDiskVolumeSource(APIObject, frozen=True):
    """A legacy inline volume."""

    volume_path: str = ""


class PortworxVolumeSource(APIObject, frozen=True):
    """A legacy inline volume."""

    volume_id: str = field(default="", name="volumeID")


class CSIVolumeSource(APIObject, frozen=True):
    """An inline CSI volume."""

    driver: str = ""


class ImageVolumeSource(APIObject, frozen=True):
    """An OCI image mounted as a volume."""

    reference: str = ""


class Volume(APIObject, frozen=True):
    """``spec.volumes[]`` of a pod: the sources that scheduling looks at."""

    name: str = ""
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    ephemeral: EphemeralVolumeSource | None = None
    gce_persistent_disk: GCEPersistentDiskVolumeSource | None = None
    aws_elastic_block_store: AWSElasticBlockStoreVolumeSource | None = None
    iscsi: ISCSIVolumeSource | None = None
    rbd: RBDVolumeSource | None = None
    azure_disk: AzureDiskVolumeSource | None = None
    azure_file: AzureFileVolumeSource | None = None
    cinder: CinderVolumeSource | None = None
    vsphere_volume: VsphereVirtualDiskVolumeSource | None = None
    portworx_volume: PortworxVolumeSource | None = None
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


class PodCondition(APIObject, frozen=True):
    """``status.conditions[]`` of a pod."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    observed_generation: int = 0
    last_transition_time: str | None = None


class ContainerStatus(APIObject, frozen=True):
    """``status.containerStatuses[]``: the resources a kubelet reports during an in-place resize."""

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
    start_time: datetime | None = None
    conditions: list[PodCondition] = []
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []
    resources: ResourceRequirements | None = None
    allocated_resources: ResourceList = {}
    resource_claim_statuses: list[PodResourceClaimStatus] = []
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None


class Pod(APIObject, frozen=True):
    """A pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


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
    images: list[ContainerImage] = []
    conditions: list[NodeCondition] = []
    declared_features: list[str] = []


class Node(APIObject, frozen=True):
    """A node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Namespace(APIObject, frozen=True):
    """A namespace; scheduling reads its labels."""

    metadata: ObjectMeta = ObjectMeta()


class ServiceSpec(APIObject, frozen=True):
    """``spec`` of a service."""

    selector: dict[str, str] = {}


class Service(APIObject, frozen=True):
    """A service; its selector gives pods their default topology spread."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()


class ReplicationController(APIObject, frozen=True):
    """A replication controller; the same use as a service's."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()
