"""Several active schedulers on one cluster, in virtual time."""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from random import Random
from typing import Any

import numpy as np

from benchmarks.harness import Rows, chosen
from kubestow import config
from kubestow.api.core import Node, Pod
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.cluster_api.memory_api import MemoryAPI
from kubestow.engine.virtual_time import VirtualClock, run
from kubestow.errors import APIError
from kubestow.framework.interface import Victims
from kubestow.plugins import in_tree_registry
from kubestow.rules.requests import requests_by_spec
from kubestow.scheduling.environment import Environment
from kubestow.scheduling.events.resources import NODES, PODS
from kubestow.scheduling.extenders.stages import ExtenderFilterResponse, ExtenderVictims
from kubestow.scheduling.interfaces import ObjectReference, PodStatusPatch, Resource, Subscriber
from kubestow.scheduling.scheduler import Scheduler
from kubestow.testing import node, pod

ZONES, CPU_PER_NODE = 3, 8_000
#: How long a lease outlives its holder, and when a pod that every partition has rejected is offered again; seconds.
LEASE_SECONDS, OFFER_AGAIN_SECONDS = 15.0, 5.0
CRASH_AT = 0.2
#: The end of a run in which pods are left, in virtual seconds.
END = 60.0


class Mode(Enum):
    """What a scheduler sees and uses of the nodes of other partitions."""

    SHARED = "shared"
    PARTITIONED = "partitioned"
    FENCED = "fenced"


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of a decision, of a binding in the server, and of the way of a watch event."""

    decision: float
    bind: float
    watch: float


class SharedAPI(MemoryAPI):
    """The API server: it executes one binding at a time, and refuses those that would overcommit a node."""

    def __init__(self, costs: Costs, partitions: int) -> None:
        super().__init__()
        self._costs = costs
        self._free_at = 0.0
        self._free_cpu: dict[str, int] = {}
        self.partitions = partitions
        #: The partition that a pending pod belongs to, and how many have rejected it, by uid.
        self.partition: dict[str, int] = {}
        self.rejections: Counter[str] = Counter()
        self.bound_at: dict[str, float] = {}
        self.bound_by: dict[str, str] = {}
        self.conflicts = self.hand_overs = 0
        self._bound = asyncio.Condition()

    def add_node(self, obj: Node) -> None:
        """Create a node."""
        self._free_cpu[obj.metadata.name] = CPU_PER_NODE
        self.put(obj)

    def create(self, obj: Pod) -> None:
        """Create a pending pod in the partition that it belongs to at first."""
        self.partition[obj.metadata.uid] = home_of(obj, self.partitions)
        self.put(obj)

    async def bind_by(self, scheduler: str, reference: ObjectReference, node_name: str) -> None:
        """Bind a pod when it is its turn. Raises APIError."""
        loop = asyncio.get_running_loop()
        self._free_at = max(self._free_at, loop.time()) + self._costs.bind
        await asyncio.sleep(self._free_at - loop.time())
        cpu = requests_by_spec(self._current(reference))["cpu"]
        if cpu > self._free_cpu[node_name]:
            self.conflicts += 1
            raise APIError(409, "Conflict", f"node {node_name} has no room for pod {reference.name}")
        await self.bind(reference, node_name)
        self._free_cpu[node_name] -= cpu
        async with self._bound:
            self.bound_at[reference.uid], self.bound_by[reference.uid] = loop.time(), scheduler
            self._bound.notify_all()

    async def all_bound(self, pods: int) -> None:
        """Return when so many pods have been bound."""
        async with self._bound:
            await self._bound.wait_for(lambda: len(self.bound_at) >= pods)

    def join(self, view: View) -> None:
        """Deliver changes to a view from now on."""
        self._subscribers.append(view)

    def hand_over(self, obj: Pod) -> None:
        """Give a rejected pod to the next partition; after a full round, when some time has passed."""
        uid = obj.metadata.uid
        self.rejections[uid] += 1
        if self.rejections[uid] % self.partitions:
            self._move(uid, obj)
        else:
            asyncio.get_running_loop().call_later(OFFER_AGAIN_SECONDS, self._move, uid, obj)

    def _move(self, uid: str, obj: Pod) -> None:
        if uid in self.bound_at or self.partitions == 1:
            return
        self.hand_overs += 1
        self.partition[uid] = (self.partition[uid] + 1) % self.partitions
        self.put(self._objects[PODS][obj.metadata.namespace, obj.metadata.name])


def home_of(obj: Pod, partitions: int) -> int:
    """The partition that a new pod belongs to: by its workload, if it has a label for it, else by its name."""
    return zlib.crc32(obj.metadata.labels.get("workload", obj.metadata.name).encode()) % partitions


class View:
    """The API as one scheduler sees it: the nodes and pods of the partitions that it holds."""

    def __init__(self, api: SharedAPI, name: str, held: set[int], mode: Mode, watch_seconds: float) -> None:
        self._api, self.name, self.held, self._mode, self._delay = api, name, held, mode, watch_seconds
        self._visible: set[tuple[str, str, str]] = set()
        self._events: deque[tuple[float, Resource, str, Any]] = deque()
        self._arrived = asyncio.Event()
        self._crashed = False
        self.resource_claims = api.resource_claims
        self.read_pod, self.patch, self.delete_pod = api.read_pod, api.patch, api.delete_pod
        self.request, self.record = api.request, api.record

    # -- reading -----------------------------------------------------------------------------------------------------

    def _shows(self, resource: Resource, obj: Any) -> bool:
        if resource == PODS and not obj.spec.node_name:
            return self._api.partition[obj.metadata.uid] in self.held
        if self._mode is not Mode.PARTITIONED or resource not in (PODS, NODES):
            return True
        return self.holds(obj.metadata.name if resource == NODES else obj.spec.node_name)

    def holds(self, node_name: str) -> bool:
        """Whether the node is in a partition of this scheduler."""
        return int(node_name.rpartition("-")[2]) % self._api.partitions in self.held

    async def subscribe(self, resources: Sequence[Resource], subscriber: Subscriber) -> None:
        """List what is visible, then deliver changes late."""
        for resource in resources:
            subscriber.replace(resource, [obj for obj in self._all(resource) if self._reveal(resource, obj)])
        self._api.join(self)
        while True:
            while self._events:
                due, resource, event_type, obj = self._events.popleft()
                await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
                subscriber.apply(resource, event_type, obj)
            self._arrived.clear()
            await self._arrived.wait()

    def _all(self, resource: Resource) -> list[Any]:
        return list(self._api._objects.get(resource, {}).values())

    def _reveal(self, resource: Resource, obj: Any) -> bool:
        """Note whether an object is visible now."""
        key = (resource.plural, obj.metadata.namespace, obj.metadata.name)
        shown = self._shows(resource, obj)
        (self._visible.add if shown else self._visible.discard)(key)
        return shown

    def apply(self, resource: Resource, event_type: str, obj: Any) -> None:
        """A change of the API's: an object that leaves the view is deleted there."""
        was_visible = (resource.plural, obj.metadata.namespace, obj.metadata.name) in self._visible
        is_visible = self._reveal(resource, obj)
        if not is_visible and not was_visible:
            return
        due = asyncio.get_running_loop().time() + self._delay
        self._events.append((due, resource, event_type if is_visible else "DELETED", obj))
        self._arrived.set()

    def adopt(self, partition: int) -> None:
        """Take over a partition: its nodes, the pods on them, and its pending pods become visible."""
        self.held.add(partition)
        for resource in (NODES, PODS):
            for obj in self._all(resource):
                self.apply(resource, "MODIFIED", obj)

    # -- writing -----------------------------------------------------------------------------------------------------

    def crash(self) -> None:
        """Send nothing more: what the server has received it still executes."""
        self._crashed = True

    async def bind(self, reference: ObjectReference, node_name: str) -> None:
        """Bind a pod. Raises APIError."""
        if self._crashed:
            await asyncio.get_running_loop().create_future()
        await self._api.bind_by(self.name, reference, node_name)

    async def patch_pod_status(self, reference: ObjectReference, patch: PodStatusPatch) -> None:
        """Set the status; a pod without a feasible node is handed over."""
        await self._api.patch_pod_status(reference, patch)
        if any(condition.reason == "Unschedulable" for condition in patch.conditions):
            self._api.hand_over(self._api._current(reference))


class Pace:
    """An extender that makes decisions take time, and in mode ``fenced`` leaves only the scheduler's own nodes."""

    settings = config.Extender(filter_verb="filter")

    def __init__(self, view: View, decision_seconds: float, *, fences: bool) -> None:
        self._view, self._seconds, self._fences = view, decision_seconds, fences

    async def filter(self, pod: PodInfo, names: Sequence[str]) -> ExtenderFilterResponse:
        """The nodes that may be used, after the time of a decision."""
        await asyncio.sleep(self._seconds)
        return ExtenderFilterResponse([name for name in names if self._view.holds(name)] if self._fences else names)

    async def prioritize(self, pod: PodInfo, names: Sequence[str]) -> Sequence[tuple[str, int]]:
        """No preference."""
        return ()

    async def preempt(self, pod: PodInfo, victims_by_node: Mapping[str, Victims]) -> Mapping[str, ExtenderVictims]:
        """Nothing is preempted: all pods have the same priority."""
        return {}

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        """Not called."""


# -- workloads ---------------------------------------------------------------------------------------------------------


def half_full(nodes: int) -> Iterator[Pod]:
    """Equal pods, half of what fits."""
    return (pod(f"pod-{number}", cpu="500m") for number in range(nodes * CPU_PER_NODE // 500 // 2))


def nearly_full(nodes: int) -> Iterator[Pod]:
    """Pods of 100 m to 4 CPUs, together 97 % of all CPUs."""
    random, left, number = Random(0), int(nodes * CPU_PER_NODE * 0.97), 0
    while left >= 100:
        cpu = min(left, random.choice((100, 250, 500, 500, 1_000, 2_000, 4_000)))
        yield pod(f"pod-{number}", cpu=f"{cpu}m")
        left, number = left - cpu, number + 1


def spread(nodes: int, *, whole: bool = False) -> Iterator[Pod]:
    """Services of 20 pods that must be spread over the zones with a skew of at most 1; partitioned ``whole`` or not."""
    for number in range(nodes * 4):
        app = {"app": f"app-{number // 20}"}
        constraint = {
            "maxSkew": 1,
            "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": app},
        }
        labels = app | ({"workload": app["app"]} if whole else {})
        yield pod(f"pod-{number}", cpu="500m", labels=labels, spread=[constraint])


WORKLOADS: dict[str, Callable[[int], Iterator[Pod]]] = {
    "half full": half_full,
    "nearly full": nearly_full,
    "spread": spread,
    "spread, services whole": partial(spread, whole=True),
}


@dataclass(slots=True)
class Outcome:
    """What came of a run: times in virtual seconds, and how many services are spread less evenly than they require."""

    pods: int
    latencies: np.ndarray[Any, np.dtype[np.float64]]
    conflicts: int
    hand_overs: int
    shares: Sequence[int]
    p99_by_partition: Sequence[float]
    uneven_services: int
    max_skew: int

    def figures(self) -> dict[str, float]:
        """The figures of a row."""
        p50, p90, p99 = np.quantile(self.latencies, (0.5, 0.9, 0.99))
        bound = len(self.latencies)
        return {
            "pods": self.pods,
            "bound": bound,
            "pods/s for 90 % of them": bound * 0.9 / p90,
            "s until the last": self.latencies.max(),
            "s p50": p50,
            "s p99": p99,
            "s p99 of the best partition": min(self.p99_by_partition),
            "s p99 of the worst": max(self.p99_by_partition),
            "conflicts": self.conflicts,
            "hand-overs": self.hand_overs,
            "bound by the idlest": min(self.shares),
            "by the busiest": max(self.shares),
            "services beyond maxSkew": self.uneven_services,
            "largest skew": self.max_skew,
        }


def skews(api: SharedAPI) -> list[int]:
    """The skew of each service over the zones."""
    counts: dict[str, Counter[int]] = {}
    for obj in api.pods():
        app = obj.metadata.labels.get("app")
        if app is not None and obj.spec.node_name:
            counts.setdefault(app, Counter())[zone_of(obj.spec.node_name, api.partitions)] += 1
    return [
        max(by_zone[z] for z in range(ZONES)) - min(by_zone[z] for z in range(ZONES)) for by_zone in counts.values()
    ]


def zone_of(node_name: str, partitions: int) -> int:
    """The zone of a node; every partition has nodes in every zone."""
    return int(node_name.rpartition("-")[2]) // partitions % ZONES


async def simulate(
    workload: Callable[[int], Iterator[Pod]],
    nodes: int,
    schedulers: int,
    mode: Mode,
    costs: Costs,
    *,
    crash_at: float | None = None,
) -> Outcome:
    """Have all pods created at once and wait until they are bound; the first scheduler may crash before that."""
    api = SharedAPI(costs, schedulers)
    loop = asyncio.get_running_loop()
    for number in range(nodes):
        name = f"node-{number}"
        zone = f"zone-{zone_of(name, schedulers)}"
        api.add_node(node(name, cpu=f"{CPU_PER_NODE}m", memory="256Gi", max_pods=500, zone=zone))
    views = [View(api, f"scheduler-{number}", {number}, mode, costs.watch) for number in range(schedulers)]
    running = [asyncio.create_task(_scheduler(view, costs, mode, seed)) for seed, view in enumerate(views)]
    await asyncio.sleep(1.0)  # until all have listed
    began, pods = loop.time(), list(workload(nodes))
    for each in pods:
        api.create(each)
    if crash_at is not None:
        await asyncio.sleep(crash_at)
        views[0].crash()
        running[0].cancel()
        await asyncio.sleep(LEASE_SECONDS)
        views[1].adopt(0)
    with suppress(TimeoutError):
        await asyncio.wait_for(api.all_bound(len(pods)), began + END - loop.time())
    for task in running:
        task.cancel()
    await asyncio.wait(running)
    return _outcome(api, pods, views, began)


async def _scheduler(view: View, costs: Costs, mode: Mode, seed: int) -> None:
    scheduler = Scheduler(
        config.default_configuration(),
        registry=in_tree_registry(),
        environment=Environment(view, VirtualClock(asyncio.get_running_loop()), Random(seed)),
        extenders=[Pace(view, costs.decision, fences=mode is Mode.FENCED)],
    )
    await scheduler.run()


def _outcome(api: SharedAPI, pods: Sequence[Pod], views: Sequence[View], began: float) -> Outcome:
    by_partition: dict[int, list[float]] = {}
    for each in pods:
        if each.metadata.uid in api.bound_at:
            by_partition.setdefault(home_of(each, api.partitions), []).append(api.bound_at[each.metadata.uid] - began)
    bound_by, skew = Counter(api.bound_by.values()), skews(api)
    return Outcome(
        pods=len(pods),
        latencies=np.concatenate([np.array(latencies) for latencies in by_partition.values()]),
        conflicts=api.conflicts,
        hand_overs=api.hand_overs,
        shares=[bound_by[view.name] for view in views],
        p99_by_partition=[float(np.quantile(latencies, 0.99)) for latencies in by_partition.values()],
        uneven_services=sum(each > 1 for each in skew),
        max_skew=max(skew, default=0),
    )


def partitions(
    nodes: int = 1_000,
    schedulers: Sequence[int] = (2, 4),
    workloads: Sequence[str] = (),
    decision_ms: float = 0.6,
    bind_ms: float = 0.3,
    watch_ms: float = 20.0,
) -> Rows:
    """Several active schedulers on one cluster, in virtual time: throughput, conflicts, fairness, and who takes over.

    Complete schedulers (queue, cycles, binding, backoff) run on one API server in memory. A decision takes each of them
    ``--decision-ms`` of its own time; the server executes one binding after the other, ``--bind-ms`` each, and its
    watch delivers ``--watch-ms`` late. Each pending pod belongs to a partition, by a hash of its name or of its
    workload; the holder of a partition schedules its pods. Nodes are partitioned by number. Modes:

    ``shared``       every scheduler uses every node (optimistic concurrency)
    ``partitioned``  a scheduler sees the nodes of its own partition and the pods on them
    ``fenced``       it sees everything, and uses the nodes of its own partition

    A pod that a scheduler rejects is handed over to the next partition, and after a round again some time later. A real
    API server binds without regard to capacity; this one rejects a binding that would overcommit the node with a
    conflict, as a validating admission plugin could. The same input gives the same output. At last, with the first
    workload and the nodes ``partitioned``, one scheduler crashes.
    """
    costs = Costs(decision_ms / 1e3, bind_ms / 1e3, watch_ms / 1e3)
    for name in chosen(list(WORKLOADS), workloads):
        yield f"{name}, one scheduler", run(simulate(WORKLOADS[name], nodes, 1, Mode.SHARED, costs)).figures()
        for number in schedulers:
            for mode in Mode:
                outcome = run(simulate(WORKLOADS[name], nodes, number, mode, costs))
                yield f"{name}, {number} schedulers, {mode.value}", outcome.figures()
    for number in schedulers:
        crash = run(simulate(half_full, nodes, number, Mode.PARTITIONED, costs, crash_at=CRASH_AT))
        yield f"half full, {number} schedulers, one crashes after {CRASH_AT} s", crash.figures()
