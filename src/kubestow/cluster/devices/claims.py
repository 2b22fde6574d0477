"""Which devices are taken: every claim's allocation, and what was decided ahead of the API server.

A claim's allocation is *pending* from the moment its pod is placed until it is written (or the pod is given up);
meanwhile nobody else may have the devices, nor the claim. Once *written* it counts as told by the API server, even if
the watch has not said so yet. The ledger follows the catalog of claims, so an event costs what its claim holds and not
more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kubestow.api.quantity import nanos
from kubestow.api.resource import (
    EXTENDED_RESOURCE_CLAIM,
    AllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from kubestow.cluster.catalog import Catalog

__all__ = ["DeviceID", "ResourceClaimTracker"]


class DeviceID(NamedTuple):
    """A device's identity in the cluster."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class ResourceClaimTracker:
    """The claims of a cluster and the devices they hold."""

    def __init__(self, catalog: Catalog[ResourceClaim]) -> None:
        self._catalog = catalog
        self._pending: dict[str, ResourceClaim] = {}
        self._written: dict[str, ResourceClaim] = {}
        #: The allocations that the catalog knows, by claim.
        self._observed: dict[str, AllocationResult] = {}
        #: The allocation that each claim (by uid) is counted with.
        self._counted: dict[str, AllocationResult] = {}
        self._dedicated: Counter[DeviceID] = Counter()
        self._shares: Counter[DeviceID] = Counter()
        self._consumed: dict[DeviceID, Counter[str]] = {}
        self._changes: Counter[tuple[str, str]] = Counter()
        #: Claims for extended resources by the uid of the pod that owns them.
        self._extended: dict[str, tuple[str, str]] = {}
        catalog.follow(self._changed)

    # -- reading -------------------------------------------------------------------------------------------------

    def get(self, namespace: str, name: str) -> ResourceClaim | None:
        """A claim as it is known to be written, None when there is none of that name."""
        claim = self._catalog.get(namespace, name)
        return None if claim is None else self._written.get(claim.metadata.uid, claim)

    def has_pending_allocation(self, uid: str) -> bool:
        """Whether a claim is about to be allocated for a pod that has been placed."""
        return uid in self._pending

    def extended_resource_claim(self, pod_uid: str) -> ResourceClaim | None:
        """The claim that was made for a pod's extended resources, in this attempt or an earlier one."""
        key = self._extended.get(pod_uid)
        return None if key is None else self.get(*key)

    def is_allocated(self, device: DeviceID) -> bool:
        """Whether a claim has a device for itself."""
        return device in self._dedicated

    def is_shared(self, device: DeviceID) -> bool:
        """Whether claims have shares of a device."""
        return device in self._shares

    def consumed_capacity(self, device: DeviceID) -> Mapping[str, int] | None:
        """What shares of a device consume of its capacities, in nano units; None when there are none."""
        return self._consumed.get(device)

    def pool_version(self, driver: str, pool: str) -> int:
        """How often devices of a pool were taken or given back so far."""
        return self._changes[driver, pool]

    # -- writing -------------------------------------------------------------------------------------------------

    def signal_pending_allocation(self, claim: ResourceClaim) -> None:
        """A pod was placed, for which this claim, with its allocation, is going to be written."""
        self._pending[claim.metadata.uid] = claim
        self._count(claim.metadata.uid)

    def remove_pending_allocation(self, uid: str) -> bool:
        """The promise is over, kept or not; whether there was one."""
        pending = self._pending.pop(uid, None)
        self._count(uid)
        return pending is not None

    def assume_after_api_call(self, claim: ResourceClaim) -> None:
        """The API server accepted this state of a claim."""
        uid = claim.metadata.uid
        known = self._catalog.get(claim.metadata.namespace, claim.metadata.name)
        if known is None or known.metadata.uid != uid or _version(known) < _version(claim):
            self._written[uid] = claim
        self._count(uid)

    def assume_deleted(self, claim: ResourceClaim) -> None:
        """The API server accepted the deletion of a claim."""
        self._written.pop(claim.metadata.uid, None)
        self._count(claim.metadata.uid)

    def _changed(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._gone(old)
        if new is not None:
            self._there(new)

    def _there(self, claim: ResourceClaim) -> None:
        uid = claim.metadata.uid
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

    def _gone(self, claim: ResourceClaim) -> None:
        uid = claim.metadata.uid
        self._written.pop(uid, None)
        self._observed.pop(uid, None)
        for owner in _owners_of_extended(claim):
            self._extended.pop(owner, None)
        self._count(uid)

    # -- counting ------------------------------------------------------------------------------------------------

    def _count(self, uid: str) -> None:
        """Count a claim with the allocation it has now instead of the one it had."""
        before, now = self._counted.get(uid), self._allocation(uid)
        if before is now:
            return
        if before is not None:
            self._add(before, -1)
        if now is None:
            self._counted.pop(uid, None)
            return
        self._counted[uid] = now
        self._add(now, +1)

    def _allocation(self, uid: str) -> AllocationResult | None:
        ahead = self._pending.get(uid) or self._written.get(uid)
        return self._observed.get(uid) if ahead is None else ahead.status.allocation

    def _add(self, allocation: AllocationResult, sign: int) -> None:
        for result in allocation.devices.results:
            if result.admin_access:
                continue  # looks on, takes nothing
            device = DeviceID(result.driver, result.pool, result.device)
            self._changes[result.driver, result.pool] += 1
            if result.share_id is None:
                _add_to(self._dedicated, device, sign)
            else:
                _add_to(self._shares, device, sign)
                self._consume(device, result, sign)

    def _consume(self, device: DeviceID, result: DeviceRequestAllocationResult, sign: int) -> None:
        if device not in self._shares:
            self._consumed.pop(device, None)
            return
        consumed = self._consumed.setdefault(device, Counter())
        for name, quantity in result.consumed_capacity.items():
            consumed[name] += sign * nanos(quantity)


def _add_to(counter: Counter[DeviceID], device: DeviceID, sign: int) -> None:
    counter[device] += sign
    if not counter[device]:
        del counter[device]


def _owners_of_extended(claim: ResourceClaim) -> Iterator[str]:
    if claim.metadata.annotations.get(EXTENDED_RESOURCE_CLAIM) == "true":
        yield from (owner.uid for owner in claim.metadata.owner_references if owner.controller)


def _version(claim: ResourceClaim) -> int:
    """Resource versions of one collection are numbers that grow."""
    version = claim.metadata.resource_version
    return int(version) if version.isdigit() else 0
