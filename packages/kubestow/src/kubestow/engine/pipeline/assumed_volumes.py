"""Volumes that Reserve assumed, where pods are placed without an API server."""

from __future__ import annotations

from kubestow.api.storage import PersistentVolume, PersistentVolumeClaim
from kubestow.cluster.cache import Cluster
from kubestow.engine.cluster_api.object_writes import VersionedStore
from kubestow.engine.cluster_api.volume_controller import bind_reserved_volumes

__all__ = ["bind_assumed_volumes"]


def bind_assumed_volumes(cache: Cluster) -> None:
    """Confirm the volumes and claims that Reserve assumed, as the volume controller would."""
    volumes, claims = cache.catalog(PersistentVolume), cache.catalog(PersistentVolumeClaim)
    for volume in volumes.assumed():
        volumes.restore("", volume.metadata.name)
        volumes.put(volume)
    for claim in claims.assumed():
        claims.restore(claim.metadata.namespace, claim.metadata.name)
        claims.put(claim)
    bind_reserved_volumes(VersionedStore(volumes), VersionedStore(claims))
