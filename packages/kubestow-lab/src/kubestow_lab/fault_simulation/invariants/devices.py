"""Invariants of allocated devices and of the pods that use them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kubestow.api.core import Pod
from kubestow.api.resource import ResourceClaim
from kubestow_lab.fault_simulation.actors.devices import claims_of
from kubestow_lab.fault_simulation.apiserver.server import SimulatedServer


def _devices(claim: ResourceClaim) -> list[tuple[str, str]]:
    allocation = claim.status.allocation
    return [] if allocation is None else [(result.pool, result.device) for result in allocation.devices.results]


def device_violations(server: SimulatedServer, pod: Pod, node_name: str) -> Iterator[str]:
    """Why the devices of a pod that has just been bound are wrong."""
    claims = {claim.metadata.name: claim for claim in server.objects(ResourceClaim)}
    for name in claims_of(pod):
        claim = claims[name]
        if pod.metadata.uid not in {consumer.uid for consumer in claim.status.reserved_for}:
            yield f"{pod.metadata.name} is bound to {node_name}, claim {name} is not reserved for it"
        if {pool for pool, _ in _devices(claim)} != {node_name}:
            yield f"{pod.metadata.name} is bound to {node_name}, claim {name} has {_devices(claim)}"


def double_allocations(server: SimulatedServer) -> Iterator[str]:
    """Devices that are allocated to several claims."""
    allocated = Counter(device for claim in server.objects(ResourceClaim) for device in _devices(claim))
    for (pool, device), times in allocated.items():
        if times > 1:
            yield f"device {device} of {pool} is allocated to {times} claims"
