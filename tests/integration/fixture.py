"""The stage: an API server behind a socket, schedulers that speak HTTP with it, and a view of what happens there.

Nothing here waits for time to pass. What a test waits for is asked again whenever its own watch of pods, or the
scheduler's watch of everything, has brought news, up to a deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec

from kubestow.api.core import Pod
from kubestow.api.meta import APIObject, ObjectMeta
from kubestow.app import SchedulerApp
from kubestow.client.cluster_client import ClusterClient
from kubestow.client.rest.credentials import Credentials
from kubestow.client.rest.transport import MERGE_PATCH, Transport
from kubestow.framework.interface import Plugin
from kubestow.scheduling.events.resources import CATALOGUED, NODES, PODS
from kubestow.scheduling.ports import Resource
from kubestow.scheduling.queued_pod import Place, QueuedPod
from kubestow.scheduling.scheduler import Scheduler
from kubestow.wall_clock import WallClock

__all__ = ["Event", "Object", "Stage", "Troupe", "as_sent"]

Object = dict[str, Any]
_DEADLINE = 20.0
_RESOURCES = {resource.type: resource for resource in (PODS, NODES, *CATALOGUED)}


class _Named(APIObject, frozen=True):
    name: str = ""


class Event(APIObject, frozen=True):
    """An event of events.k8s.io."""

    metadata: ObjectMeta = ObjectMeta()
    reason: str = ""
    note: str = ""
    type: str = ""
    reporting_controller: str = ""
    regarding: _Named = _Named()


def as_sent(obj: Any) -> Object:
    """An object as a client sends it to be created: a dict, or what a builder has made without what servers add."""
    if isinstance(obj, dict):
        return obj
    resource = _RESOURCES[type(obj)]
    sent: Object = {"apiVersion": resource.api_version, "kind": resource.kind} | msgspec.to_builtins(obj)
    for name in ("uid", "resourceVersion", "deletionTimestamp"):
        sent["metadata"].pop(name, None)
    spec = sent.get("spec", {})
    for container in (*spec.get("containers", ()), *spec.get("initContainers", ())):
        for port in container.get("ports", ()):
            port.setdefault("containerPort", 80)
    return sent


@dataclass
class Troupe:
    """A running scheduler, seen from inside."""

    scheduler: Scheduler

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for something to be so after some news of the scheduler's watch."""
        answer = await self.scheduler._handle.wait_for(lambda: holds() or None, _DEADLINE)
        assert answer, "it did not come to pass"

    async def has_seen(self, obj: Object) -> None:
        """Wait until the scheduler has reacted to this state of a pod or of an object that a catalog holds."""
        await self.until(lambda: self._version(obj) == obj["metadata"]["resourceVersion"])

    async def has_lost(self, obj: Object) -> None:
        """Wait until the scheduler has reacted to the end of an object."""
        await self.until(lambda: not self._version(obj))

    def _version(self, obj: Object) -> str:
        metadata, cluster = obj["metadata"], self.scheduler.cluster
        held: Any
        if obj["kind"] == "Pod":
            held = self.scheduler.pods.get(metadata["uid"])
        elif obj["kind"] == "Node":
            row = cluster.nodes.rows.get(metadata["name"])
            held = None if row is None else cluster.nodes.objects[row]
        else:
            kind = next(
                r.type for r in self.scheduler._watched if (r.kind, r.api_version) == (obj["kind"], obj["apiVersion"])
            )
            held = cluster.catalog(kind).as_observed(metadata.get("namespace", ""), metadata["name"])
        return "" if held is None else str(held.metadata.resource_version)

    def queued(self, name: str) -> QueuedPod | None:
        """A pod in the queue."""
        return next((q for q in self.scheduler.queue.pending() if q.info.name == name), None)

    def place(self, name: str) -> Place | None:
        """Where in the queue a pod is."""
        queued = self.queued(name)
        return None if queued is None else queued.place


@dataclass
class _View:
    """What a subscriber to pods and events knows."""

    pods: dict[str, Pod] = field(default_factory=dict)
    nominations: list[tuple[str, str]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def replace(self, resource: Resource, objects: Iterable[Any]) -> None:
        for obj in objects:
            self.apply(resource, "ADDED", obj)

    def apply(self, resource: Resource, event_type: str, obj: Any) -> None:
        if resource.type is Event:
            self.events.append(obj)
        elif event_type == "DELETED":
            self.pods.pop(obj.metadata.name, None)
        else:
            self.pods[obj.metadata.name] = obj
            self.nominations.append((obj.metadata.name, obj.status.nominated_node_name))
        self.news.set()

    def unreadable(self, resource: Resource, subject: str, problem: str) -> None:
        raise AssertionError(f"{resource.kind} {subject}: {problem}")


class Stage:
    """A server, requests to it, and what its watchers see. Names of pods are those of the namespace ``default``."""

    def __init__(self, url: str, transport: Transport) -> None:
        self.url, self.transport = url, transport
        self._view = _View()
        self._priorities: set[int] = set()

    # -- requests --------------------------------------------------------------------------------------------------

    async def request(self, method: str, path: str, body: Object | None = None, *, content_type: str = "") -> Object:
        """The decoded answer of a request. Raises APIError."""
        content = None if body is None else msgspec.json.encode(body)
        options = {"content_type": content_type} if content_type else {}
        return dict(msgspec.json.decode(await self.transport.request(method, path, content, **options)))

    async def create(self, *objects: Any) -> None:
        """Create objects, given as dicts or made by builders."""
        for obj in objects:
            await self.create_one(obj)

    async def create_one(self, given: Any, *, ready: bool = True) -> Object:
        """Create one object; how it is then. A node is taken to be ready at once, or has the taint of new nodes."""
        obj = as_sent(given)
        spec = obj.get("spec") or {}
        if obj["kind"] == "Pod" and spec.get("priority") is not None:
            spec["priorityClassName"] = await self.priority_class(spec.pop("priority"))
        created = await self.request("POST", _collection(obj), obj)
        status = {k: v for k, v in (obj.get("status") or {}).items() if k != "phase"}
        if obj["kind"] == "Node":
            if not ready:
                return {"apiVersion": "v1", "kind": "Node"} | created
            created = await self.change(obj, {"spec": {"taints": spec.get("taints")}})
        elif status:
            created = await self.change(obj, {"status": status}, subresource="status")
        return {"apiVersion": obj["apiVersion"], "kind": obj["kind"]} | created

    async def priority_class(self, value: int) -> str:
        """The name of a priority class of this value, which there is from now on."""
        name = f"priority-{value}" if value >= 0 else f"priority-minus-{-value}"
        if value not in self._priorities:
            self._priorities.add(value)
            made = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
            await self.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", made | {"value": value})
        return name

    async def change(self, obj: Any, changes: Object, *, subresource: str = "") -> Object:
        """Merge-patch an object; how it is then."""
        sent = as_sent(obj)
        path = f"{_path(sent)}/{subresource}" if subresource else _path(sent)
        changed = await self.request("PATCH", path, changes, content_type=MERGE_PATCH)
        return {"apiVersion": sent["apiVersion"], "kind": sent["kind"]} | changed

    async def read(self, obj: Any) -> Object:
        """An object as the server has it."""
        sent = as_sent(obj)
        found = await self.request("GET", _path(sent))
        return {"apiVersion": sent["apiVersion"], "kind": sent["kind"]} | found

    async def delete(self, obj: Any) -> None:
        """Delete an object at once."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        await self.request("DELETE", _path(as_sent(obj)), options)

    # -- seeing ----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Watch pods and events until the block ends."""
        events = Resource("/apis/events.k8s.io/v1", "events", "Event", Event)
        everything = Resource("/api/v1", "pods", "Pod", Pod)
        async with ClusterClient(Credentials(self.url), clock=WallClock(), random=Random(0)) as cluster:
            watching = asyncio.create_task(cluster.subscribe((everything, events), self._view))
            try:
                yield
            finally:
                watching.cancel()
                with suppress(asyncio.CancelledError):
                    await watching

    async def until(self, holds: Callable[[], object], why: str = "it did not come to pass") -> None:
        """Wait for something to be so after some news of a pod or an event."""
        async with asyncio.timeout(_DEADLINE):
            while not holds():
                self._view.news.clear()
                await self._view.news.wait()

    def pod(self, name: str) -> Pod:
        """A pod as it was last seen; an empty one when it is not there."""
        return self._view.pods.get(name, Pod())

    def node_of(self, name: str) -> str:
        """Where a pod is bound."""
        return self.pod(name).spec.node_name

    def message(self, name: str) -> str:
        """Why a pod is pending, as its condition says."""
        return next((c.message for c in self.pod(name).status.conditions if c.type == "PodScheduled"), "")

    def nomination(self, name: str) -> str:
        """The node that a pod has been promised."""
        return self.pod(name).status.nominated_node_name

    def nominations(self, name: str) -> list[str]:
        """Every node that a pod has been seen to be promised."""
        return [node for pod, node in self._view.nominations if pod == name]

    def events(self, reason: str) -> list[Event]:
        """The events of a reason so far."""
        return [event for event in self._view.events if event.reason == reason]

    async def bound(self, *names: str) -> list[str]:
        """The nodes of some pods, once they have them."""
        await self.until(lambda: all(self.node_of(name) for name in names))
        return [self.node_of(name) for name in names]

    async def refused(self, *names: str) -> list[str]:
        """Why some pods are pending, once they are told."""
        await self.until(lambda: all(self.message(name) for name in names))
        return [self.message(name) for name in names]

    async def gone(self, *names: str) -> None:
        """Wait until some pods are deleted."""
        await self.until(lambda: not any(name in self._view.pods for name in names))

    # -- scheduling ------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def scheduler(
        self, *, plugins: Iterable[type[Plugin]] = (), gates: Mapping[str, bool] | None = None, **configured: Any
    ) -> AsyncIterator[Troupe]:
        """A scheduler runs until the block ends. ``configured`` are fields of its configuration, ``plugins`` classes
        beside the in-tree ones."""
        source = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            **configured,
        }
        chosen = ",".join(f"{name}={str(on).lower()}" for name, on in (gates or {}).items())
        live = SchedulerApp.create(
            plugins={plugin.name: plugin for plugin in plugins}, source=source, feature_gates=chosen, seed=1
        )
        ready: asyncio.Future[Scheduler] = asyncio.get_running_loop().create_future()
        running = asyncio.create_task(live.run(kubeconfig="", master=self.url, on_ready=ready.set_result))
        await asyncio.wait((running, ready), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        try:
            yield Troupe(ready.result())
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


def _collection(obj: Object) -> str:
    version, kind = obj["apiVersion"], obj["kind"]
    prefix = f"/apis/{version}" if "/" in version else f"/api/{version}"
    known = next((r for r in _RESOURCES.values() if (r.kind, r.api_version) == (kind, version)), None)
    plural = known.plural if known is not None else kind.lower() + ("es" if kind.endswith("s") else "s")
    scoped = "namespace" in obj["metadata"] if known is None else known.namespaced
    namespace = f"/namespaces/{obj['metadata'].get('namespace') or 'default'}" if scoped else ""
    return f"{prefix}{namespace}/{plural}"


def _path(obj: Object) -> str:
    return f"{_collection(obj)}/{obj['metadata']['name']}"
