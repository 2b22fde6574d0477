"""The volumes of a pod that scheduling considers: claims, and the disks of in-tree inline volumes.

The claims and in-tree disks that placed pods use.

Every pod that is added or removed updates the counts, so finding conflicts costs as much as the number of nodes that
use the same disk, not as the number of pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import Volume
from kubestow.api.storage import PersistentVolumeClaim
from kubestow.cluster.nodes.table import NodeTable
from kubestow.cluster.nodes.views import HypotheticalNodes, NodeChange, Nodes
from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.rules.claims import ephemeral_claim_name


@dataclass(frozen=True, slots=True)
class PodClaim:
    """The name of a claim that a pod uses. An ``ephemeral`` one must be owned by the pod."""

    name: str
    ephemeral: bool


def claim_of(pod: PodInfo, volume: Volume) -> PodClaim | None:
    """The claim of one of a pod's volumes, None for a volume without a claim."""
    if volume.persistent_volume_claim is not None:
        return PodClaim(volume.persistent_volume_claim.claim_name, ephemeral=False)
    if volume.ephemeral is not None:
        return PodClaim(ephemeral_claim_name(pod.name, volume.name), ephemeral=True)
    return None


def claims_of(pod: PodInfo) -> list[PodClaim]:
    """The claims of a pod in the order of its volumes."""
    found = (claim_of(pod, volume) for volume in pod.spec.volumes)
    return [claim for claim in found if claim is not None]


def claim_keys(pod: PodInfo) -> list[tuple[str, str]]:
    """Namespace and name of each of the pod's claims, those of ephemeral volumes included."""
    return [(pod.namespace, claim.name) for claim in claims_of(pod)]


def keys_of_claim(old: PersistentVolumeClaim | None, new: PersistentVolumeClaim) -> tuple[tuple[str, str]]:
    """Namespace and name of a claim that was added or updated, for queueing hints."""
    return ((new.metadata.namespace, new.metadata.name),)


def claim_names(shape: Shape) -> list[str]:
    """The names of the claims that pods of a shape use, without those of ephemeral volumes."""
    volumes = (volume.persistent_volume_claim for volume in shape.spec.volumes)
    return [volume.claim_name for volume in volumes if volume is not None]


def is_claim_named(pod: PodInfo, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim) -> bool:
    """A queueing hint: whether a volume of the pod names a claim that was added or updated."""
    return new.metadata.namespace == pod.namespace and new.metadata.name in pod.shape.family.claims.names


def is_claim_of_pod(pod: PodInfo, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim) -> bool:
    """A queueing hint: the same, where claims of ephemeral volumes count too."""
    claims, name, prefix = pod.shape.family.claims, new.metadata.name, ephemeral_claim_name(pod.name, "")
    if new.metadata.namespace != pod.namespace:
        return False
    return name in claims.names or (name.startswith(prefix) and name[len(prefix) :] in claims.ephemeral)


# -- disks that pods on one node may not share -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Disk:
    """The disk of an in-tree inline volume (semantics 8.11).

    ``key`` is its identity. Two pods on a node can share a disk only if both mount it read-only, which EBS does not
    support.
    """

    key: tuple[str, ...]
    read_only: bool = False
    monitors: frozenset[str] = field(default_factory=frozenset)

    def conflicts_with(self, other: Disk) -> bool:
        """Whether two pods with these disks cannot share a node."""
        if self.key != other.key or (self.read_only and other.read_only):
            return False
        return not self.monitors.isdisjoint(other.monitors) if self.key[0] == _RBD else True


_RBD = "rbd"


def disks_of(shape: Shape) -> list[Disk]:
    """The disks of pods of a shape."""
    return [disk for volume in shape.spec.volumes for disk in _disks(volume)]


def _disks(volume: Volume) -> Iterator[Disk]:
    if volume.gce_persistent_disk is not None:
        yield Disk(("gce", volume.gce_persistent_disk.pd_name), volume.gce_persistent_disk.read_only)
    if volume.aws_elastic_block_store is not None:
        yield Disk(("ebs", volume.aws_elastic_block_store.volume_id))  # never shared
    if volume.iscsi is not None:
        yield Disk(("iscsi", volume.iscsi.iqn), volume.iscsi.read_only)
    if volume.rbd is not None:
        rbd = volume.rbd
        yield Disk((_RBD, rbd.pool, rbd.image), rbd.read_only, frozenset(rbd.monitors))


Mask = NDArray[np.bool_]


class VolumesInUse:
    """The claims and disks in use on the nodes of a table."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._claims: Counter[tuple[str, str]] = Counter()
        #: The number of pods by the disk's identity, the node, and the disk as it is mounted there.
        self._disks: dict[tuple[str, ...], dict[str, Counter[Disk]]] = {}

    def count(self, node_name: str, pod: PodInfo, sign: int) -> None:
        """Count the volumes of a pod that was added to (+1) or removed from (-1) a node."""
        for name in claim_names(pod.shape):
            key = (pod.namespace, name)
            self._claims[key] += sign
            if not self._claims[key]:
                del self._claims[key]
        for disk in disks_of(pod.shape):
            self._count_disk(node_name, disk, sign)

    def _count_disk(self, node_name: str, disk: Disk, sign: int) -> None:
        on_nodes = self._disks.setdefault(disk.key, {})
        mounted = on_nodes.setdefault(node_name, Counter())
        mounted[disk] += sign
        if not mounted[disk]:
            del mounted[disk]
        if not mounted:
            del on_nodes[node_name]
        if not on_nodes:
            del self._disks[disk.key]

    def is_claim_used(self, namespace: str, name: str) -> bool:
        """Whether a placed pod uses a claim by name, that is not as an ephemeral volume."""
        return (namespace, name) in self._claims

    def conflicts(self, nodes: Nodes, disks: Iterable[Disk]) -> Mask:
        """Where a placed pod mounts a disk that conflicts with one of these, bool per row of the view."""
        wanted = list(disks)
        everywhere = np.zeros(len(self._table), np.bool_)
        for disk in wanted:
            for node_name, mounted in self._disks.get(disk.key, {}).items():
                everywhere[self._table.rows[node_name]] |= any(disk.conflicts_with(other) for other in mounted)
        found = everywhere[nodes.rows]
        if isinstance(nodes, HypotheticalNodes):
            for position in nodes.positions_changed_by(_has_disks).tolist():
                found[position] = self._would_conflict(nodes.name(position), nodes.change(position), wanted)
        return found

    def _would_conflict(self, node_name: str, change: NodeChange, wanted: Iterable[Disk]) -> bool:
        changes: Counter[Disk] = Counter()
        for sign, pod in change.signed_pods():
            for disk in disks_of(pod.shape):
                changes[disk] += sign
        for disk in wanted:
            mounted = Counter(self._disks.get(disk.key, {}).get(node_name, {}))
            mounted.update(changes)
            if any(count > 0 and disk.conflicts_with(other) for other, count in mounted.items()):
                return True
        return False


def _has_disks(shape: Shape) -> bool:
    return bool(disks_of(shape))
