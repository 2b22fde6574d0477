"""The resource claims that a pod names or that were generated for it from templates (semantics 8.16).

Claims come from the ledger, so they include what the API server has accepted before the watch reports it. Extended
resource claims are not in the pod's spec and not part of the result.
"""

from __future__ import annotations

from collections.abc import Iterator

from kubestow.api.core import PodResourceClaim
from kubestow.api.resource import ResourceClaim
from kubestow.cluster.devices.claims import ResourceClaimTracker
from kubestow.cluster.pods.shapes import PodInfo

__all__ = ["ClaimNotUsable", "claim_names", "pod_resource_claims"]


class ClaimNotUsable(Exception):
    """A claim of a pod does not exist, is being deleted, or belongs to another pod; the text says which claim."""


def pod_resource_claims(pod: PodInfo, tracker: ResourceClaimTracker) -> list[ResourceClaim]:
    """The claims in ``spec.resourceClaims``, in this order. Raises ClaimNotUsable."""
    return list(_claims(pod, tracker))


def claim_names(pod: PodInfo) -> Iterator[str]:
    """The names of the claims in ``spec.resourceClaims``, as far as they are known."""
    for reference in pod.spec.resource_claims:
        try:
            name = _claim_name(pod, reference)
        except ClaimNotUsable:
            continue
        if name is not None:
            yield name


def _claims(pod: PodInfo, tracker: ResourceClaimTracker) -> Iterator[ResourceClaim]:
    for reference in pod.spec.resource_claims:
        name = _claim_name(pod, reference)
        if name is None:
            continue
        claim = tracker.get(pod.namespace, name)
        if claim is None:
            raise ClaimNotUsable(f'could not find ResourceClaim "{pod.namespace}/{name}"')
        if claim.metadata.deletion_timestamp is not None:
            raise ClaimNotUsable(f'resourceclaim "{name}" is being deleted')
        if reference.resource_claim_name is None and not _is_owner(pod, claim):
            raise ClaimNotUsable(f"ResourceClaim {claim.key} was not created for Pod {pod.key} (Pod is not owner)")
        yield claim


def _claim_name(pod: PodInfo, reference: PodResourceClaim) -> str | None:
    """The name of the claim; None if the pod needs no claim for this entry."""
    if reference.resource_claim_name is not None:
        return reference.resource_claim_name
    if reference.resource_claim_template_name is None:
        problem = "none of the supported fields are set"
        raise ClaimNotUsable(f'pod "{pod.key}", spec.resourceClaim "{reference.name}": {problem}')
    for status in pod.status.resource_claim_statuses:
        if status.name == reference.name:
            return status.resource_claim_name
    raise ClaimNotUsable(f'pod "{pod.key}": ResourceClaim not created yet')


def _is_owner(pod: PodInfo, claim: ResourceClaim) -> bool:
    controller = claim.metadata.controller
    return controller is not None and controller.uid == pod.uid
