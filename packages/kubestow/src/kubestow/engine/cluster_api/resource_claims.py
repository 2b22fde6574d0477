"""In-memory ResourceClaims: writes of plugins take effect immediately."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from kubestow.api.core import PodExtendedResourceClaimStatus
from kubestow.api.meta import convert
from kubestow.api.resource import ResourceClaim
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.cluster_api.object_writes import check_preconditions
from kubestow.errors import APIError
from kubestow.rules.patches import ANY_FIELD, FieldMerge, FieldTable, strategic_merge_patch
from kubestow.scheduling.events.resources import resource_of

_CLAIMS = resource_of(ResourceClaim)
_ANYTHING = ANY_FIELD.schema
_METADATA_SCHEMA = FieldTable(
    {"finalizers": FieldMerge(_ANYTHING, "merge"), "ownerReferences": FieldMerge(_ANYTHING, "merge", "uid")}
)
_STATUS_SCHEMA = FieldTable({"reservedFor": FieldMerge(_ANYTHING, "merge", "uid")})
#: How the fields of a ResourceClaim merge; ``devices`` and other lists are replaced.
_CLAIM_SCHEMA = FieldTable({"metadata": FieldMerge(_METADATA_SCHEMA), "status": FieldMerge(_STATUS_SCHEMA)})


class ResourceClaimStore(Protocol):
    """The storage of claims, such as a cluster's catalog."""

    def get(self, namespace: str, name: str) -> ResourceClaim | None:
        """The current claim, or None."""

    def put(self, obj: ResourceClaim, /) -> Any:
        """Create or replace a claim."""

    def remove(self, namespace: str, name: str, /) -> Any:
        """Remove a claim."""


class InMemoryResourceClaims:
    """A ResourceClaimWriter over a store; ``extended`` has the extendedResourceClaimStatus of pods by UID."""

    def __init__(self, store: ResourceClaimStore) -> None:
        self._store = store
        self._created = 0
        self.extended: dict[str, PodExtendedResourceClaimStatus] = {}

    async def read(self, namespace: str, name: str) -> ResourceClaim:
        """Read a claim. Raises APIError (404) if it does not exist."""
        claim = self._store.get(namespace, name)
        if claim is None:
            raise APIError(404, "NotFound", f'{_CLAIMS.qualified_name} "{name}" not found')
        return claim

    async def create(self, namespace: str, manifest: Mapping[str, Any]) -> ResourceClaim:
        """Create a claim; generated names have consecutive numbers instead of random suffixes."""
        self._created += 1
        metadata = dict(manifest["metadata"])
        name = metadata.get("name") or f"{metadata['generateName']}{self._created:05x}"
        metadata |= {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}"}
        claim = convert(ResourceClaim, {**manifest, "metadata": metadata})
        self._store.put(claim)
        return await self.read(namespace, name)

    async def patch(self, claim: ResourceClaim, patch: Mapping[str, Any], *, subresource: str = "") -> ResourceClaim:
        """Patch a claim. Raises APIError (404, 409) if it does not exist or a precondition fails."""
        current = await self.read(claim.metadata.namespace, claim.metadata.name)
        given = patch.get("metadata", {})
        uid, resource_version = given.get("uid", ""), given.get("resourceVersion", "")
        check_preconditions(_CLAIMS, current.metadata, uid=uid, resource_version=resource_version)
        parts = {subresource, "metadata"} if subresource else set(patch) - {"status"}
        change = {part: value for part, value in patch.items() if part in parts}
        patched = convert(ResourceClaim, strategic_merge_patch(msgspec.to_builtins(current), change, _CLAIM_SCHEMA))
        self._store.put(patched)
        return await self.read(claim.metadata.namespace, claim.metadata.name)

    async def delete(self, claim: ResourceClaim) -> None:
        """Delete a claim immediately, regardless of finalizers."""
        self._store.remove(claim.metadata.namespace, claim.metadata.name)

    async def report_extended(self, pod: PodInfo, status: PodExtendedResourceClaimStatus) -> None:
        """Store the status in ``extended``."""
        self.extended[pod.uid] = status
