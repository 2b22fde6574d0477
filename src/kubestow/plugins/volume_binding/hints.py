"""Which events may help a pod that VolumeBinding has refused (semantics 6.10)."""

from __future__ import annotations

from kubestow.api.quantity import units
from kubestow.api.storage import CSIDriver, CSINode, CSIStorageCapacity, PersistentVolumeClaim, StorageClass
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.cluster.storage.csi_nodes import migrated_plugins
from kubestow.cluster.storage.pod_volumes import claims_of
from kubestow.errors import InvalidQuantity

__all__ = ["capacity_grew", "class_helps", "is_own_claim", "migration_changed", "stopped_tracking_capacity"]


def class_helps(pod: PodInfo, old: StorageClass | None, new: StorageClass) -> bool:
    """A new class, or one that allows other nodes than before."""
    return old is None or old.allowed_topologies != new.allowed_topologies


def is_own_claim(pod: PodInfo, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim) -> bool:
    """A claim of the pod's own."""
    mounted = (claim.name for claim in claims_of(pod))
    return new.metadata.namespace == pod.namespace and new.metadata.name in mounted


def migration_changed(pod: PodInfo, old: CSINode | None, new: CSINode) -> bool:
    """A new CSINode, or one that reports other in-tree plugins as migrated."""
    return old is None or migrated_plugins(old) != migrated_plugins(new)


def stopped_tracking_capacity(pod: PodInfo, old: CSIDriver, new: CSIDriver) -> bool:
    """A driver of the pod's inline volumes that no longer wants its capacity checked."""
    drivers = [volume.csi.driver for volume in pod.spec.volumes if volume.csi is not None]
    return bool(new.metadata.name in drivers and old.spec.storage_capacity and not new.spec.storage_capacity)


def capacity_grew(pod: PodInfo, old: CSIStorageCapacity | None, new: CSIStorageCapacity) -> bool:
    """A new report of capacity, or one of more than before."""
    if old is None:
        return True
    before, after = _limit(old), _limit(new)
    return after is not None and (before is None or after > before)


def _limit(capacity: CSIStorageCapacity) -> int | None:
    try:
        return None if capacity.limit is None else units(capacity.limit)
    except InvalidQuantity:
        return None
