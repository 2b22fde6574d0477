"""Simulated kubelets, and the pod garbage collector."""

from __future__ import annotations

from collections.abc import Container
from datetime import datetime
from random import Random
from typing import NoReturn

from kubestow.api.core import Pod
from kubestow_lab.fault_simulation.actors import run_control_loop
from kubestow_lab.fault_simulation.apiserver.server import SimulatedServer, ended, with_status


class Kubelets:
    """All kubelets, and the garbage collector of pods on deleted nodes."""

    def __init__(self, server: SimulatedServer, random: Random) -> None:
        self._server, self._random = server, random
        #: Whether pods complete at random.
        self.churn = True

    async def run(self) -> NoReturn:
        """Run until cancelled."""
        await run_control_loop(self._server, self._random, self._reconcile)

    def _reconcile(self) -> bool:
        nodes = self._server.nodes()
        pending = [self._sync_pod(pod, nodes) for pod in self._server.pods()]
        return any(pending)

    def _sync_pod(self, pod: Pod, nodes: Container[str]) -> bool:
        """Take the next step of a pod's lifecycle at random; whether there are further steps."""
        chance = self._random.random()
        if pod.metadata.deletion_timestamp is not None:
            if chance < 0.3:
                self._server.remove(pod)
            return True
        if not pod.spec.node_name:
            return False
        if pod.spec.node_name not in nodes:
            if chance < 0.2:
                self._server.remove(pod)
            return True
        if pod.status.phase == "Pending":
            if chance < 0.5:
                started = datetime.fromisoformat(self._server.timestamp())
                self._server.put(with_status(pod, phase="Running", start_time=started))
            return True
        if self.churn and not ended(pod) and chance < 0.01:
            self._server.put(with_status(pod, phase=self._random.choice(("Succeeded", "Failed"))))
        return self.churn
