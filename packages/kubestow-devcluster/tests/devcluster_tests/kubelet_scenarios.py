"""Scenarios with kubelets only, in virtual time: tests create the nodes and bind the pods."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from devcluster_tests.client import NODES, PODS, Client, node, pod
from kubestow.testing import virtual_time
from kubestow.testing.virtual_time import VirtualClock
from kubestow_devcluster.behaviour.stages import NO_STAGES, Stages
from kubestow_devcluster.cluster import DevCluster
from kubestow_devcluster.kubelets.kubelets import Kubelets


def run_scenario(scenario: Callable[[Client], Awaitable[None]], stages: Stages = NO_STAGES) -> None:
    """Run a scenario against an API server with simulated kubelets, which follow the rules of ``stages``."""

    async def main() -> None:
        server = DevCluster(kubelets=False, clock=VirtualClock(asyncio.get_running_loop()).now)
        kubelets = asyncio.create_task(Kubelets(server.registry, stages=stages).run())
        await scenario(Client(server))
        assert not kubelets.done(), "kubelets run until they are cancelled"
        kubelets.cancel()

    virtual_time.run(main())


async def run_simple_pod(client: Client, name: str = "p", **annotations: str) -> None:
    """Create a pod with one container and bind it to the node ``n``."""
    await run_pod(client, pod(name), **annotations)


async def run_pod(client: Client, new: dict[str, Any], **annotations: str) -> None:
    """Create a pod with these annotations and bind it to the node ``n``; ``_`` in a keyword stands for ``/``."""
    name = new["metadata"]["name"]
    await client.post(NODES, node("n"))
    new["metadata"]["annotations"] = {key.replace("_", "/"): value for key, value in annotations.items()}
    await client.post(PODS, new)
    await bind(client, name)


async def bind(client: Client, name: str = "p") -> None:
    await client.post(f"{PODS}/{name}/binding", {"metadata": {"name": name}, "target": {"name": "n"}})


async def phase(client: Client, name: str = "p") -> str:
    """The pod's phase, or ``deleted``."""
    response = await client.get(f"{PODS}/{name}")
    return str(response.json["status"]["phase"]) if response.status == 200 else "deleted"


async def status_of(client: Client, name: str = "p") -> dict[str, Any]:
    status: dict[str, Any] = (await client.get(f"{PODS}/{name}")).json["status"]
    return status


async def observed_states(client: Client, seconds: float) -> list[str]:
    """The states of the pod that ``kubectl get pods`` shows over time, polled every tenth of a second."""
    states: list[str] = []
    for _ in range(int(seconds * 10)):
        table = (await client.get(f"{PODS}/p", accept="application/json;as=Table;v=v1;g=meta.k8s.io")).json
        cells = table["rows"][0]["cells"]
        state = f"{cells[2]} {cells[1]}"
        if not states or states[-1] != state:
            states.append(state)
        await asyncio.sleep(0.1)
    return states
