"""The port through which plugins write ResourceClaims.

A live scheduler writes to its API server, a simulation to its own memory. Claims are decoded in part only, so all
changes are strategic merge patches with the claim's uid as precondition, and its resourceVersion where the write could
race with another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from kubestow.api.core import PodExtendedResourceClaimStatus
from kubestow.api.resource import ResourceClaim
from kubestow.cluster.pods.shapes import PodInfo

__all__ = ["ResourceClaimWriter"]


class ResourceClaimWriter(Protocol):
    """Writes resource.k8s.io/v1 ResourceClaims. Every method raises APIError or Unreachable."""

    async def read(self, namespace: str, name: str) -> ResourceClaim:
        """GET a claim."""

    async def create(self, namespace: str, manifest: Mapping[str, Any]) -> ResourceClaim:
        """POST a claim, given as JSON-like data; returns it as created, with its name and uid."""

    async def patch(self, claim: ResourceClaim, patch: Mapping[str, Any], *, subresource: str = "") -> ResourceClaim:
        """PATCH a claim, or its ``status``, once, with a strategic merge patch; returns the patched claim."""

    async def delete(self, claim: ResourceClaim) -> None:
        """DELETE a claim with its uid as precondition; a claim that does not exist any more is no error."""

    async def report_extended(self, pod: PodInfo, status: PodExtendedResourceClaimStatus) -> None:
        """PATCH ``status.extendedResourceClaimStatus`` of a pod."""
