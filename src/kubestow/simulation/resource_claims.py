"""Claims on devices in memory: what plugins write is there at once."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from kubestow.api.core import PodExtendedResourceClaimStatus
from kubestow.api.meta import convert
from kubestow.api.resource import ResourceClaim
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import APIError

__all__ = ["ClaimStore", "ClaimsInMemory", "finished_at_once"]

Object = dict[str, Any]
T = TypeVar("T")

_DELETE_FROM = "$deleteFromPrimitiveList/"
#: What tells the entries of a list apart in a strategic merge; of other lists only finalizers are merged.
_MERGE_KEYS = {"reservedFor": "uid"}


class ClaimStore(Protocol):
    """Where the claims are kept: a cluster's catalog, or something alike."""

    def get(self, namespace: str, name: str) -> ResourceClaim | None:
        """A claim as it is now."""

    def put(self, obj: ResourceClaim, /) -> Any:
        """Keep a claim, new or changed."""

    def remove(self, namespace: str, name: str, /) -> Any:
        """Drop a claim."""


class ClaimsInMemory:
    """A ResourceClaimWriter over a store. What pods report of their extended resources is kept by their uid."""

    def __init__(self, store: ClaimStore) -> None:
        self._store = store
        self._created = 0
        self.extended: dict[str, PodExtendedResourceClaimStatus] = {}

    async def read(self, namespace: str, name: str) -> ResourceClaim:
        """Raises APIError for a claim that is not there."""
        claim = self._store.get(namespace, name)
        if claim is None:
            raise APIError(404, "NotFound", f'resourceclaims.resource.k8s.io "{name}" not found')
        return claim

    async def create(self, namespace: str, manifest: Mapping[str, Any]) -> ResourceClaim:
        """Names are counted up where a server would draw random ones."""
        self._created += 1
        metadata = dict(manifest["metadata"])
        name = metadata.get("name") or f"{metadata['generateName']}{self._created:05x}"
        metadata |= {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}"}
        claim = convert(ResourceClaim, {**manifest, "metadata": metadata})
        self._store.put(claim)
        return await self.read(namespace, name)

    async def patch(self, claim: ResourceClaim, patch: Mapping[str, Any], *, subresource: str = "") -> ResourceClaim:
        """Raises APIError for a claim that is not there, or not the same."""
        current = await self.read(claim.metadata.namespace, claim.metadata.name)
        wanted = patch.get("metadata", {})
        _require(claim, "uid", wanted.get("uid"), current.metadata.uid)
        _require(claim, "resourceVersion", wanted.get("resourceVersion"), current.metadata.resource_version)
        parts = {subresource, "metadata"} if subresource else set(patch) - {"status"}
        change = {part: value for part, value in patch.items() if part in parts}
        patched = convert(ResourceClaim, _merged(msgspec.to_builtins(current), change))
        self._store.put(patched)
        return await self.read(claim.metadata.namespace, claim.metadata.name)

    async def delete(self, claim: ResourceClaim) -> None:
        """Finalizers hold nothing back here."""
        self._store.remove(claim.metadata.namespace, claim.metadata.name)

    async def report_extended(self, pod: PodInfo, status: PodExtendedResourceClaimStatus) -> None:
        """Kept for whoever asks."""
        self.extended[pod.uid] = status


def finished_at_once(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never has to wait, as everything here is. Raises RuntimeError if it does."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise RuntimeError("it waits for something")


def _require(claim: ResourceClaim, what: str, wanted: str | None, found: str) -> None:
    if wanted and wanted != found:
        raise APIError(409, "Conflict", f'{what} of resourceclaim "{claim.metadata.name}" is {found}, not {wanted}')


def _merged(current: Object, patch: Mapping[str, Any]) -> Object:
    """The strategic merge of a patch, as far as claims need it."""
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
