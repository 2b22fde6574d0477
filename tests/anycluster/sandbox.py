"""A sandbox in a cluster: its own namespace and nodes, and the requests that tests send."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode
from uuid import uuid4

from kubestow.cli.scheduler_app import SchedulerApp
from kubestow.client.rest.credentials import Credentials
from kubestow.client.rest.transport import JSON, MERGE_PATCH, Transport
from kubestow.errors import APIError
from kubestow.scheduling.interfaces import ObjectReference

Object = dict[str, Any]
_TIMEOUT = 30.0
#: The node lifecycle controller of a real cluster taints nodes without a heartbeat.
_TOLERATES_EVERYTHING = [{"operator": "Exists"}]


class ClusterSandbox:
    """Creates objects under the unique name ``name``, and deletes them on exit."""

    def __init__(self, transport: Transport, credentials: Credentials, kubeconfig: str, master: str) -> None:
        self.transport, self.credentials = transport, credentials
        self._kubeconfig, self._master = kubeconfig, master
        self.name = f"kubestow-{uuid4().hex[:10]}"
        self.namespace = f"/api/v1/namespaces/{self.name}"
        self._cluster_scoped: list[str] = []

    async def __aenter__(self) -> Self:
        await self.create("/api/v1/namespaces", {"kind": "Namespace", "metadata": {"name": self.name}})
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for pod in (await self.request("GET", f"{self.namespace}/pods"))["items"]:
            await self._remove(f"{self.namespace}/pods/{pod['metadata']['name']}", gracePeriodSeconds=0)
        for path in reversed(self._cluster_scoped):
            await self._remove(path)

    async def _remove(self, path: str, **options: Any) -> None:
        with suppress(APIError):
            await self.request("DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", **options})

    # -- requests

    async def request(self, method: str, path: str, body: Object | None = None, *, content_type: str = JSON) -> Object:
        """Send a request and decode its response. Raises APIError."""
        content = None if body is None else json.dumps(body).encode()
        decoded: Object = json.loads(await self.transport.request(method, path, content, content_type=content_type))
        return decoded

    async def create(self, collection: str, obj: Object) -> Object:
        """Create and return an object; cluster-scoped ones are recorded for their deletion."""
        group = collection.removeprefix("/api/").removeprefix("/apis/").partition("/namespaces/")[0]
        version = group if "/namespaces/" in collection else group.rpartition("/")[0]
        created = await self.request("POST", collection, {"apiVersion": version, **obj})
        if not collection.startswith(self.namespace) and "/namespaces/" not in collection:
            self._cluster_scoped.append(f"{collection}/{created['metadata']['name']}")
        return created

    async def node(self, name: str, *, cpu: str = "4", **spec: Any) -> str:
        """Create a ready node with the sandbox's label; its name."""
        metadata = {"name": f"{self.name}-{name}", "labels": {"kubestow.dev/test": self.name}}
        node = await self.create("/api/v1/nodes", {"kind": "Node", "metadata": metadata, "spec": spec})
        name = node["metadata"]["name"]
        resources = {"cpu": cpu, "memory": "8Gi", "pods": "10"}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "a node of a test"}
        status = {"capacity": resources, "allocatable": resources, "conditions": [ready]}
        await self.request("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, content_type=MERGE_PATCH)
        return str(name)

    async def pod(self, name: str, *, cpu: str = "1", **spec: Any) -> Object:
        """Create a pod for the scheduler and the nodes of this sandbox; the cluster's own scheduler ignores it."""
        container = {"name": "c", "image": "example.invalid/none", "resources": {"requests": {"cpu": cpu}}}
        ours = {
            "schedulerName": self.name,
            "nodeSelector": {"kubestow.dev/test": self.name},
            "tolerations": _TOLERATES_EVERYTHING,
            "containers": [container],
            "automountServiceAccountToken": False,
        }
        pod = {"kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": ours | spec}
        return await self.create(f"{self.namespace}/pods", pod)

    async def read(self, name: str) -> Object:
        """Read a pod."""
        return await self.request("GET", f"{self.namespace}/pods/{name}")

    async def watch(self, collection: str, **query: str) -> AsyncIterator[Object]:
        """The events of a watch, until the caller stops or thirty seconds have passed."""
        path = f"{collection}?{urlencode({'watch': 'true', **query})}"
        async with asyncio.timeout(_TIMEOUT), self.transport.stream(path, idle_timeout=_TIMEOUT) as chunks:
            rest = b""
            async for chunk in chunks:
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield json.loads(line)

    async def until(self, collection: str, name: str, holds: Callable[[Object], object]) -> Object:
        """Wait until a condition holds for the named object; the object."""
        listed = await self.request("GET", collection)
        for item in listed["items"]:
            if item["metadata"]["name"] == name and holds(item):
                found: Object = item
                return found
        version = listed["metadata"]["resourceVersion"]
        async for event in self.watch(collection, resourceVersion=version):
            obj: Object = event["object"]
            if obj["metadata"].get("name") == name and holds(obj):
                return obj
        raise AssertionError(f"the watch of {collection} ended before {name} met the condition")

    # -- scheduling

    @asynccontextmanager
    async def scheduler(self) -> AsyncIterator[None]:
        """Run a scheduler for the pods of this sandbox until the block ends."""
        source = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "profiles": [{"schedulerName": self.name}],
        }
        ready = asyncio.Event()
        app = SchedulerApp.create(source=source)
        running = asyncio.create_task(
            app.run(kubeconfig=self._kubeconfig, master=self._master, on_ready=lambda scheduler: ready.set())
        )
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
        try:
            yield
        finally:
            waiting.cancel()
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


def reference(pod: Object, *, uid: str = "") -> ObjectReference:
    """A reference to a pod, by default with its own uid."""
    metadata = pod["metadata"]
    return ObjectReference("Pod", metadata["namespace"], metadata["name"], uid or metadata["uid"])
