"""Devices and claims on them: who offers them, who takes them back, and what must hold of pods that use them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Set
from random import Random
from typing import Any, NoReturn

from kubestow.api.core import Pod
from kubestow.api.resource import ResourceClaim, ResourceSlice
from tests.fault_simulation.rounds import make_rounds
from tests.fault_simulation.server import Server, ended, with_status
from tests.plugins.dynamic_resources.devices import claim, device_class, slice_of

__all__ = ["Devices", "claims_of", "device_objections", "devices_given_twice"]

_CLAIMS = ("gpu-0", "gpu-1", "gpu-2")


class Devices:
    """Drivers, the claim controller, and the people who make claims."""

    def __init__(self, server: Server, random: Random) -> None:
        self._server, self._random = server, random
        self._made = 0
        #: Whether claims are made anew for no reason.
        self.restless = True

    async def live(self) -> NoReturn:
        """Until cancelled."""
        self._server.put(device_class())
        for name in _CLAIMS:
            self._put_claim(name)
        await make_rounds(self._server, self._random, self._look)

    def _look(self) -> bool:
        self._offer()
        pods = [pod for pod in self._server.pods() if not ended(pod)]
        live = {pod.metadata.uid for pod in pods}
        used = {name for pod in pods for name in claims_of(pod)}
        undone = [self._see_to(there, live, used) for there in self._server.objects(ResourceClaim)]
        return any(undone)

    def wishes(self) -> dict[str, Any]:
        """The part of a new pod's spec that claims a device."""
        return {"resourceClaims": [{"name": "gpu", "resourceClaimName": self._random.choice(_CLAIMS)}]}

    def _put_claim(self, name: str) -> None:
        self._made += 1
        self._server.put(claim(name, metadata={"uid": f"uid-{name}-{self._made}"}))

    def _offer(self) -> None:
        """Every node offers two devices while it is there."""
        nodes = self._server.nodes()
        offers = {there.spec.node_name: there for there in self._server.objects(ResourceSlice)}
        for name in sorted(nodes.keys() - offers.keys()):
            self._server.put(slice_of("d0", "d1", node=name))
        for name in sorted(offers.keys() - nodes.keys()):
            self._server.remove(offers[name])

    def _see_to(self, there: ResourceClaim, live: Set[str], used: Set[str]) -> bool:
        """Drop the reservations of pods that are gone, then the allocation; now and then make an unused claim anew.

        Whether there is more to do.
        """
        name, chance = there.metadata.name, self._random.random()
        kept = [consumer for consumer in there.status.reserved_for if consumer.uid in live]
        if len(kept) < len(there.status.reserved_for):
            self._server.put(with_status(there, reserved_for=kept))
        elif not kept and there.status.allocation is not None:
            if chance < 0.3:
                self._server.put(with_status(there, allocation=None))
        elif self.restless and name not in used and chance < 0.02:
            self._server.remove(there)
            self._put_claim(name)
        else:
            return self.restless
        return True


def claims_of(pod: Pod) -> list[str]:
    """The claims on devices that a pod has, by name."""
    return [there.resource_claim_name for there in pod.spec.resource_claims if there.resource_claim_name]


def _devices(there: ResourceClaim) -> list[tuple[str, str]]:
    allocation = there.status.allocation
    return [] if allocation is None else [(result.pool, result.device) for result in allocation.devices.results]


def device_objections(server: Server, pod: Pod, node_name: str) -> Iterator[str]:
    """What is wrong with the devices of a pod that has just been bound."""
    claims = {there.metadata.name: there for there in server.objects(ResourceClaim)}
    for name in claims_of(pod):
        there = claims[name]
        if pod.metadata.uid not in {consumer.uid for consumer in there.status.reserved_for}:
            yield f"{pod.metadata.name} is bound to {node_name}, claim {name} is not reserved for it"
        if {pool for pool, _ in _devices(there)} != {node_name}:
            yield f"{pod.metadata.name} is bound to {node_name}, claim {name} has {_devices(there)}"


def devices_given_twice(server: Server) -> Iterator[str]:
    """Devices that several claims have been given."""
    given = Counter(device for there in server.objects(ResourceClaim) for device in _devices(there))
    for (pool, device), times in given.items():
        if times > 1:
            yield f"device {device} of {pool} has been given to {times} claims"
