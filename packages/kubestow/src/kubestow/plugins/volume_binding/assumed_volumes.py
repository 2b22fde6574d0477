"""The volumes that are assumed to be bound or provisioned for a pod, from Reserve to PreBind (semantics 8.12).

Reserve assumes changed volumes and claims in the caches, where they apply to other pods at once. PreBind patches them
in the API with their resourceVersion as precondition, and waits until the volume controller has
completed the bindings: there only objects that the API server has reported count, never assumed ones.
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
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.cluster.storage.available_volumes import NO_VOLUME, node_terms
from kubestow.cluster.storage.csi import in_tree_plugin, translated_terms
from kubestow.errors import InvalidObject, KubestowError
from kubestow.framework.interface import Handle
from kubestow.framework.status import SUCCESS, Status
from kubestow.plugins.volume_binding.finder import PodVolumes


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


def binding_error(error: str) -> Status:
    """The status of a binding that failed."""
    return Status.error(f"binding volumes: {error}")


def check_bindings(cluster: Cluster, assumed: AssumedVolumes, pod: PodInfo, node_name: str) -> Status | None:
    """SUCCESS once all claims are bound, an error once a binding has failed, None until then.

    Volumes come before claims to provision. As in kube-scheduler, those after the first that is not bound yet are not
    checked. A claim to provision must also be in phase Bound.
    """
    if node_name not in cluster.nodes.rows:
        return binding_error(f'failed to get node "{node_name}": node "{node_name}" not found')
    if cluster.placed_pod(pod.uid) is None:
        return binding_error(f'pod does not exist any more: pod "{pod.name}" not found')
    for volume, claim in assumed.static_bindings:
        status = _check_binding(cluster, assumed, volume, claim, node_name)
        if status is None or not status.ok:
            return status
    for claim in assumed.claims_to_provision:
        status = _check_provisioning(cluster, assumed, claim, node_name)
        if status is None or not status.ok:
            return status
    return SUCCESS


def _check_binding(
    cluster: Cluster,
    assumed: AssumedVolumes,
    assumed_volume: PersistentVolume,
    assumed_claim: PersistentVolumeClaim,
    node_name: str,
) -> Status | None:
    name, claim_key = assumed_volume.metadata.name, assumed_claim.key
    volume = cluster.catalog(PersistentVolume).as_observed("", name)
    claim = _observed(cluster, assumed_claim)
    if volume is None:
        return binding_error(f'failed to check binding: could not find v1.PersistentVolume "{name}"')
    if claim is None:
        return binding_error(f'failed to check binding: could not find v1.PersistentVolumeClaim "{claim_key}"')
    if assumed.is_outdated(volume):
        return None
    if not _matches_node(cluster, volume, node_name):
        return _affinity_error(volume, node_name)
    if volume.spec.claim_ref is None or not volume.spec.claim_ref.uid:
        return binding_error(f'ClaimRef got reset for pv "{name}"')
    return SUCCESS if claim.is_bound else None


def _check_provisioning(
    cluster: Cluster, assumed: AssumedVolumes, assumed_claim: PersistentVolumeClaim, node_name: str
) -> Status | None:
    name, key = assumed_claim.metadata.name, assumed_claim.key
    claim = _observed(cluster, assumed_claim)
    if claim is None:
        return binding_error(f'failed to check provisioning pvc: could not find v1.PersistentVolumeClaim "{key}"')
    if assumed.is_outdated(claim):
        return None
    if not claim.metadata.annotations:
        return binding_error(f'selectedNode annotation reset for PVC "{name}"')
    if claim.metadata.annotations.get(SELECTED_NODE) != node_name:
        return binding_error(f'provisioning failed for PVC "{name}"')
    if claim.spec.volume_name:
        volume = cluster.catalog(PersistentVolume).as_observed("", claim.spec.volume_name)
        if volume is None:
            return None  # the watch of volumes lags behind that of claims
        if not _matches_node(cluster, volume, node_name):
            return _affinity_error(volume, node_name)
    # The controller writes the phase after the rest. kube-scheduler looks once a second and thus sees it, too.
    return SUCCESS if claim.is_bound and claim.status.phase == "Bound" else None


def _observed(cluster: Cluster, claim: PersistentVolumeClaim) -> PersistentVolumeClaim | None:
    return cluster.catalog(PersistentVolumeClaim).as_observed(claim.metadata.namespace, claim.metadata.name)


def _matches_node(cluster: Cluster, volume: PersistentVolume, node_name: str) -> bool:
    """Whether the volume's node affinity, translated where its plugin is migrated, matches a node."""
    row = cluster.nodes.rows[node_name]
    plugin = in_tree_plugin(volume.spec)
    terms = node_terms(volume)
    if plugin is not None and plugin.migrates and cluster.volumes.csi_nodes.migrated(plugin.name)[row]:
        try:
            terms = translated_terms(plugin, volume)
        except InvalidObject:
            return False
    return bool(cluster.volumes.available.accessible_from(terms).where[row])


def _affinity_error(volume: PersistentVolume, node_name: str) -> Status:
    name = volume.metadata.name
    return binding_error(f'pv "{name}" node affinity doesn\'t match node "{node_name}": no matching NodeSelectorTerms')
