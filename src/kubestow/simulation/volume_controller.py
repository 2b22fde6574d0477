"""An immediate volume controller: assumed volumes are bound to their claims at once.

Claims that wait for dynamic provisioning keep their selected node and stay unbound.
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

__all__ = ["bind_assumed_volumes"]

_VOLUME_BOUND = PersistentVolumeStatus(phase="Bound")
_CLAIM_BOUND = PersistentVolumeClaimStatus(phase="Bound")


def bind_assumed_volumes(cluster: Cluster) -> None:
    """Confirm assumed volumes and claims; if there are any, bind all volumes with a claimRef."""
    volumes, claims = cluster.catalog(PersistentVolume), cluster.catalog(PersistentVolumeClaim)
    assumed_volumes, assumed_claims = volumes.assumed(), claims.assumed()
    for volume in assumed_volumes:
        volumes.restore("", volume.metadata.name)
        volumes.put(volume)
    for claim in assumed_claims:
        claims.restore(claim.metadata.namespace, claim.metadata.name)
        claims.put(claim)
    if assumed_volumes or assumed_claims:
        for volume in volumes:
            _bind_reserved(volume, volumes, claims)


def _bind_reserved(
    volume: PersistentVolume, volumes: Catalog[PersistentVolume], claims: Catalog[PersistentVolumeClaim]
) -> None:
    """Bind a volume to the claim of its claimRef, if that claim is unbound."""
    claim_ref = volume.spec.claim_ref
    claim = claims.get(claim_ref.namespace, claim_ref.name) if claim_ref is not None else None
    if claim_ref is None or claim is None or claim.is_bound or claim_ref.uid not in ("", claim.metadata.uid):
        return
    claim_ref = msgspec.structs.replace(claim_ref, uid=claim.metadata.uid)
    spec = msgspec.structs.replace(volume.spec, claim_ref=claim_ref)
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
