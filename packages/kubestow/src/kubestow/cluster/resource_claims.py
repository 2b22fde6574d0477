"""Allocated devices: the allocations of resource claims, observed or ahead of the API server (semantics 8.16).

An allocation is *pending* from Reserve until it is written, or until its pod is unreserved; neither the devices nor the
claim are available to other pods meanwhile, except that the pods of a group share the allocation. A claim that has been
*written* is known in that state until the watch confirms it. The tracker subscribes to the claims of the cluster; an
event costs as much as the devices of its claim.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

from kubestow.api.formats.quantity import nanos
from kubestow.api.resource import (
    EXTENDED_RESOURCE_CLAIM,
    AllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from kubestow.cluster.changes.catalog import Catalog
from kubestow.cluster.pods.caches import BoundedCache

#: Versions of up to this many pools are kept even if nothing is allocated from them.
_FEW_POOLS = 1024
#: So many changes of pools are remembered.
_KEPT_CHANGES = 4096
#: So many deleted claims are remembered.
_KEPT_DELETIONS = 4096


class DeviceID(NamedTuple):
    """The identity of a device."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class AllocatedDevices:
    """The devices that counted allocations hold, and a version per pool that grows with every change of them."""

    def __init__(self) -> None:
        self._dedicated: Counter[DeviceID] = Counter()
        self._shares: Counter[DeviceID] = Counter()
        self._consumed: dict[DeviceID, Counter[str]] = {}
        self._pool_versions: dict[tuple[str, str], int] = {}
        #: The version of pools that have none of their own.
        self._floor = 0
        #: Grows with every change of an allocation.
        self.version = 0
        self._most_versions = _FEW_POOLS
        #: The latest changes, oldest first: version and pool.
        self._changes: deque[tuple[int, tuple[str, str]]] = deque(maxlen=_KEPT_CHANGES)

    def is_allocated(self, device: DeviceID) -> bool:
        """Whether a device is allocated to a claim exclusively."""
        return device in self._dedicated

    def is_shared(self, device: DeviceID) -> bool:
        """Whether shares of a device are allocated."""
        return device in self._shares

    def consumed_capacity(self, device: DeviceID) -> Mapping[str, int] | None:
        """The capacities that the shares of a device consume, in nano units; None without shares."""
        return self._consumed.get(device)

    def pool_version(self, driver: str, pool: str) -> int:
        """A number that grows with every change of the allocations of a pool's devices."""
        return self._pool_versions.get((driver, pool), self._floor)

    def pools_changed_since(self, version: int) -> set[tuple[str, str]] | None:
        """The pools (driver and name) with changed allocations since a version; None if that is too long ago."""
        pools: set[tuple[str, str]] = set()
        for changed_at, pool in reversed(self._changes):
            if changed_at <= version:
                return pools
            pools.add(pool)
        return pools if len(self._changes) < _KEPT_CHANGES else None

    def count(self, allocation: AllocationResult, sign: int) -> None:
        """Count an allocation (+1), or no longer (-1)."""
        results = [each for each in allocation.devices.results if not each.admin_access]  # that allocates no device
        for driver, pool in {(result.driver, result.pool): None for result in results}:
            self._change(driver, pool)
        for result in results:
            device = DeviceID(result.driver, result.pool, result.device)
            if result.share_id is None:
                _add_to(self._dedicated, device, sign)
            else:
                _add_to(self._shares, device, sign)
                self._consume(device, result, sign)

    def _change(self, driver: str, pool: str) -> None:
        self.version += 1
        self._pool_versions[driver, pool] = self.version
        self._changes.append((self.version, (driver, pool)))
        if len(self._pool_versions) > self._most_versions:
            self._prune_versions()

    def _prune_versions(self) -> None:
        """Drop the versions of pools without allocations; a higher floor takes their place."""
        allocated = {(device.driver, device.pool) for device in (*self._dedicated, *self._shares)}
        self._pool_versions = {pool: v for pool, v in self._pool_versions.items() if pool in allocated}
        self._most_versions = max(_FEW_POOLS, 2 * len(self._pool_versions))
        self.version += 1
        self._floor = self.version

    def _consume(self, device: DeviceID, result: DeviceRequestAllocationResult, sign: int) -> None:
        if device not in self._shares:
            self._consumed.pop(device, None)
            return
        consumed = self._consumed.setdefault(device, Counter())
        for name, quantity in result.consumed_capacity.items():
            consumed[name] += sign * nanos(quantity)


@dataclass(slots=True)
class _Pending:
    """A claim with the allocation that is about to be written, by how many pods, and the groups that share it."""

    claim: ResourceClaim
    groups: AbstractSet[Hashable]
    shares: int = 1


class ResourceClaimTracker:
    """The resource claims of a cluster and the devices allocated to them."""

    def __init__(self, catalog: Catalog[ResourceClaim]) -> None:
        self._catalog = catalog
        self._pending: dict[str, _Pending] = {}
        self._written: dict[str, ResourceClaim] = {}
        #: The uids of the claims deleted last: the response to an earlier write may arrive after the watch event.
        self._deleted: BoundedCache[str, bool] = BoundedCache(_KEPT_DELETIONS)
        #: The observed allocations by the uid of their claim.
        self._observed: dict[str, AllocationResult] = {}
        #: The allocation with which each claim counts, by the claim's uid.
        self._counted: dict[str, AllocationResult] = {}
        self.devices = AllocatedDevices()
        #: The claims for extended resources (namespace and name), by the uid of the pod that owns them.
        self._extended: dict[str, tuple[str, str]] = {}
        catalog.subscribe(self._changed)

    # -- reading -------------------------------------------------------------------------------------------------

    def get(self, namespace: str, name: str) -> ResourceClaim | None:
        """A claim as last observed or written, None when there is none of that name."""
        claim = self._catalog.get(namespace, name)
        return None if claim is None else self._written.get(claim.metadata.uid, claim)

    def has_pending_allocation(self, uid: str) -> bool:
        """Whether an allocation of a claim is about to be written."""
        return uid in self._pending

    def shared_allocation(self, uid: str, groups: AbstractSet[Hashable]) -> ResourceClaim | None:
        """A claim with its pending allocation, if pods of one of these groups share that."""
        pending = self._pending.get(uid)
        return None if pending is None or pending.groups.isdisjoint(groups) else pending.claim

    def pending_allocations(self) -> Iterator[ResourceClaim]:
        """The claims with an allocation that is about to be written, in which they have it."""
        return (pending.claim for pending in self._pending.values())

    def extended_resource_claim(self, pod_uid: str) -> ResourceClaim | None:
        """The claim created for the extended resources of a pod, in this attempt or an earlier one."""
        key = self._extended.get(pod_uid)
        return None if key is None else self.get(*key)

    # -- writing -------------------------------------------------------------------------------------------------

    def signal_pending_allocation(self, claim: ResourceClaim, groups: AbstractSet[Hashable] = frozenset()) -> None:
        """Count a claim with the allocation that is about to be written for a placed pod, which is in some groups."""
        self._pending[claim.metadata.uid] = _Pending(claim, groups)
        self._count(claim.metadata.uid)

    def share_pending_allocation(self, uid: str) -> None:
        """Keep a pending allocation for one more pod."""
        self._pending[uid].shares += 1

    def remove_pending_allocation(self, uid: str) -> bool:
        """Stop counting a pending allocation, written or not, for one pod; whether there was one."""
        pending = self._pending.get(uid)
        if pending is None:
            return False
        pending.shares -= 1
        if not pending.shares:
            del self._pending[uid]
            self._count(uid)
        return True

    def assume_after_api_call(self, claim: ResourceClaim) -> None:
        """Record the state of a claim that the API server returned for a write, unless it has been deleted since."""
        uid = claim.metadata.uid
        if self._deleted.get(uid):
            return
        observed = self._catalog.get(claim.metadata.namespace, claim.metadata.name)
        if observed is None or observed.metadata.uid != uid or _version(observed) < _version(claim):
            self._written[uid] = claim
        self._count(uid)

    def assume_deleted(self, claim: ResourceClaim) -> None:
        """Record that the API server has accepted the deletion of a claim."""
        self._written.pop(claim.metadata.uid, None)
        self._count(claim.metadata.uid)

    def _changed(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._remove(old)
        if new is not None:
            self._put(new)

    def _put(self, claim: ResourceClaim) -> None:
        uid = claim.metadata.uid
        self._deleted.discard(uid)
        written = self._written.get(uid)
        if written is not None and _version(claim) >= _version(written):
            del self._written[uid]
        for owner in _owners_of_extended(claim):
            self._extended[owner] = (claim.metadata.namespace, claim.metadata.name)
        if claim.status.allocation is not None:
            self._observed[uid] = claim.status.allocation
        else:
            self._observed.pop(uid, None)
        self._count(uid)

    def _remove(self, claim: ResourceClaim) -> None:
        uid = claim.metadata.uid
        self._deleted.put(uid, True)
        self._written.pop(uid, None)
        self._observed.pop(uid, None)
        for owner in _owners_of_extended(claim):
            self._extended.pop(owner, None)
        self._count(uid)

    # -- counting ------------------------------------------------------------------------------------------------

    def _count(self, uid: str) -> None:
        """Count the current allocation of a claim instead of the one counted so far."""
        pending = self._pending.get(uid)
        assumed = self._written.get(uid) if pending is None else pending.claim
        now = self._observed.get(uid) if assumed is None else assumed.status.allocation
        before = self._counted.get(uid)
        if before is now:
            return
        if before is not None:
            self.devices.count(before, -1)
        if now is None:
            self._counted.pop(uid, None)
            return
        self._counted[uid] = now
        self.devices.count(now, +1)


def _add_to(counter: Counter[DeviceID], device: DeviceID, sign: int) -> None:
    counter[device] += sign
    if not counter[device]:
        del counter[device]


def _owners_of_extended(claim: ResourceClaim) -> Iterator[str]:
    if claim.metadata.annotations.get(EXTENDED_RESOURCE_CLAIM) == "true":
        yield from (owner.uid for owner in claim.metadata.owner_references if owner.controller)


def _version(claim: ResourceClaim) -> int:
    """The resource version as a number; within one collection it grows with every write."""
    version = claim.metadata.resource_version
    return int(version) if version.isdigit() else 0
