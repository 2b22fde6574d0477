"""The cluster of ``kubestow up`` in the process of the tests, which saves the start of two processes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count

import aiohttp

from kubestow.cli.embedded import SchedulerArguments
from kubestow_devcluster.behaviour.stages import NO_STAGES
from kubestow_devcluster.cluster import ControllerManagerOptions, DevCluster


@asynccontextmanager
async def scheduled_cluster(nodes: int) -> AsyncIterator[DevCluster]:
    """A cluster with simulated nodes, all controllers, and a scheduler as ``kubestow up`` configures it."""
    controllers = ControllerManagerOptions()
    async with DevCluster(nodes=nodes, controller_manager=controllers, stages=NO_STAGES) as cluster:
        app, ready = SchedulerArguments().create_app(), asyncio.Event()
        running = asyncio.create_task(
            app.run(kubeconfig="", master=cluster.url, on_ready=lambda scheduler: ready.set())
        )
        started = asyncio.create_task(ready.wait())
        await asyncio.wait((running, started), return_when=asyncio.FIRST_COMPLETED)
        started.cancel()
        if running.done():
            running.result()
        try:
            yield cluster
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


async def wait_until_cordon_is_seen(url: str, session: aiohttp.ClientSession, node: str) -> None:
    """Create pods for a node until the scheduler, whose watch may be late, rejects one; none is left."""
    pods = f"{url}/api/v1/namespaces/kube-system/pods"
    spec = {"nodeSelector": {"kubernetes.io/hostname": node}, "containers": [{"name": "c", "image": "probe"}]}
    for number in count():
        async with session.post(pods, json={"metadata": {"name": f"probe-{number}"}, "spec": spec}) as response:
            assert response.status == 201
        selector = f"fieldSelector=metadata.name=probe-{number}"
        is_rejected = False
        async with session.get(f"{pods}?watch=true&{selector}") as watch:
            async for line in watch.content:
                found = json.loads(line)["object"]
                conditions = found["status"].get("conditions", [])
                is_rejected = any(condition.get("reason") == "Unschedulable" for condition in conditions)
                if is_rejected or found["spec"].get("nodeName"):
                    break
        async with session.delete(f"{pods}/probe-{number}", json={"gracePeriodSeconds": 0}):
            pass
        if is_rejected:
            return
