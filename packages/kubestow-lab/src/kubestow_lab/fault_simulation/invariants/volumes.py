"""Invariants of pods that mount volumes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kubestow.api.core import Pod
from kubestow.api.storage import PersistentVolume, PersistentVolumeClaim
from kubestow_lab.fault_simulation.actors.storage import READ_WRITE_ONCE_POD, claims_of, disks_of


def volume_violations(
    pod: Pod,
    node_name: str,
    *,
    placed: Iterable[tuple[Pod, str]],
    claims: Iterable[PersistentVolumeClaim],
    volumes: Iterable[PersistentVolume],
) -> Iterator[str]:
    """Why the volumes of a pod cannot be mounted on a node, given the placed pods, each with the name of its node."""
    name, volumes, by_name = pod.metadata.name, list(volumes), {claim.metadata.name: claim for claim in claims}
    others = [(other, where) for other, where in placed if other.metadata.uid != pod.metadata.uid]
    for other, where in others:
        if where == node_name and (both := disks_of(pod) & disks_of(other)):
            yield f"{name} mounts {sorted(both)} on {node_name}, which {other.metadata.name} mounts too"
    for claim_name in claims_of(pod):
        found = by_name.get(claim_name)
        if found is None:
            yield f"{name} is placed without its claim {claim_name}"
            continue
        if READ_WRITE_ONCE_POD in found.spec.access_modes and any(
            claim_name in claims_of(other) for other, _ in others
        ):
            yield f"{name} shares the ReadWriteOncePod claim {claim_name}"
        yield from _unreachable(found, node_name, volumes)


def _unreachable(found: PersistentVolumeClaim, node_name: str, volumes: list[PersistentVolume]) -> Iterator[str]:
    if found.spec.volume_name:
        if found.spec.volume_name != f"pv-{node_name}":
            yield f"claim {found.metadata.name} is bound to {found.spec.volume_name}, out of reach of {node_name}"
        return
    local = next((volume for volume in volumes if volume.metadata.name == f"pv-{node_name}"), None)
    if local is None or (local.spec.claim_ref is not None and local.spec.claim_ref.uid != found.metadata.uid):
        yield f"claim {found.metadata.name} has no free volume on {node_name}"
