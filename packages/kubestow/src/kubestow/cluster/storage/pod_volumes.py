"""The volumes of a pod that scheduling considers: claims, and the disks of in-tree inline volumes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kubestow.api.core import Volume
from kubestow.api.storage import PersistentVolumeClaim
from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.rules.claims import ephemeral_claim_name

__all__ = [
    "Disk",
    "PodClaim",
    "claim_keys",
    "claim_names",
    "claim_of",
    "claims_of",
    "disks_of",
    "key_of_claim",
]


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


def key_of_claim(old: PersistentVolumeClaim | None, new: PersistentVolumeClaim) -> tuple[str, str]:
    """Namespace and name of a claim that was added or updated."""
    return new.metadata.namespace, new.metadata.name


def claim_names(shape: Shape) -> list[str]:
    """The names of the claims that pods of a shape use, without those of ephemeral volumes."""
    volumes = (volume.persistent_volume_claim for volume in shape.spec.volumes)
    return [volume.claim_name for volume in volumes if volume is not None]


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
