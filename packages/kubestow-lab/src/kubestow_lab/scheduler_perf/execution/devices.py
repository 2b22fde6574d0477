"""The operations of dynamic resource allocation: createResourceDriver, createResourceClaims, allocResourceClaims."""

from __future__ import annotations

import fnmatch

from kubestow_lab.scheduler_perf.execution.session import Session, WorkloadFailed
from kubestow_lab.scheduler_perf.workload_files.object_templates import Object
from kubestow_lab.scheduler_perf.workload_files.operations import (
    AllocateResourceClaims,
    CreateResourceClaims,
    CreateResourceDriver,
)

__all__ = ["allocate_claims", "create_claims", "create_driver"]

_VERSION = "resource.k8s.io/v1"

Device = tuple[str, str, str, str]
"""A device: driver, pool, its name, and the node."""


async def create_driver(session: Session, operation: CreateResourceDriver) -> None:
    """Publish a slice of devices for each matching node."""
    nodes = [node["metadata"]["name"] for node in await session.cluster.list_objects("v1", "Node")]
    names = [name for name in nodes if fnmatch.fnmatchcase(name, operation.nodes)]

    async def create(number: int) -> None:
        await session.create(_slice(operation.driver_name, names[number], operation.max_claims_per_node))

    await session.in_parallel(len(names), create)


def _slice(driver: str, node: str, count: int) -> Object:
    """A slice with devices that have the attributes and the capacity of those of scheduler_perf's driver."""
    devices = [
        {
            "name": f"instance-{number}",
            "attributes": {
                "model": {"string": "A100"},
                "family": {"string": "GPU"},
                "driverVersion": {"version": "1.2.3"},
                "dra.example.com/numa": {"int": number},
            },
            "capacity": {"memory": {"value": "1Gi"}},
        }
        for number in range(count)
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": _VERSION,
        "kind": "ResourceSlice",
        "metadata": {"name": node},
        "spec": {"driver": driver, "nodeName": node, "pool": pool, "devices": devices},
    }


async def create_claims(session: Session, operation: CreateResourceClaims) -> None:
    """Create claims from a template."""
    await session.ensure_namespace(operation.namespace)
    template = session.template(operation.template_path)

    async def create(number: int) -> None:
        claim = template.object(number, operation.count) | {"apiVersion": _VERSION, "kind": "ResourceClaim"}
        await session.create(claim, operation.namespace)

    await session.in_parallel(operation.count, create)


async def allocate_claims(session: Session, operation: AllocateResourceClaims) -> None:
    """Allocate a free device of a random node to each claim that has none.

    Selectors are not evaluated: the device classes of such workloads select all devices of the one driver. Raises
    WorkloadFailed if there are too few devices, or for a claim with several requests.
    """
    claims = await session.cluster.list_objects(_VERSION, "ResourceClaim")
    allocated = {_device(result) for claim in claims for result in _results(claim)}
    slices = await session.cluster.list_objects(_VERSION, "ResourceSlice")
    free = [device for piece in slices for device in _devices(piece) if device[:3] not in allocated]
    session.random.shuffle(free)
    pending = [
        claim for claim in claims if operation.namespace in ("", claim["metadata"]["namespace"]) and not _results(claim)
    ]
    if len(free) < len(pending):
        raise WorkloadFailed(f"{len(pending)} claims to allocate, but {len(free)} free devices")

    async def allocate(number: int) -> None:
        claim = pending[number]
        claim["status"] = {"allocation": _allocation(session, claim, free[number])}
        await session.cluster.replace(claim, claim["metadata"]["namespace"], "status")

    await session.in_parallel(len(pending), allocate)


def _results(claim: Object) -> list[Object]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    results: list[Object] = (allocation.get("devices") or {}).get("results") or []
    return results


def _device(result: Object) -> tuple[str, str, str]:
    return result["driver"], result["pool"], result["device"]


def _devices(piece: Object) -> list[Device]:
    spec = piece["spec"]
    if not spec.get("nodeName"):
        return []
    return [(spec["driver"], spec["pool"]["name"], device["name"], spec["nodeName"]) for device in spec["devices"]]


def _allocation(session: Session, claim: Object, device: Device) -> Object:
    requests = claim["spec"]["devices"]["requests"]
    if len(requests) != 1:
        name = f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"
        raise WorkloadFailed(f"claim {name} has {len(requests)} requests, expected one")
    request, (driver, pool, name, node) = requests[0], device
    alternatives = request.get("firstAvailable")
    requested = f"{request['name']}/{alternatives[0]['name']}" if alternatives else request["name"]
    on_node = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    return {
        "devices": {"results": [{"request": requested, "driver": driver, "pool": pool, "device": name}]},
        "nodeSelector": {"nodeSelectorTerms": [on_node]},
    }
