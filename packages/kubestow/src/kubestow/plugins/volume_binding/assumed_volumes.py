"""The volumes that are assumed to be bound or provisioned for a pod, from Reserve to PreBind (semantics 8.12).

Reserve assumes changed volumes and claims in the caches, where they apply to other pods at once. PreBind patches them
in the API with their resourceVersion as precondition; :mod:`.binding_check` decides when the volume controller has
completed the bindings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kubestow.api.storage import (
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    ClaimReference,
    PersistentVolume,
    PersistentVolumeClaim,
)
from kubestow.cluster.cache import Cluster
from kubestow.cluster.storage.available_volumes import NO_VOLUME
from kubestow.errors import KubestowError
from kubestow.framework.interface import Handle
from kubestow.plugins.volume_binding.finder import PodVolumes

__all__ = ["AssumedVolumes"]


@dataclass(slots=True)
class AssumedVolumes:
    """Volumes with the claims that they are bound to, and claims to provision, as they are to be written.

    ``versions`` are the resourceVersions of the written objects by namespace and name.
    """

    static_bindings: list[tuple[PersistentVolume, PersistentVolumeClaim]]
    claims_to_provision: list[PersistentVolumeClaim]
    versions: dict[tuple[str, str], str] = field(default_factory=dict)

    @classmethod
    def on_node(cls, found: PodVolumes, node_name: str) -> AssumedVolumes:
        """From what was found for this node, the only row of ``found``."""
        bindings = [
            (_bound_to(binding.volumes[int(binding.numbers[0])], binding.claim), binding.claim)
            for binding in found.static_bindings
            if binding.numbers[0] != NO_VOLUME
        ]
        provisions = [_with_selected_node(p.claim, node_name) for p in found.dynamic_provisions if p.where[0]]
        return cls(bindings, provisions)

    def assume(self, cluster: Cluster) -> None:
        """Put the objects into the caches. Raises KubestowError, and then nothing is assumed."""
        try:
            for volume, _ in self.static_bindings:
                cluster.catalog(PersistentVolume).assume(volume)
            for claim in self.claims_to_provision:
                cluster.catalog(PersistentVolumeClaim).assume(claim)
        except KubestowError:
            self.restore(cluster)
            raise

    def restore(self, cluster: Cluster) -> None:
        """Restore the objects in the caches, except those that a newer watch event has replaced."""
        for volume, _ in self.static_bindings:
            cluster.catalog(PersistentVolume).restore("", volume.metadata.name)
        for claim in self.claims_to_provision:
            cluster.catalog(PersistentVolumeClaim).restore(claim.metadata.namespace, claim.metadata.name)

    async def write(self, handle: Handle) -> None:
        """Patch the objects. Raises APIError or Unreachable; patches that succeeded before that remain."""
        for volume, _ in self.static_bindings:
            self.versions[_key(volume)] = await handle.patch(volume, _binding_patch(volume))
        for claim in self.claims_to_provision:
            selected = {SELECTED_NODE: claim.metadata.annotations[SELECTED_NODE]}
            self.versions[_key(claim)] = await handle.patch(claim, {"metadata": {"annotations": selected}})

    def is_outdated(self, observed: PersistentVolume | PersistentVolumeClaim) -> bool:
        """Whether an observed object is older than what was written of it."""
        version, written = observed.metadata.resource_version, self.versions.get(_key(observed), "")
        return version.isdigit() and written.isdigit() and int(version) < int(written)


def _key(obj: PersistentVolume | PersistentVolumeClaim) -> tuple[str, str]:
    return obj.metadata.namespace, obj.metadata.name


def _bound_to(volume: PersistentVolume, claim: PersistentVolumeClaim) -> PersistentVolume:
    """A volume with ``claimRef`` set, and marked as bound by the controller unless it was pre-bound."""
    metadata = claim.metadata
    claim_ref = ClaimReference(
        kind="PersistentVolumeClaim",
        api_version="v1",
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
    )
    annotations = volume.metadata.annotations
    if volume.spec.claim_ref is None:
        annotations = annotations | {BOUND_BY_CONTROLLER: "yes"}
    return msgspec.structs.replace(
        volume,
        metadata=msgspec.structs.replace(volume.metadata, annotations=annotations),
        spec=msgspec.structs.replace(volume.spec, claim_ref=claim_ref),
    )


def _with_selected_node(claim: PersistentVolumeClaim, node_name: str) -> PersistentVolumeClaim:
    annotations = claim.metadata.annotations | {SELECTED_NODE: node_name}
    return msgspec.structs.replace(claim, metadata=msgspec.structs.replace(claim.metadata, annotations=annotations))


def _binding_patch(volume: PersistentVolume) -> Mapping[str, Any]:
    patch: dict[str, Any] = {"spec": {"claimRef": msgspec.to_builtins(volume.spec.claim_ref)}}
    if BOUND_BY_CONTROLLER in volume.metadata.annotations:
        patch["metadata"] = {"annotations": {BOUND_BY_CONTROLLER: volume.metadata.annotations[BOUND_BY_CONTROLLER]}}
    return patch
