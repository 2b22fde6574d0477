"""Simulated nodes in virtual time, with nobody else at work, and pods put on them by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from kubestow.devcluster.cluster import DevCluster
from kubestow.devcluster.kubelets import Kubelets
from kubestow.testing import virtual_time
from kubestow.testing.virtual_time import VirtualClock
from tests.devcluster.client import NODES, PODS, Client, node, pod

__all__ = ["bound", "phase", "run_pod", "seen", "simulated", "status_of"]


def simulated(story: Callable[[Client], Awaitable[None]]) -> None:
    """Run a story against a server whose nodes are simulated."""

    async def main() -> None:
        server = DevCluster(simulate=False, clock=VirtualClock(asyncio.get_running_loop()).now)
        kubelets = asyncio.create_task(Kubelets(server.registry).run())
        await story(Client(server))
        kubelets.cancel()

    virtual_time.run(main())


async def bound(client: Client, name: str = "p", **annotations: str) -> None:
    await run_pod(client, pod(name), **annotations)


async def run_pod(client: Client, new: dict[str, Any], **annotations: str) -> None:
    """Put a pod on the node ``n``."""
    name = new["metadata"]["name"]
    await client.post(NODES, node("n"))
    new["metadata"]["annotations"] = {key.replace("_", "/"): value for key, value in annotations.items()}
    await client.post(PODS, new)
    await client.post(f"{PODS}/{name}/binding", {"metadata": {"name": name}, "target": {"name": "n"}})


async def phase(client: Client, name: str = "p") -> str:
    response = await client.get(f"{PODS}/{name}")
    return str(response.json["status"]["phase"]) if response.status == 200 else "gone"


async def status_of(client: Client, name: str = "p") -> dict[str, Any]:
    status: dict[str, Any] = (await client.get(f"{PODS}/{name}")).json["status"]
    return status


async def seen(client: Client, seconds: float) -> list[str]:
    """What kubectl shows as the pod's state over some time, looking every tenth of a second."""
    words: list[str] = []
    for _ in range(int(seconds * 10)):
        table = (await client.get(f"{PODS}/p", accept="application/json;as=Table;v=v1;g=meta.k8s.io")).json
        cells = table["rows"][0]["cells"]
        word = f"{cells[2]} {cells[1]}"
        if not words or words[-1] != word:
            words.append(word)
        await asyncio.sleep(0.1)
    return words
