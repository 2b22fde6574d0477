"""``kubestow run`` as processes that share a Lease, on an embedded API server."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kubestow.devcluster.cluster import DevCluster
from tests.devcluster.client import PODS, Client, pod

__all__ = ["LEASE", "Candidate", "Field", "field"]

LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"
_CONFIG = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "leaderElection": {"leaderElect": True, "leaseDuration": "6s", "renewDeadline": "5s", "retryPeriod": "0.5s"},
}


class Candidate:
    """One process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def says(self, message: str) -> str:
        """The next line of its log with this message."""
        assert self.process.stderr is not None
        async with asyncio.timeout(60):
            while line := (await self.process.stderr.readline()).decode().strip():
                if f'"{message}"' in line:
                    return line
        raise AssertionError(f"it ended without saying {message!r}")

    async def ended(self) -> tuple[int, str]:
        """Its exit status and the last line on standard error."""
        async with asyncio.timeout(60):
            _, err = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, (err.decode().strip().splitlines() or [""])[-1]


class Field:
    """The server and the candidates; ``moves`` are pods that changed their node."""

    def __init__(self, server: DevCluster, config: Path) -> None:
        self.ask = Client(server)
        self.url = server.url
        self._config = config
        self.candidates: list[Candidate] = []

    async def candidate(self) -> Candidate:
        """Start one more; it knows who leads."""
        flags = ("--master", self.url, "--config", str(self._config), "--secure-port=0")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "kubestow", "run", *flags, stderr=asyncio.subprocess.PIPE
        )
        there = Candidate(process)
        self.candidates.append(there)
        await there.says("New leader elected")
        return there

    async def create(self, first: int, count: int) -> None:
        """Create pods, one after the other."""
        for number in range(first, first + count):
            assert (await self.ask.post(PODS, pod(f"pod-{number}"))).status == 201
            await asyncio.sleep(0)

    async def nodes_of(self) -> dict[str, str]:
        """The node of every pod, "" while it has none."""
        items = (await self.ask.get(PODS)).json["items"]
        return {item["metadata"]["name"]: item["spec"].get("nodeName", "") for item in items}

    async def bound(self, count: int) -> dict[str, str]:
        """Wait until so many pods are bound."""
        async with asyncio.timeout(60):
            while True:
                nodes = await self.nodes_of()
                if sum(1 for there in nodes.values() if there) >= count:
                    return nodes
                await asyncio.sleep(0.02)

    async def lease(self) -> Any:
        """The Lease as it is."""
        return (await self.ask.get(LEASE)).json


@asynccontextmanager
async def field(home: Path, nodes: int) -> AsyncIterator[Field]:
    """A server with some nodes; what runs in the end is killed."""
    config = home / "config.json"
    config.write_text(json.dumps(_CONFIG))
    server = DevCluster(nodes=nodes)
    await server.start()
    there = Field(server, config)
    try:
        yield there
    finally:
        for candidate in there.candidates:
            if candidate.process.returncode is None:
                candidate.process.kill()
            await candidate.process.wait()
        await server.stop()
