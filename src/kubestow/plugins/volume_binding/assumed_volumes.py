"""What VolumeBinding has promised a pod, from assuming it to seeing it done (semantics 8.12).

A promise is first an assumption in memory, then a patch of the object with its resourceVersion as precondition, and
kept once the volume controller has completed the binding. Whether it has is read from what the API server says, never
from assumptions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kubestow.api.storage import BOUND_BY_CONTROLLER, SELECTED_NODE, PersistentVolume, PersistentVolumeClaim
from kubestow.cluster.cache import Cluster
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.cluster.storage.available_volumes import node_terms
from kubestow.cluster.storage.csi_migration import in_tree_plugin, translated_terms
from kubestow.errors import InvalidObject, KubestowError
from kubestow.framework.interface import Handle

__all__ = ["Outcome", "Promises", "outcome"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a binding ended: ``problem`` is empty when all is bound."""

    problem: str = ""


@dataclass(slots=True)
class Promises:
    """Volumes promised to claims, and claims whose volumes are to be provided; ``versions`` are what was written."""

    volumes: list[tuple[PersistentVolume, PersistentVolumeClaim]]
    provisions: list[PersistentVolumeClaim]
    versions: dict[tuple[str, str], str] = field(default_factory=dict)

    def assume(self, cluster: Cluster) -> None:
        """Have everybody see the promises. Raises KubestowError, and then nothing is promised."""
        try:
            for volume, _ in self.volumes:
                cluster.catalog(PersistentVolume).assume(volume)
            for claim in self.provisions:
                cluster.catalog(PersistentVolumeClaim).assume(claim)
        except KubestowError:
            self.restore(cluster)
            raise

    def restore(self, cluster: Cluster) -> None:
        """Take back what has not been overtaken by news from the API server."""
        for volume, _ in self.volumes:
            cluster.catalog(PersistentVolume).restore("", volume.metadata.name)
        for claim in self.provisions:
            cluster.catalog(PersistentVolumeClaim).restore(claim.metadata.namespace, claim.metadata.name)

    async def write(self, handle: Handle) -> None:
        """Patch the promised objects. Raises APIError or Unreachable; what was written before that stays."""
        for volume, _ in self.volumes:
            self.versions[_key(volume)] = await handle.patch(volume, _claiming(volume))
        for claim in self.provisions:
            selected = {SELECTED_NODE: claim.metadata.annotations[SELECTED_NODE]}
            self.versions[_key(claim)] = await handle.patch(claim, {"metadata": {"annotations": selected}})


def _claiming(volume: PersistentVolume) -> Mapping[str, Any]:
    changes: dict[str, Any] = {"spec": {"claimRef": msgspec.to_builtins(volume.spec.claim_ref)}}
    if BOUND_BY_CONTROLLER in volume.metadata.annotations:
        changes["metadata"] = {"annotations": {BOUND_BY_CONTROLLER: volume.metadata.annotations[BOUND_BY_CONTROLLER]}}
    return changes


def _key(obj: PersistentVolume | PersistentVolumeClaim) -> tuple[str, str]:
    return obj.metadata.namespace, obj.metadata.name


# -- is it done? ---------------------------------------------------------------------------------------------------


def outcome(cluster: Cluster, promises: Promises, pod: PodInfo, node_name: str) -> Outcome | None:
    """How the binding has ended, as far as the API server has said; None while there is more to come."""
    if node_name not in cluster.nodes.rows:
        return Outcome(f'failed to get node "{node_name}": node "{node_name}" not found')
    if cluster.placed_pod(pod.uid) is None:
        return Outcome(f'pod does not exist any more: pod "{pod.name}" not found')
    checks = [_volume_bound(cluster, promises, volume, claim, node_name) for volume, claim in promises.volumes]
    checks += [_provided(cluster, promises, claim, node_name) for claim in promises.provisions]
    problem = next((check for check in checks if check is not None and check.problem), None)
    if problem is not None:
        return problem
    return None if None in checks else Outcome()


def _volume_bound(
    cluster: Cluster, promises: Promises, promised: PersistentVolume, wanted: PersistentVolumeClaim, node_name: str
) -> Outcome | None:
    volume = cluster.catalog(PersistentVolume).as_observed("", promised.metadata.name)
    claim = cluster.catalog(PersistentVolumeClaim).as_observed(*_key(wanted))
    if volume is None:
        return Outcome(f'failed to check binding: could not find v1.PersistentVolume "{promised.metadata.name}"')
    if claim is None:
        return Outcome(f'failed to check binding: could not find v1.PersistentVolumeClaim "{wanted.key}"')
    if _is_older(volume, promises.versions.get(_key(volume), "")):
        return None
    if not _reaches(cluster, volume, node_name):
        return _out_of_reach(volume, node_name)
    if volume.spec.claim_ref is None or not volume.spec.claim_ref.uid:
        return Outcome(f'ClaimRef got reset for pv "{volume.metadata.name}"')
    return Outcome() if claim.is_bound else None


def _provided(cluster: Cluster, promises: Promises, promised: PersistentVolumeClaim, node_name: str) -> Outcome | None:
    claim = cluster.catalog(PersistentVolumeClaim).as_observed(*_key(promised))
    if claim is None:
        return Outcome(f'failed to check provisioning pvc: could not find v1.PersistentVolumeClaim "{promised.key}"')
    if _is_older(claim, promises.versions.get(_key(claim), "")):
        return None
    if not claim.metadata.annotations:
        return Outcome(f'selectedNode annotation reset for PVC "{claim.metadata.name}"')
    if claim.metadata.annotations.get(SELECTED_NODE) != node_name:
        return Outcome(f'provisioning failed for PVC "{claim.metadata.name}"')
    if claim.spec.volume_name:
        volume = cluster.catalog(PersistentVolume).as_observed("", claim.spec.volume_name)
        if volume is None:
            return None  # the claim was faster than the volume
        if not _reaches(cluster, volume, node_name):
            return _out_of_reach(volume, node_name)
    return Outcome() if claim.is_bound else None


def _is_older(obj: PersistentVolume | PersistentVolumeClaim, written: str) -> bool:
    """Whether the API server has not yet told us of what we wrote."""
    known = obj.metadata.resource_version
    return known.isdigit() and written.isdigit() and int(known) < int(written)


def _reaches(cluster: Cluster, volume: PersistentVolume, node_name: str) -> bool:
    row = cluster.nodes.rows[node_name]
    plugin = in_tree_plugin(volume.spec)
    terms = node_terms(volume)
    if plugin is not None and plugin.migrates and cluster.volumes.csi_nodes.migrated(plugin.name)[row]:
        try:
            terms = translated_terms(plugin, volume)
        except InvalidObject:
            return False
    return bool(cluster.volumes.supply.reach(terms).where[row])


def _out_of_reach(volume: PersistentVolume, node_name: str) -> Outcome:
    name = volume.metadata.name
    return Outcome(f'pv "{name}" node affinity doesn\'t match node "{node_name}": no matching NodeSelectorTerms')
