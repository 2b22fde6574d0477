"""What a pod mounts, as far as scheduling cares: claims, and the disks of legacy inline volumes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kubestow.api.core import Volume
from kubestow.api.storage import PersistentVolumeClaim
from kubestow.cluster.pods.shapes import PodInfo, Shape

__all__ = ["Disk", "PodClaim", "claim_names", "claim_of", "claims_of", "disks_of", "ownership_problem"]


@dataclass(frozen=True, slots=True)
class PodClaim:
    """A claim that a pod mounts. An ``ephemeral`` one was made for this very pod and must belong to it."""

    name: str
    ephemeral: bool


def claim_of(pod: PodInfo, volume: Volume) -> PodClaim | None:
    """The claim behind one of a pod's volumes, None when there is none."""
    if volume.persistent_volume_claim is not None:
        return PodClaim(volume.persistent_volume_claim.claim_name, ephemeral=False)
    if volume.ephemeral is not None:
        return PodClaim(f"{pod.name}-{volume.name}", ephemeral=True)
    return None


def claims_of(pod: PodInfo) -> list[PodClaim]:
    """The claims of a pod in the order of its volumes."""
    found = (claim_of(pod, volume) for volume in pod.spec.volumes)
    return [claim for claim in found if claim is not None]


def claim_names(shape: Shape) -> list[str]:
    """The names of the claims that pods of a shape mount by name, ephemeral ones left out."""
    volumes = (volume.persistent_volume_claim for volume in shape.spec.volumes)
    return [volume.claim_name for volume in volumes if volume is not None]


def ownership_problem(pod: PodInfo, claim: PersistentVolumeClaim) -> str | None:
    """What is wrong with an ephemeral volume's claim that was not made for the pod; None when it was."""
    owner = claim.metadata.controller
    if owner is not None and owner.uid == pod.uid:
        return None
    return f"PVC {claim.key} was not created for pod {pod.key} (pod is not owner)"


# -- disks that only so many pods of a node may mount ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Disk:
    """A legacy inline disk. ``key`` is its identity; of two that share it, both must be read-only to be mounted side
    by side, where the kind allows for that at all (semantics 8.11)."""

    key: tuple[str, ...]
    read_only: bool = False
    monitors: frozenset[str] = field(default_factory=frozenset)

    def conflicts_with(self, other: Disk) -> bool:
        """Whether pods that mount these disks cannot share a node."""
        if self.key != other.key or (self.read_only and other.read_only):
            return False
        return not self.monitors.isdisjoint(other.monitors) if self.key[0] == _RBD else True


_RBD = "rbd"


def disks_of(shape: Shape) -> list[Disk]:
    """The disks that pods of a shape mount."""
    return [disk for volume in shape.spec.volumes for disk in _disks(volume)]


def _disks(volume: Volume) -> Iterator[Disk]:
    if volume.gce_persistent_disk is not None:
        yield Disk(("gce", volume.gce_persistent_disk.pd_name), volume.gce_persistent_disk.read_only)
    if volume.aws_elastic_block_store is not None:
        yield Disk(("ebs", volume.aws_elastic_block_store.volume_id))  # never shared, not even read-only
    if volume.iscsi is not None:
        yield Disk(("iscsi", volume.iscsi.iqn), volume.iscsi.read_only)
    if volume.rbd is not None:
        rbd = volume.rbd
        yield Disk((_RBD, rbd.pool, rbd.image), rbd.read_only, frozenset(rbd.monitors))
