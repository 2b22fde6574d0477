"""Writes what was decided into claims: allocations, reservations, and what takes them back (semantics 8.16, PreBind).

Every change is a small patch with a precondition. When somebody else was faster, the claim is read again and the change
is tried on what it is now; when an answer is lost, the claim is read until it is known what became of it. What takes a
claim back runs in the background, and until it has ended the claim cannot be used again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec

from kubestow.api.core import PodExtendedResourceClaimStatus
from kubestow.api.resource import EXTENDED_RESOURCE_CLAIM, FINALIZER, AllocationResult, ResourceClaim
from kubestow.api.timestamps import timestamp
from kubestow.cluster.devices.claims import ClaimLedger
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import APIError, Unreachable
from kubestow.framework.interface import Handle
from kubestow.plugins.dynamic_resources.extended_resources import IN_MEMORY, NodeClaim

__all__ = ["ClaimChanges", "NotWritten"]

_TRIES = 5
_CONFLICT = 409


class NotWritten(Exception):
    """A claim could not be written; the text names it and says why."""


class ClaimChanges:
    """Changes to claims through the API; the ledger is told what was accepted."""

    def __init__(self, handle: Handle, *, timestamps: bool) -> None:
        self._handle = handle
        self._timestamps = timestamps
        #: How many writes are on their way that take a claim back, by its uid.
        self._returning: Counter[str] = Counter()
        #: Claims that may have been taken back or not.
        self._doubtful: set[str] = set()

    @property
    def _ledger(self) -> ClaimLedger:
        return self._handle.cluster.claims

    async def reserve(self, claim: ResourceClaim, pod: PodInfo, allocation: AllocationResult | None) -> ResourceClaim:
        """Reserve a claim for a pod, with its allocation unless it has one. Raises NotWritten."""
        what = "reservation" if allocation is None else "allocation and reservation"

        async def once(current: ResourceClaim) -> ResourceClaim:
            self._check(current, allocation)
            if allocation is not None and FINALIZER not in current.metadata.finalizers:
                change = _preconditions(current)
                change["metadata"]["finalizers"] = [FINALIZER]
                current = await self._named(
                    f"add finalizer to claim {current.key}", self._handle.resource_claims.patch(current, change)
                )
            change = _preconditions(current) | {"status": self._reservation(current, pod, allocation)}
            patching = self._handle.resource_claims.patch(current, change, subresource="status")
            try:
                return await self._named(f"add {what} to claim {current.key}", patching)
            except NotWritten as error:
                found = await self._read(current) if _in_doubt(error.__cause__) else current
                if not found.is_reserved_for(pod.uid) or found.status.allocation is None:
                    raise
                return found

        written = await self._until_no_conflict(claim, once)
        self._ledger.wrote(written)
        return written

    @staticmethod
    def _check(claim: ResourceClaim, allocation: AllocationResult | None) -> None:
        """What may have happened to a claim since its pod was placed."""
        if claim.metadata.deletion_timestamp is not None:
            raise NotWritten(f"claim {claim.key} got deleted in the meantime")
        if allocation is not None and claim.status.allocation is not None:
            raise NotWritten(f"claim {claim.key} got allocated elsewhere in the meantime")
        if allocation is None and claim.status.allocation is None:
            raise NotWritten(f"claim {claim.key} got deallocated elsewhere in the meantime")

    def _reservation(self, claim: ResourceClaim, pod: PodInfo, allocation: AllocationResult | None) -> dict[str, Any]:
        status: dict[str, Any] = {"reservedFor": [{"resource": "pods", "name": pod.name, "uid": pod.uid}]}
        if allocation is not None:
            status["allocation"] = msgspec.to_builtins(allocation)
        held = allocation or claim.status.allocation
        if self._timestamps and held is not None and not held.allocation_timestamp:
            now = timestamp(self._handle.now())
            status.setdefault("allocation", {})["allocationTimestamp"] = now
        return status

    async def _until_no_conflict(
        self, claim: ResourceClaim, once: Callable[[ResourceClaim], Awaitable[ResourceClaim]]
    ) -> ResourceClaim:
        for _ in range(_TRIES - 1):
            try:
                return await once(claim)
            except NotWritten as error:
                if not isinstance(error.__cause__, APIError) or error.__cause__.code != _CONFLICT:
                    raise
            claim = await self._read(claim)
        return await once(claim)

    async def _read(self, claim: ResourceClaim) -> ResourceClaim:
        """The claim as the server has it. Raises NotWritten."""
        reading = self._handle.resource_claims.read
        asking = self._handle.retry_until_answered(
            f"claim {claim.key}", lambda: reading(claim.metadata.namespace, claim.metadata.name)
        )
        return await self._named(f"get updated claim {claim.key} after conflict", asking)

    @staticmethod
    async def _named(what: str, writing: Awaitable[ResourceClaim]) -> ResourceClaim:
        try:
            return await writing
        except (APIError, Unreachable) as error:
            raise NotWritten(f"{what}: {error}") from error

    # -- giving back ---------------------------------------------------------------------------------------------

    async def settled(self, claim: ResourceClaim) -> ResourceClaim:
        """The claim as it is now. Raises NotWritten while it is being taken back, perhaps from the very pod."""
        uid = claim.metadata.uid
        if uid in self._returning:
            raise NotWritten(f"claim {claim.key} is in the process of being given back")
        if uid in self._doubtful:
            self._ledger.wrote(await self._read(claim))
            self._doubtful.discard(uid)
        return self._ledger.get(claim.metadata.namespace, claim.metadata.name) or claim

    def hold(self, uid: str) -> None:
        """From now on until :meth:`let_go` nobody uses a claim: it is still being written, only to be given back."""
        self._returning[uid] += 1

    def let_go(self, uid: str) -> None:
        """A claim can be used again, as soon as nothing takes it back any more."""
        self._returning[uid] -= 1
        if not self._returning[uid]:
            del self._returning[uid]

    def give_back(self, claim: ResourceClaim, pod: PodInfo, *, is_extended: bool) -> None:
        """Have what was written of a claim for a pod taken back some time soon."""
        if is_extended:
            if claim.metadata.name != IN_MEMORY:
                self._handle.spawn(self.delete(claim))
        elif claim.status.allocation is not None and claim.is_reserved_for(pod.uid):
            self._handle.spawn(self.release(claim, pod))

    def release(self, claim: ResourceClaim, pod: PodInfo) -> Coroutine[Any, Any, None]:
        """A pod no longer needs a claim. Raises APIError or Unreachable."""
        metadata = {"uid": claim.metadata.uid}
        change = {"metadata": metadata, "status": {"reservedFor": [{"$patch": "delete", "uid": pod.uid}]}}
        return self._returned(claim, change)

    def deallocate(self, claim: ResourceClaim) -> Coroutine[Any, Any, None]:
        """Take a claim's devices back. Raises APIError or Unreachable."""
        status = {"allocation": None, "reservedFor": None, "devices": None}
        return self._returned(claim, _preconditions(claim) | {"status": status})

    def _returned(self, claim: ResourceClaim, change: dict[str, Any]) -> Coroutine[Any, Any, None]:
        """A change that takes a claim back, to be carried out; from now on until then nobody uses the claim."""
        uid = claim.metadata.uid
        self.hold(uid)

        async def carried_out() -> None:
            try:
                self._ledger.wrote(await self._handle.resource_claims.patch(claim, change, subresource="status"))
            except (APIError, Unreachable) as error:
                if error.in_doubt:
                    self._doubtful.add(uid)
                raise
            finally:
                self.let_go(uid)

        return carried_out()

    async def delete(self, claim: ResourceClaim) -> None:
        """Delete a claim that a scheduler made. Raises APIError or Unreachable."""
        if FINALIZER in claim.metadata.finalizers:
            change = {"metadata": {"uid": claim.metadata.uid, "$deleteFromPrimitiveList/finalizers": [FINALIZER]}}
            claim = await self._handle.resource_claims.patch(claim, change)
        await self._handle.resource_claims.delete(claim)
        self._ledger.removed(claim)

    # -- extended resources --------------------------------------------------------------------------------------

    async def create_extended(self, pod: PodInfo, needed: NodeClaim) -> ResourceClaim:
        """Create the claim for a pod's extended resources. Raises NotWritten."""
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid, "controller": True}
        manifest = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {
                "generateName": f"{pod.name}-extended-resources-",
                "namespace": pod.namespace,
                "annotations": {EXTENDED_RESOURCE_CLAIM: "true"},
                "ownerReferences": [owner],
            },
            "spec": msgspec.to_builtins(needed.claim.spec),
        }
        creating = self._handle.resource_claims.create(pod.namespace, manifest)
        return await self._named(f"create claim for extended resources {needed.claim.key}", creating)

    async def report_extended(self, pod: PodInfo, claim: ResourceClaim, needed: NodeClaim) -> None:
        """Tell in the pod's status which claim stands for its extended resources. Raises NotWritten."""
        status = PodExtendedResourceClaimStatus(
            resource_claim_name=claim.metadata.name, request_mappings=list(needed.mappings)
        )
        try:
            await self._handle.resource_claims.report_extended(pod, status)
        except (APIError, Unreachable) as error:
            raise NotWritten(f"update pod {pod.key} ExtendedResourceClaimStatus: {error}") from error


def _preconditions(claim: ResourceClaim) -> dict[str, Any]:
    metadata = {"uid": claim.metadata.uid}
    if claim.metadata.resource_version:
        metadata["resourceVersion"] = claim.metadata.resource_version
    return {"metadata": metadata}


def _in_doubt(error: BaseException | None) -> bool:
    return isinstance(error, (APIError, Unreachable)) and error.in_doubt
