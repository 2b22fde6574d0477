"""The state of storage, updated by changes of pods, nodes and storage objects.

Its parts are the claims and disks in use (:mod:`.mounted_claims`), the volumes attached to nodes (:mod:`.attachments`),
the limits of CSI drivers (:mod:`.csi_nodes`), the volumes available to claims (:mod:`.available_volumes`) and the
capacity for provisioning (:mod:`.capacities`). This module dispatches changes to them.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from kubestow.api.storage import (
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from kubestow.cluster.changes.catalog import Catalog, KubernetesObject
from kubestow.cluster.nodes.table import NodeTable
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.cluster.storage.attachments import AttachedVolumes, PodVolumeResolver, VolumeAttachments
from kubestow.cluster.storage.available_volumes import AvailableVolumes, NodeMasks
from kubestow.cluster.storage.capacities import CSIStorageCapacities
from kubestow.cluster.storage.csi import CSINodes
from kubestow.cluster.storage.pod_volumes import VolumesInUse
from kubestow.rules.minors import DEFAULT_MINOR, Minor

T = TypeVar("T", bound=KubernetesObject)


class Catalogs(Protocol):
    """The catalogs of a cluster."""

    def catalog(self, kind: type[T]) -> Catalog[T]:
        """The objects of a kind."""


class Volumes:
    """The volumes of a cluster, counted by the rules of a minor version."""

    def __init__(self, table: NodeTable, catalogs: Catalogs, minor: Minor = DEFAULT_MINOR) -> None:
        self._table = table
        volumes = catalogs.catalog(PersistentVolume)
        claims = catalogs.catalog(PersistentVolumeClaim)
        csi_nodes = catalogs.catalog(CSINode)
        classes = catalogs.catalog(StorageClass)
        self.in_use = VolumesInUse(table)
        self.csi_nodes = CSINodes(table, csi_nodes, minor)
        self.resolver = PodVolumeResolver(claims, volumes, classes)
        self.attached = AttachedVolumes(table, self.resolver, self.csi_nodes)
        self.node_masks = NodeMasks(table)
        self.available = AvailableVolumes(self.node_masks)
        self.capacities = CSIStorageCapacities(self.node_masks)
        self._volume_attachments = VolumeAttachments(self.attached, volumes)
        claims.subscribe(self._claim_changed)
        volumes.subscribe(self._volume_changed)
        classes.subscribe(self._class_changed)
        csi_nodes.subscribe(self._csi_node_changed)
        catalogs.catalog(CSIStorageCapacity).subscribe(self.capacities.changed)
        catalogs.catalog(VolumeAttachment).subscribe(self._volume_attachments.changed)

    def add_node(self, row: int) -> None:
        """Initialize the row of a new node, before pods are added to it."""
        self.csi_nodes.refresh(row)
        self.attached.refresh_node(row)

    def node_changed(self, row: int) -> None:
        """Apply a change of the allocatable resources of a node."""
        self.csi_nodes.node_changed(row)

    def add_pod(self, node_name: str, pod: PodInfo) -> None:
        """Count the volumes of a pod that was added to a node."""
        self.in_use.count(node_name, pod, +1)
        self.attached.add_pod(node_name, pod)

    def remove_pod(self, node_name: str, pod: PodInfo) -> None:
        """Stop counting the volumes of a pod that was removed from a node."""
        self.in_use.count(node_name, pod, -1)
        self.attached.remove_pod(node_name, pod)

    def _claim_changed(self, before: PersistentVolumeClaim | None, after: PersistentVolumeClaim | None) -> None:
        metadata = _either(before, after).metadata
        self.attached.refresh_dependents(("claim", metadata.namespace, metadata.name))

    def _volume_changed(self, before: PersistentVolume | None, after: PersistentVolume | None) -> None:
        name = _either(before, after).metadata.name
        self.available.changed(before, after)
        self.attached.refresh_dependents(("volume", name))
        self._volume_attachments.volume_changed(name)

    def _class_changed(self, before: StorageClass | None, after: StorageClass | None) -> None:
        self.attached.refresh_dependents(("class", _either(before, after).metadata.name))

    def _csi_node_changed(self, before: CSINode | None, after: CSINode | None) -> None:
        row = self._table.rows.get(_either(before, after).metadata.name)
        if row is not None:
            self.csi_nodes.refresh(row)
            self.attached.refresh_node(row)


def _either(before: T | None, after: T | None) -> T:
    found = after if after is not None else before
    assert found is not None
    return found
