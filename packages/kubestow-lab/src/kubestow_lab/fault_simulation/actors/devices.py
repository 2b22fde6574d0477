"""A simulated device driver and resource claim controller.

Some claims, and the devices of one node, are published after the faults, when pods have waited for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Set
from random import Random
from typing import Any, NoReturn

from kubestow.api.core import Pod
from kubestow.api.resource import ResourceClaim, ResourceSlice
from kubestow.testing.devices import claim, device_class, slice_of
from kubestow_lab.fault_simulation.actors import run_control_loop
from kubestow_lab.fault_simulation.actors.users import CreatePod
from kubestow_lab.fault_simulation.apiserver.server import SimulatedServer, ended, with_status
from kubestow_lab.fault_simulation.trace import Steps

_CLAIMS = ("gpu-0", "gpu-1", "gpu-2")
_LATE_CLAIMS, _LATE_NODE = ("gpu-late", "gpu-of-late-node"), "node-1"
#: More claims than a node has devices.
_RIVAL_CLAIMS = ("gpu-rival-0", "gpu-rival-1", "gpu-rival-2")
#: How the names of claims begin that belong to one pod, as those from a ResourceClaimTemplate do.
_OWN_CLAIM = "gpu-own-"


class Devices:
    """Publishes devices, creates claims, and removes the reservations and allocations of completed pods."""

    def __init__(self, server: SimulatedServer, random: Random) -> None:
        self._server, self._random = server, random
        self._created = 0
        #: Whether unused claims are recreated at random.
        self.churn = True
        #: Whether the devices of one node are published.
        self._has_late_devices = False

    def helpful_changes(self, create_pod: CreatePod) -> Iterator[Callable[[], None]]:
        """Changes that can make pods schedulable, to be made one after the other; first pods that wait for them."""

        def await_late_claims() -> None:
            for name, node_name in zip(_LATE_CLAIMS, ("", _LATE_NODE), strict=True):
                create_pod(_claiming(name), node_name)

        def use_up_a_node() -> None:
            node_name = self._random.choice(sorted(self._server.nodes()) or [_LATE_NODE])
            for name in _RIVAL_CLAIMS:
                self._put_claim(name)
                create_pod(_claiming(name), node_name)

        yield from (await_late_claims, self._create_late_claims, self._publish_late_devices)
        yield from (use_up_a_node, self._finish_users_of_claim)

    async def run_workloads(self, create_pod: CreatePod, steps: Steps, random: Random) -> NoReturn:
        """Until cancelled, create workloads: some pods one soon after the other, each with a claim of its own."""
        created = 0
        while True:
            await asyncio.sleep(random.expovariate(0.5))
            if not steps.takes("workload: create pods with claims of their own"):
                continue
            for _ in range(random.randint(2, 4)):
                created += 1
                name = f"{_OWN_CLAIM}{created}"
                self._put_claim(name)
                create_pod(_claiming(name), "")
                await asyncio.sleep(random.uniform(0.0, 0.5))

    def _create_late_claims(self) -> None:
        for name in _LATE_CLAIMS:
            self._put_claim(name)

    def _publish_late_devices(self) -> None:
        self._has_late_devices = True
        self._publish_slices()

    def _finish_users_of_claim(self) -> None:
        """End all pods that use an allocated claim, one of the rivals if there are any; the claim is released then."""
        held = [each.metadata.name for each in self._server.objects(ResourceClaim) if each.status.allocation]
        held = [name for name in held if name in _RIVAL_CLAIMS] or held
        chosen = self._random.choice(held) if held else None
        for pod in self._server.pods():
            if chosen in claims_of(pod) and pod.spec.node_name and not ended(pod):
                self._server.put(with_status(pod, phase="Succeeded"))

    async def run(self) -> NoReturn:
        """Run until cancelled."""
        self._server.put(device_class())
        for name in _CLAIMS:
            self._put_claim(name)
        await run_control_loop(self._server, self._random, self._reconcile)

    def _reconcile(self) -> bool:
        self._publish_slices()
        pods = [pod for pod in self._server.pods() if not ended(pod)]
        live = {pod.metadata.uid for pod in pods}
        used = {name for pod in pods for name in claims_of(pod)}
        pending = [self._sync_claim(each, live, used) for each in self._server.objects(ResourceClaim)]
        return any(pending)

    def spec_part(self) -> dict[str, Any]:
        """A part of a pod spec that claims a device."""
        return _claiming(self._random.choice((*_CLAIMS, "gpu-late")))

    def _put_claim(self, name: str) -> None:
        self._created += 1
        self._server.put(claim(name, metadata={"uid": f"uid-{name}-{self._created}"}))

    def _publish_slices(self) -> None:
        """Publish two devices per node, and remove the slices of deleted nodes."""
        nodes = self._server.nodes()
        if not self._has_late_devices:
            nodes.pop(_LATE_NODE, None)
        slices = {each.spec.node_name: each for each in self._server.objects(ResourceSlice)}
        for name in sorted(nodes.keys() - slices.keys()):
            self._server.put(slice_of("d0", "d1", node=name))
        for name in sorted(slices.keys() - nodes.keys()):
            self._server.remove(slices[name])

    def _sync_claim(self, existing: ResourceClaim, live: Set[str], used: Set[str]) -> bool:
        """Remove reservations of deleted pods, then the allocation; recreate unused claims at random.

        Returns whether there are further steps.
        """
        name, chance = existing.metadata.name, self._random.random()
        kept = [consumer for consumer in existing.status.reserved_for if consumer.uid in live]
        if len(kept) < len(existing.status.reserved_for):
            self._server.put(with_status(existing, reserved_for=kept))
        elif not kept and existing.status.allocation is not None:
            if chance < 0.3:
                self._server.put(with_status(existing, allocation=None))
        elif name.startswith(_OWN_CLAIM) and name not in used:
            self._server.remove(existing)
            return False
        elif self.churn and name not in used and chance < 0.02:
            self._server.remove(existing)
            self._put_claim(name)
        else:
            return self.churn
        return True


def _claiming(name: str) -> dict[str, Any]:
    return {"resourceClaims": [{"name": "gpu", "resourceClaimName": name}]}


def claims_of(pod: Pod) -> list[str]:
    """The names of the resource claims of a pod."""
    return [each.resource_claim_name for each in pod.spec.resource_claims if each.resource_claim_name]


def devices_of(claim: ResourceClaim) -> list[tuple[str, str]]:
    """Pool and name of the devices that are allocated to a claim."""
    allocation = claim.status.allocation
    return [] if allocation is None else [(result.pool, result.device) for result in allocation.devices.results]
