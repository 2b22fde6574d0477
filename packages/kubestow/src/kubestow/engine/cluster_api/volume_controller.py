"""The volume controllers of simulations, which bind and provision at once.

:func:`bind_reserved_volumes` binds volumes with a claimRef to their claims in a replay; claims that wait for dynamic
provisioning keep their selected node and stay unbound there. A :class:`VolumeController` acts on the objects of an API
server in memory: it binds a claim to a volume, reserved for it or the smallest that satisfies it, or provisions one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from kubestow.api.meta import ObjectMeta, convert
from kubestow.api.storage import (
    SELECTED_NODE,
    WAIT_FOR_FIRST_CONSUMER,
    ClaimReference,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeSpec,
    StorageClass,
)
from kubestow.engine.cluster_api.object_writes import VersionedStore
from kubestow.errors import InvalidQuantity, InvalidSelector
from kubestow.rules.volumes import VolumeIndex, bound_claim, bound_volume, is_bound_to, may_bind_by_name

T = TypeVar("T")

_KIND = "PersistentVolumeClaim"
_NO_PROVISIONER = "kubernetes.io/no-provisioner"
#: Claims are bound after the volumes that they can have are known, and after all storage classes.
_LOAD_ORDER: dict[type[Any], int] = {PersistentVolume: 1, PersistentVolumeClaim: 2}


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
        self._volumes = VolumeIndex()

    def reconcile(self, changed: PersistentVolume | PersistentVolumeClaim) -> None:
        """Act on a volume or claim that was created or changed."""
        if isinstance(changed, PersistentVolumeClaim):
            if not changed.is_bound:
                self._sync_claim(changed)
            return
        self._volumes.put(changed)
        claim_ref = changed.spec.claim_ref
        claims = self._store.objects(PersistentVolumeClaim)
        claim = claims.get((claim_ref.namespace, claim_ref.name)) if claim_ref is not None else None
        if claim is not None and not claim.is_bound and is_bound_to(changed, claim):
            self._bind(changed, claim)

    def _sync_claim(self, claim: PersistentVolumeClaim) -> None:
        """Bind an unbound claim, or provision a volume, unless its class waits for the scheduler to select a node."""
        storage_class = self._store.objects(StorageClass).get(("", claim.storage_class))
        waits = storage_class is not None and storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
        volume = self._match(claim, reserved_only=waits)
        if volume is not None:
            self._bind(volume, claim)
        elif storage_class is None or storage_class.provisioner in ("", _NO_PROVISIONER) or claim.spec.volume_name:
            return
        elif not waits or SELECTED_NODE in claim.metadata.annotations:
            self._provision(claim)

    def _match(self, claim: PersistentVolumeClaim, *, reserved_only: bool) -> PersistentVolume | None:
        """The volume that the claim names if it may have that, else the best one for it."""
        try:
            if not claim.spec.volume_name:
                return self._volumes.find_match(claim, reserved_only=reserved_only)
            named = self._volumes.get(claim.spec.volume_name)
            return named if named is not None and may_bind_by_name(named, claim) else None
        except (InvalidQuantity, InvalidSelector):
            return None

    def _bind(self, volume: PersistentVolume, claim: PersistentVolumeClaim) -> None:
        for obj in _bound(volume, claim):
            self._store.put(obj)

    def _provision(self, claim: PersistentVolumeClaim) -> None:
        spec = PersistentVolumeSpec(
            capacity=claim.spec.resources.requests,
            access_modes=claim.spec.access_modes,
            volume_mode=claim.spec.volume_mode,
            storage_class_name=claim.storage_class,
            claim_ref=ClaimReference(**_reference(claim)),
        )
        name = f"pvc-{claim.metadata.uid.replace('/', '-')}"
        self._store.put(PersistentVolume(metadata=ObjectMeta(name=name, uid=f"volume/{name}"), spec=spec))


class _Objects:
    """Objects in memory, whose volumes and claims a controller binds as they are put."""

    def __init__(self) -> None:
        self._objects: dict[type[Any], dict[tuple[str, str], Any]] = {}
        self._controller = VolumeController(self)

    def objects(self, kind: type[T]) -> Mapping[tuple[str, str], T]:
        return self._objects.get(kind, {})

    def put(self, obj: Any) -> None:
        self._objects.setdefault(type(obj), {})[obj.metadata.namespace, obj.metadata.name] = obj
        if isinstance(obj, (PersistentVolume, PersistentVolumeClaim)):
            self._controller.reconcile(obj)

    def __iter__(self) -> Iterator[Any]:
        return itertools.chain.from_iterable(objects.values() for objects in self._objects.values())


def in_load_order(objects: Iterable[Any]) -> list[Any]:
    """The objects of a cluster in an order in which a controller finds what a volume or claim depends on."""
    return sorted(objects, key=lambda obj: _LOAD_ORDER.get(type(obj), 0))


def with_bound_volumes(objects: Iterable[Any]) -> list[Any]:
    """The objects of a cluster after the volume controllers have bound and provisioned what waits for no pod."""
    found = _Objects()
    for obj in in_load_order(objects):
        found.put(obj)
    return list(found)


def bind_reserved_volumes(
    volumes: VersionedStore[PersistentVolume], claims: VersionedStore[PersistentVolumeClaim]
) -> None:
    """Bind every volume to the claim of its claimRef, if that claim is unbound."""
    for volume in volumes:
        claim_ref = volume.spec.claim_ref
        claim = claims.get(claim_ref.namespace, claim_ref.name) if claim_ref is not None else None
        if claim is not None and not claim.is_bound and is_bound_to(volume, claim):
            written_claim, written_volume = _bound(volume, claim)
            claims.put(written_claim)
            volumes.put(written_volume)


def _reference(claim: PersistentVolumeClaim) -> dict[str, str]:
    metadata = claim.metadata
    return {"kind": _KIND, "namespace": metadata.namespace, "name": metadata.name, "uid": metadata.uid}


def _bound(volume: PersistentVolume, claim: PersistentVolumeClaim) -> tuple[PersistentVolumeClaim, PersistentVolume]:
    """Claim and volume bound to each other; the claim is written first."""
    manifest = msgspec.to_builtins(volume)
    written_claim = bound_claim(msgspec.to_builtins(claim), manifest)
    return convert(PersistentVolumeClaim, written_claim), convert(
        PersistentVolume, bound_volume(manifest, _reference(claim))
    )
