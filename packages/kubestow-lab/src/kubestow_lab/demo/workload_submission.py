"""Submission of a workload: its objects are created over HTTP in order, with many requests in flight."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

import msgspec

from kubestow.client.rest.transport import Transport
from kubestow.errors import APIError
from kubestow_lab.workloads.workload import GateRemoval, Object, Workload

_CONCURRENCY = 16
_PAGE_SIZE = 1000


class WorkloadSubmission:
    """Creates the objects of a workload; ``submitted`` is the number of created pods."""

    def __init__(self, transport: Transport, workload: Workload) -> None:
        self._transport = transport
        self._workload = workload
        self.submitted = 0

    async def nodes(self) -> None:
        """Create the priority classes and the nodes."""
        await self._create("/apis/scheduling.k8s.io/v1/priorityclasses", self._workload.priority_classes)
        await self._create("/api/v1/nodes", self._workload.nodes)

    async def pods(self) -> None:
        """Create the pods in order, and remove scheduling gates as the workload defines."""
        removals = list(self._workload.gate_removals)
        pods = self._workload.pods
        for start in range(0, len(pods), _CONCURRENCY):
            batch = pods[start : start + _CONCURRENCY]
            namespaces = (pod["metadata"].get("namespace", "default") for pod in batch)
            await asyncio.gather(*map(self._post, map(_pods_path, namespaces), batch))
            self.submitted += len(batch)
            while removals and removals[0].after_submitted <= self.submitted:
                await self._remove_gate(removals.pop(0))
        for removal in removals:
            await self._remove_gate(removal)

    async def _create(self, path: str, objects: Sequence[Object]) -> None:
        for start in range(0, len(objects), _CONCURRENCY):
            await asyncio.gather(*(self._post(path, obj) for obj in objects[start : start + _CONCURRENCY]))

    async def _post(self, path: str, obj: Object) -> None:
        try:
            await self._transport.request("POST", path, msgspec.json.encode(obj))
        except APIError as error:
            if error.code != 409:  # already exists, like the system priority classes
                raise

    async def _remove_gate(self, removal: GateRemoval) -> None:
        path = f"{_pods_path(removal.namespace)}/{removal.pod}"
        pod = msgspec.json.decode(await self._transport.request("GET", path))
        gates = [gate for gate in pod["spec"].get("schedulingGates", []) if gate["name"] != removal.gate]
        patch = [{"op": "replace", "path": "/spec/schedulingGates", "value": gates}]
        await self._transport.request(
            "PATCH", path, msgspec.json.encode(patch), content_type="application/json-patch+json"
        )


def _pods_path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


async def list_objects(transport: Transport, path: str) -> list[Object]:
    """List all objects of a collection, in pages."""
    return [obj async for page in _pages(transport, path) for obj in page]


async def _pages(transport: Transport, path: str) -> AsyncIterator[Iterable[Object]]:
    token = ""
    while True:
        query = f"?limit={_PAGE_SIZE}" + (f"&continue={token}" if token else "")
        response: dict[str, Any] = msgspec.json.decode(await transport.request("GET", path + query))
        yield response["items"]
        token = response["metadata"].get("continue", "")
        if not token:
            return
