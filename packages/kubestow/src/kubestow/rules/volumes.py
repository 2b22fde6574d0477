"""The binding of PersistentVolumeClaims to PersistentVolumes: which volume a claim gets, and what binding writes.

The rules are those of the persistent volume controller (kube-controller-manager) and of component-helpers'
``storage/volume``, which the scheduler shares (semantics 8.12). The scheduler finds volumes for many nodes at once
(:mod:`kubestow.cluster.storage.available_volumes`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from kubestow.api.formats.quantity import nanos
from kubestow.api.selectors import EVERYTHING, Selector, compile_selector
from kubestow.api.storage import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    IS_DEFAULT_CLASS,
    STORAGE,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from kubestow.errors import InvalidQuantity

Object = dict[str, Any]

_AVAILABLE, _BOUND = "Available", "Bound"
_FILESYSTEM = "Filesystem"


# -- matching ------------------------------------------------------------------------------------------------------


class ClaimRequirements(NamedTuple):
    """What a claim requires of a volume. ``size`` is in nano bytes."""

    storage_class: str
    size: int
    volume_mode: str
    attributes_class: str
    access_modes: frozenset[str]
    selector: Selector


def requirements_of(claim: PersistentVolumeClaim) -> ClaimRequirements:
    """The requirements of a claim. Raises InvalidQuantity or InvalidSelector."""
    spec = claim.spec
    return ClaimRequirements(
        claim.storage_class,
        nanos(spec.resources.requests.get(STORAGE, 0)),
        spec.volume_mode or _FILESYSTEM,
        spec.volume_attributes_class_name or "",
        frozenset(spec.access_modes),
        EVERYTHING if spec.selector is None else compile_selector(spec.selector),
    )


def satisfies(volume: PersistentVolume, requirements: ClaimRequirements) -> bool:
    """Whether a volume satisfies the requirements that hold for pre-bound and unbound volumes alike.

    Those are size, volume mode, attributes class, and that it is not being deleted (``FindMatchingVolume``).
    """
    return (
        capacity_of(volume) >= requirements.size
        and (volume.spec.volume_mode or _FILESYSTEM) == requirements.volume_mode
        and (volume.spec.volume_attributes_class_name or "") == requirements.attributes_class
        and volume.metadata.deletion_timestamp is None
    )


def is_available_for(volume: PersistentVolume, requirements: ClaimRequirements) -> bool:
    """Whether an unbound volume of the claim's class satisfies all requirements (``FindMatchingVolume``)."""
    return (
        satisfies(volume, requirements)
        and volume.status.phase == _AVAILABLE
        and requirements.selector.matches(volume.metadata.labels)
        and requirements.access_modes.issubset(volume.spec.access_modes)
    )


def is_bound_to(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether a volume is bound to a claim, or pre-bound: its ``claimRef`` has no uid (``IsVolumeBoundToClaim``)."""
    reference, metadata = volume.spec.claim_ref, claim.metadata
    return (
        reference is not None
        and (reference.namespace, reference.name) == (metadata.namespace, metadata.name)
        and reference.uid in ("", metadata.uid)
    )


def may_bind_by_name(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether a claim that names a volume may be bound to it: it is reserved for the claim, or unbound and matches.

    Class, size and modes have to match (``checkVolumeSatisfyClaim``). Raises InvalidQuantity or InvalidSelector.
    """
    if volume.spec.claim_ref is not None:
        return is_bound_to(volume, claim)
    requirements = requirements_of(claim)
    return (
        satisfies(volume, requirements)
        and volume.storage_class == requirements.storage_class
        and requirements.access_modes.issubset(volume.spec.access_modes)
    )


def capacity_of(volume: PersistentVolume) -> int:
    """The capacity of a volume in nano bytes; negative if it is invalid, so that it satisfies no claim."""
    try:
        return nanos(volume.spec.capacity.get(STORAGE, 0))
    except InvalidQuantity:
        return -(2**200)


class VolumeIndex:
    """The volumes of a cluster as the controller looks them up: by claim if they have a claimRef, else by class."""

    def __init__(self) -> None:
        self._volumes: dict[str, PersistentVolume] = {}
        #: Volumes by storage class, or by the namespace and name of their claim, and by name.
        self._groups: dict[str | tuple[str, str], dict[str, PersistentVolume]] = {}

    def put(self, volume: PersistentVolume) -> None:
        """Add or replace a volume."""
        self.remove(volume.metadata.name)
        self._volumes[volume.metadata.name] = volume
        self._groups.setdefault(_group_of(volume), {})[volume.metadata.name] = volume

    def remove(self, name: str) -> None:
        """Remove a volume, if it exists."""
        old = self._volumes.pop(name, None)
        if old is not None:
            group = self._groups[_group_of(old)]
            del group[name]
            if not group:
                del self._groups[_group_of(old)]

    def get(self, name: str) -> PersistentVolume | None:
        """The volume of this name, or None."""
        return self._volumes.get(name)

    def find_match(self, claim: PersistentVolumeClaim, *, reserved_only: bool) -> PersistentVolume | None:
        """The volume for an unbound claim, None if there is none; ``reserved_only`` where the scheduler picks others.

        A volume that is reserved for the claim comes first, whatever its class, then the unbound one of the claim's
        class with the fewest access modes, of these the smallest (``findByClaim``), the first by name. Raises
        InvalidQuantity or InvalidSelector.
        """
        want = requirements_of(claim)
        reserved = self._groups.get((claim.metadata.namespace, claim.metadata.name), {}).values()
        candidates = [
            volume
            for volume in reserved
            if is_bound_to(volume, claim)
            and satisfies(volume, want)
            and want.access_modes.issubset(volume.spec.access_modes)
        ]
        if candidates:
            return min(candidates, key=lambda volume: volume.metadata.name)
        if reserved_only:
            return None
        unbound = self._groups.get(want.storage_class, {}).values()
        return min(
            (volume for volume in unbound if is_available_for(volume, want)),
            key=lambda volume: (len(set(volume.spec.access_modes)), capacity_of(volume), volume.metadata.name),
            default=None,
        )


def _group_of(volume: PersistentVolume) -> str | tuple[str, str]:
    reference = volume.spec.claim_ref
    return volume.storage_class if reference is None else (reference.namespace, reference.name)


# -- what binding writes -------------------------------------------------------------------------------------------


def bound_volume(volume: Object, claim_ref: Object, now: str = "") -> Object:
    """The manifest of a volume after the controller has bound it to a claim (``GetBindVolumeToClaim``); equal if it is.

    ``claim_ref`` is the reference to the claim, ``now`` an RFC 3339 timestamp, or empty if time is not kept.
    """
    metadata, spec, status = dict(volume["metadata"]), dict(volume["spec"]), volume.get("status") or {}
    reference = spec.get("claimRef")
    if not reference:
        metadata["annotations"] = {**(metadata.get("annotations") or {}), BOUND_BY_CONTROLLER: "yes"}
    if not reference or reference.get("uid") != claim_ref["uid"]:
        spec["claimRef"] = claim_ref
    if status.get("phase") != _BOUND:
        status = {"phase": _BOUND, **({"lastPhaseTransitionTime": now} if now else {})}
    return {**volume, "metadata": metadata, "spec": spec, "status": status}


def bound_claim(claim: Object, volume: Object) -> Object:
    """The manifest of a claim after the controller has bound it to a volume; equal if it is bound to it.

    The status takes access modes and capacity of the volume (``bindClaimToVolume``, ``updateClaimStatus``).
    """
    metadata, spec = claim["metadata"], claim["spec"]
    annotations = {**(metadata.get("annotations") or {}), BIND_COMPLETED: "yes"}
    if not spec.get("volumeName"):
        spec = {**spec, "volumeName": volume["metadata"]["name"]}
        annotations[BOUND_BY_CONTROLLER] = "yes"
    status = {
        **(claim.get("status") or {}),
        "phase": _BOUND,
        "accessModes": volume["spec"].get("accessModes") or [],
        "capacity": volume["spec"].get("capacity") or {},
    }
    return {**claim, "metadata": {**metadata, "annotations": annotations}, "spec": spec, "status": status}


# -- storage classes -----------------------------------------------------------------------------------------------


def default_storage_class(classes: Iterable[StorageClass]) -> str | None:
    """The name of the class that claims without one get, None if no class is the default.

    Of several default classes it is the newest, of these the first by name (admission plugin DefaultStorageClass).
    """
    defaults = [one.metadata for one in classes if one.metadata.annotations.get(IS_DEFAULT_CLASS) == "true"]
    newest = max((metadata.creation_timestamp or "" for metadata in defaults), default="")
    names = (metadata.name for metadata in defaults if (metadata.creation_timestamp or "") == newest)
    return min(names, default=None)
