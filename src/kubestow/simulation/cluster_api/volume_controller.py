"""The volume controllers of simulations, which bind and provision at once.

:func:`bind_reserved_volumes` binds volumes with a claimRef to their claims in a replay; claims that wait for dynamic
provisioning keep their selected node and stay unbound there. A :class:`VolumeController` acts on the objects of an API
server in memory: it binds a volume to the claim that its claimRef names, and provisions volumes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from kubestow.api.meta import ObjectMeta
from kubestow.api.storage import (
    BIND_COMPLETED,
    SELECTED_NODE,
    WAIT_FOR_FIRST_CONSUMER,
    ClaimReference,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimStatus,
    PersistentVolumeSpec,
    PersistentVolumeStatus,
    StorageClass,
)
from kubestow.simulation.cluster_api.object_writes import VersionedStore

__all__ = ["VolumeController", "VolumeStore", "bind_reserved_volumes"]

T = TypeVar("T")

_VOLUME_BOUND = PersistentVolumeStatus(phase="Bound")
_CLAIM_BOUND = PersistentVolumeClaimStatus(phase="Bound")
_NO_PROVISIONER = "kubernetes.io/no-provisioner"


class VolumeStore(Protocol):
    """The API server of a volume controller."""

    def objects(self, kind: type[T]) -> Mapping[tuple[str, str], T]:
        """All objects of a kind, by namespace and name."""

    def put(self, obj: Any) -> Any:
        """Create or replace an object."""


class VolumeController:
    """Binds and provisions volumes as objects change; a provisioned volume can be used from every node."""

    def __init__(self, store: VolumeStore) -> None:
        self._store = store

    def reconcile(self, changed: PersistentVolume | PersistentVolumeClaim) -> None:
        """Act on a volume or claim that was created or changed."""
        if isinstance(changed, PersistentVolume):
            self._bind(changed)
        elif not changed.is_bound and not changed.spec.volume_name:
            self._provision(changed)

    def _bind(self, volume: PersistentVolume) -> None:
        """Bind a volume to the claim of its claimRef, if that claim is unbound."""
        claim_ref = volume.spec.claim_ref
        claims = self._store.objects(PersistentVolumeClaim)
        claim = claims.get((claim_ref.namespace, claim_ref.name)) if claim_ref is not None else None
        if claim_ref is None or claim is None or claim.is_bound or claim_ref.uid not in ("", claim.metadata.uid):
            return
        claim_ref = msgspec.structs.replace(claim_ref, uid=claim.metadata.uid)
        spec = msgspec.structs.replace(volume.spec, claim_ref=claim_ref)
        self._store.put(_bound(claim, volume.metadata.name))
        self._store.put(msgspec.structs.replace(volume, spec=spec, status=_VOLUME_BOUND))

    def _provision(self, claim: PersistentVolumeClaim) -> None:
        """Provision a volume, once the scheduler has selected a node if the class waits for that."""
        storage_class = self._store.objects(StorageClass).get(("", claim.storage_class))
        if storage_class is None or storage_class.provisioner in ("", _NO_PROVISIONER):
            return
        waits = storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
        if waits and SELECTED_NODE not in claim.metadata.annotations:
            return
        metadata = claim.metadata
        spec = PersistentVolumeSpec(
            capacity=claim.spec.resources.requests,
            access_modes=claim.spec.access_modes,
            volume_mode=claim.spec.volume_mode,
            storage_class_name=claim.storage_class,
            claim_ref=ClaimReference(
                kind="PersistentVolumeClaim", namespace=metadata.namespace, name=metadata.name, uid=metadata.uid
            ),
        )
        name = f"pvc-{metadata.uid.replace('/', '-')}"
        self._store.put(PersistentVolume(metadata=ObjectMeta(name=name, uid=f"volume/{name}"), spec=spec))


def bind_reserved_volumes(
    volumes: VersionedStore[PersistentVolume], claims: VersionedStore[PersistentVolumeClaim]
) -> None:
    """Bind every volume to the claim of its claimRef, if that claim is unbound."""
    for volume in volumes:
        claim_ref = volume.spec.claim_ref
        claim = claims.get(claim_ref.namespace, claim_ref.name) if claim_ref is not None else None
        if claim_ref is None or claim is None or claim.is_bound or claim_ref.uid not in ("", claim.metadata.uid):
            continue
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
