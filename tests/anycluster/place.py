"""A namespace and nodes of one's own in some cluster, and the requests that tests make there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode
from uuid import uuid4

from kubestow.app import SchedulerApp
from kubestow.client.rest.credentials import Credentials
from kubestow.client.rest.transport import MERGE_PATCH, Transport
from kubestow.errors import APIError
from kubestow.scheduling.ports import ObjectReference

__all__ = ["Object", "Place", "reference"]

Object = dict[str, Any]
_PATIENCE = 30.0
#: Controllers of a real cluster find that nobody reports on our nodes, and taint them.
_TOLERATES_EVERYTHING = [{"operator": "Exists"}]


class Place:
    """Objects are made under names that nobody else has, and deleted on leaving. ``name`` is such a name."""

    def __init__(self, transport: Transport, credentials: Credentials, kubeconfig: str, master: str) -> None:
        self.transport, self.credentials = transport, credentials
        self._kubeconfig, self._master = kubeconfig, master
        self.name = f"kubestow-{uuid4().hex[:10]}"
        self.namespace = f"/api/v1/namespaces/{self.name}"
        self._strewn: list[str] = []

    async def __aenter__(self) -> Self:
        await self.create("/api/v1/namespaces", {"kind": "Namespace", "metadata": {"name": self.name}})
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for pod in (await self.request("GET", f"{self.namespace}/pods"))["items"]:
            await self._remove(f"{self.namespace}/pods/{pod['metadata']['name']}", gracePeriodSeconds=0)
        for path in reversed(self._strewn):
            await self._remove(path)

    async def _remove(self, path: str, **options: Any) -> None:
        with suppress(APIError):
            await self.request("DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", **options})

    # -- requests

    async def request(self, method: str, path: str, body: Object | None = None, *, content_type: str = "") -> Object:
        """The decoded answer of a request. Raises APIError."""
        content = None if body is None else json.dumps(body).encode()
        options = {"content_type": content_type} if content_type else {}
        answer: Object = json.loads(await self.transport.request(method, path, content, **options))
        return answer

    async def create(self, collection: str, obj: Object) -> Object:
        """An object as the server has it after its creation; what is outside the namespace is remembered for later."""
        group = collection.removeprefix("/api/").removeprefix("/apis/").partition("/namespaces/")[0]
        version = group if "/namespaces/" in collection else group.rpartition("/")[0]
        created = await self.request("POST", collection, {"apiVersion": version, **obj})
        if not collection.startswith(self.namespace) and "/namespaces/" not in collection:
            self._strewn.append(f"{collection}/{created['metadata']['name']}")
        return created

    async def node(self, name: str, *, cpu: str = "4", **spec: Any) -> str:
        """The name of a new node, of which only our pods know the label."""
        metadata = {"name": f"{self.name}-{name}", "labels": {"kubestow.dev/test": self.name}}
        node = await self.create("/api/v1/nodes", {"kind": "Node", "metadata": metadata, "spec": spec})
        name = node["metadata"]["name"]
        room = {"cpu": cpu, "memory": "8Gi", "pods": "10"}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "a node of a test"}
        status = {"capacity": room, "allocatable": room, "conditions": [ready]}
        await self.request("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, content_type=MERGE_PATCH)
        return str(name)

    async def pod(self, name: str, *, cpu: str = "1", **spec: Any) -> Object:
        """A new pod for the scheduler and the nodes of this place; unknown to the cluster's own scheduler."""
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
        """A pod as it is now."""
        return await self.request("GET", f"{self.namespace}/pods/{name}")

    async def watch(self, collection: str, **query: str) -> AsyncIterator[Object]:
        """The events of a watch, without end."""
        path = f"{collection}?{urlencode({'watch': 'true', **query})}"
        async with asyncio.timeout(_PATIENCE), self.transport.stream(path, idle_timeout=_PATIENCE) as chunks:
            rest = b""
            async for chunk in chunks:
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield json.loads(line)

    async def until(self, collection: str, name: str, holds: Callable[[Object], object]) -> Object:
        """The named object, as soon as something holds of it."""
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
        raise AssertionError(f"the watch of {collection} ended before {name} was as expected")

    # -- scheduling

    @asynccontextmanager
    async def scheduler(self) -> AsyncIterator[None]:
        """A scheduler for the pods of this place runs."""
        source = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "profiles": [{"schedulerName": self.name}],
        }
        ready = asyncio.Event()
        live = SchedulerApp.create(source=source)
        running = asyncio.create_task(
            live.run(kubeconfig=self._kubeconfig, master=self._master, on_ready=lambda scheduler: ready.set())
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
    """Names a pod, perhaps by another uid than its own."""
    metadata = pod["metadata"]
    return ObjectReference("Pod", metadata["namespace"], metadata["name"], uid or metadata["uid"])
