"""``kubestow run`` processes that share a Lease, with an embedded API server."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from core_tests.hang_limit import HANG_LIMIT
from devcluster_tests.client import PODS, Client, pod
from kubestow_devcluster.cluster import DevCluster

LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"
_CONFIG = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "leaderElection": {"leaderElect": True, "leaseDuration": "6s", "renewDeadline": "5s", "retryPeriod": "0.5s"},
}


class Candidate:
    """A process that takes part in leader election."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def logs(self, message: str) -> str:
        """Wait for the next log line with this message."""
        assert self.process.stderr is not None
        async with asyncio.timeout(HANG_LIMIT):
            while line := (await self.process.stderr.readline()).decode().strip():
                if f'"{message}"' in line:
                    return line
        raise AssertionError(f"the process ended without logging {message!r}")

    async def ended(self) -> tuple[int, str]:
        """Wait for the end; the exit status and the last line on standard error."""
        async with asyncio.timeout(HANG_LIMIT):
            _, err = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, (err.decode().strip().splitlines() or [""])[-1]


class ElectionHarness:
    """An API server and the scheduler processes that compete for its Lease."""

    def __init__(self, server: DevCluster, config: Path) -> None:
        self.client = Client(server)
        self.url = server.url
        self._config = config
        self.candidates: list[Candidate] = []

    async def candidate(self) -> Candidate:
        """Start a process and wait until it has observed the leader."""
        flags = ("--master", self.url, "--config", str(self._config), "--secure-port=0")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "kubestow", "run", *flags, stderr=asyncio.subprocess.PIPE
        )
        candidate = Candidate(process)
        self.candidates.append(candidate)
        await candidate.logs("New leader elected")
        return candidate

    async def create(self, first: int, count: int) -> None:
        """Create pods sequentially."""
        for number in range(first, first + count):
            assert (await self.client.post(PODS, pod(f"pod-{number}"))).status == 201
            await asyncio.sleep(0)

    async def nodes_of(self) -> dict[str, str]:
        """The node of every pod, or "" if it is not bound."""
        items = (await self.client.get(PODS)).json["items"]
        return {item["metadata"]["name"]: item["spec"].get("nodeName", "") for item in items}

    async def bound(self, count: int) -> dict[str, str]:
        """Wait until ``count`` pods are bound; the node of every pod."""
        async with asyncio.timeout(HANG_LIMIT):
            while True:
                nodes = await self.nodes_of()
                if sum(1 for node in nodes.values() if node) >= count:
                    return nodes
                await asyncio.sleep(0.02)

    async def lease(self) -> Any:
        """The current Lease."""
        return (await self.client.get(LEASE)).json


@asynccontextmanager
async def election_harness(directory: Path, nodes: int) -> AsyncIterator[ElectionHarness]:
    """An API server with nodes; remaining scheduler processes are killed on exit."""
    config = directory / "config.json"
    config.write_text(json.dumps(_CONFIG))
    server = DevCluster(nodes=nodes)
    await server.start()
    harness = ElectionHarness(server, config)
    try:
        yield harness
    finally:
        for candidate in harness.candidates:
            if candidate.process.returncode is None:
                candidate.process.kill()
            await candidate.process.wait()
        await server.stop()
