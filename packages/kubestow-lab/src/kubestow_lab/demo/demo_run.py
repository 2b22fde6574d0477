"""A demo run: API server, scheduler and workload submission, until the queue is idle.

The objects of the workload are created over HTTP in order, with many requests in flight.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec

from kubestow import config
from kubestow.api.core import Node, Pod
from kubestow.api.formats.int64 import exact_sum
from kubestow.api.meta import convert
from kubestow.client.cluster_client import ClusterClient
from kubestow.client.object_requests import list_pages
from kubestow.client.rest.credentials import load_credentials
from kubestow.client.rest.transport import Transport
from kubestow.errors import APIError
from kubestow.plugins import in_tree_registry
from kubestow.process import WallClock
from kubestow.scheduling.decision.result import Decision
from kubestow.scheduling.environment import Environment
from kubestow.scheduling.observer import Observer
from kubestow.scheduling.queued_pod import Place, QueuedPod
from kubestow.scheduling.scheduler import Scheduler
from kubestow_lab.apiserver_process import apiserver_process
from kubestow_lab.workloads.report import Summary, summarise
from kubestow_lab.workloads.workload import GateRemoval, Object, Workload

_BUSY_PLACES = (Place.ACTIVE, Place.BACKOFF, Place.ERROR_BACKOFF, Place.IN_FLIGHT)
_POLL_INTERVAL = 0.1
#: The queue must be idle for this long before the run ends, in seconds.
_IDLE_TIMEOUT = 1.5
#: The requests in flight while objects are created.
_CONCURRENCY = 16


class WorkloadSubmission:
    """Creates the objects of a workload; ``submitted`` is the number of created pods."""

    def __init__(self, transport: Transport, workload: Workload) -> None:
        self._transport = transport
        self._workload = workload
        self.submitted = 0

    async def nodes(self) -> None:
        """Create the priority classes and the nodes."""
        await self._create("/apis/scheduling.k8s.io/v1/priorityclasses", self._workload.priority_classes)
        await self._create("/api/v1/nodes", self._workload.nodes)

    async def pods(self) -> None:
        """Create the pods in order, and remove scheduling gates as the workload defines."""
        removals = list(self._workload.gate_removals)
        pods = self._workload.pods
        for start in range(0, len(pods), _CONCURRENCY):
            batch = pods[start : start + _CONCURRENCY]
            namespaces = (pod["metadata"].get("namespace", "default") for pod in batch)
            await asyncio.gather(*map(self._post, map(_pods_path, namespaces), batch))
            self.submitted += len(batch)
            while removals and removals[0].after_submitted <= self.submitted:
                await self._remove_gate(removals.pop(0))
        for removal in removals:
            await self._remove_gate(removal)

    async def _create(self, path: str, objects: Sequence[Object]) -> None:
        for start in range(0, len(objects), _CONCURRENCY):
            await asyncio.gather(*(self._post(path, obj) for obj in objects[start : start + _CONCURRENCY]))

    async def _post(self, path: str, obj: Object) -> None:
        try:
            await self._transport.request("POST", path, msgspec.json.encode(obj))
        except APIError as error:
            if error.code != 409:  # already exists, like the system priority classes
                raise

    async def _remove_gate(self, removal: GateRemoval) -> None:
        path = f"{_pods_path(removal.namespace)}/{removal.pod}"
        pod = msgspec.json.decode(await self._transport.request("GET", path))
        gates = [gate for gate in pod["spec"].get("schedulingGates", []) if gate["name"] != removal.gate]
        patch = [{"op": "replace", "path": "/spec/schedulingGates", "value": gates}]
        await self._transport.request(
            "PATCH", path, msgspec.json.encode(patch), content_type="application/json-patch+json"
        )


def _pods_path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


async def list_objects(transport: Transport, path: str) -> list[Object]:
    """List all objects of a collection, in pages."""
    pages, _ = await list_pages(transport, path)
    return [obj for page in pages for obj in msgspec.json.decode(page)["items"]]


@dataclass(slots=True, eq=False)
class DemoProgress(Observer):
    """The progress of a run, updated in place. ``elapsed`` is in seconds since the first pod was submitted."""

    nodes: int = 0
    pods: int = 0
    submitted: int = 0
    bound: int = 0
    attempts: int = 0
    waiting: Counter[Place] = field(default_factory=Counter)
    elapsed: float = 0.0
    latencies: list[float] = field(default_factory=list)
    utilisation: dict[str, float] = field(default_factory=dict)
    nodes_used: int = 0

    def decision_made(self, decision: Decision, seconds: float) -> None:
        self.attempts += 1

    def pod_bound(self, queued: QueuedPod, node_name: str, seconds: float) -> None:
        self.bound += 1
        self.latencies.append(seconds)


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The result of a run: ``seconds`` from the first submission to the last binding, and the summary.

    ``evicted`` is the number of preempted pods; ``completed`` is False if the queue was not idle at the time limit.
    """

    summary: Summary
    seconds: float
    completed: bool
    evicted: int

    def document(self) -> dict[str, Any]:
        """The result as plain data; amounts are millicores, bytes or counts."""
        summary, latency = self.summary, self.summary.latency
        return {
            "kind": "DemoResult",
            "completed": self.completed,
            "seconds": round(self.seconds, 3),
            "pods": summary.pods,
            "placed": summary.placed,
            "evicted": self.evicted,
            "nodes": summary.nodes,
            "nodesUsed": summary.nodes_used,
            "resources": {
                each.resource: {"requested": each.requested, "allocatable": each.allocatable}
                for each in summary.utilisation
            },
            "latencySeconds": None
            if latency is None
            else {"p50": latency.p50, "p90": latency.p90, "p99": latency.p99, "maximum": latency.maximum},
            "pending": [
                {
                    "requests": group.requests,
                    "reason": group.explanation,
                    "message": group.message,
                    "pods": list(group.pods),
                    "feasible": list(group.feasible),
                }
                for group in summary.pending
            ],
        }


async def run_demo(workload: Workload, *, show: Callable[[DemoProgress], None], limit: float, seed: int) -> DemoResult:
    """Schedule a workload on an embedded API server, for at most ``limit`` seconds.

    ``show`` is called ten times per second with the progress.
    """
    progress = DemoProgress(nodes=len(workload.nodes), pods=len(workload.pods))
    clock = WallClock()
    random = Random(seed)
    async with apiserver_process() as url:
        credentials = await load_credentials(master=url)
        async with (
            ClusterClient(credentials, clock=clock, random=random) as cluster,
            Transport(credentials, clock=clock) as transport,
        ):
            submission = WorkloadSubmission(transport, workload)
            await submission.nodes()
            scheduler = Scheduler(
                config.default_configuration(),
                registry=in_tree_registry(),
                environment=Environment(cluster, clock, random, progress),
            )
            async with _running(scheduler):
                seconds, completed = await _submit_and_wait(scheduler, submission, progress, show, limit)
            nodes = [convert(Node, node) for node in await list_objects(transport, "/api/v1/nodes")]
            pods = [convert(Pod, pod) for pod in await list_objects(transport, "/api/v1/pods")]
    evicted = progress.submitted - len(pods)
    return DemoResult(summarise(nodes, pods, progress.latencies), seconds, completed, evicted)


@asynccontextmanager
async def _running(scheduler: Scheduler) -> AsyncIterator[None]:
    running = asyncio.create_task(scheduler.run())
    try:
        await scheduler.synced.wait()
        yield
    finally:
        running.cancel()
        await asyncio.wait((running,))
        if not running.cancelled():
            running.result()


async def _submit_and_wait(
    scheduler: Scheduler,
    submission: WorkloadSubmission,
    progress: DemoProgress,
    show: Callable[[DemoProgress], None],
    limit: float,
) -> tuple[float, bool]:
    """Submit the pods and wait until the queue is idle.

    Returns the seconds until the last change, and whether the queue was idle within the limit.
    """
    loop = asyncio.get_running_loop()
    start = loop.time()
    submitting = asyncio.create_task(submission.pods())
    last_change, last_bound = start, -1
    try:
        while loop.time() - start < limit:
            await asyncio.sleep(_POLL_INTERVAL)
            progress.elapsed = loop.time() - start
            _update(scheduler, submission, progress)
            show(progress)
            if submitting.done():
                submitting.result()
            # Whether some pod is being scheduled, or will be without a further event.
            is_busy = any(progress.waiting[place] for place in _BUSY_PLACES) or (
                progress.submitted > progress.bound + sum(progress.waiting.values())
            )
            if progress.bound != last_bound or not submitting.done() or is_busy:
                last_change, last_bound = loop.time(), progress.bound
            elif loop.time() - last_change > _IDLE_TIMEOUT:
                return last_change - start, True
        return loop.time() - start, False
    finally:
        submitting.cancel()


def _update(scheduler: Scheduler, submission: WorkloadSubmission, progress: DemoProgress) -> None:
    progress.submitted = submission.submitted
    progress.waiting = Counter(scheduler.queue.counts())
    nodes = scheduler.cluster.all_nodes()
    progress.nodes_used = int((nodes.pod_count > 0).sum())
    for resource in ("cpu", "memory", "nvidia.com/gpu", "kubestow.dev/gpu-milli"):
        allocatable = exact_sum(nodes.allocatable(resource))
        if allocatable:
            progress.utilisation[resource] = exact_sum(nodes.requested(resource)) / allocatable
