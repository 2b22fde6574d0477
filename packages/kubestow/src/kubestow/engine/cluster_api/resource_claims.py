"""In-memory ResourceClaims: writes of plugins take effect immediately."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from kubestow.api.core import PodExtendedResourceClaimStatus
from kubestow.api.meta import convert
from kubestow.api.resource import ResourceClaim
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.cluster_api.object_writes import check_preconditions
from kubestow.errors import APIError
from kubestow.scheduling.events.resources import resource_of

__all__ = ["InMemoryResourceClaims", "ResourceClaimStore", "run_synchronously"]

Object = dict[str, Any]
T = TypeVar("T")

_CLAIMS = resource_of(ResourceClaim)
_DELETE_FROM = "$deleteFromPrimitiveList/"
#: The merge keys of lists in a strategic merge patch; of other lists, only finalizers are merged.
_MERGE_KEYS = {"reservedFor": "uid"}


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
        preconditions = patch.get("metadata", {})
        check_preconditions(
            _CLAIMS,
            current.metadata,
            uid=preconditions.get("uid", ""),
            resource_version=preconditions.get("resourceVersion", ""),
        )
        parts = {subresource, "metadata"} if subresource else set(patch) - {"status"}
        change = {part: value for part, value in patch.items() if part in parts}
        patched = convert(ResourceClaim, _merged(msgspec.to_builtins(current), change))
        self._store.put(patched)
        return await self.read(claim.metadata.namespace, claim.metadata.name)

    async def delete(self, claim: ResourceClaim) -> None:
        """Delete a claim immediately, regardless of finalizers."""
        self._store.remove(claim.metadata.namespace, claim.metadata.name)

    async def report_extended(self, pod: PodInfo, status: PodExtendedResourceClaimStatus) -> None:
        """Store the status in ``extended``."""
        self.extended[pod.uid] = status


def run_synchronously(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends and return its result. Raises RuntimeError if it suspends."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise RuntimeError("the coroutine suspended")


def _merged(current: Object, patch: Mapping[str, Any]) -> Object:
    """Apply a strategic merge patch, with the features that ResourceClaims need."""
    merged = dict(current)
    for key, value in patch.items():
        if key.startswith(_DELETE_FROM):
            name = key.removeprefix(_DELETE_FROM)
            merged[name] = [item for item in merged.get(name, []) if item not in value]
        elif value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            merged[key] = _merged(merged.get(key) or {}, value)
        elif key in _MERGE_KEYS:
            merged[key] = _merged_by(_MERGE_KEYS[key], merged.get(key) or [], value)
        elif key == "finalizers":
            merged[key] = list(dict.fromkeys([*merged.get(key, []), *value]))
        else:
            merged[key] = value
    return merged


def _merged_by(key: str, items: list[Object], patch: list[Object]) -> list[Object]:
    by_key = {item[key]: item for item in items}
    for change in patch:
        if change.get("$patch") == "delete":
            by_key.pop(change[key], None)
        else:
            by_key[change[key]] = by_key.get(change[key], {}) | change
    return list(by_key.values())
