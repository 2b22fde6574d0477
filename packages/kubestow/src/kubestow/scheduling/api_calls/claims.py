"""Writes of ResourceClaims through the dispatcher, one at a time per claim.

Every write is sent once and its result returned to the plugin, because what a conflict or a lost response means depends
on the state of the claim.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubestow.api.core import PodExtendedResourceClaimStatus
from kubestow.api.resource import ResourceClaim
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.claim_writer import ResourceClaimWriter
from kubestow.scheduling.api_calls.dispatcher import Dispatcher
from kubestow.scheduling.observer import Call, Observer

__all__ = ["DispatchedClaims"]


class DispatchedClaims:
    """A :class:`~kubestow.framework.claim_writer.ResourceClaimWriter` in front of another."""

    def __init__(self, writer: ResourceClaimWriter, dispatcher: Dispatcher, observer: Observer) -> None:
        self._writer, self._dispatcher, self._observer = writer, dispatcher, observer

    async def read(self, namespace: str, name: str) -> ResourceClaim:
        return await self._writer.read(namespace, name)

    async def create(self, namespace: str, manifest: Mapping[str, Any]) -> ResourceClaim:
        succeeded = False
        try:
            claim = await self._writer.create(namespace, manifest)
            succeeded = True
        finally:
            self._observer.claim_created(succeeded=succeeded)
        return claim

    async def patch(self, claim: ResourceClaim, patch: Mapping[str, Any], *, subresource: str = "") -> ResourceClaim:
        return await self._dispatcher.write(
            claim.metadata.uid,
            Call.OBJECT_WRITE,
            lambda: self._writer.patch(claim, patch, subresource=subresource),
        )

    async def delete(self, claim: ResourceClaim) -> None:
        await self._dispatcher.write(claim.metadata.uid, Call.OBJECT_WRITE, lambda: self._writer.delete(claim))

    async def report_extended(self, pod: PodInfo, status: PodExtendedResourceClaimStatus) -> None:
        await self._dispatcher.write(pod.uid, Call.POD_STATUS_PATCH, lambda: self._writer.report_extended(pod, status))
