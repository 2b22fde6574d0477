"""Tenants: users of one namespace whose objects are valid, and meant to harm others."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from kubestow.api.core import Pod
from kubestow.testing import node, pod
from kubestow_lab.fault_simulation.apiserver.server import SimulatedServer
from kubestow_lab.fault_simulation.scheduler.stalls import LABEL
from kubestow_lab.fault_simulation.trace import Steps

NAMESPACE = "tenant"
#: Pods that a tenant has at a time, at most.
_MAX_PODS = 6
#: The seconds for which each of the last pods stalls a scheduler, likewise when it costs the Lease, and their number.
STALL, DEADLY_STALL, STALLING_PODS = 5.0, 70.0, 12
_VICTIM_ZONE = "victim"
#: Every other stalling pod fits nowhere: its attempts end with a report and not with a binding.
_NOWHERE = {"topology.kubernetes.io/zone": "nowhere"}


class Tenants:
    """Create and delete pods that stall a scheduler, or that have many terms, tolerations and ports."""

    def __init__(self, server: SimulatedServer, random: Random, scheduler_name: str, steps: Steps) -> None:
        self._server, self._random, self._scheduler_name = server, random, scheduler_name
        self._steps = steps
        self._created = 0
        self._pods: list[Pod] = []

    async def run(self) -> None:
        """Run until cancelled; the tenant's pods are deleted then."""
        try:
            while True:
                await asyncio.sleep(self._random.expovariate(0.5))
                if not self._steps.takes("tenant: create or delete a pod"):
                    continue
                if len(self._pods) >= _MAX_PODS:
                    self._delete(self._random.choice(self._pods))
                else:
                    self._create(**self._random.choice((self._stalling, self._terms, self._tolerations, self._names))())
        finally:
            self.clear()

    def create_victim(self, name: str, stall: float) -> Pod:
        """Create many pods that stall their scheduler for so many seconds each, and last a pod of another namespace.

        There is a node that only this pod selects. The other pods are deleted with :meth:`clear`.
        """
        self._server.put(node("victim", zone=_VICTIM_ZONE))
        for number in range(STALLING_PODS):
            selector = _NOWHERE if number % 2 else None
            self._create(labels={LABEL: str(stall)}, priority=1000, node_selector=selector)
        victim = self._pod(name, "victims", node_selector={"topology.kubernetes.io/zone": _VICTIM_ZONE})
        self._server.put(victim)
        return victim

    def create_harmless(self, name: str) -> Pod:
        """Create a pod of the tenant that stalls nothing and fits on the node of the victims; it is not cleared."""
        harmless = self._pod(name, NAMESPACE, node_selector={"topology.kubernetes.io/zone": _VICTIM_ZONE})
        self._server.put(harmless)
        return harmless

    def clear(self) -> None:
        """Delete the tenant's pods."""
        for each in list(self._pods):
            self._delete(each)

    def _create(self, **fields: Any) -> None:
        created = self._pod(f"tenant-{self._created}", NAMESPACE, **fields)
        self._pods.append(created)
        self._server.put(created)

    def _pod(self, name: str, namespace: str, **fields: Any) -> Pod:
        self._created += 1
        return pod(
            name,
            namespace=namespace,
            scheduler=self._scheduler_name,
            metadata={"uid": f"uid-{name}", "generation": 1},
            status={"phase": "Pending"},
            **fields,
        )

    def _delete(self, each: Pod) -> None:
        self._pods.remove(each)
        current = next((p for p in self._server.pods() if p.metadata.uid == each.metadata.uid), None)
        if current is not None:
            self._server.remove(current)

    # -- hostile but valid -----------------------------------------------------------------------------------------

    def _stalling(self) -> dict[str, Any]:
        return {
            "labels": {LABEL: str(STALL)},
            "priority": self._random.choice((0, 1000)),
            "node_selector": self._random.choice((None, _NOWHERE)),
        }

    def _terms(self) -> dict[str, Any]:
        terms = [
            {
                "weight": 1,
                "podAffinityTerm": {
                    "topologyKey": "zone",
                    "labelSelector": {"matchExpressions": [{"key": "x", "operator": "NotIn", "values": [str(n)]}]},
                },
            }
            for n in range(100)
        ]
        return {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}}

    def _tolerations(self) -> dict[str, Any]:
        return {"tolerations": [{"key": f"key-{n}", "operator": "Exists"} for n in range(300)]}

    def _names(self) -> dict[str, Any]:
        return {"requests": {f"example.org/resource-{self._created}-{n}": "1" for n in range(50)}}
