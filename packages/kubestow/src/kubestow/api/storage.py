"""Volumes, claims, storage classes and CSI objects (core/v1 and storage.k8s.io/v1), as scheduling reads them.

The fields mirror the Kubernetes API in snake case. Of the volume sources only those are decoded that scheduling counts
or places by: CSI, and the in-tree sources that have been migrated to CSI.
"""

from __future__ import annotations

from kubestow.api.core import InTreeVolumeSource, NodeSelector, ResourceList, ResourceRequirements
from kubestow.api.formats.quantity import Quantity
from kubestow.api.meta import APIObject, LabelSelector, ObjectMeta

STORAGE = "storage"
READ_WRITE_ONCE_POD = "ReadWriteOncePod"
WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"

BETA_STORAGE_CLASS = "volume.beta.kubernetes.io/storage-class"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
IS_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
SELECTED_NODE = "volume.kubernetes.io/selected-node"


class ClaimReference(APIObject, frozen=True):
    """``spec.claimRef`` of a PersistentVolume: the claim it is bound to, or reserved for."""

    kind: str = ""
    api_version: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class CSIPersistentVolumeSource(APIObject, frozen=True):
    """``spec.csi`` of a PersistentVolume."""

    driver: str = ""
    volume_handle: str = ""


class VolumeNodeAffinity(APIObject, frozen=True):
    """``spec.nodeAffinity`` of a PersistentVolume: the nodes that can access it."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(APIObject, frozen=True):
    """``spec`` of a PersistentVolume."""

    capacity: ResourceList = {}
    access_modes: list[str] = []
    volume_mode: str | None = None
    storage_class_name: str = ""
    volume_attributes_class_name: str | None = None
    claim_ref: ClaimReference | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CSIPersistentVolumeSource | None = None
    aws_elastic_block_store: InTreeVolumeSource | None = None
    azure_disk: InTreeVolumeSource | None = None
    azure_file: InTreeVolumeSource | None = None
    cinder: InTreeVolumeSource | None = None
    gce_persistent_disk: InTreeVolumeSource | None = None
    portworx_volume: InTreeVolumeSource | None = None
    vsphere_volume: InTreeVolumeSource | None = None


class PersistentVolumeStatus(APIObject, frozen=True):
    """``status`` of a PersistentVolume."""

    phase: str = ""


class PersistentVolume(APIObject, frozen=True):
    """A PersistentVolume."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()

    @property
    def storage_class(self) -> str:
        """The name of its storage class, or ``""``; the beta annotation takes precedence."""
        return self.metadata.annotations.get(BETA_STORAGE_CLASS, self.spec.storage_class_name)


class PersistentVolumeClaimSpec(APIObject, frozen=True):
    """``spec`` of a PersistentVolumeClaim."""

    access_modes: list[str] = []
    resources: ResourceRequirements = ResourceRequirements()
    selector: LabelSelector | None = None
    storage_class_name: str | None = None
    volume_attributes_class_name: str | None = None
    volume_mode: str | None = None
    volume_name: str = ""


class PersistentVolumeClaimStatus(APIObject, frozen=True):
    """``status`` of a PersistentVolumeClaim."""

    phase: str = ""


class PersistentVolumeClaim(APIObject, frozen=True):
    """A PersistentVolumeClaim."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()

    @property
    def key(self) -> str:
        """``namespace/name``, for messages."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def storage_class(self) -> str:
        """The name of its storage class, or ``""``; the beta annotation takes precedence."""
        return self.metadata.annotations.get(BETA_STORAGE_CLASS, self.spec.storage_class_name or "")

    @property
    def is_bound(self) -> bool:
        """Whether the volume controller has completed the binding."""
        return bool(self.spec.volume_name) and BIND_COMPLETED in self.metadata.annotations


class TopologySelectorLabelRequirement(APIObject, frozen=True):
    """``matchLabelExpressions[]`` of a topology selector term."""

    key: str = ""
    values: list[str] = []


class TopologySelectorTerm(APIObject, frozen=True):
    """``allowedTopologies[]`` of a StorageClass."""

    match_label_expressions: list[TopologySelectorLabelRequirement] = []


class StorageClass(APIObject, frozen=True):
    """A StorageClass."""

    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: list[TopologySelectorTerm] = []


class VolumeNodeResources(APIObject, frozen=True):
    """``allocatable`` of a driver on a node: the number of volumes that can be attached."""

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
    """The capabilities of a CSI driver."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(APIObject, frozen=True):
    """The storage capacity that a class has left for the nodes of a topology."""

    metadata: ObjectMeta = ObjectMeta()
    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None

    @property
    def limit(self) -> Quantity | None:
        """The size of the largest volume that can be provisioned, or None if unknown."""
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
    """The attachment of a volume to a node, requested or completed, independent of pods."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()
