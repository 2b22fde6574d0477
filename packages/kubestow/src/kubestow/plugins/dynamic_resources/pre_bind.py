"""PreBind: writes allocations and reservations into a pod's claims, then waits for binding conditions (semantics 8.16).

A claim keeps its pending allocation in the ledger until its write has ended. Unreserve can run while a write is in
progress, if the binding cycle is cancelled; the write is then undone afterwards.

Every update is a patch with preconditions. Pods that share a claim are bound at the same time, so their updates of it
take turns, each based on the result of the one before, and one patch reserves the claim for all pods that wait. After a
conflict with another client the claim is read and the update is tried again; after a lost response the claim is read to
find out whether the patch took effect. Updates that release a claim run in the background, and the claim cannot be
bound for any pod until they have ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from kubestow.api.core import PodExtendedResourceClaimStatus
from kubestow.api.formats.timestamps import timestamp
from kubestow.api.reports import EventType
from kubestow.api.resource import EXTENDED_RESOURCE_CLAIM, FINALIZER, AllocationResult, ResourceClaim
from kubestow.cluster.pods.pod_groups import KUBERNETES
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import APIError, Unreachable
from kubestow.framework.interface import Handle
from kubestow.framework.status import SUCCESS, Status
from kubestow.plugins.dynamic_resources.extended_resources import IN_MEMORY_CLAIM_NAME, ExtendedResourceClaim
from kubestow.plugins.dynamic_resources.filtering import (
    DeviceBindingFailed,
    DynamicResourcesState,
    binding_deadline,
    drivers_with_binding_conditions,
    has_binding_conditions,
    is_ready_for_binding,
)
from kubestow.plugins.dynamic_resources.requests import Features
from kubestow.rules.minors import Behaviour

_BINDING_CONDITIONS_PENDING = EventType(
    "BindingConditionsPending",
    "Scheduling",
    "waiting for binding conditions for device on node {node}",
    help="Before the pod is bound, the drivers have to report that its devices are ready.",
)
_MAX_TRIES = 5
_CONFLICT = 409
_DEVICE_BINDING_TIMEOUT = Status.error("device binding timeout")


class ClaimBinder:
    """Binds the claims of pods, of many pods concurrently.

    ``on_devices_freed`` is called when pending allocations are dropped after Unreserve, which no cluster event reports.
    """

    def __init__(
        self,
        handle: Handle,
        features: Features,
        updates: ClaimUpdates,
        *,
        binding_timeout: timedelta,
        on_devices_freed: Callable[[], None],
    ) -> None:
        self._handle = handle
        self._tracker = handle.cluster.resource_claims
        self._features = features
        self._updates = updates
        self._binding_timeout = binding_timeout
        self._on_devices_freed = on_devices_freed
        self._names_claim_last = handle.emulates(Behaviour.DEVICE_BINDING_ERRORS_NAME_THE_CLAIM_LAST)

    async def bind(self, state: DynamicResourcesState, pod: PodInfo, node_name: str) -> Status | None:
        """Write the claims, then wait until their devices are ready for binding. None is success."""
        try:
            for index in range(len(state.claims)):
                state.claims[index] = await self._updates.latest(state.claims[index])
                if not state.claims[index].is_reserved_for(Consumer.of(pod, state, index).uid):
                    state.writing = index, state.claims[index].metadata.uid
                    await self._handle.shield(self._write(state, index, pod))
        except ClaimUpdateFailed as error:
            return Status.error(str(error))
        if self._features.binding_conditions and any(map(has_binding_conditions, state.claims)):
            event = _BINDING_CONDITIONS_PENDING
            self._handle.record(pod, reason=event.reason, action=event.action, note=event.note.format(node=node_name))
            return await self._wait_for_devices(state, pod)
        return None

    # -- claims ----------------------------------------------------------------------------------------------------

    async def _write(self, state: DynamicResourcesState, index: int, pod: PodInfo) -> None:
        """Write one claim and drop its pending allocation. Raises ClaimUpdateFailed.

        Runs to its end even if the binding cycle is cancelled: the write may take effect after Unreserve, so only then
        the pending allocation is dropped and the write is undone.
        """
        uid = state.claims[index].metadata.uid
        try:
            await self._create_and_bind(state, index, pod)
        finally:
            state.writing = None
            if uid in state.pending_allocations:
                state.pending_allocations.remove(uid)
                self._tracker.remove_pending_allocation(uid)
            if state.release_after_write is not None:
                is_extended = index == state.extended_index
                if uid not in state.groups:
                    self._updates.undo_in_background(state.claims[index], pod, is_extended=is_extended)
                self._updates.end_release(state.release_after_write)
                self._on_devices_freed()

    async def _create_and_bind(self, state: DynamicResourcesState, index: int, pod: PodInfo) -> None:
        claim, allocation = state.claims[index], state.allocations.get(index)
        extended = state.extended_claim if index == state.extended_index else None
        if index == state.extended_index and allocation is None:
            return  # the node offers the resources itself
        if extended is not None and claim.metadata.name == IN_MEMORY_CLAIM_NAME:
            claim = state.claims[index] = await self._updates.create_extended(pod, extended)
        if state.release_after_write is not None:
            return
        is_shared = index in state.shared
        consumer = Consumer.of(pod, state, index)
        state.claims[index] = await self._updates.bind(claim, consumer, allocation, is_shared=is_shared)
        if extended is not None and state.release_after_write is None:
            await self._updates.report_extended(pod, state.claims[index], extended)

    # -- binding conditions ----------------------------------------------------------------------------------------

    async def _wait_for_devices(self, state: DynamicResourcesState, pod: PodInfo) -> Status:
        """Wait until all claims are ready for binding; reports the duration and the result for each driver."""
        drivers, start, outcome = drivers_with_binding_conditions(state.claims), self._handle.now(), "error"
        try:
            deadlines = (binding_deadline(claim, self._binding_timeout) for claim in state.claims)
            remaining = [(moment - start).total_seconds() for moment in deadlines if moment is not None]
            timeout = max(0.0, min((self._binding_timeout.total_seconds(), *remaining)))
            status = await self._handle.wait_for(lambda: self._check_devices(state), timeout)
            outcome = "timeout" if status is None else "success" if status.ok else "failure"
        finally:
            seconds = max(0.0, (self._handle.now() - start).total_seconds())
            for driver in drivers:
                self._handle.device_wait_ended(pod, driver, outcome, seconds)
        return _DEVICE_BINDING_TIMEOUT if status is None else status

    def _check_devices(self, state: DynamicResourcesState) -> Status | None:
        """SUCCESS if all claims are ready for binding, None if one is not, an error if one before that has failed.

        A claim that was ready, and has not changed, is not looked at again: a pod may have thousands of claims, each of
        them with several events.
        """
        was_ready, state.ready_claims = state.ready_claims, 0
        for index, before in enumerate(state.claims):
            claim = self._tracker.get(before.metadata.namespace, before.metadata.name) or before
            if index >= was_ready or claim is not before:
                state.claims[index] = claim
                try:
                    if claim.status.allocation is not None and not is_ready_for_binding(claim):
                        return None
                except DeviceBindingFailed as error:
                    return Status.error(str(error) if self._names_claim_last else error.former)
            state.ready_claims += 1
        return SUCCESS


# -- writing single claims -----------------------------------------------------------------------------------------


class ClaimUpdateFailed(Exception):
    """A claim could not be written; the text names the claim and the problem."""


@dataclass(frozen=True, slots=True)
class Consumer:
    """What a claim is reserved for: a pod, or the pod group whose claim it is."""

    name: str
    uid: str
    resource: str = "pods"
    api_group: str = ""

    @classmethod
    def of(cls, pod: PodInfo, state: DynamicResourcesState, index: int) -> Consumer:
        """The consumer of a claim of a pod."""
        group = state.groups.get(state.claims[index].metadata.uid)
        if group is None:
            return cls(pod.name, pod.uid)
        return cls(group.metadata.name, group.metadata.uid, "podgroups", KUBERNETES.name)

    @property
    def reference(self) -> dict[str, str]:
        """The entry of ``status.reservedFor``."""
        of_group = {"apiGroup": self.api_group} if self.api_group else {}
        return of_group | {"resource": self.resource, "name": self.name, "uid": self.uid}


@dataclass(slots=True, weakref_slot=True, eq=False)
class _Turns:
    """The updates of one claim: the lock of the one in progress, and the consumers that wait for a reservation."""

    lock: AbstractAsyncContextManager[Any]
    waiting: dict[str, Consumer] = field(default_factory=dict)


class ClaimUpdates:
    """Updates claims and records in the ledger what the API server has accepted.

    With ``allocation_timestamps``, allocations get the time at which they are written.
    """

    def __init__(self, handle: Handle, *, allocation_timestamps: bool) -> None:
        self._handle = handle
        self._tracker = handle.cluster.resource_claims
        self._allocation_timestamps = allocation_timestamps
        #: By the uid of the claim, as long as any update is in progress or waits.
        self._turns: WeakValueDictionary[str, _Turns] = WeakValueDictionary()
        #: The number of running updates that release a claim, by uid.
        self._releasing: Counter[str] = Counter()
        #: The uids of claims whose release got no response.
        self._unconfirmed: set[str] = set()

    # -- binding ---------------------------------------------------------------------------------------------------

    async def bind(
        self, claim: ResourceClaim, consumer: Consumer, allocation: AllocationResult | None, *, is_shared: bool = False
    ) -> ResourceClaim:
        """Reserve a claim and, unless it is None, write its allocation. Raises ClaimUpdateFailed.

        An allocation that ``is_shared`` with other pods is written by the first of them.
        """
        turns = self._turns.setdefault(claim.metadata.uid, _Turns(self._handle.lock()))
        joins_others = allocation is None or is_shared
        if joins_others:
            turns.waiting[consumer.uid] = consumer
        try:
            async with turns.lock:
                known = self._tracker.get(claim.metadata.namespace, claim.metadata.name)
                if joins_others and known is not None and known.is_reserved_for(consumer.uid):
                    return known  # by the patch of another pod
                latest = await self.latest(claim)
                waiting = turns.waiting.items()
                others = [c for uid, c in waiting if uid != consumer.uid and not latest.is_reserved_for(uid)]
                if joins_others and others:
                    try:
                        return await self._bind(
                            latest, [consumer, *others], _unless_written(allocation, latest, is_shared)
                        )
                    except ClaimUpdateFailed:
                        latest = await self.latest(claim)  # the cause may be another pod
                return await self._bind(latest, [consumer], _unless_written(allocation, latest, is_shared))
        finally:
            turns.waiting.pop(consumer.uid, None)

    async def _bind(
        self, claim: ResourceClaim, consumers: Sequence[Consumer], allocation: AllocationResult | None
    ) -> ResourceClaim:
        """Try :meth:`_bind_once` again after conflicts with other clients."""
        for _ in range(_MAX_TRIES - 1):
            try:
                return await self._bind_once(claim, consumers, allocation)
            except ClaimUpdateFailed as error:
                if not isinstance(error.__cause__, APIError) or error.__cause__.code != _CONFLICT:
                    raise
            await self._handle.pause_after_conflict()
            claim = await self._read(claim)
        return await self._bind_once(claim, consumers, allocation)

    async def _bind_once(
        self, claim: ResourceClaim, consumers: Sequence[Consumer], allocation: AllocationResult | None
    ) -> ResourceClaim:
        _check_unchanged(claim, allocation)
        if allocation is not None and FINALIZER not in claim.metadata.finalizers:
            patch = _preconditions(claim)
            patch["metadata"]["finalizers"] = [FINALIZER]
            adding = self._handle.resource_claims.patch(claim, patch)
            claim = await _with_context(f"add finalizer to claim {claim.key}", adding)
        patch = _preconditions(claim) | {"status": self._bound_status(claim, consumers, allocation)}
        try:
            written = await self._handle.resource_claims.patch(claim, patch, subresource="status")
        except (APIError, Unreachable) as error:
            written = await self._read(claim) if error.in_doubt else claim
            if (
                not all(written.is_reserved_for(consumer.uid) for consumer in consumers)
                or written.status.allocation is None
            ):
                what = "reservation" if allocation is None else "allocation and reservation"
                raise ClaimUpdateFailed(f"add {what} to claim {claim.key}: {error}") from error
        self._tracker.assume_after_api_call(written)
        return written

    def _bound_status(
        self, claim: ResourceClaim, consumers: Sequence[Consumer], allocation: AllocationResult | None
    ) -> dict[str, Any]:
        status: dict[str, Any] = {"reservedFor": [consumer.reference for consumer in consumers]}
        if allocation is not None:
            status["allocation"] = msgspec.to_builtins(allocation)
        bound = allocation or claim.status.allocation
        if self._allocation_timestamps and bound is not None and bound.allocation_timestamp is None:
            now = timestamp(self._handle.now())
            status.setdefault("allocation", {})["allocationTimestamp"] = now
        return status

    async def _read(self, claim: ResourceClaim) -> ResourceClaim:
        """The claim in the API; retries until there is a response. Raises ClaimUpdateFailed."""
        names = claim.metadata.namespace, claim.metadata.name
        reading = self._handle.retry_until_answered(
            f"claim {claim.key}", lambda: self._handle.resource_claims.read(*names)
        )
        return await _with_context(f"get updated claim {claim.key} after conflict", reading)

    # -- releasing -------------------------------------------------------------------------------------------------

    async def latest(self, claim: ResourceClaim) -> ResourceClaim:
        """The latest known state of a claim. Raises ClaimUpdateFailed while the claim is being released."""
        uid = claim.metadata.uid
        if uid in self._releasing:
            raise ClaimUpdateFailed(f"claim {claim.key} is in the process of being released")
        if uid in self._unconfirmed:
            self._tracker.assume_after_api_call(await self._read(claim))
            self._unconfirmed.discard(uid)
        return self._tracker.get(claim.metadata.namespace, claim.metadata.name) or claim

    def begin_release(self, uid: str) -> None:
        """Exclude a claim from binding until :meth:`end_release`."""
        self._releasing[uid] += 1

    def end_release(self, uid: str) -> None:
        """End one :meth:`begin_release`."""
        self._releasing[uid] -= 1
        if not self._releasing[uid]:
            del self._releasing[uid]

    def undo_in_background(self, claim: ResourceClaim, pod: PodInfo, *, is_extended: bool) -> None:
        """Undo what :meth:`bind` wrote for a pod: remove the reservation, or delete an extended resource claim."""
        if is_extended:
            if claim.metadata.name != IN_MEMORY_CLAIM_NAME:
                self._handle.spawn(self.delete(claim))
        elif claim.status.allocation is not None and claim.is_reserved_for(pod.uid):
            status = {"reservedFor": [{"$patch": "delete", "uid": pod.uid}]}
            self._handle.spawn(self._released_by(claim, {"metadata": {"uid": claim.metadata.uid}, "status": status}))

    def deallocate(self, claim: ResourceClaim) -> Coroutine[Any, Any, None]:
        """Clear allocation, reservations and device status of a claim. Raises APIError or Unreachable."""
        status = {"allocation": None, "reservedFor": None, "devices": None}
        return self._released_by(claim, _preconditions(claim) | {"status": status})

    def _released_by(self, claim: ResourceClaim, patch: dict[str, Any]) -> Coroutine[Any, Any, None]:
        """A coroutine that patches a claim; from this call on until the coroutine ends the claim cannot be bound."""
        uid = claim.metadata.uid
        self.begin_release(uid)

        async def release() -> None:
            try:
                self._tracker.assume_after_api_call(
                    await self._handle.resource_claims.patch(claim, patch, subresource="status")
                )
            except (APIError, Unreachable) as error:
                if error.in_doubt:
                    self._unconfirmed.add(uid)
                raise
            finally:
                self.end_release(uid)

        return release()

    # -- extended resource claims ----------------------------------------------------------------------------------

    async def create_extended(self, pod: PodInfo, extended: ExtendedResourceClaim) -> ResourceClaim:
        """Create the extended resource claim of a pod. Raises ClaimUpdateFailed."""
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
            "spec": msgspec.to_builtins(extended.claim.spec),
        }
        creating = self._handle.resource_claims.create(pod.namespace, manifest)
        return await _with_context(f"create claim for extended resources {extended.claim.key}", creating)

    async def report_extended(self, pod: PodInfo, claim: ResourceClaim, extended: ExtendedResourceClaim) -> None:
        """Patch ``status.extendedResourceClaimStatus`` of a pod. Raises ClaimUpdateFailed.

        QUIRK (semantics 8.16): a claim without requests has been created and reserved, and only then is an error.
        """
        if not extended.mappings:
            text = f"nil or empty request mappings, no update of pod {pod.key} ExtendedResourceClaimStatus"
            raise ClaimUpdateFailed(text)
        status = PodExtendedResourceClaimStatus(
            resource_claim_name=claim.metadata.name, request_mappings=list(extended.mappings)
        )
        try:
            await self._handle.resource_claims.report_extended(pod, status)
        except (APIError, Unreachable) as error:
            raise ClaimUpdateFailed(f"update pod {pod.key} ExtendedResourceClaimStatus: {error}") from error

    async def delete(self, claim: ResourceClaim) -> None:
        """Delete an extended resource claim. Raises APIError or Unreachable."""
        if FINALIZER in claim.metadata.finalizers:
            patch = {"metadata": {"uid": claim.metadata.uid, "$deleteFromPrimitiveList/finalizers": [FINALIZER]}}
            claim = await self._handle.resource_claims.patch(claim, patch)
        await self._handle.resource_claims.delete(claim)
        self._tracker.assume_deleted(claim)


def _unless_written(
    allocation: AllocationResult | None, claim: ResourceClaim, is_shared: bool
) -> AllocationResult | None:
    """An allocation that is to be written; None if it is shared, and another pod has written it."""
    written = claim.status.allocation
    if not is_shared or allocation is None or written is None:
        return allocation
    return None if written.devices.results == allocation.devices.results else allocation


def _check_unchanged(claim: ResourceClaim, allocation: AllocationResult | None) -> None:
    """Raises ClaimUpdateFailed if a claim has changed since Reserve so that it cannot be bound."""
    if claim.metadata.deletion_timestamp is not None:
        raise ClaimUpdateFailed(f"claim {claim.key} got deleted in the meantime")
    if allocation is not None and claim.status.allocation is not None:
        raise ClaimUpdateFailed(f"claim {claim.key} got allocated elsewhere in the meantime")
    if allocation is None and claim.status.allocation is None:
        raise ClaimUpdateFailed(f"claim {claim.key} got deallocated elsewhere in the meantime")


async def _with_context(what: str, request: Awaitable[ResourceClaim]) -> ResourceClaim:
    """The response to a request. Raises ClaimUpdateFailed that says ``what`` failed."""
    try:
        return await request
    except (APIError, Unreachable) as error:
        raise ClaimUpdateFailed(f"{what}: {error}") from error


def _preconditions(claim: ResourceClaim) -> dict[str, Any]:
    metadata = {"uid": claim.metadata.uid}
    if claim.metadata.resource_version:
        metadata["resourceVersion"] = claim.metadata.resource_version
    return {"metadata": metadata}
