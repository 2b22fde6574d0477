"""Checks whether the volume controller has completed the bindings of a pod's volumes (semantics 8.12, PreBind).

Only objects that the API server has reported count, never assumed ones.
"""

from __future__ import annotations

from kubestow.api.storage import SELECTED_NODE, PersistentVolume, PersistentVolumeClaim
from kubestow.cluster.cache import Cluster
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.cluster.storage.available_volumes import node_terms
from kubestow.cluster.storage.csi_migration import in_tree_plugin, translated_terms
from kubestow.errors import InvalidObject
from kubestow.framework.status import SUCCESS, Status
from kubestow.plugins.volume_binding.assumed_volumes import AssumedVolumes

__all__ = ["binding_error", "check_bindings"]


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
