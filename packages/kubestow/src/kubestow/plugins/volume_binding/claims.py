"""The claims of a pod as VolumeBinding's PreFilter classifies them: bound, delayed or immediate (semantics 8.12).

A pod with a missing, lost or deleted claim is rejected, and so is a pod with an unbound immediate claim: the volume
controller binds that one before the pod can be scheduled.
"""

from __future__ import annotations

from kubestow.api.storage import WAIT_FOR_FIRST_CONSUMER, PersistentVolumeClaim, StorageClass
from kubestow.cluster.cache import Cluster
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.cluster.storage.pod_volumes import PodClaim, claims_of
from kubestow.framework.status import Status
from kubestow.plugins.volume_binding.finder import PodVolumeClaims
from kubestow.rules.claims import ownership_problem

__all__ = ["pod_volume_claims"]

_UNBOUND_IMMEDIATE = Status.unresolvable("pod has unbound immediate PersistentVolumeClaims")


def pod_volume_claims(cluster: Cluster, pod: PodInfo) -> PodVolumeClaims | Status:
    """The bound and the delayed claims of a pod, or a status if a claim is unusable, invalid or immediate."""
    bound, unbound = [], []
    has_immediate = False
    claims = _usable_claims(cluster, pod)
    if isinstance(claims, Status):
        return claims
    for claim in claims:
        if claim.is_bound:
            bound.append(claim)
            continue
        is_delayed = _is_delayed(cluster, claim)
        if isinstance(is_delayed, Status):
            return is_delayed
        has_immediate |= not is_delayed
        unbound.append(claim)
    return _UNBOUND_IMMEDIATE if has_immediate else PodVolumeClaims(bound, unbound)


def _usable_claims(cluster: Cluster, pod: PodInfo) -> list[PersistentVolumeClaim] | Status:
    catalog = cluster.catalog(PersistentVolumeClaim)
    claims = []
    for reference in claims_of(pod):
        claim = catalog.get(pod.namespace, reference.name)
        if claim is None:
            return Status.unresolvable(_not_found(reference))
        problem = _problem(pod, reference, claim)
        if problem is not None:
            return Status.unresolvable(problem)
        claims.append(claim)
    return claims


def _not_found(reference: PodClaim) -> str:
    if reference.ephemeral:
        return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{reference.name}"'
    return f'persistentvolumeclaim "{reference.name}" not found'


def _problem(pod: PodInfo, reference: PodClaim, claim: PersistentVolumeClaim) -> str | None:
    name = claim.metadata.name
    if claim.status.phase == "Lost":
        return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{claim.spec.volume_name}"'
    if claim.metadata.deletion_timestamp is not None:
        return f'persistentvolumeclaim "{name}" is being deleted'
    return ownership_problem(claim, pod=pod.key, pod_uid=pod.uid) if reference.ephemeral else None


def _is_delayed(cluster: Cluster, claim: PersistentVolumeClaim) -> bool | Status:
    """Whether an unbound claim waits for the pod's node (WaitForFirstConsumer)."""
    name = claim.storage_class
    storage_class = cluster.catalog(StorageClass).get("", name) if name else None
    if storage_class is None:
        return False
    if storage_class.volume_binding_mode is None:
        return Status.error(f'VolumeBindingMode not set for StorageClass "{name}"')
    return storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER and not claim.spec.volume_name
