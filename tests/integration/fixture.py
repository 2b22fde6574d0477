"""The cluster fixture: an API server behind a socket, schedulers that use it over HTTP, and a view of its watches.

Nothing here polls. Conditions are evaluated again on every watch event of the fixture or of the scheduler, until the
test hangs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec

from core_tests.hang_limit import HANG_LIMIT
from kubestow.api.core import Pod
from kubestow.api.meta import APIObject, ObjectMeta
from kubestow.cli.scheduler_app import SchedulerApp
from kubestow.client.cluster_client import ClusterClient
from kubestow.client.rest.credentials import Credentials
from kubestow.client.rest.transport import JSON, MERGE_PATCH, Transport
from kubestow.framework.interface import Plugin
from kubestow.plugins.registry import find_pod_group_apis
from kubestow.process import WallClock
from kubestow.scheduling.events.resources import with_custom
from kubestow.scheduling.interfaces import Resource
from kubestow.scheduling.queued_pod import Place, QueuedPod
from kubestow.scheduling.scheduler import Scheduler

Object = dict[str, Any]
_RESOURCES = {resource.type: resource for resource in with_custom(api.kind for api in find_pod_group_apis())}


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
    """The manifest of an object: a dict as it is, or a built object without the fields that the server sets."""
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
class SchedulerProbe:
    """Inspects the state of a running scheduler."""

    scheduler: Scheduler

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until a condition holds; it is evaluated after every change that the scheduler observes."""
        held = await self.scheduler._handle.wait_for(lambda: holds() or None, HANG_LIMIT)
        assert held, "the condition never held"

    async def observed(self, obj: Object) -> None:
        """Wait until the scheduler has processed this version of a pod, a node or an object in a catalog."""
        await self.until(lambda: self._version(obj) == obj["metadata"]["resourceVersion"])

    async def observed_deletion(self, obj: Object) -> None:
        """Wait until the scheduler has processed the deletion of an object."""
        await self.until(lambda: not self._version(obj))

    def _version(self, obj: Object) -> str:
        metadata, cluster = obj["metadata"], self.scheduler.cluster
        cached: Any
        if obj["kind"] == "Pod":
            cached = self.scheduler.pods.get(metadata["uid"])
        elif obj["kind"] == "Node":
            row = cluster.nodes.rows.get(metadata["name"])
            cached = None if row is None else cluster.nodes.objects[row]
        else:
            kind = next(
                r.type for r in self.scheduler._watched if (r.kind, r.api_version) == (obj["kind"], obj["apiVersion"])
            )
            cached = cluster.catalog(kind).as_observed(metadata.get("namespace", ""), metadata["name"])
        return "" if cached is None else str(cached.metadata.resource_version)

    def queued(self, name: str) -> QueuedPod | None:
        """The queue entry of a pod, None when it is not queued."""
        return next((q for q in self.scheduler.queue.pods.values() if q.info.name == name), None)

    def place(self, name: str) -> Place | None:
        """The part of the queue that holds a pod, None when it is not queued."""
        queued = self.queued(name)
        return None if queued is None else queued.place


@dataclass
class _WatchView:
    """The pods and events that a watch has delivered."""

    pods: dict[str, Pod] = field(default_factory=dict)
    nominations: list[tuple[str, str]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

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
        self.changed.set()

    def unreadable(self, resource: Resource, metadata: ObjectMeta, problem: str) -> None:
        raise AssertionError(f"{resource.kind} {metadata.namespace}/{metadata.name}: {problem}")


class ClusterFixture:
    """Requests to an API server, and a watch view of it. Pods are named without their namespace ``default``."""

    def __init__(self, url: str, transport: Transport) -> None:
        self.url, self.transport = url, transport
        self._view = _WatchView()
        self._priorities: set[int] = set()

    # -- requests --------------------------------------------------------------------------------------------------

    async def request(self, method: str, path: str, body: Object | None = None, *, content_type: str = JSON) -> Object:
        """Send a request and decode its response. Raises APIError."""
        content = None if body is None else msgspec.json.encode(body)
        return dict(msgspec.json.decode(await self.transport.request(method, path, content, content_type=content_type)))

    async def create(self, *objects: Any) -> None:
        """Create objects, given as manifests or built objects."""
        for obj in objects:
            await self.create_one(obj)

    async def create_one(self, manifest: Any, *, ready: bool = True) -> Object:
        """Create and return one object. A node loses its not-ready taint at once unless ``ready`` is false."""
        obj = as_sent(manifest)
        spec = obj.get("spec") or {}
        if obj["kind"] == "Pod" and spec.get("priority") is not None:
            spec["priorityClassName"] = await self.priority_class(spec.pop("priority"))
        created = await self.request("POST", _collection(obj), obj)
        status = {k: v for k, v in (obj.get("status") or {}).items() if k != "phase"}
        if obj["kind"] == "Node":
            if not ready:
                return {"apiVersion": "v1", "kind": "Node"} | created
            created = await self.patch(obj, {"spec": {"taints": spec.get("taints")}})
        elif status:
            created = await self.patch(obj, {"status": status}, subresource="status")
        return {"apiVersion": obj["apiVersion"], "kind": obj["kind"]} | created

    async def priority_class(self, value: int) -> str:
        """The name of a PriorityClass with this value, created on first use."""
        name = f"priority-{value}" if value >= 0 else f"priority-minus-{-value}"
        if value not in self._priorities:
            self._priorities.add(value)
            manifest = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
            await self.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", manifest | {"value": value})
        return name

    async def patch(self, obj: Any, changes: Object, *, subresource: str = "") -> Object:
        """Merge-patch and return an object."""
        sent = as_sent(obj)
        path = f"{_path(sent)}/{subresource}" if subresource else _path(sent)
        patched = await self.request("PATCH", path, changes, content_type=MERGE_PATCH)
        return {"apiVersion": sent["apiVersion"], "kind": sent["kind"]} | patched

    async def read(self, obj: Any) -> Object:
        """Read an object from the server."""
        sent = as_sent(obj)
        found = await self.request("GET", _path(sent))
        return {"apiVersion": sent["apiVersion"], "kind": sent["kind"]} | found

    async def delete(self, obj: Any) -> None:
        """Delete an object without a grace period."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        await self.request("DELETE", _path(as_sent(obj)), options)

    # -- watching --------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Watch pods and events until the block ends."""
        events = Resource("/apis/events.k8s.io/v1", "events", "Event", Event)
        pods = Resource("/api/v1", "pods", "Pod", Pod)
        async with ClusterClient(Credentials(self.url), clock=WallClock(), random=Random(0)) as cluster:
            watching = asyncio.create_task(cluster.subscribe((pods, events), self._view))
            try:
                yield
            finally:
                watching.cancel()
                with suppress(asyncio.CancelledError):
                    await watching

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait until a condition holds; it is evaluated after every watch event of pods and events."""
        async with asyncio.timeout(HANG_LIMIT):
            while not holds():
                self._view.changed.clear()
                await self._view.changed.wait()

    def pod(self, name: str) -> Pod:
        """The last observed state of a pod; an empty pod when it does not exist."""
        return self._view.pods.get(name, Pod())

    def node_of(self, name: str) -> str:
        """The node of a pod, "" while it is pending."""
        return self.pod(name).spec.node_name

    def message(self, name: str) -> str:
        """The message of a pod's PodScheduled condition."""
        return next((c.message for c in self.pod(name).status.conditions if c.type == "PodScheduled"), "")

    def nomination(self, name: str) -> str:
        """The nominated node of a pod."""
        return self.pod(name).status.nominated_node_name

    def nominations(self, name: str) -> list[str]:
        """Every nominated node of a pod that the watch has delivered, in order."""
        return [node for pod, node in self._view.nominations if pod == name]

    def events(self, reason: str) -> list[Event]:
        """The events observed so far with this reason."""
        return [event for event in self._view.events if event.reason == reason]

    async def bound(self, *names: str) -> list[str]:
        """Wait until the pods are bound; their nodes."""
        await self.until(lambda: all(self.node_of(name) for name in names))
        return [self.node_of(name) for name in names]

    async def pending_messages(self, *names: str) -> list[str]:
        """Wait until the pods have a PodScheduled message; the messages."""
        await self.until(lambda: all(self.message(name) for name in names))
        return [self.message(name) for name in names]

    async def deleted(self, *names: str) -> None:
        """Wait until the pods are deleted."""
        await self.until(lambda: not any(name in self._view.pods for name in names))

    # -- scheduling ------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def scheduler(
        self, *, plugins: Iterable[type[Plugin]] = (), gates: Mapping[str, bool] | None = None, **configured: Any
    ) -> AsyncIterator[SchedulerProbe]:
        """Run a scheduler until the block ends. ``configured`` are fields of its configuration.

        ``plugins`` are registered in addition to the in-tree ones.
        """
        source = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            **configured,
        }
        feature_gates = ",".join(f"{name}={str(on).lower()}" for name, on in (gates or {}).items())
        app = SchedulerApp.create(
            plugins={plugin.name: plugin for plugin in plugins}, source=source, feature_gates=feature_gates, seed=1
        )
        ready: asyncio.Future[Scheduler] = asyncio.get_running_loop().create_future()
        running = asyncio.create_task(app.run(kubeconfig="", master=self.url, on_ready=ready.set_result))
        await asyncio.wait((running, ready), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        try:
            yield SchedulerProbe(ready.result())
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


def _collection(obj: Object) -> str:
    version, kind = obj["apiVersion"], obj["kind"]
    prefix = f"/apis/{version}" if "/" in version else f"/api/{version}"
    group = version.rpartition("/")[0]
    known = next((r for r in _RESOURCES.values() if (r.kind, r.api_version.rpartition("/")[0]) == (kind, group)), None)
    plural = known.plural if known is not None else kind.lower() + ("es" if kind.endswith("s") else "s")
    scoped = "namespace" in obj["metadata"] if known is None else known.namespaced
    namespace = f"/namespaces/{obj['metadata'].get('namespace') or 'default'}" if scoped else ""
    return f"{prefix}{namespace}/{plural}"


def _path(obj: Object) -> str:
    return f"{_collection(obj)}/{obj['metadata']['name']}"
