"""What is done before a pod with claims is bound: writing its claims, and waiting until its devices are ready."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from kubestow.cluster.devices.claims import ClaimLedger
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.interface import Handle
from kubestow.framework.status import SUCCESS, Status
from kubestow.plugins.dynamic_resources.binding_conditions import (
    BindingFailed,
    drivers_awaited,
    has_binding_conditions,
    is_ready,
    overdue_at,
)
from kubestow.plugins.dynamic_resources.claim_status import ClaimChanges, NotWritten
from kubestow.plugins.dynamic_resources.extended_resources import IN_MEMORY
from kubestow.plugins.dynamic_resources.features import Features
from kubestow.plugins.dynamic_resources.pod_claims import PodClaims

__all__ = ["Preparation"]


class Preparation:
    """Prepares one pod after another, many at once.

    ``on_freed`` is called when devices turn out to be free that had been promised to a pod which is gone.
    """

    def __init__(
        self,
        handle: Handle,
        features: Features,
        changes: ClaimChanges,
        *,
        binding_timeout: timedelta,
        on_freed: Callable[[], None],
    ) -> None:
        self._handle = handle
        self._features = features
        self._changes = changes
        self._binding_timeout, self._on_freed = binding_timeout, on_freed

    @property
    def _ledger(self) -> ClaimLedger:
        return self._handle.cluster.claims

    async def prepare(self, kept: PodClaims, pod: PodInfo, node_name: str) -> Status | None:
        """Write allocations and reservations, then wait for devices that have to be made ready. None is success."""
        try:
            for index in range(len(kept.claims)):
                kept.claims[index] = await self._changes.settled(kept.claims[index])
                if not kept.claims[index].is_reserved_for(pod.uid):
                    kept.writing = index, kept.claims[index].metadata.uid
                    await self._handle.shield(self._written(kept, index, pod))
        except NotWritten as error:
            return Status.error(str(error))
        if self._features.binding_conditions and any(map(has_binding_conditions, kept.claims)):
            note = f"waiting for binding conditions for device on node {node_name}"
            self._handle.record(pod, reason="BindingConditionsPending", action="Scheduling", note=note)
            return await self._wait_watched(kept, pod)
        return None

    async def _written(self, kept: PodClaims, index: int, pod: PodInfo) -> None:
        """Write one claim; its promise is over then, kept or broken. Raises NotWritten.

        Should the pod lose its node meanwhile, the write may take effect all the same: the promise stays until that is
        known, and what has been written is given back.
        """
        promised = kept.claims[index].metadata.uid
        try:
            await self._write(kept, index, pod)
        finally:
            kept.writing = None
            if promised in kept.promised:
                kept.promised.remove(promised)
                self._ledger.withdraw(promised)
            if kept.held is not None:
                self._changes.give_back(kept.claims[index], pod, is_extended=index == kept.extended)
                self._changes.let_go(kept.held)
                self._on_freed()

    async def _write(self, kept: PodClaims, index: int, pod: PodInfo) -> None:
        claim, allocation = kept.claims[index], kept.allocations.get(index)
        is_extended = index == kept.extended
        if is_extended and allocation is None:
            return  # the node offers the resources itself
        if is_extended and kept.needed is not None and claim.metadata.name == IN_MEMORY:
            claim = kept.claims[index] = await self._changes.create_extended(pod, kept.needed)
        if kept.held is not None:
            return
        kept.claims[index] = await self._changes.reserve(claim, pod, allocation)
        if is_extended and kept.needed is not None and kept.held is None:
            await self._changes.report_extended(pod, kept.claims[index], kept.needed)

    async def _wait_watched(self, kept: PodClaims, pod: PodInfo) -> Status:
        """Wait until all claims are ready, and tell whoever watches how that ended for each of the drivers."""
        drivers, began, outcome = drivers_awaited(kept.claims), self._handle.now(), "error"
        try:
            status = await self._handle.wait_for(lambda: self._readiness(kept), self._patience(kept))
            outcome = "timeout" if status is None else "success" if status.ok else "failure"
        finally:
            seconds = max(0.0, (self._handle.now() - began).total_seconds())
            for driver in drivers:
                self._handle.device_wait_ended(pod, driver, outcome, seconds)
        return Status.error("device binding timeout") if status is None else status

    def _readiness(self, kept: PodClaims) -> Status | None:
        """How the claims stand now: ready, failed, or neither yet."""
        kept.claims = [self._ledger.get(c.metadata.namespace, c.metadata.name) or c for c in kept.claims]
        try:
            waiting = [c for c in kept.claims if c.status.allocation is not None and not is_ready(c)]
        except BindingFailed as error:
            return Status.error(str(error))
        return None if waiting else SUCCESS

    def _patience(self, kept: PodClaims) -> float:
        """How long to wait at most, in seconds: until the claim that has waited longest is overdue."""
        overdue = (overdue_at(claim, self._binding_timeout) for claim in kept.claims)
        remaining = [(moment - self._handle.now()).total_seconds() for moment in overdue if moment is not None]
        return max(0.0, min((self._binding_timeout.total_seconds(), *remaining)))
