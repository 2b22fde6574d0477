"""How cost and memory grow: with the size of the cluster, and over time as objects come and go."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from itertools import count
from random import Random
from time import process_time, thread_time
from typing import Any, Literal

import numpy as np
from msgspec.structs import replace

from benchmarks.clusters import HOSTNAME, ZONE, Engine, new_scheduler, node, pod, real_node, real_pod
from benchmarks.harness import Row, Rows
from benchmarks.measurement import descriptors, isolated, resident, resident_mb
from kubestow import gc_tuning
from kubestow.api.core import Node, Pod
from kubestow.api.meta import decode
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.cluster_api.memory_api import MemoryAPI
from kubestow.engine.virtual_time import VirtualClock, VirtualTimeLoop, run
from kubestow.scheduling.events.resources import NODES, PODS
from kubestow.testing import MemoryCluster, builders
from kubestow.testing import nodes as make_nodes
from kubestow.testing.storage import claim, mounting, storage_class, volume

Figures = dict[str, Any]

# -- scaling -----------------------------------------------------------------------------------------------------------

_SEEN, _NEW = 500, 200
#: Pods that are bound while others are rejected, and how many shapes the rejected ones have.
_BOUND_BESIDE, _REJECTED_SHAPES = 2_000, 50
_OFFERED_SECONDS = 20.0
#: Watch events of a kind that are timed in a large cluster.
_EVENTS = 20_000


def scaling(
    by: Literal["nodes", "bound", "shapes", "rejected", "offered", "cluster"],
    sizes: Sequence[int] = (),
    nodes: int = 5_000,
    seconds: float = _OFFERED_SECONDS,
) -> Rows:
    """How the engine's cost and memory grow: with nodes, bound pods, shapes, rejected pods and offered load.

    One line per size, each measured in a process of its own. No HTTP; every node is scored by all default plugins.
    ``nodes``, ``bound`` and ``shapes`` time a decision and the placement after it; ``rejected``, ``offered`` and
    ``cluster`` run the whole scheduler with its queue and binding cycles on an API server in memory. ``cluster`` has
    nodes and bound pods with the fields of real ones, decoded from JSON: it times their watch events and the pods that
    are bound then, and weighs both.

    Times are CPU times, medians where a single decision is meant: a *seen* shape has been decided about before, a *new*
    one has not. In ``offered`` pods are created one by one at a constant rate for ``--seconds``, and the clock of the
    scheduler is the CPU time of the process: its latencies are those of a core of its own. Memory is resident.
    """
    measure, unit, usual = _MEASUREMENTS[by]
    for size in sizes or usual:
        yield f"{size:,} {unit}", isolated(measure, size, *((nodes, seconds) if by == "offered" else (nodes,)))


class _ScalingEngine(Engine):
    """The engine with distinct pods at hand."""

    def __init__(self, nodes: Any) -> None:
        super().__init__(nodes)
        self._numbers = count()

    def of_shape(self, shape: int = 0) -> PodInfo:
        """A pod that differs from those of other shapes in its requests."""
        return self.harness.info(pod(next(self._numbers), cpu=f"{1 + shape % 50}m", memory=f"{1 + shape}Ki"))

    def seconds(self, infos: Sequence[PodInfo]) -> Any:
        """The CPU seconds of each decision with the placement after it."""
        spent = []
        for info in infos:
            began = thread_time()
            self.place(info)
            spent.append(thread_time() - began)
        return np.array(spent)

    def seen_and_new(self) -> Figures:
        """What decisions about a seen and about new shapes cost now."""
        self.seconds([self.of_shape() for _ in range(50)])
        seen = self.seconds([self.of_shape() for _ in range(_SEEN)])
        new = self.seconds([self.of_shape(shape) for shape in range(10**6, 10**6 + _NEW)])
        return {
            "µs, seen shape": np.median(seen) * 1e6,
            "µs, p99": np.quantile(seen, 0.99) * 1e6,
            "pods/s": 1 / seen.mean(),
            "µs, new shape": np.median(new) * 1e6,
        }


def _by_nodes(nodes: int, _: int) -> Figures:
    """Empty nodes."""
    before = resident()
    engine = _ScalingEngine(nodes)
    gc.collect()
    per_node = (resident() - before) / nodes
    return {**engine.seen_and_new(), "bytes per node": per_node}


def _by_bound_pods(bound: int, nodes: int) -> Figures:
    """Pods of 200 shapes, bound round-robin and delivered by the watch, on nodes with room for thousands."""
    names = [f"node-{number:06}" for number in range(nodes)]
    roomy = {"cpu": "4000", "memory": "32Ti", "max_pods": 10_000}
    engine = _ScalingEngine(builders.node(name, zone=f"zone-{n % 3}", **roomy) for n, name in enumerate(names))
    gc.collect()
    before, began = resident(), thread_time()
    for number in range(bound):
        engine.cluster.put_pod(engine.of_shape(number % 200).on(names[number % nodes]))
    seconds = thread_time() - began
    each = {
        "bytes per bound pod": (resident() - before) / max(1, bound),
        "µs per bound pod": seconds / max(1, bound) * 1e6,
    }
    return {**engine.seen_and_new(), **each}


def _by_shapes(shapes: int, nodes: int) -> Figures:
    """Pods of so many shapes in turn; each shape has been seen once before."""
    engine = _ScalingEngine(nodes)
    before = resident_mb()
    engine.seconds([engine.of_shape(shape) for shape in range(shapes)])
    timed = min(5_000, max(shapes, 1_000))
    spent = engine.seconds([engine.of_shape(number % shapes) for number in range(timed)])
    return {
        "µs in the median": np.median(spent) * 1e6,
        "pods/s": 1 / spent.mean(),
        "MB more": resident_mb() - before,
    }


class _CpuTimeLoop(VirtualTimeLoop):
    """An event loop whose clock is the CPU time of the process; waiting takes none and is skipped."""

    def time(self) -> float:
        """Seconds."""
        return super().time() + process_time()


class _BindTimes(MemoryAPI):
    """An API server in memory that notes when pods are bound."""

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__()
        self._now = now
        self.times: dict[str, float] = {}
        self._bound = asyncio.Condition()

    async def bind(self, reference: Any, node_name: str) -> None:
        """Bind a pod."""
        await asyncio.sleep(0)
        await super().bind(reference, node_name)
        async with self._bound:
            self.times[reference.name] = self._now()
            self._bound.notify_all()

    async def all_bound(self, pods: int) -> None:
        """Return when so many pods have been bound."""
        async with self._bound:
            await self._bound.wait_for(lambda: len(self.times) >= pods)


class _Running:
    """A running scheduler with default configuration on an API server in memory, until the context ends."""

    def __init__(self, nodes: int) -> None:
        loop = asyncio.get_running_loop()
        self.now = loop.time
        self.api = _BindTimes(loop.time)
        for number in range(nodes):
            self.api.put(node(number))
        self.scheduler = new_scheduler(self.api, VirtualClock(loop))

    async def __aenter__(self) -> _Running:
        self._task = asyncio.create_task(self.scheduler.run())
        await self.scheduler.started()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def bind(self, pods: Sequence[Pod]) -> float:
        """Create pods and wait until they are bound; the CPU seconds per pod."""
        began, target = thread_time(), len(self.api.times) + len(pods)
        for each in pods:
            self.api.put(each)
        await self.api.all_bound(target)
        return (thread_time() - began) / len(pods)


def _by_rejected_pods(rejected: int, nodes: int) -> Figures:
    """The scheduler binds pods while so many others wait that fit nowhere."""

    async def measure() -> Figures:
        async with _Running(nodes) as running:
            before, began = resident(), thread_time()
            for number in range(rejected):
                running.api.put(pod(10**7 + number, cpu=f"{5_000 + number % _REJECTED_SHAPES}m"))
            await asyncio.sleep(60)  # until all have been rejected, and their backoff is over
            rejecting, grown = thread_time() - began, resident() - before
            await running.bind([pod(number) for number in range(200)])
            binding = await running.bind([pod(number) for number in range(200, 200 + _BOUND_BESIDE)])
        return {
            "µs per pod bound beside them": binding * 1e6,
            "µs per rejected pod": rejecting / max(1, rejected) * 1e6,
            "bytes per rejected pod": grown / max(1, rejected),
        }

    return run(measure())


def _by_offered_load(rate: int, nodes: int, seconds: float) -> Figures:
    """Creation to binding of pods that arrive at a constant rate."""

    async def measure() -> list[float]:
        async with _Running(nodes) as running:
            await running.bind([pod(10**6)])
            running.api.times.clear()
            created, manifests = {}, [pod(number) for number in range(int(rate * seconds))]
            with gc_tuning.paused():
                began = running.now()
                for number, manifest in enumerate(manifests):
                    due = began + number / rate
                    await asyncio.sleep(max(0.0, due - running.now()))
                    created[manifest.metadata.name] = due
                    running.api.put(manifest)
                await running.api.all_bound(len(manifests))
        return [running.api.times[name] - at for name, at in created.items()]

    with asyncio.Runner(loop_factory=_CpuTimeLoop) as runner:
        latencies = np.array(runner.run(measure())) * 1e3
    p50, p99 = np.quantile(latencies, (0.5, 0.99))
    return {"ms from creation to binding, p50": p50, "ms, p99": p99, "ms at most": latencies.max()}


def _by_cluster(bound: int, nodes: int) -> Figures:
    """Nodes and bound pods as a real API server sends them."""

    def each(call: Callable[[Any], None], values: Sequence[Any]) -> float:
        """The CPU seconds of a call, with each of the values in turn."""
        began = thread_time()
        for value in values:
            call(value)
        return (thread_time() - began) / max(1, len(values))

    async def measure() -> Figures:
        async with _Running(0) as running:
            handlers = running.scheduler.handlers
            before = resident()
            handlers.replace(NODES, [decode(Node, real_node(number)) for number in range(nodes)])
            with_nodes = resident()
            deliver = each(
                lambda number: handlers.apply(PODS, "ADDED", decode(Pod, real_pod(number, nodes))), range(bound)
            )
            gc.collect()
            with_pods = resident()
            some = [decode(Pod, real_pod(number, nodes)) for number in range(0, bound, max(1, bound // _EVENTS))]
            deleted = each(lambda pod: handlers.apply(PODS, "DELETED", pod), some)
            added = each(lambda pod: handlers.apply(PODS, "ADDED", pod), some)
            beats = [decode(Node, real_node(number)) for number in range(0, nodes, max(1, nodes // _EVENTS))]
            beat = each(lambda node: handlers.apply(NODES, "MODIFIED", node), beats)
            placed, numbers = [], count()
            for shapes in (10, 10, _BOUND_BESIDE):  # the second time they have been seen
                shaped = [number % shapes + (10 if shapes > 10 else 0) for number in range(_BOUND_BESIDE)]
                placed.append(
                    await running.bind(
                        [pod(next(numbers), cpu=f"{100 + s % 50}m", memory=f"{500 * 1024 + s}Ki") for s in shaped]
                    )
                )
            return {
                "MB resident": resident_mb(),
                "bytes per node": (with_nodes - before) / max(1, nodes),
                "bytes per bound pod": (with_pods - with_nodes) / max(1, bound),
                "µs to encode, decode and add a bound pod": deliver * 1e6,
                "additions/s": 1 / added,
                "deletions/s": 1 / deleted,
                "node updates/s without a change": 1 / beat,
                "µs of CPU per pod bound, ten shapes": placed[1] * 1e6,
                "µs, each its own shape": placed[2] * 1e6,
            }

    return run(measure())


_MEASUREMENTS: dict[str, tuple[Callable[..., Figures], str, Sequence[int]]] = {
    "nodes": (_by_nodes, "nodes", (500, 1_000, 5_000, 10_000, 30_000, 100_000)),
    "bound": (_by_bound_pods, "bound pods", (0, 10_000, 100_000, 1_000_000)),
    "shapes": (_by_shapes, "shapes", (1, 10, 100, 1_000, 10_000)),
    "rejected": (_by_rejected_pods, "rejected pods", (0, 1_000, 10_000, 50_000)),
    "offered": (_by_offered_load, "pods/s offered", (100, 500, 1_000)),
    "cluster": (_by_cluster, "bound pods", (1_000_000,)),
}

# -- memory ------------------------------------------------------------------------------------------------------------


async def memory(nodes: int = 5000, pods: int = 100_000) -> AsyncIterator[Row]:
    """Memory of the scheduler's state: many nodes and bound pods, decoded from JSON as a real API server sends it.

    Objects have the fields of real ones (managed fields, conditions, container statuses, token volumes); pods belong to
    200 workloads. Resident memory of the process. Results: docs/performance.md.
    """
    before = resident_mb()
    scheduler = new_scheduler(MemoryCluster(), VirtualClock(asyncio.get_running_loop()))
    scheduler.handlers.replace(NODES, [decode(Node, real_node(number)) for number in range(nodes)])
    with_nodes = resident_mb()
    for start in range(0, pods, 1000):
        for bound in [decode(Pod, real_pod(number, nodes)) for number in range(start, min(start + 1000, pods))]:
            scheduler.handlers.apply(PODS, "ADDED", bound)
    gc.collect()
    figures = {
        "MB resident": resident_mb(),
        "MB before": before,
        "MB with the nodes": with_nodes,
        "bytes per pod": (resident_mb() - with_nodes) * 2**20 / pods,
    }
    yield f"{nodes:,} nodes and {pods:,} bound pods", figures


# -- churn -------------------------------------------------------------------------------------------------------------


def churn(nodes: int = 100, pods: int = 20_000) -> Rows:
    """Memory while pods come and go that have nothing in common.

    Each pod names labels, a resource, a host port, a node label and a topology key that no other pod names, counts pods
    by a selector of its own, is decided about, placed and deleted. The number of columns, of resources and of shapes,
    and the resident memory, after every fifth of the pods: none of them may keep growing.
    """
    engine = Engine(make_nodes(nodes, zones=3))
    fifth = pods // 5
    for part in range(5):
        for number in range(part * fifth, (part + 1) * fifth):
            fits, pending = engine.infos(_distinct_pods(number))
            engine.place(fits)
            engine.pipeline.decide_by_plugins(pending)
            engine.cluster.forget(fits.uid)
        gc.collect()
        table = engine.cluster.nodes
        figures = {
            "columns": len(table.columns),
            "resources": len(table.requested) + len(table.allocatable),
            "shapes": len(engine.cluster.shapes),
            "MB resident": resident_mb(),
        }
        yield f"{2 * (part + 1) * fifth:,} pods", figures


def _distinct_pods(number: int) -> tuple[Pod, Pod]:
    """A pod that fits and one that does not, which have nothing in common with the pods of other numbers."""
    labels = {f"example.com/key-{number}": f"value-{number}"}
    selector = {"labelSelector": {"matchLabels": labels}}
    constraints: list[dict[str, Any]] = [
        {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", **selector}
        for key in (HOSTNAME, f"example.com/domain-{number}")
    ]
    anti_affinity = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": HOSTNAME, **selector}]}
    fits = builders.pod(
        f"fits-{number}",
        labels=labels,
        requests={f"example.com/resource-{number}": "0"},
        host_ports=[1 + number % 60000],
        spread=constraints,
        affinity={"podAntiAffinity": anti_affinity},
    )
    pending = builders.pod(
        f"pending-{number}",
        labels=labels,
        requests={f"example.com/other-{number}": "1"},
        node_selector={f"example.com/disk-{number}": "ssd"},
    )
    return fits, pending


# -- soak --------------------------------------------------------------------------------------------------------------

#: Pods per batch, pods per workload, and the seconds of virtual time that a batch takes.
_BATCH, _WORKLOAD, _BATCH_SECONDS = 500, 50, 10
_ALLOWED_GROWTH = 1.1


def soak(pods: int = 200_000, nodes: int = 1000, existing: int = 8_000, seed: int = 2, plot: str = "") -> Rows:
    """A soak test: pods and nodes are created, updated and deleted, and nothing of the scheduler may grow.

    The scheduler runs on an in-memory cluster in virtual time, without HTTP: 500 pods each ten seconds, so 1,800,000
    pods are ten hours. Workloads have distinct labels, namespaces and requests, and are deleted with their pods; some
    have topology spread or inter-pod affinity, mount claims, are infeasible, or preempt others. Nodes are replaced by
    new ones with new names, relabelled and tainted.

    After each tenth: resident memory, tasks of the event loop, open file descriptors, and the CPU time per created
    pod, as quantiles over the batches of the tenth. The exit status is 1 if in the last tenth memory is more than 10 %
    above the first, or there are more tasks or descriptors. ``--plot`` writes all of it over time as SVG.
    """
    tenths: list[dict[str, Any]] = []
    rows = _soaked(pods, nodes, existing, seed)
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        while (row := runner.run(anext(rows, None))) is not None:
            tenths.append(row[1])
            yield row
    if plot:
        _plot(tenths, pods // 10 // _BATCH * _BATCH_SECONDS / 3600, plot)
    first, last = tenths[0], tenths[-1]
    grown = last["MB resident"] / first["MB resident"]
    yield "the last tenth", {"times the memory of the first": grown}
    if grown > _ALLOWED_GROWTH or any(last[name] > first[name] for name in ("tasks", "descriptors")):
        sys.exit("memory, tasks or descriptors have grown")


async def _soaked(pods: int, nodes: int, existing: int, seed: int) -> AsyncIterator[Row]:
    cluster = MemoryCluster()
    scheduler = new_scheduler(cluster, VirtualClock(asyncio.get_running_loop()), seed=1)
    changes = _Changes(cluster, Random(seed))
    changes.create_nodes(nodes)
    running = asyncio.create_task(scheduler.run())
    reported, bound, cpu = 0, 0, list[float]()
    for done in range(_BATCH, pods + 1, _BATCH):
        changes.create(_BATCH)
        began = process_time()
        await asyncio.sleep(_BATCH_SECONDS / 2)
        cpu.append((process_time() - began) / _BATCH * 1000)
        changes.delete_down_to(existing)
        changes.update_nodes()
        await asyncio.sleep(_BATCH_SECONDS / 2)
        bound += len(cluster.bindings)
        cluster.bindings.clear()
        cluster.events.clear()
        if done * 10 // pods > reported:
            reported += 1
            gc.collect()
            ctypes.CDLL(None).malloc_trim(0)  # return free memory to the system
            p50, p99 = np.quantile(cpu, (0.5, 0.99))
            cpu.clear()
            figures = {
                "bound": bound,
                "MB resident": resident_mb(),
                "tasks": len(asyncio.all_tasks()),
                "descriptors": descriptors(),
                "ms of CPU per pod, p50": float(p50),
                "ms, p99": float(p99),
            }
            yield f"{done:,} pods created", figures
    running.cancel()
    await asyncio.wait([running])


def _plot(tenths: Sequence[Mapping[str, Any]], hours: float, path: str) -> None:
    """Each figure of a soak test over the hours of virtual time, as SVG."""
    from matplotlib.figure import Figure

    panels = {
        "resident memory, MB": ("MB resident",),
        "CPU per created pod, ms": ("ms of CPU per pod, p50", "ms, p99"),
        "tasks and descriptors": ("tasks", "descriptors"),
    }
    figure = Figure(figsize=(9, 2.6), layout="constrained")
    times = [(number + 1) * hours for number in range(len(tenths))]
    for axes, (title, names) in zip(figure.subplots(1, len(panels)), panels.items(), strict=True):
        for name in names:
            axes.plot(times, [each[name] for each in tenths], marker="o", markersize=3, label=name)
        axes.set_ylim(bottom=0)
        axes.set(title=title, xlabel="hours of virtual time")
        axes.legend(fontsize="small")
    figure.savefig(path, metadata={"Date": None})


class _Changes:
    """Creates, updates and deletes the objects of a cluster."""

    def __init__(self, cluster: MemoryCluster, random: Random) -> None:
        self._cluster, self._random = cluster, random
        self._nodes: list[Node] = []
        self._pods: deque[Pod] = deque()
        self._claims: dict[str, list[Any]] = {}
        self._created = 0

    def create_nodes(self, nodes: int) -> None:
        """Create the initial nodes."""
        self._cluster.put(storage_class())
        for _ in range(nodes):
            self._add_node()

    def _add_node(self) -> None:
        self._created += 1
        n = self._created
        created = builders.node(
            f"node-{n}", cpu="16", memory="64Gi", zone=f"zone-{n % 3}", labels={"rack": f"r{n % 40}"}
        )
        self._nodes.append(created)
        self._cluster.put(created)

    def update_nodes(self) -> None:
        """Replace some nodes, relabel some, and taint or untaint some."""
        for _ in range(5):
            self._cluster.remove(self._nodes.pop(self._random.randrange(len(self._nodes))))
            self._add_node()
        tainted = builders.node(taints=["dedicated=yes:NoSchedule"]).spec.taints
        for number in self._random.sample(range(len(self._nodes)), 10):
            old = self._nodes[number]
            labels = old.metadata.labels | {"rack": f"r{self._random.randrange(40)}", "deploy": str(self._created)}
            spec = replace(old.spec, taints=[] if old.spec.taints else tainted)
            new = replace(old, metadata=replace(old.metadata, labels=labels), spec=spec)
            self._nodes[number] = new
            self._cluster.put(new)

    def create(self, count: int) -> None:
        """Create workloads with distinct properties, ``count`` pods in total."""
        for first in range(0, count, _WORKLOAD):
            self._created += 1
            random, app = self._random, f"app-{self._created}"
            template = {
                "namespace": f"team-{self._created % 500}",
                "labels": {"app": app},
                "cpu": f"{random.randrange(50, 500)}m",
                "memory": f"{random.randrange(64, 2048)}Mi",
                "priority": random.choice((0, 0, 0, 10)),
                "affinity": self._pod_affinity(app),
                "spread": self._spread(app),
                "gates": ("later",) if random.random() < 0.05 else (),
            }
            if random.random() < 0.05:
                template |= {"cpu": "64"}  # infeasible
            for number in range(first, min(first + _WORKLOAD, count)):
                self._create_pod(f"{app}-{number}", template)

    def _create_pod(self, name: str, template: dict[str, Any]) -> None:
        self._created += 1
        spec: dict[str, Any] = {}
        if self._random.random() < 0.02:
            spec = mounting(name)
            self._claims[name] = [
                volume(f"pv-{name}", claim=name, claim_uid=f"uid-{name}", phase="Bound"),
                claim(name, namespace=template["namespace"], volume=f"pv-{name}", metadata={"uid": f"uid-{name}"}),
            ]
            for obj in self._claims[name]:
                self._cluster.put(obj)
        created = builders.pod(name, spec=spec, metadata={"uid": f"uid-{self._created}"}, **template)
        self._pods.append(created)
        self._cluster.put(created)

    def _pod_affinity(self, app: str) -> dict[str, Any] | None:
        if self._random.random() > 0.1:
            return None
        kind = self._random.choice(("podAffinity", "podAntiAffinity"))
        term = {
            "topologyKey": ZONE if kind == "podAffinity" else HOSTNAME,
            "labelSelector": {"matchLabels": {"app": app}},
        }
        return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}

    def _spread(self, app: str) -> list[dict[str, Any]]:
        if self._random.random() > 0.2:
            return []
        key, selector = self._random.choice((ZONE, HOSTNAME, "rack")), {"matchLabels": {"app": app}}
        return [{"topologyKey": key, "maxSkew": 5, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}]

    def delete_down_to(self, count: int) -> None:
        """Delete the oldest pods until ``count`` remain."""
        while len(self._pods) > count:
            deleted = self._pods.popleft()
            self._cluster.remove(deleted)
            for obj in self._claims.pop(deleted.metadata.name, ()):
                self._cluster.remove(obj)
