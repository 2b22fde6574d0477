"""An index of PersistentVolumes for binding: those reserved for each claim, and the unbound ones of each class."""

from __future__ import annotations

from kubestow.api.meta import decode
from kubestow.api.storage import PersistentVolume, PersistentVolumeClaim
from kubestow.cluster.storage.available_volumes import (
    ClaimRequirements,
    capacity_of,
    is_available_for,
    is_prebound_to,
    satisfies,
)
from kubestow.errors import InvalidObject
from kubestow_devcluster.apiserver.storage.store import StoredObject, WatchEvent

__all__ = ["VolumeIndex"]


class VolumeIndex:
    def __init__(self) -> None:
        self._volumes: dict[str, PersistentVolume] = {}
        #: Volumes without claimRef, by storage class.
        self._unbound: dict[str, dict[str, PersistentVolume]] = {}
        #: Volumes with claimRef, by the namespace and name of the claim.
        self._reserved: dict[tuple[str, str], dict[str, PersistentVolume]] = {}

    def update(self, event: WatchEvent) -> PersistentVolume:
        """Apply a change of a volume. Returns its new state, or its last one if it was deleted."""
        name, volume = event.object.name, _decode(event.object)
        old = self._volumes.pop(name, None)
        if old is not None:
            self._group(old).pop(name, None)
        if event.type != "DELETED":
            self._volumes[name] = volume
            self._group(volume)[name] = volume
        return volume

    def get(self, name: str) -> PersistentVolume | None:
        return self._volumes.get(name)

    def find_match(
        self, claim: PersistentVolumeClaim, want: ClaimRequirements, *, reserved_only: bool
    ) -> PersistentVolume | None:
        """The first volume reserved for the claim, else the smallest unbound volume that satisfies it."""
        reserved = self._reserved.get((claim.metadata.namespace, claim.metadata.name), {})
        for _, volume in sorted(reserved.items()):
            if volume.storage_class == want.storage_class and is_prebound_to(volume, claim) and satisfies(volume, want):
                return volume
        if reserved_only:
            return None
        candidates = [
            volume for volume in self._unbound.get(want.storage_class, {}).values() if is_available_for(volume, want)
        ]
        return min(candidates, key=lambda volume: (capacity_of(volume), volume.metadata.name), default=None)

    def _group(self, volume: PersistentVolume) -> dict[str, PersistentVolume]:
        reference = volume.spec.claim_ref
        if reference is None:
            return self._unbound.setdefault(volume.storage_class, {})
        return self._reserved.setdefault((reference.namespace, reference.name), {})


def _decode(stored: StoredObject) -> PersistentVolume:
    try:
        return decode(PersistentVolume, stored.data)
    except InvalidObject:
        # A volume without capacity satisfies no claim.
        return PersistentVolume()
