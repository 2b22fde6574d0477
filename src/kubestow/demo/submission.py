"""Submitting a workload: its objects are created over HTTP, many requests at once, in their own order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

import msgspec

from kubestow.client.rest.transport import Transport
from kubestow.errors import APIError
from kubestow.workloads.workload import GateLift, Object, Workload

__all__ = ["Submission", "all_objects"]

_AT_ONCE = 16
_PAGE = 1000


class Submission:
    """A workload on its way to the API server. ``submitted`` counts the pods that are there."""

    def __init__(self, transport: Transport, workload: Workload) -> None:
        self._transport = transport
        self._workload = workload
        self.submitted = 0

    async def nodes(self) -> None:
        """Create the priority classes and the nodes."""
        await self._create("/apis/scheduling.k8s.io/v1/priorityclasses", self._workload.priority_classes)
        await self._create("/api/v1/nodes", self._workload.nodes)

    async def pods(self) -> None:
        """Create the pods in order, and lift gates when they fall due."""
        lifts = list(self._workload.gate_lifts)
        pods = self._workload.pods
        for start in range(0, len(pods), _AT_ONCE):
            batch = pods[start : start + _AT_ONCE]
            namespaces = (pod["metadata"].get("namespace", "default") for pod in batch)
            await asyncio.gather(*map(self._post, map(_pods_path, namespaces), batch))
            self.submitted += len(batch)
            while lifts and lifts[0].after_submitted <= self.submitted:
                await self._lift(lifts.pop(0))
        for lift in lifts:
            await self._lift(lift)

    async def _create(self, path: str, objects: Sequence[Object]) -> None:
        for start in range(0, len(objects), _AT_ONCE):
            await asyncio.gather(*(self._post(path, obj) for obj in objects[start : start + _AT_ONCE]))

    async def _post(self, path: str, obj: Object) -> None:
        try:
            await self._transport.request("POST", path, msgspec.json.encode(obj))
        except APIError as error:
            if error.code != 409:  # it is there already, as the system's priority classes are
                raise

    async def _lift(self, lift: GateLift) -> None:
        path = f"{_pods_path(lift.namespace)}/{lift.pod}"
        pod = msgspec.json.decode(await self._transport.request("GET", path))
        gates = [gate for gate in pod["spec"].get("schedulingGates", []) if gate["name"] != lift.gate]
        patch = [{"op": "replace", "path": "/spec/schedulingGates", "value": gates}]
        await self._transport.request(
            "PATCH", path, msgspec.json.encode(patch), content_type="application/json-patch+json"
        )


def _pods_path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


async def all_objects(transport: Transport, path: str) -> list[Object]:
    """Every object of a collection, page by page."""
    return [obj async for page in _pages(transport, path) for obj in page]


async def _pages(transport: Transport, path: str) -> AsyncIterator[Iterable[Object]]:
    token = ""
    while True:
        query = f"?limit={_PAGE}" + (f"&continue={token}" if token else "")
        listed: dict[str, Any] = msgspec.json.decode(await transport.request("GET", path + query))
        yield listed["items"]
        token = listed["metadata"].get("continue", "")
        if not token:
            return
