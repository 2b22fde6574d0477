"""A harness for extender tests: an API server, a scheduler as in ``kubestow run``, and extender processes."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from yarl import URL

from core_tests.hang_limit import HANG_LIMIT
from kubestow.cli.scheduler_app import SchedulerApp
from kubestow.config import API_VERSION, KIND
from kubestow_devcluster.cluster import DevCluster

_PROCESS = Path(__file__).parent / "extender_process.py"


@dataclass
class ExtenderProcess:
    """A running extender process; ``requests`` are the (verb, body) pairs that it received."""

    url: str
    process: asyncio.subprocess.Process
    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    _received: asyncio.Event = field(default_factory=asyncio.Event)

    async def read_requests(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            verb, body = json.loads(line)
            self.requests.append((verb, body))
            self._received.set()

    async def first(self, verb: str) -> dict[str, Any]:
        """Wait for the first request of a verb; its body."""
        async with asyncio.timeout(HANG_LIMIT):
            while verb not in self.verbs():
                self._received.clear()
                await self._received.wait()
        return next(body for received, body in self.requests if received == verb)

    async def stop(self) -> None:
        if self.process.returncode is None:
            self.process.terminate()
            await self.process.wait()

    def verbs(self) -> list[str]:
        return [verb for verb, _ in self.requests]


@asynccontextmanager
async def extender(**settings: Any) -> AsyncIterator[ExtenderProcess]:
    """Run an extender process with the settings of :mod:`.extender_process`."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(_PROCESS), json.dumps(settings), stdout=asyncio.subprocess.PIPE, limit=2**24
    )
    assert process.stdout is not None
    port = int(await process.stdout.readline())
    running = ExtenderProcess(f"http://127.0.0.1:{port}", process)
    reading = asyncio.create_task(running.read_requests())
    try:
        yield running
    finally:
        await running.stop()
        await reading


class ClusterHarness:
    """A cluster with a scheduler, observed and changed over HTTP."""

    def __init__(self, server: DevCluster) -> None:
        self.server = server

    async def create(self, path: str, obj: dict[str, Any]) -> None:
        """POST an object to a collection."""
        await self._request("POST", path, obj)

    async def node(self, name: str, *, labels: dict[str, str] | None = None, **allocatable: str) -> None:
        """Create a node with one CPU."""
        amounts = {"cpu": "1", "memory": "4Gi", "pods": "110", **allocatable}
        status = {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
        metadata = {"name": name, "annotations": {"colour": "green"}, "labels": labels or {}}
        await self.create("/api/v1/nodes", {"metadata": metadata, "status": status})

    async def pod(
        self,
        name: str,
        *,
        labels: dict[str, str] | None = None,
        priority: int | None = None,
        requests: dict[str, str] | None = None,
    ) -> None:
        """Create a pod that tolerates all taints."""
        container = {"name": "c", "image": "i", "resources": {"requests": requests or {}, "limits": requests or {}}}
        spec: dict[str, Any] = {"containers": [container], "terminationGracePeriodSeconds": 0}
        spec["tolerations"] = [{"operator": "Exists"}]
        if priority is not None:
            spec["priorityClassName"] = name
            group = "/apis/scheduling.k8s.io/v1/priorityclasses"
            await self.create(group, {"metadata": {"name": name}, "value": priority})
        await self.create(
            "/api/v1/namespaces/default/pods", {"metadata": {"name": name, "labels": labels or {}}, "spec": spec}
        )

    async def bound(self, name: str) -> str:
        """Wait until a pod is bound; its node."""
        return str(await self._wait_for(name, lambda pod: pod["spec"].get("nodeName")))

    async def unschedulable_message(self, name: str) -> str:
        """Wait until a pod has a condition; its message."""
        (condition,) = await self._wait_for(name, lambda pod: pod["status"].get("conditions"))
        return str(condition["message"])

    async def _wait_for(self, name: str, read: Callable[[dict[str, Any]], Any]) -> Any:
        """Watch a pod until ``read`` returns something."""
        url = f"{self.server.url}/api/v1/namespaces/default/pods?watch=1&fieldSelector=metadata.name%3D{name}"
        async with (
            aiohttp.ClientSession() as session,
            asyncio.timeout(HANG_LIMIT),
            session.get(URL(url, encoded=True)) as watch,
        ):
            async for line in watch.content:
                if found := read(json.loads(line)["object"]):
                    return found
        raise AssertionError("the watch ended")

    async def _request(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, self.server.url + path, json=body) as response,
        ):
            result: dict[str, Any] = await response.json()
            assert response.status < 300, result
            return result


@asynccontextmanager
async def api_server(*nodes: str, **labelled: dict[str, str]) -> AsyncIterator[DevCluster]:
    """An API server with nodes without kubelets, by name, or by name and labels."""
    async with DevCluster(kubelets=False) as server:
        for name, labels in {**dict.fromkeys(nodes), **labelled}.items():
            await ClusterHarness(server).node(name, labels=labels)
        yield server


@asynccontextmanager
async def running_scheduler(
    server: DevCluster, *extenders: dict[str, Any], **configured: Any
) -> AsyncIterator[ClusterHarness]:
    """Run a scheduler with extenders on an API server."""
    document = {"apiVersion": API_VERSION, "kind": KIND, "extenders": list(extenders), **configured}
    document["leaderElection"] = {"leaderElect": False}
    app, ready = SchedulerApp.create(source=document, seed=1), asyncio.Event()
    async with AsyncExitStack() as stack:
        running = asyncio.create_task(app.run(kubeconfig="", master=server.url, on_ready=lambda scheduler: ready.set()))
        stack.push_async_callback(_cancel, running)
        async with asyncio.timeout(HANG_LIMIT):
            await ready.wait()
        yield ClusterHarness(server)


async def _cancel(running: asyncio.Task[None]) -> None:
    running.cancel()
    await asyncio.wait((running,))
