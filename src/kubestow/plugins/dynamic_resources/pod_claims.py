"""The claims of a pod: by name, made from a template for it, or made for its extended resources (semantics 8.16)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kubestow.api.core import PodResourceClaim
from kubestow.api.resource import AllocationResult, ResourceClaim
from kubestow.cluster.devices.claims import ClaimLedger
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.plugins.dynamic_resources.allocator.allocator import Found, Wanted
from kubestow.plugins.dynamic_resources.extended_resources import NodeClaim

__all__ = ["ClaimsMissing", "Placement", "PodClaims", "claims_of"]


@dataclass(frozen=True, slots=True)
class Placement:
    """Devices for a pod's unallocated claims on one node, and the claim for its extended resources there."""

    claims: Sequence[ResourceClaim]
    found: Found
    extended: NodeClaim | None


@dataclass(slots=True)
class PodClaims:
    """What a scheduling cycle knows of a pod's claims.

    ``extended`` is where the claim for extended resources stands among the claims; ``wanted`` and ``variants`` are by
    the extended resources that a node has as devices only. ``placements`` are filled in while nodes are filtered,
    ``unavailable`` names claims whose devices some node does not reach.
    """

    claims: list[ResourceClaim] = field(default_factory=list)
    extended: int | None = None
    wanted: dict[tuple[str, ...], Wanted] = field(default_factory=dict)
    placements: dict[str, Placement] = field(default_factory=dict)
    unavailable: set[int] = field(default_factory=set)
    variants: dict[tuple[str, ...], NodeClaim] = field(default_factory=dict)
    #: What Reserve promised, by claim, for PreBind to write.
    allocations: dict[int, AllocationResult] = field(default_factory=dict)
    promised: list[str] = field(default_factory=list)
    #: The claim that is being written, as its position and its promise.
    writing: tuple[int, str] | None = None
    #: The uid of the claim that is still being written although the pod has lost its node: it has to be given back.
    held: str | None = None
    needed: NodeClaim | None = None

    @property
    def pending(self) -> list[int]:
        """The claims that have no devices yet."""
        return [index for index, claim in enumerate(self.claims) if claim.status.allocation is None]

    @property
    def has_user_claims(self) -> bool:
        """Whether there are claims beside that for extended resources."""
        return len(self.claims) > (self.extended is not None)


class ClaimsMissing(Exception):
    """A pod's claims are not all there yet; the text says which is missing, and why."""


def claims_of(pod: PodInfo, ledger: ClaimLedger) -> list[ResourceClaim]:
    """The claims that a pod names, in its order. Raises ClaimsMissing."""
    return list(_claims(pod, ledger))


def _claims(pod: PodInfo, ledger: ClaimLedger) -> Iterator[ResourceClaim]:
    for wanted in pod.spec.resource_claims:
        name = _name(pod, wanted)
        if name is None:
            continue  # the template made none for this pod
        claim = ledger.get(pod.namespace, name)
        if claim is None:
            raise ClaimsMissing(f'could not find ResourceClaim "{pod.namespace}/{name}"')
        if claim.metadata.deletion_timestamp is not None:
            raise ClaimsMissing(f'resourceclaim "{name}" is being deleted')
        if wanted.resource_claim_name is None and not _is_owner(pod, claim):
            raise ClaimsMissing(f"ResourceClaim {claim.key} was not created for Pod {pod.key} (Pod is not owner)")
        yield claim


def _name(pod: PodInfo, wanted: PodResourceClaim) -> str | None:
    """The name of the claim; None when there is none to be had, and none needed."""
    if wanted.resource_claim_name is not None:
        return wanted.resource_claim_name
    if wanted.resource_claim_template_name is None:
        problem = "none of the supported fields are set"
        raise ClaimsMissing(f'pod "{pod.key}", spec.resourceClaim "{wanted.name}": {problem}')
    for status in pod.status.resource_claim_statuses:
        if status.name == wanted.name:
            return status.resource_claim_name
    raise ClaimsMissing(f'pod "{pod.key}": ResourceClaim not created yet')


def _is_owner(pod: PodInfo, claim: ResourceClaim) -> bool:
    controller = claim.metadata.controller
    return controller is not None and controller.uid == pod.uid
