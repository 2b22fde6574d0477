"""Several active schedulers on one cluster: throughput, fairness and takeover in virtual time, and CPU time."""

from __future__ import annotations

import asyncio
import json
import time
import zlib
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Any

import numpy as np

from benchmarks.harness import Rows, chosen
from kubestow import config
from kubestow.api.core import Node, Pod
from kubestow.client.leader_election import LeaderElector, LeaseLock, LeaseTimings
from kubestow.client.partition_election import COUNT_ANNOTATION, PartitionElection
from kubestow.client.rest.credentials import Credentials
from kubestow.client.rest.transport import Transport
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.cluster_api.memory_api import MemoryAPI
from kubestow.engine.virtual_time import VirtualClock, run
from kubestow.errors import APIError, Unreachable
from kubestow.framework.interface import Victims
from kubestow.plugins import in_tree_registry
from kubestow.process import WallClock
from kubestow.rules.requests import requests_by_spec
from kubestow.scheduling.environment import Environment
from kubestow.scheduling.events.resources import PODS
from kubestow.scheduling.extenders.stages import ExtenderFilterResponse, ExtenderVictims
from kubestow.scheduling.interfaces import ObjectReference, Resource, Subscriber
from kubestow.scheduling.observer import Observer, Offer
from kubestow.scheduling.partitions.held_partitions import HeldPartitions
from kubestow.scheduling.partitions.scheduler import PartitionedScheduler
from kubestow.scheduling.scheduler import Scheduler
from kubestow.testing import node, pod

ZONES, CPU_PER_NODE = 3, 8_000
CRASH_AT = 0.2
#: Until schedulers that start together have shared the partitions, and the end of a run in which pods are left; both in
#: virtual seconds.
SHARED_AFTER, END = 30.0, 60.0
#: How long a scheduler reads what happened before it took a partition over, in seconds.
CATCH_UP = 0.5


class Mode(Enum):
    """How schedulers share a cluster."""

    #: Every scheduler uses every node, and pending pods are divided by a hash (optimistic concurrency).
    OPTIMISTIC = "optimistic"
    #: ``kubestow run --partitions``.
    PARTITIONS = "partitions"


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of a decision, of a binding or another write in the server, and of the way of a watch event."""

    decision: float
    write: float
    watch: float


class Server(MemoryAPI):
    """The API server: it executes one write at a time, and refuses bindings that would overcommit a node."""

    def __init__(self, costs: Costs) -> None:
        super().__init__()
        self.costs = costs
        self._free_at = 0.0
        self._free_cpu: dict[str, int] = {}
        self.leases: dict[str, dict[str, Any]] = {}
        self.bound_at: dict[str, float] = {}
        self.bound_by: dict[str, int] = {}
        self.conflicts = 0
        self._bound = asyncio.Condition()

    def add_node(self, obj: Node) -> None:
        """Create a node."""
        self._free_cpu[obj.metadata.name] = CPU_PER_NODE
        self.put(obj)

    async def turn(self) -> None:
        """Return when a write has had its turn."""
        loop = asyncio.get_running_loop()
        self._free_at = max(self._free_at, loop.time()) + self.costs.write
        await asyncio.sleep(self._free_at - loop.time())

    async def bind_by(self, scheduler: int, reference: ObjectReference, node_name: str) -> None:
        """Bind a pod. Raises APIError."""
        await self.turn()
        cpu = requests_by_spec(self._current(reference))["cpu"]
        if cpu > self._free_cpu[node_name]:
            self.conflicts += 1
            raise APIError(409, "Conflict", f"node {node_name} has no room for pod {reference.name}")
        await self.bind(reference, node_name)
        self._free_cpu[node_name] -= cpu
        async with self._bound:
            self.bound_at[reference.uid], self.bound_by[reference.uid] = asyncio.get_running_loop().time(), scheduler
            self._bound.notify_all()

    async def all_bound(self, pods: int) -> None:
        """Return when so many pods have been bound."""
        async with self._bound:
            await self._bound.wait_for(lambda: len(self.bound_at) >= pods)

    def join(self, client: Client) -> None:
        """Deliver changes to a client from now on."""
        self._subscribers.append(client)

    def respond_to_lease(self, path: str, body: bytes | None) -> bytes:
        """Read or write a Lease. Raises APIError."""
        lease = json.loads(body) if body else None
        name = lease["metadata"]["name"] if lease else path.rpartition("/")[2]
        known = self.leases.get(name)
        if lease is not None:
            version = None if known is None else known["metadata"]["resourceVersion"]
            if lease["metadata"].get("resourceVersion") != version:
                raise APIError(409, "Conflict", "the lease has been modified")
            lease["metadata"]["resourceVersion"] = str(int(version or 0) + 1)
            self.leases[name] = known = lease
        if known is None:
            raise APIError(404, "NotFound", "")
        return json.dumps(known).encode()


class LeaseTransport(Transport):
    """The connections of one client for Leases."""

    def __init__(self, client: Client) -> None:
        super().__init__(Credentials("http://server"), clock=VirtualClock(asyncio.get_running_loop()))
        self._client = client

    async def request(self, method: str, path: str, body: bytes | None = None, **options: Any) -> bytes:
        """Send a request, which is lost after a crash. Raises APIError and Unreachable."""
        await asyncio.sleep(0.001)
        if self._client.has_crashed:
            raise Unreachable("server", "crashed")
        return self._client.server.respond_to_lease(path, body)


class Client:
    """The API as one scheduler sees it: late, and with the pending pods that ``shows`` selects."""

    def __init__(self, server: Server, number: int, shows: Callable[[Pod], bool]) -> None:
        self.server, self.number, self._shows = server, number, shows
        self.has_crashed = False
        self._events: deque[tuple[float, Resource, str, Any]] = deque()
        self._arrived = asyncio.Event()
        self.resource_claims, self.read_pod, self.delete_pod = (
            server.resource_claims,
            server.read_pod,
            server.delete_pod,
        )
        self.patch_pod_status, self.request, self.record = server.patch_pod_status, server.request, server.record

    def _is_visible(self, resource: Resource, obj: Any) -> bool:
        return resource != PODS or bool(obj.spec.node_name) or self._shows(obj)

    async def subscribe(self, resources: Sequence[Resource], subscriber: Subscriber) -> None:
        """List what is visible, then deliver changes late."""
        for resource in resources:
            objects = self.server._objects.get(resource, {}).values()
            subscriber.replace(resource, [obj for obj in objects if self._is_visible(resource, obj)])
        self.server.join(self)
        while True:
            while self._events:
                due, resource, event_type, obj = self._events.popleft()
                await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
                subscriber.apply(resource, event_type, obj)
            self._arrived.clear()
            await self._arrived.wait()

    def apply(self, resource: Resource, event_type: str, obj: Any) -> None:
        """A change on the server."""
        if self._is_visible(resource, obj):
            due = asyncio.get_running_loop().time() + self.server.costs.watch
            self._events.append((due, resource, event_type, obj))
            self._arrived.set()

    async def bind(self, reference: ObjectReference, node_name: str) -> None:
        """Bind a pod; after a crash nothing is sent. Raises APIError."""
        await self._require_life()
        await self.server.bind_by(self.number, reference, node_name)

    async def patch(
        self, resource: Resource, obj: ObjectReference, changes: Mapping[str, Any], *, subresource: str = ""
    ) -> str:
        """Patch an object, which is a write like any other. Raises APIError."""
        await self._require_life()
        await self.server.turn()
        return await self.server.patch(resource, obj, changes, subresource=subresource)

    async def _require_life(self) -> None:
        if self.has_crashed:
            await asyncio.get_running_loop().create_future()


class Pace:
    """An extender that makes decisions take time."""

    settings = config.Extender(filter_verb="filter")

    def __init__(self, decision_seconds: float) -> None:
        self._seconds = decision_seconds

    async def filter(self, pod: PodInfo, names: Sequence[str]) -> ExtenderFilterResponse:
        """All nodes, after the time of a decision."""
        await asyncio.sleep(self._seconds)
        return ExtenderFilterResponse(names)

    async def prioritize(self, pod: PodInfo, names: Sequence[str]) -> Sequence[tuple[str, int]]:
        """No preference."""
        return ()

    async def preempt(self, pod: PodInfo, victims_by_node: Mapping[str, Victims]) -> Mapping[str, ExtenderVictims]:
        """Nothing is preempted: all pods have the same priority."""
        return {}

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        """Not called."""


class OfferCounts(Observer):
    """How many offers have ended how."""

    def __init__(self) -> None:
        self.counts: Counter[Offer] = Counter()

    def offer_ended(self, offer: Offer) -> None:
        """Count it."""
        self.counts[offer] += 1


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


def spread(nodes: int) -> Iterator[Pod]:
    """Services of 20 pods that must be spread over the zones with a skew of at most 1."""
    for number in range(nodes * 4):
        app = {"app": f"app-{number // 20}"}
        constraint = {
            "maxSkew": 1,
            "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": app},
        }
        yield pod(f"pod-{number}", cpu="500m", labels=app, spread=[constraint])


WORKLOADS: dict[str, Callable[[int], Iterator[Pod]]] = {
    "half full": half_full,
    "nearly full": nearly_full,
    "spread": spread,
}


@dataclass(slots=True)
class Outcome:
    """What came of a run: times in virtual seconds, and how many services are spread less evenly than they require."""

    pods: int
    latencies: np.ndarray[Any, np.dtype[np.float64]]
    conflicts: int
    offers: Mapping[Offer, int]
    shares: Sequence[int]
    uneven_services: int
    max_skew: int
    #: From the crash until the other scheduler places the pods of the partition; 0 without a crash.
    takeover: float

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
            "conflicts": self.conflicts,
            "offers accepted": self.offers[Offer.ACCEPTED],
            "offers declined": self.offers[Offer.DECLINED],
            "bound by the idlest": min(self.shares),
            "by the busiest": max(self.shares),
            "services beyond maxSkew": self.uneven_services,
            "largest skew": self.max_skew,
            "s until taken over": self.takeover,
        }


def skews(api: MemoryAPI) -> list[int]:
    """The skew of each service over the zones."""
    counts: dict[str, Counter[int]] = {}
    for obj in api.pods():
        app = obj.metadata.labels.get("app")
        if app is not None and obj.spec.node_name:
            counts.setdefault(app, Counter())[zone_of(obj.spec.node_name)] += 1
    return [
        max(by_zone[z] for z in range(ZONES)) - min(by_zone[z] for z in range(ZONES)) for by_zone in counts.values()
    ]


def zone_of(node_name: str) -> int:
    """The zone of a node."""
    return int(node_name.rpartition("-")[2]) % ZONES


class Assignment:
    """Assigns partitions to a scheduler once it has read what happened before."""

    def __init__(self, held: HeldPartitions) -> None:
        self._held = held

    async def take(self, partition: int, held_back: Mapping[str, float]) -> None:
        """Catch up, then begin."""
        await asyncio.sleep(CATCH_UP)
        await self._held.take(partition, held_back)

    async def drain(self, partition: int) -> None:
        """End."""
        await self._held.drain(partition)


@dataclass(slots=True)
class Member:
    """One of the schedulers: its client, what it holds, and its task."""

    client: Client
    held: HeldPartitions
    running: asyncio.Task[None]


def start(server: Server, number: int, schedulers: int, mode: Mode, observer: Observer) -> Member:
    """Start one scheduler of several."""
    is_partitioned = mode is Mode.PARTITIONS and schedulers > 1
    client = Client(
        server,
        number,
        lambda obj: is_partitioned or zlib.crc32(obj.metadata.name.encode()) % schedulers == number,
    )
    clock, held = VirtualClock(asyncio.get_running_loop()), HeldPartitions(schedulers)
    environment = Environment(client, clock, Random(number), observer)
    registry, extenders = in_tree_registry(), [Pace(server.costs.decision)]
    if is_partitioned:
        scheduler: Scheduler = PartitionedScheduler(
            config.default_configuration(),
            partitions=held,
            registry=registry,
            environment=environment,
            extenders=extenders,
            leadership=_election(client, held, clock),
        )
    else:
        scheduler = Scheduler(
            config.default_configuration(), registry=registry, environment=environment, extenders=extenders
        )
    return Member(client, held, asyncio.create_task(scheduler.run()))


def _election(client: Client, held: HeldPartitions, clock: VirtualClock) -> PartitionElection:
    transport, timings = LeaseTransport(client), LeaseTimings()
    electors = []
    for partition in range(held.count):
        annotations = {COUNT_ANNOTATION: str(held.count)}
        name = f"scheduler-{partition}"
        lock = LeaseLock(transport, identity=f"member-{client.number}", name=name, annotations=annotations)
        electors.append(LeaderElector(lock, clock=clock, timings=timings))
    return PartitionElection(electors, Assignment(held), clock=clock, timings=timings)


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
    server, offers = Server(costs), OfferCounts()
    loop = asyncio.get_running_loop()
    for number in range(nodes):
        name = f"node-{number}"
        zone = f"zone-{zone_of(name)}"
        server.add_node(node(name, cpu=f"{CPU_PER_NODE}m", memory="256Gi", max_pods=500, zone=zone))
    members = [start(server, number, schedulers, mode, offers) for number in range(schedulers)]
    await asyncio.sleep(SHARED_AFTER)
    began, pods, takeover = loop.time(), list(workload(nodes)), 0.0
    for each in pods:
        server.put(each)
    if crash_at is not None:
        await asyncio.sleep(crash_at)
        members[0].client.has_crashed = True
        members[0].running.cancel()
        crashed = loop.time()
        await _until(lambda: sum(len(member.held.held) for member in members[1:]) == schedulers)
        takeover = loop.time() - crashed
    with suppress(TimeoutError):
        await asyncio.wait_for(server.all_bound(len(pods)), began + END - loop.time())
    for member in members:
        member.client.has_crashed = True
        member.running.cancel()
    await asyncio.wait([member.running for member in members])
    bound_by, skew = Counter(server.bound_by.values()), skews(server)
    return Outcome(
        pods=len(pods),
        latencies=np.array(list(server.bound_at.values())) - began,
        conflicts=server.conflicts,
        offers=offers.counts,
        shares=[bound_by[member.client.number] for member in members],
        uneven_services=sum(each > 1 for each in skew),
        max_skew=max(skew, default=0),
        takeover=takeover,
    )


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  # in virtual time
        await asyncio.sleep(0.01)


# -- CPU time ----------------------------------------------------------------------------------------------------------


class CountingAPI(MemoryAPI):
    """An API server in memory without costs; ``all_bound`` is set when so many pods have been bound."""

    def __init__(self, pods: int) -> None:
        super().__init__()
        self._left, self.all_bound = pods, asyncio.Event()

    async def bind(self, pod: ObjectReference, node_name: str) -> None:
        """Bind a pod. Raises APIError."""
        await super().bind(pod, node_name)
        self._left -= 1
        if not self._left:
            self.all_bound.set()


async def cpu_seconds(nodes: int, schedulers: int) -> float:
    """The CPU time of all schedulers for one pod, with that of the API server in memory and of its watch."""
    pods = list(half_full(nodes))
    api = CountingAPI(len(pods))
    for number in range(nodes):
        api.put(node(f"node-{number}", cpu=f"{CPU_PER_NODE}m", memory="256Gi", max_pods=500))
    members: list[Scheduler] = []
    takes: list[Awaitable[None]] = []
    for number in range(schedulers):
        environment, registry = Environment(api, WallClock(), Random(number)), in_tree_registry()
        if schedulers == 1:
            members.append(Scheduler(config.default_configuration(), registry=registry, environment=environment))
            continue
        held = HeldPartitions(schedulers)
        members.append(
            PartitionedScheduler(
                config.default_configuration(), partitions=held, registry=registry, environment=environment
            )
        )
        takes.append(held.take(number, {}))
    running = [asyncio.create_task(member.run()) for member in members]
    await asyncio.gather(*(member.started() for member in members), *takes)
    began = time.process_time()
    for each in pods:
        api.put(each)
    await api.all_bound.wait()
    seconds = time.process_time() - began
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    return seconds / len(pods)


def partitions(
    nodes: int = 400,
    schedulers: Sequence[int] = (2, 4),
    workloads: Sequence[str] = (),
    decision_ms: float = 0.6,
    write_ms: float = 0.3,
    watch_ms: float = 20.0,
    repeats: int = 3,
) -> Rows:
    """Several active schedulers on one cluster: throughput, conflicts, fairness, takeover, and what each costs.

    Complete schedulers (queue, cycles, binding, backoff, election) run on one API server in memory and in virtual time.
    A decision takes each of them ``--decision-ms`` of its own time; the server executes one write after the other,
    ``--write-ms`` each, and its watch delivers ``--watch-ms`` late. Modes:

    ``optimistic``   every scheduler uses every node, and pending pods are divided by a hash
    ``partitions``   as ``kubestow run --partitions``

    A real API server binds without regard to capacity; this one rejects a binding that would overcommit the node with a
    conflict, as a validating admission plugin could. The same input gives the same output. With the first workload one
    scheduler crashes, too. The last rows are no simulation but CPU times of this machine, the median of ``--repeats``
    runs in turn: schedulers that share a cluster handle the watch events of all of its pods.
    """
    costs = Costs(decision_ms / 1e3, write_ms / 1e3, watch_ms / 1e3)
    for name in chosen(list(WORKLOADS), workloads):
        yield f"{name}, one scheduler", run(simulate(WORKLOADS[name], nodes, 1, Mode.PARTITIONS, costs)).figures()
        for number in schedulers:
            for mode in Mode:
                outcome = run(simulate(WORKLOADS[name], nodes, number, mode, costs))
                yield f"{name}, {number} schedulers, {mode.value}", outcome.figures()
    for number in schedulers:
        crash = run(simulate(half_full, nodes, number, Mode.PARTITIONS, costs, crash_at=CRASH_AT))
        yield f"half full, {number} schedulers, one crashes after {CRASH_AT} s", crash.figures()
    measured = [[asyncio.run(cpu_seconds(nodes, number)) for number in (1, *schedulers)] for _ in range(repeats)]
    medians = np.median(np.array(measured), axis=0)
    for number, seconds in zip((1, *schedulers), medians.tolist(), strict=True):
        figures = {"us of CPU per pod": seconds * 1e6, "times one scheduler": medians[0] / (seconds / number)}
        yield f"CPU time, {number} schedulers in all", figures
