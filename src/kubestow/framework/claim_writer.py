"""The port through which plugins write claims on devices.

A live scheduler writes to its API server, a simulation to its own memory. Claims are held in part, so all changes are
strategic merge patches; a patch carries the claim's uid, and its resourceVersion where a race could hurt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from kubestow.api.core import PodExtendedResourceClaimStatus
from kubestow.api.resource import ResourceClaim
from kubestow.cluster.pods.shapes import PodInfo

__all__ = ["ResourceClaimWriter"]


class ResourceClaimWriter(Protocol):
    """Writes resource.k8s.io/v1 ResourceClaims. Failures are raised as APIError or Unreachable."""

    async def read(self, namespace: str, name: str) -> ResourceClaim:
        """GET a claim as it is now."""

    async def create(self, namespace: str, manifest: Mapping[str, Any]) -> ResourceClaim:
        """POST a claim (JSON as it goes over the wire); the claim as created, with its name and uid, is returned."""

    async def patch(self, claim: ResourceClaim, patch: Mapping[str, Any], *, subresource: str = "") -> ResourceClaim:
        """Strategic-merge PATCH of a claim, or of its ``status``, once; the claim as it is then is returned."""

    async def delete(self, claim: ResourceClaim) -> None:
        """DELETE a claim, with its uid as precondition; one that is gone already is no error."""

    async def report_extended(self, pod: PodInfo, status: PodExtendedResourceClaimStatus) -> None:
        """PATCH ``status.extendedResourceClaimStatus`` of a pod."""
