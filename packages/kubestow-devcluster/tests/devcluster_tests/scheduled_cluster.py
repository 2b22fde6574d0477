"""The cluster of ``kubestow up`` in the process of the tests, which saves the start of two processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

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
