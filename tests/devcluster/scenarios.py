"""A cluster in virtual time: an API server with controllers and simulated nodes, and a scheduler of one line."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from kubestow.devcluster.cluster import DevCluster
from kubestow.devcluster.controllers import Controllers
from kubestow.devcluster.kubelets import Kubelets
from kubestow.testing import virtual_time
from kubestow.testing.virtual_time import VirtualClock
from tests.devcluster.client import NODES, PODS, Client, node

__all__ = ["DEPLOYMENTS", "JOBS", "REPLICATION_CONTROLLERS", "REPLICA_SETS", "Cluster", "told", "workload"]

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
REPLICA_SETS = "/apis/apps/v1/namespaces/default/replicasets"
REPLICATION_CONTROLLERS = "/api/v1/namespaces/default/replicationcontrollers"
JOBS = "/apis/batch/v1/namespaces/default/jobs"


class Cluster(Client):
    """A client that sees what a cluster does by itself."""

    def __init__(self, server: DevCluster) -> None:
        super().__init__(server)
        self.tasks = [asyncio.create_task(Kubelets(server.registry).run())]
        self.start_controllers()

    def start_controllers(self) -> None:
        self.tasks.append(asyncio.create_task(Controllers(self.server.registry).run()))

    def stop_controllers(self) -> None:
        """Stop them in the middle of whatever they do; they remember nothing."""
        self.tasks.pop().cancel()

    async def items(self, path: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = (await self.get(path)).json["items"]
        return items

    async def pods(self) -> list[dict[str, Any]]:
        return await self.items(PODS)

    async def bind_all(self) -> None:
        """Put every pod that has no node on the only one."""
        for pod in await self.pods():
            if not pod["spec"].get("nodeName"):
                name = pod["metadata"]["name"]
                await self.post(f"{PODS}/{name}/binding", {"metadata": {"name": name}, "target": {"name": "n"}})

    async def pass_time(self, seconds: float, *, binding: bool = True) -> None:
        """Let time pass, with pods bound every tenth of a second."""
        for _ in range(int(seconds * 10)):
            await asyncio.sleep(0.1)
            if binding:
                await self.bind_all()

    async def reasons(self) -> list[str]:
        """What events of controllers tell, the oldest first."""
        events = await self.items("/api/v1/namespaces/default/events")
        events.sort(key=lambda one: int(one["metadata"]["resourceVersion"]))
        return [event["reason"] for event in events if event["source"]["component"] != "kubelet"]


def told(story: Callable[[Cluster], Awaitable[None]]) -> None:
    """Run a story in virtual time."""

    async def main() -> None:
        server = DevCluster(simulate=False, clock=VirtualClock(asyncio.get_running_loop()).now)
        cluster = Cluster(server)
        await cluster.post(NODES, node("n"))
        await story(cluster)
        for task in cluster.tasks:
            assert not task.done(), "simulation and controllers run until they are stopped"
            task.cancel()

    virtual_time.run(main())


def workload(name: str = "web", *, replicas: int = 3, image: str = "x:1", **spec: Any) -> dict[str, Any]:
    """A deployment or replica set."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": image}]}}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template, **spec},
    }
