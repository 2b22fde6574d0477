"""Everything the cluster's state knows of volumes, kept in step with pods, nodes and the objects of storage.

Each part answers one question and is updated by the events that can change its answer: which claims and disks are
mounted (:mod:`.mounts`), how many volumes are attached (:mod:`.attachments`), what the nodes' CSI drivers allow
(:mod:`.csi_nodes`), which volumes are free (:mod:`.volume_supply`), what could still be provided
(:mod:`.storage_capacities`). This module only wires them up.
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
from kubestow.cluster.catalog import Catalog, Described
from kubestow.cluster.nodes.table import NodeTable
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.cluster.storage.attachable_volumes import VolumeUses
from kubestow.cluster.storage.attachments import Attachments, VolumeAttachments
from kubestow.cluster.storage.available_volumes import VolumeSupply
from kubestow.cluster.storage.capacities import StorageCapacities
from kubestow.cluster.storage.csi_nodes import CSINodes
from kubestow.cluster.storage.mounted_claims import Mounts
from kubestow.cluster.topology.selections import Selections

__all__ = ["Catalogs", "Volumes"]

T = TypeVar("T", bound=Described)


class Catalogs(Protocol):
    """Whoever holds the catalogs of a cluster."""

    def catalog(self, kind: type[T]) -> Catalog[T]:
        """The objects of a kind."""


class Volumes:
    """The volumes of a cluster."""

    def __init__(self, table: NodeTable, catalogs: Catalogs) -> None:
        self._table = table
        volumes = catalogs.catalog(PersistentVolume)
        claims = catalogs.catalog(PersistentVolumeClaim)
        csi_nodes = catalogs.catalog(CSINode)
        classes = catalogs.catalog(StorageClass)
        self.mounts = Mounts(table)
        self.csi_nodes = CSINodes(table, csi_nodes)
        self.uses = VolumeUses(claims, volumes, classes)
        self.attachments = Attachments(table, self.uses, self.csi_nodes)
        self.selections = Selections(table)
        self.supply = VolumeSupply(self.selections)
        self.capacities = StorageCapacities(self.selections)
        self._volume_attachments = VolumeAttachments(self.attachments, volumes)
        claims.follow(self._claim_changed)
        volumes.follow(self._volume_changed)
        classes.follow(self._class_changed)
        csi_nodes.follow(self._csi_node_changed)
        catalogs.catalog(CSIStorageCapacity).follow(self.capacities.changed)
        catalogs.catalog(VolumeAttachment).follow(self._volume_attachments.changed)

    def node_came(self, row: int) -> None:
        """A node is new; pods are put on it after this."""
        self.csi_nodes.describe(row)
        self.attachments.node_changed(row)

    def pod_came(self, node_name: str, pod: PodInfo) -> None:
        """A pod is on a node."""
        self.mounts.count(node_name, pod, +1)
        self.attachments.pod_came(node_name, pod)

    def pod_left(self, node_name: str, pod: PodInfo) -> None:
        """A pod is no longer on its node."""
        self.mounts.count(node_name, pod, -1)
        self.attachments.pod_left(node_name, pod)

    def _claim_changed(self, before: PersistentVolumeClaim | None, after: PersistentVolumeClaim | None) -> None:
        metadata = _either(before, after).metadata
        self.attachments.depended_changed(("claim", metadata.namespace, metadata.name))

    def _volume_changed(self, before: PersistentVolume | None, after: PersistentVolume | None) -> None:
        name = _either(before, after).metadata.name
        self.supply.changed(before, after)
        self.attachments.depended_changed(("volume", name))
        self._volume_attachments.volume_changed(name)

    def _class_changed(self, before: StorageClass | None, after: StorageClass | None) -> None:
        self.attachments.depended_changed(("class", _either(before, after).metadata.name))

    def _csi_node_changed(self, before: CSINode | None, after: CSINode | None) -> None:
        row = self._table.rows.get(_either(before, after).metadata.name)
        if row is not None:
            self.csi_nodes.describe(row)
            self.attachments.node_changed(row)


def _either(before: T | None, after: T | None) -> T:
    found = after if after is not None else before
    assert found is not None
    return found
