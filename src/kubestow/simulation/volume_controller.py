"""What the volume controller does, without waiting: promised volumes are bound to their claims at once.

Claims whose volumes are to be provided keep the node that was selected for them and stay unbound, as they do until
somebody provides the volume.
"""

from __future__ import annotations

import msgspec

from kubestow.api.storage import (
    BIND_COMPLETED,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimStatus,
    PersistentVolumeStatus,
)
from kubestow.cluster.cache import Cluster
from kubestow.cluster.catalog import Catalog

__all__ = ["bind_promised_volumes"]

_VOLUME_BOUND = PersistentVolumeStatus(phase="Bound")
_CLAIM_BOUND = PersistentVolumeClaimStatus(phase="Bound")


def bind_promised_volumes(cluster: Cluster) -> None:
    """Make everything true that is assumed of volumes and claims; having been woken, bind all that can be bound."""
    volumes, claims = cluster.catalog(PersistentVolume), cluster.catalog(PersistentVolumeClaim)
    promised_volumes, promised_claims = volumes.assumed(), claims.assumed()
    for volume in promised_volumes:
        volumes.restore("", volume.metadata.name)
        volumes.put(volume)
    for claim in promised_claims:
        claims.restore(claim.metadata.namespace, claim.metadata.name)
        claims.put(claim)
    if promised_volumes or promised_claims:
        for volume in volumes:
            _bind_reserved(volume, volumes, claims)


def _bind_reserved(
    volume: PersistentVolume, volumes: Catalog[PersistentVolume], claims: Catalog[PersistentVolumeClaim]
) -> None:
    """Bind a volume to the claim it is reserved for, if that is still without one."""
    reserved = volume.spec.claim_ref
    claim = claims.get(reserved.namespace, reserved.name) if reserved is not None else None
    if reserved is None or claim is None or claim.is_bound or reserved.uid not in ("", claim.metadata.uid):
        return
    reserved = msgspec.structs.replace(reserved, uid=claim.metadata.uid)
    spec = msgspec.structs.replace(volume.spec, claim_ref=reserved)
    volumes.put(msgspec.structs.replace(volume, spec=spec, status=_VOLUME_BOUND))
    claims.put(_bound(claim, volume.metadata.name))


def _bound(claim: PersistentVolumeClaim, volume_name: str) -> PersistentVolumeClaim:
    annotations = claim.metadata.annotations | {BIND_COMPLETED: "yes"}
    return msgspec.structs.replace(
        claim,
        metadata=msgspec.structs.replace(claim.metadata, annotations=annotations),
        spec=msgspec.structs.replace(claim.spec, volume_name=volume_name),
        status=_CLAIM_BOUND,
    )
