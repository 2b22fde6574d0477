"""Persistent volumes by what claims look for: those reserved for a claim, and the free ones of each class."""

from __future__ import annotations

from kubestow.api.meta import decode
from kubestow.api.storage import PersistentVolume, PersistentVolumeClaim
from kubestow.cluster.storage.available_volumes import Want, answers, capacity_of, is_meant_for, suits
from kubestow.devcluster.apiserver.storage.store import Event, Stored
from kubestow.errors import InvalidObject

__all__ = ["VolumeIndex"]


class VolumeIndex:
    def __init__(self) -> None:
        self._volumes: dict[str, PersistentVolume] = {}
        self._free: dict[str, dict[str, PersistentVolume]] = {}
        self._reserved: dict[tuple[str, str], dict[str, PersistentVolume]] = {}

    def observe(self, event: Event) -> PersistentVolume:
        """Take note of a change; the volume as it is, or last was."""
        name, volume = event.object.name, _read(event.object)
        before = self._volumes.pop(name, None)
        if before is not None:
            self._shelf(before).pop(name, None)
        if event.type != "DELETED":
            self._volumes[name] = volume
            self._shelf(volume)[name] = volume
        return volume

    def get(self, name: str) -> PersistentVolume | None:
        return self._volumes.get(name)

    def find(self, claim: PersistentVolumeClaim, want: Want, *, reserved_only: bool) -> PersistentVolume | None:
        """The first volume reserved for the claim, else the smallest free one that suits."""
        reserved = self._reserved.get((claim.metadata.namespace, claim.metadata.name), {})
        for _, volume in sorted(reserved.items()):
            if volume.storage_class == want.storage_class and is_meant_for(volume, claim) and suits(volume, want):
                return volume
        if reserved_only:
            return None
        suitable = [one for one in self._free.get(want.storage_class, {}).values() if answers(one, want)]
        return min(suitable, key=lambda one: (capacity_of(one), one.metadata.name), default=None)

    def _shelf(self, volume: PersistentVolume) -> dict[str, PersistentVolume]:
        reference = volume.spec.claim_ref
        if reference is None:
            return self._free.setdefault(volume.storage_class, {})
        return self._reserved.setdefault((reference.namespace, reference.name), {})


def _read(stored: Stored) -> PersistentVolume:
    try:
        return decode(PersistentVolume, stored.data)
    except InvalidObject:
        # Without a capacity it serves nobody.
        return PersistentVolume()
