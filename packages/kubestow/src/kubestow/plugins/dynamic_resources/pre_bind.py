"""PreBind: writes allocations and reservations into a pod's claims, then waits for binding conditions.

A claim keeps its pending allocation in the ledger until its write has ended. Unreserve can run while a write is in
progress, if the binding cycle is cancelled; the write is then undone afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from kubestow.api.reports import EventType
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.cluster.resource_claims import ResourceClaimTracker
from kubestow.framework.interface import Handle
from kubestow.framework.status import SUCCESS, Status
from kubestow.plugins.dynamic_resources.allocator.requests import Features
from kubestow.plugins.dynamic_resources.claim_updates import ClaimUpdateFailed, ClaimUpdates
from kubestow.plugins.dynamic_resources.extended_resources import IN_MEMORY_CLAIM_NAME
from kubestow.plugins.dynamic_resources.filtering import (
    DeviceBindingFailed,
    DynamicResourcesState,
    binding_deadline,
    drivers_with_binding_conditions,
    has_binding_conditions,
    is_ready_for_binding,
)

_BINDING_CONDITIONS_PENDING = EventType(
    "BindingConditionsPending",
    "Scheduling",
    "waiting for binding conditions for device on node {node}",
    help="Before the pod is bound, the drivers have to report that its devices are ready.",
)
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
        self._features = features
        self._updates = updates
        self._binding_timeout = binding_timeout
        self._on_devices_freed = on_devices_freed

    @property
    def _tracker(self) -> ResourceClaimTracker:
        return self._handle.cluster.resource_claims

    async def bind(self, state: DynamicResourcesState, pod: PodInfo, node_name: str) -> Status | None:
        """Write the claims, then wait until their devices are ready for binding. None is success."""
        try:
            for index in range(len(state.claims)):
                state.claims[index] = await self._updates.latest(state.claims[index])
                if not state.claims[index].is_reserved_for(pod.uid):
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
        state.claims[index] = await self._updates.bind(claim, pod, allocation)
        if extended is not None and state.release_after_write is None:
            await self._updates.report_extended(pod, state.claims[index], extended)

    # -- binding conditions ----------------------------------------------------------------------------------------

    async def _wait_for_devices(self, state: DynamicResourcesState, pod: PodInfo) -> Status:
        """Wait until all claims are ready for binding; reports the duration and the result for each driver."""
        drivers, start, outcome = drivers_with_binding_conditions(state.claims), self._handle.now(), "error"
        try:
            status = await self._handle.wait_for(lambda: self._check_devices(state), self._remaining_seconds(state))
            outcome = "timeout" if status is None else "success" if status.ok else "failure"
        finally:
            seconds = max(0.0, (self._handle.now() - start).total_seconds())
            for driver in drivers:
                self._handle.device_wait_ended(pod, driver, outcome, seconds)
        return _DEVICE_BINDING_TIMEOUT if status is None else status

    def _check_devices(self, state: DynamicResourcesState) -> Status | None:
        """SUCCESS if all claims are ready for binding, an error if one has failed, else None."""
        state.claims = [self._tracker.get(c.metadata.namespace, c.metadata.name) or c for c in state.claims]
        try:
            waiting = [c for c in state.claims if c.status.allocation is not None and not is_ready_for_binding(c)]
        except DeviceBindingFailed as error:
            return Status.error(str(error))
        return None if waiting else SUCCESS

    def _remaining_seconds(self, state: DynamicResourcesState) -> float:
        """The seconds until the earliest binding deadline of the claims."""
        deadlines = (binding_deadline(claim, self._binding_timeout) for claim in state.claims)
        remaining = [(moment - self._handle.now()).total_seconds() for moment in deadlines if moment is not None]
        return max(0.0, min((self._binding_timeout.total_seconds(), *remaining)))
