"""What DynamicResources keeps per scheduling and binding cycle: the pod's claims and their allocations.

PreFilter creates the state, Filter adds the claims to allocate, Reserve allocates them on the chosen node, and PreBind
writes them. Score and PostFilter only read it; Unreserve drops what is pending.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kubestow.api.resource import AllocationResult, ResourceClaim
from kubestow.plugins.dynamic_resources.allocator.allocator import ClaimsToAllocate, Solution
from kubestow.plugins.dynamic_resources.extended_resources import ExtendedResourceClaim

__all__ = ["DynamicResourcesState", "NodeAllocation"]


@dataclass(frozen=True, slots=True)
class NodeAllocation:
    """The devices for a pod's unallocated claims on one node; an extended resource claim is the last of ``claims``."""

    claims: Sequence[ResourceClaim]
    solution: Solution
    extended: ExtendedResourceClaim | None


@dataclass(slots=True)
class DynamicResourcesState:
    """The state of one pod. Claims are identified by their index in ``claims``."""

    claims: list[ResourceClaim] = field(default_factory=list)
    #: The index of the extended resource claim; None if the pod needs none.
    extended_index: int | None = None

    # Set by Filter.
    # Nodes differ in the extended resources that they lack, the keys of the next two; without such resources ().
    extended_claims: dict[tuple[str, ...], ExtendedResourceClaim] = field(default_factory=dict)
    claims_to_allocate: dict[tuple[str, ...], ClaimsToAllocate] = field(default_factory=dict)
    #: Allocated claims that are not available on some node.
    unavailable_claims: set[int] = field(default_factory=set)

    # Set by Reserve.
    extended_claim: ExtendedResourceClaim | None = None
    allocations: dict[int, AllocationResult] = field(default_factory=dict)
    #: The uids of the claims with a pending allocation in the ledger.
    pending_allocations: list[str] = field(default_factory=list)

    # Set by PreBind and Unreserve.
    #: The index and the uid of the claim that PreBind is writing.
    writing: tuple[int, str] | None = None
    #: The uid of the claim that PreBind was writing at Unreserve; it is released when the write has ended.
    release_after_write: str | None = None

    @property
    def unallocated(self) -> list[int]:
        """The claims without an allocation."""
        return [index for index, claim in enumerate(self.claims) if claim.status.allocation is None]

    @property
    def has_user_claims(self) -> bool:
        """Whether there are claims besides the extended resource claim."""
        return len(self.claims) > (self.extended_index is not None)
