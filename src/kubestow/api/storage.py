"""Volumes, claims on them and what provides them (core/v1 and storage.k8s.io/v1), as scheduling reads them.

Field for field the Kubernetes API in Python spelling. Of a volume's many sources only those are read that the scheduler
counts or places by: CSI, and the in-tree ones that CSI drivers have taken over.
"""

from __future__ import annotations

from kubestow.api.core import (
    AWSElasticBlockStoreVolumeSource,
    AzureDiskVolumeSource,
    AzureFileVolumeSource,
    CinderVolumeSource,
    GCEPersistentDiskVolumeSource,
    NodeSelector,
    PortworxVolumeSource,
    ResourceList,
    ResourceRequirements,
    VsphereVirtualDiskVolumeSource,
)
from kubestow.api.meta import APIObject, LabelSelector, ObjectMeta
from kubestow.api.quantity import Quantity

__all__ = [
    "BETA_STORAGE_CLASS",
    "BIND_COMPLETED",
    "BOUND_BY_CONTROLLER",
    "READ_WRITE_ONCE_POD",
    "SELECTED_NODE",
    "STORAGE",
    "WAIT_FOR_FIRST_CONSUMER",
    "CSIDriver",
    "CSINode",
    "CSIStorageCapacity",
    "ClaimReference",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "PhaseStatus",
    "StorageClass",
    "TopologySelectorTerm",
    "VolumeAttachment",
]

STORAGE = "storage"
READ_WRITE_ONCE_POD = "ReadWriteOncePod"
WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"

BETA_STORAGE_CLASS = "volume.beta.kubernetes.io/storage-class"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
SELECTED_NODE = "volume.kubernetes.io/selected-node"


class ClaimReference(APIObject, frozen=True):
    """``spec.claimRef`` of a volume: the claim it is bound to, or reserved for."""

    kind: str = ""
    api_version: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class CSIPersistentVolumeSource(APIObject, frozen=True):
    """``spec.csi`` of a volume."""

    driver: str = ""
    volume_handle: str = ""


class VolumeNodeAffinity(APIObject, frozen=True):
    """``spec.nodeAffinity`` of a volume: from which nodes it can be reached."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(APIObject, frozen=True):
    """``spec`` of a volume."""

    capacity: ResourceList = {}
    access_modes: list[str] = []
    volume_mode: str | None = None
    storage_class_name: str = ""
    volume_attributes_class_name: str | None = None
    claim_ref: ClaimReference | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CSIPersistentVolumeSource | None = None
    aws_elastic_block_store: AWSElasticBlockStoreVolumeSource | None = None
    azure_disk: AzureDiskVolumeSource | None = None
    azure_file: AzureFileVolumeSource | None = None
    cinder: CinderVolumeSource | None = None
    gce_persistent_disk: GCEPersistentDiskVolumeSource | None = None
    portworx_volume: PortworxVolumeSource | None = None
    vsphere_volume: VsphereVirtualDiskVolumeSource | None = None


class PhaseStatus(APIObject, frozen=True):
    """``status`` of a volume or a claim."""

    phase: str = ""


class PersistentVolume(APIObject, frozen=True):
    """A volume."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PhaseStatus = PhaseStatus()

    @property
    def storage_class(self) -> str:
        """The name of its class, ``""`` for none; the beta annotation wins."""
        return self.metadata.annotations.get(BETA_STORAGE_CLASS, self.spec.storage_class_name)


class PersistentVolumeClaimSpec(APIObject, frozen=True):
    """``spec`` of a claim."""

    access_modes: list[str] = []
    resources: ResourceRequirements = ResourceRequirements()
    selector: LabelSelector | None = None
    storage_class_name: str | None = None
    volume_attributes_class_name: str | None = None
    volume_mode: str | None = None
    volume_name: str = ""


class PersistentVolumeClaim(APIObject, frozen=True):
    """A claim on a volume."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PhaseStatus = PhaseStatus()

    @property
    def key(self) -> str:
        """``namespace/name``, for people and messages."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def storage_class(self) -> str:
        """The name of its class, ``""`` for none; the beta annotation wins."""
        return self.metadata.annotations.get(BETA_STORAGE_CLASS, self.spec.storage_class_name or "")

    @property
    def is_bound(self) -> bool:
        """Whether the volume controller has completed its binding."""
        return bool(self.spec.volume_name) and BIND_COMPLETED in self.metadata.annotations


class TopologySelectorLabelRequirement(APIObject, frozen=True):
    """``matchLabelExpressions[]`` of a topology term."""

    key: str = ""
    values: list[str] = []


class TopologySelectorTerm(APIObject, frozen=True):
    """``allowedTopologies[]`` of a storage class."""

    match_label_expressions: list[TopologySelectorLabelRequirement] = []


class StorageClass(APIObject, frozen=True):
    """A way of providing volumes."""

    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: list[TopologySelectorTerm] = []


class VolumeNodeResources(APIObject, frozen=True):
    """``allocatable`` of a driver on a node: how many volumes can be attached."""

    count: int | None = None


class CSINodeDriver(APIObject, frozen=True):
    """``spec.drivers[]`` of a CSINode."""

    name: str = ""
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(APIObject, frozen=True):
    """``spec`` of a CSINode."""

    drivers: list[CSINodeDriver] = []


class CSINode(APIObject, frozen=True):
    """The CSI drivers on the node of the same name."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CSINodeSpec = CSINodeSpec()


class CSIDriverSpec(APIObject, frozen=True):
    """``spec`` of a CSIDriver."""

    storage_capacity: bool | None = None
    prevent_pod_scheduling_if_missing: bool | None = None


class CSIDriver(APIObject, frozen=True):
    """A CSI driver and how it wants to be treated."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(APIObject, frozen=True):
    """How much a class can still provide to some nodes."""

    metadata: ObjectMeta = ObjectMeta()
    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None

    @property
    def limit(self) -> Quantity | None:
        """The largest volume that can be provided, as far as known."""
        return self.capacity if self.maximum_volume_size is None else self.maximum_volume_size


class VolumeAttachmentSource(APIObject, frozen=True):
    """``spec.source`` of a VolumeAttachment."""

    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(APIObject, frozen=True):
    """``spec`` of a VolumeAttachment."""

    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()


class VolumeAttachment(APIObject, frozen=True):
    """A volume that is (to be) attached to a node, whether or not a pod uses it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()
