"""Writes of resource claims, as requests with faults."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol, TypeVar

from kubestow.api.core import PodExtendedResourceClaimStatus
from kubestow.api.resource import ResourceClaim
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.cluster_api.resource_claims import InMemoryResourceClaims
from kubestow.errors import APIError
from kubestow.scheduling.decision.pipeline import run_synchronously
from kubestow.scheduling.events.resources import CATALOGUED
from kubestow_lab.fault_simulation.apiserver.server import SimulatedServer
from kubestow_lab.fault_simulation.marks import Mark, Marks

_CLAIMS = next(resource for resource in CATALOGUED if resource.type is ResourceClaim)

T = TypeVar("T")


class Send(Protocol):
    """Sends a request, applies its effect, and returns the response."""

    async def __call__(self, what: str, effect: Callable[[], T], /) -> T: ...


class _ServerClaimStore:
    """The claims of the simulated server."""

    def __init__(self, server: SimulatedServer) -> None:
        self._server = server

    def get(self, namespace: str, name: str) -> ResourceClaim | None:
        found: ResourceClaim | None = self._server.get(_CLAIMS, (namespace, name))
        return found

    def put(self, obj: ResourceClaim, /) -> None:
        self._server.put(obj)

    def remove(self, namespace: str, name: str, /) -> None:
        claim = self.get(namespace, name)
        if claim is None:
            raise APIError(404, "NotFound", f"claim {name} not found")
        self._server.remove(claim)


class ClaimClient:
    """Implements :class:`kubestow.framework.handle.ResourceClaimWriter`."""

    def __init__(self, server: SimulatedServer, send: Send, marks: Marks) -> None:
        self._claims, self._send, self._marks = InMemoryResourceClaims(_ServerClaimStore(server)), send, marks

    async def read(self, namespace: str, name: str) -> ResourceClaim:
        return await self._do(f"read {name}", lambda: self._claims.read(namespace, name))

    async def create(self, namespace: str, manifest: Mapping[str, Any]) -> ResourceClaim:
        return await self._do("create claim", lambda: self._claims.create(namespace, manifest))

    async def patch(self, claim: ResourceClaim, patch: Mapping[str, Any], *, subresource: str = "") -> ResourceClaim:
        what = f"patch claim {claim.metadata.name} {subresource}"
        return await self._do(what, lambda: self._claims.patch(claim, patch, subresource=subresource))

    async def delete(self, claim: ResourceClaim) -> None:
        await self._do(f"delete {claim.metadata.name}", lambda: self._claims.delete(claim))

    async def report_extended(self, pod: PodInfo, status: PodExtendedResourceClaimStatus) -> None:
        await self._do(f"patch {pod.name}", lambda: self._claims.report_extended(pod, status))

    async def _do(self, what: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        def effect() -> T:
            try:
                return run_synchronously(work())
            except APIError as error:
                if error.code == 409:
                    self._marks.reach(Mark.CLAIM_WRITE_STALE)
                raise

        return await self._send(what, effect)
