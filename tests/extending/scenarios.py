"""Stories over HTTP: an API server, a scheduler on it as ``kubestow run`` starts one, and extenders as processes."""

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

from kubestow.app import SchedulerApp
from kubestow.config import API_VERSION, KIND
from kubestow.devcluster.cluster import DevCluster

_PROCESS = Path(__file__).parent / "process.py"


@dataclass
class Running:
    """An extender's process."""

    url: str
    process: asyncio.subprocess.Process
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    async def listen(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            verb, body = json.loads(line)
            self.asked.append((verb, body))
            self._news.set()

    async def first(self, verb: str) -> dict[str, Any]:
        """The body of the first request of a verb."""
        async with asyncio.timeout(20):
            while verb not in self.verbs():
                self._news.clear()
                await self._news.wait()
        return next(body for asked, body in self.asked if asked == verb)

    async def stop(self) -> None:
        if self.process.returncode is None:
            self.process.terminate()
            await self.process.wait()

    def verbs(self) -> list[str]:
        return [verb for verb, _ in self.asked]


@asynccontextmanager
async def extender(**settings: Any) -> AsyncIterator[Running]:
    """An extender's process, see :mod:`.process` for its settings."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(_PROCESS), json.dumps(settings), stdout=asyncio.subprocess.PIPE, limit=2**24
    )
    assert process.stdout is not None
    port = int(await process.stdout.readline())
    running = Running(f"http://127.0.0.1:{port}", process)
    listening = asyncio.create_task(running.listen())
    try:
        yield running
    finally:
        await running.stop()
        await listening


class Story:
    """A cluster with a scheduler, looked at and changed from outside."""

    def __init__(self, server: DevCluster) -> None:
        self.server = server

    async def create(self, path: str, obj: dict[str, Any]) -> None:
        """POST an object to a collection."""
        await self._ask("POST", path, obj)

    async def node(self, name: str, *, labels: dict[str, str] | None = None, **allocatable: str) -> None:
        """A node of one CPU."""
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
        """A pod that tolerates nodes which nobody has declared ready."""
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
        """The node of a pod, once it has one."""
        return str(await self._told(name, lambda pod: pod["spec"].get("nodeName")))

    async def refused(self, name: str) -> str:
        """Why a pod cannot be scheduled, once that is known."""
        (condition,) = await self._told(name, lambda pod: pod["status"].get("conditions"))
        return str(condition["message"])

    async def _told(self, name: str, what: Callable[[dict[str, Any]], Any]) -> Any:
        """Something of a pod, once a watch tells it."""
        url = f"{self.server.url}/api/v1/namespaces/default/pods?watch=1&fieldSelector=metadata.name%3D{name}"
        async with (
            aiohttp.ClientSession() as session,
            asyncio.timeout(20),
            session.get(URL(url, encoded=True)) as watch,
        ):
            async for line in watch.content:
                if found := what(json.loads(line)["object"]):
                    return found
        raise AssertionError("the watch has ended")

    async def _ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, self.server.url + path, json=body) as response,
        ):
            answer: dict[str, Any] = await response.json()
            assert response.status < 300, answer
            return answer


@asynccontextmanager
async def cluster(*nodes: str, **labelled: dict[str, str]) -> AsyncIterator[DevCluster]:
    """An API server with some nodes that do nothing, by name, or by name and labels."""
    async with DevCluster(kubelets=False) as server:
        for name, labels in {**dict.fromkeys(nodes), **labelled}.items():
            await Story(server).node(name, labels=labels)
        yield server


@asynccontextmanager
async def story(server: DevCluster, *extenders: dict[str, Any], **configured: Any) -> AsyncIterator[Story]:
    """A scheduler with some extenders, as configured, on an API server."""
    document = {"apiVersion": API_VERSION, "kind": KIND, "extenders": list(extenders), **configured}
    document["leaderElection"] = {"leaderElect": False}
    live, ready = SchedulerApp.create(source=document, seed=1), asyncio.Event()
    async with AsyncExitStack() as stack:
        running = asyncio.create_task(
            live.run(kubeconfig="", master=server.url, on_ready=lambda scheduler: ready.set())
        )
        stack.push_async_callback(_ended, running)
        async with asyncio.timeout(20):
            await ready.wait()
        yield Story(server)


async def _ended(running: asyncio.Task[None]) -> None:
    running.cancel()
    await asyncio.wait((running,))
