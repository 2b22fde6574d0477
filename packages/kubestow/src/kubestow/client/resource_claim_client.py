"""Requests for ResourceClaims (resource.k8s.io/v1).

Each method is one request; the caller decides what a conflict means and whether to retry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kubestow.api.core import PodExtendedResourceClaimStatus
from kubestow.api.meta import decode
from kubestow.api.resource import ResourceClaim
from kubestow.client.rest.transport import STRATEGIC_MERGE_PATCH, Transport
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import APIError

__all__ = ["ResourceClaimClient"]

_encode = msgspec.json.Encoder().encode


class ResourceClaimClient:
    """Implements :class:`kubestow.framework.handle.ResourceClaimWriter`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def read(self, namespace: str, name: str) -> ResourceClaim:
        """GET a claim."""
        return decode(ResourceClaim, await self._transport.request("GET", f"{_collection(namespace)}/{name}"))

    async def create(self, namespace: str, manifest: Mapping[str, Any]) -> ResourceClaim:
        """POST a claim."""
        return decode(ResourceClaim, await self._transport.request("POST", _collection(namespace), _encode(manifest)))

    async def patch(self, claim: ResourceClaim, patch: Mapping[str, Any], *, subresource: str = "") -> ResourceClaim:
        """PATCH a claim or its subresource (strategic merge)."""
        path = f"{_path(claim)}/{subresource}" if subresource else _path(claim)
        body = await self._transport.request("PATCH", path, _encode(patch), content_type=STRATEGIC_MERGE_PATCH)
        return decode(ResourceClaim, body)

    async def delete(self, claim: ResourceClaim) -> None:
        """DELETE a claim. A claim that is deleted or has another uid is not an error."""
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": claim.metadata.uid}}
        try:
            await self._transport.request("DELETE", _path(claim), _encode(options))
        except APIError as error:
            if error.code not in (404, 409):
                raise

    async def report_extended(self, pod: PodInfo, status: PodExtendedResourceClaimStatus) -> None:
        """PATCH ``status.extendedResourceClaimStatus`` of the pod."""
        body = {"metadata": {"uid": pod.uid}, "status": {"extendedResourceClaimStatus": msgspec.to_builtins(status)}}
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status"
        await self._transport.request("PATCH", path, _encode(body), content_type=STRATEGIC_MERGE_PATCH)


def _collection(namespace: str) -> str:
    return f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"


def _path(claim: ResourceClaim) -> str:
    return f"{_collection(claim.metadata.namespace)}/{claim.metadata.name}"
