"""What is seen of a run: bindings and leases at the proxy, nodes and pods by watches that do not pass it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple

from kubestow.client.rest.transport import Transport
from kubestow.errors import APIError, Unreachable
from kubestow_lab.oracle.feasibility import holds_resources
from kubestow_lab.oracle.node_with_pods import NodeWithPods

Object = dict[str, Any]
#: Seconds after which a watch without events is opened anew.
_IDLE_TIMEOUT = 120.0


class BindingRequest(NamedTuple):
    """A binding as the API server answered it; the request reached the proxy when it had ``arrived``, in seconds."""

    client: str
    arrived: float
    pod: str
    uid: str
    node: str
    status: int


class LeaseWrite(NamedTuple):
    """A write of the Lease that took effect; ``holder`` is an identity, or empty."""

    client: str
    time: float
    holder: str


class Observations:
    """Everything seen at the proxy, and the state of the cluster; ``violations`` are rules broken on the way."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.bindings: list[BindingRequest] = []
        self.lease_writes: list[LeaseWrite] = []
        self.violations: list[str] = []
        self.nodes: dict[str, Object] = {}
        self.pods: dict[str, Object] = {}
        #: Seconds from the creation of a pod to its binding, as the watch saw both.
        self.latencies: list[float] = []
        self._seen: dict[str, float] = {}
        self._node_of: dict[str, str] = {}

    def add_binding(self, binding: BindingRequest) -> None:
        self.bindings.append(binding)

    def add_lease_write(self, write: LeaseWrite) -> None:
        self.lease_writes.append(write)

    def set_nodes(self, nodes: list[Object]) -> None:
        """The state of a list."""
        self.nodes = {node["metadata"]["name"]: node for node in nodes}

    def set_pods(self, pods: list[Object]) -> None:
        self.pods = {}
        for pod in pods:
            self.put_pod(pod)

    def put_node(self, node: Object) -> None:
        self.nodes[node["metadata"]["name"]] = node

    def remove_node(self, node: Object) -> None:
        self.nodes.pop(node["metadata"]["name"], None)

    def put_pod(self, pod: Object) -> None:
        """A pod as an event shows it; checks it if it is bound now."""
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName", "")
        self.pods[uid] = pod
        since = self._seen.setdefault(uid, self._clock())
        if not node:
            return
        before = self._node_of.setdefault(uid, node)
        if before != node:
            self.violations.append(f"a pod is bound once: {_name(pod)} was on {before} and is on {node}")
        elif uid in self._seen and since >= 0:
            self.latencies.append(self._clock() - since)
            self._seen[uid] = -1.0
            self._check_allocatable(node, pod)

    def remove_pod(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        self.pods.pop(uid, None)
        self._seen.pop(uid, None)
        self._node_of.pop(uid, None)

    @property
    def pending(self) -> list[Object]:
        return [pod for pod in self.pods.values() if not pod["spec"].get("nodeName") and not _is_terminating(pod)]

    @property
    def bound(self) -> list[Object]:
        return [pod for pod in self.pods.values() if pod["spec"].get("nodeName")]

    def _check_allocatable(self, name: str, bound: Object) -> None:
        """Whether the binding leaves a node within its allocatable, if the watch has seen the node."""
        if name not in self.nodes:
            return
        node = NodeWithPods(self.nodes[name])
        for pod in self.pods.values():
            if pod["spec"].get("nodeName") == name and holds_resources(pod):
                node.add(pod)
        if over := [resource for resource, free in node.free.items() if free < 0]:
            self.violations.append(f"no node is bound above its allocatable: {_name(bound)} on {name}: {over}")


def _is_terminating(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _name(pod: Object) -> str:
    return f"{pod['metadata']['name']} ({pod['metadata']['uid']})"


async def watch(
    transport: Transport,
    path: str,
    *,
    on_list: Callable[[list[Object]], None],
    on_event: Callable[[str, Object], None],
) -> None:
    """List and watch a resource until cancelled."""
    while True:
        with suppress(APIError, Unreachable):
            listed = json.loads(await transport.request("GET", path))
            on_list(listed["items"])
            version = listed["metadata"]["resourceVersion"]
            while (version := await _watch_from(transport, path, version, on_event)) is not None:
                pass
        await asyncio.sleep(0.2)


async def _watch_from(
    transport: Transport, path: str, version: str, on_event: Callable[[str, Object], None]
) -> str | None:
    """Watch until the connection ends; the resourceVersion to go on from, None if it is too old."""
    query = f"watch=1&resourceVersion={version}&allowWatchBookmarks=1"
    with suppress(Unreachable):
        async with transport.stream(f"{path}?{query}", idle_timeout=_IDLE_TIMEOUT) as chunks:
            async for line in _lines(chunks):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return None
                version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    on_event(event["type"], event["object"])
    return version


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    buffered = b""
    async for chunk in chunks:
        *lines, buffered = (buffered + chunk).split(b"\n")
        for line in lines:
            if line:
                yield line


def observers(transport: Transport, observations: Observations) -> list[Awaitable[None]]:
    """The watches that keep ``observations`` current."""

    def on_node(type_: str, node: Object) -> None:
        (observations.remove_node if type_ == "DELETED" else observations.put_node)(node)

    def on_pod(type_: str, pod: Object) -> None:
        (observations.remove_pod if type_ == "DELETED" else observations.put_pod)(pod)

    return [
        watch(transport, "/api/v1/nodes", on_list=observations.set_nodes, on_event=on_node),
        watch(transport, "/api/v1/pods", on_list=observations.set_pods, on_event=on_pod),
    ]
