"""The embedded API server of a benchmark, as a process: ``python -m kubestow_devcluster.bare_apiserver``.

Like the server of scheduler_perf it has no kubelets, and no controllers but those of ResourceClaims. It prints what
``kubestow apiserver`` prints.
"""

from __future__ import annotations

import asyncio
import signal
import sys

from kubestow_devcluster.apiserver.server.api_server import APIServerOptions
from kubestow_devcluster.cluster import DevCluster
from kubestow_devcluster.controller_manager import ControllerManager
from kubestow_devcluster.controllers.resource_claims import ResourceClaimController, ResourceClaimTemplateController

_CONTROLLERS = (ResourceClaimTemplateController, ResourceClaimController)


async def _serve() -> None:
    async with DevCluster(kubelets=False, apiserver=APIServerOptions(port=0)) as cluster:
        manager = ControllerManager(cluster.registry, controllers=_CONTROLLERS)
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stopped.set)
        tasks = [asyncio.create_task(work) for work in (manager.run(), cluster.failed(), stopped.wait())]
        sys.stdout.write(f"serving the Kubernetes API on {cluster.url}\nready\n")
        sys.stdout.flush()
        finished, running = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for task in finished:
            task.result()


def main() -> None:
    """Serve until SIGINT or SIGTERM."""
    asyncio.run(_serve())


if __name__ == "__main__":
    main()
