"""Scenarios with a cluster in virtual time: API server, kubelets, controllers, and tests that bind pods themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from devcluster_tests.client import NODES, PODS, Client, node
from kubestow.testing import virtual_time
from kubestow.testing.virtual_time import VirtualClock
from kubestow_devcluster.behaviour.resource_usage import ResourceUsageRules
from kubestow_devcluster.cluster import DevCluster
from kubestow_devcluster.controller_manager import ControllerManager
from kubestow_devcluster.kubelets.kubelets import Kubelets
from kubestow_devcluster.kubelets.resource_metrics import SimulatedMetrics

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
REPLICA_SETS = "/apis/apps/v1/namespaces/default/replicasets"
REPLICATION_CONTROLLERS = "/api/v1/namespaces/default/replicationcontrollers"
JOBS = "/apis/batch/v1/namespaces/default/jobs"


class Cluster(Client):
    """A client of a cluster whose kubelets and controllers run; ``usage`` is that of the pods."""

    def __init__(self, server: DevCluster, usage: ResourceUsageRules | None = None) -> None:
        super().__init__(server)
        self._usage = None if usage is None else SimulatedMetrics(usage, server.store, server.registry.clock)
        self.tasks = [asyncio.create_task(Kubelets(server.registry).run())]
        self.start_controllers()

    def start_controllers(self) -> None:
        self.tasks.append(asyncio.create_task(ControllerManager(self.server.registry, usage=self._usage).run()))

    def stop_controllers(self) -> None:
        """Stop the controllers at any point; they keep no state."""
        self.tasks.pop().cancel()

    async def items(self, path: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = (await self.get(path)).json["items"]
        return items

    async def pods(self) -> list[dict[str, Any]]:
        return await self.items(PODS)

    async def bind_all(self) -> None:
        """Bind every unscheduled pod to the only node."""
        for pod in await self.pods():
            if not pod["spec"].get("nodeName"):
                name = pod["metadata"]["name"]
                await self.post(f"{PODS}/{name}/binding", {"metadata": {"name": name}, "target": {"name": "n"}})

    async def pass_time(self, seconds: float, *, binding: bool = True) -> None:
        """Let time pass, and bind pods every tenth of a second."""
        for _ in range(int(seconds * 10)):
            await asyncio.sleep(0.1)
            if binding:
                await self.bind_all()

    async def reasons(self) -> list[str]:
        """The reasons of all events of controllers, oldest first."""
        events = await self.items("/api/v1/namespaces/default/events")
        events.sort(key=lambda event: int(event["metadata"]["resourceVersion"]))
        return [event["reason"] for event in events if event["source"]["component"] != "kubelet"]


def run_scenario(scenario: Callable[[Cluster], Awaitable[None]], *, usage: ResourceUsageRules | None = None) -> None:
    """Run a scenario in virtual time, in a cluster with the node ``n``, whose pods have the usage of the rules."""

    async def main() -> None:
        server = DevCluster(kubelets=False, clock=VirtualClock(asyncio.get_running_loop()).now)
        cluster = Cluster(server, usage)
        await cluster.post(NODES, node("n"))
        await scenario(cluster)
        for task in cluster.tasks:
            assert not task.done(), "kubelets and controllers run until they are cancelled"
            task.cancel()

    virtual_time.run(main())


def workload(name: str = "web", *, replicas: int = 3, image: str = "x:1", **spec: Any) -> dict[str, Any]:
    """A Deployment or ReplicaSet."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": image}]}}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template, **spec},
    }
