"""How the engine's cost and memory grow: with nodes, bound pods, distinct shapes, rejected pods and offered load.

    .venv/bin/python benchmarks/scaling.py nodes [500 1000 5000 10000 30000 100000]
    .venv/bin/python benchmarks/scaling.py bound [0 10000 100000 1000000] [--nodes 5000]
    .venv/bin/python benchmarks/scaling.py shapes [1 10 100 1000 10000] [--nodes 5000]
    .venv/bin/python benchmarks/scaling.py rejected [0 1000 10000 50000] [--nodes 5000]
    .venv/bin/python benchmarks/scaling.py offered [100 500 1000] [--nodes 5000]
    .venv/bin/python benchmarks/scaling.py cluster [1000000] --nodes 100000

One line per size. No HTTP; every node is scored by all default plugins. ``nodes``, ``bound`` and ``shapes`` time a
decision and the placement after it; ``rejected``, ``offered`` and ``cluster`` run the whole scheduler with its queue
and binding cycles on an API server in memory. ``cluster`` has nodes and bound pods with the fields of real ones,
decoded from JSON: it times their watch events and the pods that are bound then, and weighs both.

Times are CPU times, medians where a single decision is meant: a *seen* shape has been decided about before, a *new* one
has not. In ``offered`` pods are created one by one at a constant rate, and the clock of the scheduler is the CPU time
of the process: its latencies are those of a core of its own. Memory is resident.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import count
from multiprocessing import get_context
from random import Random
from typing import Any

import numpy as np

import memory
from core import CoreBenchmark, node, pod
from kubestow import config, gc_tuning
from kubestow.api.core import Node, Pod
from kubestow.api.meta import convert, decode
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.cluster_api.memory_api import MemoryAPI
from kubestow.engine.virtual_time import VirtualClock, VirtualTimeLoop, run
from kubestow.plugins import in_tree_registry
from kubestow.scheduling.environment import Environment
from kubestow.scheduling.events.resources import NODES, PODS
from kubestow.scheduling.scheduler import Scheduler

SEEN, NEW = 500, 200
#: Pods that are bound while others are rejected, and how many shapes the rejected ones have.
BOUND_BESIDE, REJECTED_SHAPES = 2_000, 50
OFFERED_SECONDS = 20.0
#: Watch events of a kind that are timed in a large cluster.
EVENTS = 20_000


def large_node(number: int) -> Node:
    """A node with room for thousands of pods of the benchmark."""
    labels = {"kubernetes.io/hostname": f"node-{number:06}", "topology.kubernetes.io/zone": f"zone-{number % 3}"}
    allocatable = {"cpu": "4000", "memory": "32Ti", "pods": "10000"}
    return convert(
        Node, {"metadata": {"name": f"node-{number:06}", "labels": labels}, "status": {"allocatable": allocatable}}
    )


class Engine(CoreBenchmark):
    """The engine with distinct pods at hand."""

    def __init__(self, nodes: int) -> None:
        super().__init__(nodes)
        self._numbers = count()

    def info(self, shape: int = 0) -> PodInfo:
        """A pod that differs from those of other shapes in its requests."""
        return self.cluster.shapes.info(pod(next(self._numbers), cpu=f"{1 + shape % 50}m", memory=f"{1 + shape}Ki"))

    def seconds(self, infos: Sequence[PodInfo]) -> list[float]:
        """The CPU seconds of each decision with the placement after it."""
        spent = []
        for info in infos:
            began = time.thread_time()
            decision = self.pipeline.decide(info)
            assert decision.node_name is not None, decision.message
            self.cluster.assume(info, decision.node_name)
            spent.append(time.thread_time() - began)
        return spent

    def seen_and_new(self) -> str:
        """What decisions about a seen and about new shapes cost now."""
        self.seconds([self.info() for _ in range(50)])
        seen = np.array(self.seconds([self.info() for _ in range(SEEN)]))
        new = np.array(self.seconds([self.info(shape) for shape in range(10**6, 10**6 + NEW)]))
        return (
            f"seen shape {np.median(seen) * 1e6:.0f} us (p99 {np.quantile(seen, 0.99) * 1e6:.0f}), "
            f"{1 / seen.mean():,.0f} pods/s; new shape {np.median(new) * 1e6:.0f} us"
        )


def by_nodes(nodes: int, _: int) -> str:
    """Empty nodes."""
    before = memory.resident_mb()
    engine = Engine(nodes)
    gc.collect()
    per_node = (memory.resident_mb() - before) * 2**20 / nodes
    return f"{engine.seen_and_new()}; {per_node:,.0f} bytes per node"


def by_bound_pods(bound: int, nodes: int) -> str:
    """Pods of 200 shapes, bound round-robin and delivered by the watch."""
    engine = Engine(0)
    for number in range(nodes):
        engine.cluster.add_node(large_node(number))
    gc.collect()
    before, began = memory.resident_mb(), time.thread_time()
    for number in range(bound):
        engine.cluster.put_pod(engine.info(number % 200).on(f"node-{number % nodes:06}"))
    seconds = time.thread_time() - began
    per_pod = (memory.resident_mb() - before) * 2**20 / max(1, bound)
    return f"{engine.seen_and_new()}; {per_pod:,.0f} bytes and {seconds / max(1, bound) * 1e6:.0f} us per bound pod"


def by_shapes(shapes: int, nodes: int) -> str:
    """Pods of so many shapes in turn; each shape has been seen once before."""
    engine = Engine(nodes)
    before = memory.resident_mb()
    engine.seconds([engine.info(shape) for shape in range(shapes)])
    spent = np.array(engine.seconds([engine.info(number % shapes) for number in range(min(5_000, max(shapes, 1_000)))]))
    grown = memory.resident_mb() - before
    return f"median {np.median(spent) * 1e6:.0f} us, {1 / spent.mean():,.0f} pods/s; {grown:,.0f} MB more"


# -- the whole scheduler -----------------------------------------------------------------------------------------------


class CpuTimeLoop(VirtualTimeLoop):
    """An event loop whose clock is the CPU time of the process; waiting takes none and is skipped."""

    def time(self) -> float:
        """Seconds."""
        return super().time() + time.process_time()


class BindTimes(MemoryAPI):
    """An API server in memory that notes when pods are bound."""

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__()
        self._now = now
        self.times: dict[str, float] = {}
        self._bound = asyncio.Condition()

    async def bind(self, reference, node_name: str) -> None:  # type: ignore[no-untyped-def]
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


class Running:
    """A running scheduler with default configuration on an API server in memory."""

    def __init__(self, nodes: int) -> None:
        loop = asyncio.get_running_loop()
        self.now = loop.time
        self.api = BindTimes(loop.time)
        for number in range(nodes):
            self.api.put(node(number))
        self.scheduler = Scheduler(
            config.default_configuration(),
            registry=in_tree_registry(),
            environment=Environment(self.api, VirtualClock(loop), Random(0)),
        )
        self._task = asyncio.create_task(self.scheduler.run())

    async def stop(self) -> None:
        """Stop the scheduler."""
        self._task.cancel()
        await asyncio.wait([self._task])


def seconds_per_call(call: Callable[[Any], None], values: Sequence[Any]) -> float:
    """The CPU seconds of a call, with each of the values in turn."""
    began = time.thread_time()
    for value in values:
        call(value)
    return (time.thread_time() - began) / max(1, len(values))


def rejected_pod(number: int) -> Pod:
    """A pod with more requests than any node has."""
    return pod(10**7 + number, cpu=f"{5_000 + number % REJECTED_SHAPES}m")


def by_rejected_pods(rejected: int, nodes: int) -> str:
    """The scheduler binds pods while so many others wait that fit nowhere."""

    async def measure() -> tuple[float, float, float]:
        running = Running(nodes)
        await running.scheduler.started()
        before, began = memory.resident_mb(), time.thread_time()
        for number in range(rejected):
            running.api.put(rejected_pod(number))
        await asyncio.sleep(60)  # until all have been rejected, and their backoff is over
        rejecting, grown = time.thread_time() - began, memory.resident_mb() - before
        for number in range(200):
            running.api.put(pod(number))
        await running.api.all_bound(200)
        began = time.thread_time()
        for number in range(200, 200 + BOUND_BESIDE):
            running.api.put(pod(number))
        await running.api.all_bound(200 + BOUND_BESIDE)
        binding = time.thread_time() - began
        await running.stop()
        return rejecting, grown, binding

    rejecting, grown, binding = run(measure())
    each = max(1, rejected)
    return (
        f"{binding / BOUND_BESIDE * 1e6:.0f} us per pod bound beside them; "
        f"{rejecting / each * 1e6:.0f} us and {grown * 2**20 / each:,.0f} bytes per rejected pod"
    )


def by_offered_load(rate: int, nodes: int) -> str:
    """Creation to binding of pods that arrive at a constant rate."""

    async def measure() -> list[float]:
        running = Running(nodes)
        await running.scheduler.started()
        running.api.put(pod(10**6))
        await running.api.all_bound(1)
        running.api.times.clear()
        created, pods = {}, int(rate * OFFERED_SECONDS)
        manifests = [pod(number) for number in range(pods)]
        with gc_tuning.paused():
            began = running.now()
            for number, manifest in enumerate(manifests):
                due = began + number / rate
                await asyncio.sleep(max(0.0, due - running.now()))
                created[manifest.metadata.name] = due
                running.api.put(manifest)
            await running.api.all_bound(pods)
        await running.stop()
        return [running.api.times[name] - at for name, at in created.items()]

    with asyncio.Runner(loop_factory=CpuTimeLoop) as runner:
        latencies = np.array(runner.run(measure())) * 1e3
    p50, p99 = np.quantile(latencies, (0.5, 0.99))
    return f"creation to binding p50 {p50:.2f} ms, p99 {p99:.2f} ms, longest {latencies.max():.2f} ms"


def by_cluster(bound: int, nodes: int) -> str:
    """Nodes and bound pods as a real API server sends them."""

    async def measure() -> str:
        running = Running(0)
        await running.scheduler.started()
        handlers = running.scheduler.handlers
        before = memory.resident_mb()
        handlers.replace(NODES, [decode(Node, memory.node(number)) for number in range(nodes)])
        with_nodes = memory.resident_mb()
        deliver = seconds_per_call(
            lambda number: handlers.apply(PODS, "ADDED", decode(Pod, memory.pod(number, nodes))), range(bound)
        )
        gc.collect()
        with_pods = memory.resident_mb()
        some = [decode(Pod, memory.pod(number, nodes)) for number in range(0, bound, max(1, bound // EVENTS))]
        deleted = seconds_per_call(lambda pod: handlers.apply(PODS, "DELETED", pod), some)
        added = seconds_per_call(lambda pod: handlers.apply(PODS, "ADDED", pod), some)
        beats = [decode(Node, memory.node(number)) for number in range(0, nodes, max(1, nodes // EVENTS))]
        beat = seconds_per_call(lambda node: handlers.apply(NODES, "MODIFIED", node), beats)
        placed = []
        for shapes in (10, 10, BOUND_BESIDE):  # the second time they have been seen
            began, target = time.thread_time(), len(running.api.times) + BOUND_BESIDE
            for number in range(BOUND_BESIDE):
                shape = number % shapes + (10 if shapes > 10 else 0)
                running.api.put(pod(target + number, cpu=f"{100 + shape % 50}m", memory=f"{500 * 1024 + shape}Ki"))
            await running.api.all_bound(target)
            placed.append((time.thread_time() - began) / BOUND_BESIDE)
        await running.stop()
        return (
            f"{memory.resident_mb():,.0f} MB resident, "
            f"{(with_nodes - before) * 2**20 / max(1, nodes):,.0f} bytes per node, "
            f"{(with_pods - with_nodes) * 2**20 / max(1, bound):,.0f} per bound pod; {deliver * 1e6:.0f} us to encode, "
            f"decode and add a bound pod, {1 / added:,.0f} additions/s, {1 / deleted:,.0f} deletions/s, "
            f"{1 / beat:,.0f} node updates/s without a change; a pod bound after {placed[1] * 1e6:.0f} us of CPU "
            f"time (ten shapes), {placed[2] * 1e6:.0f} us (each its own shape)"
        )

    return run(measure())


MEASUREMENTS: dict[str, tuple[Callable[[int, int], str], str, Sequence[int]]] = {
    "nodes": (by_nodes, "nodes", (500, 1_000, 5_000, 10_000, 30_000, 100_000)),
    "bound": (by_bound_pods, "bound pods", (0, 10_000, 100_000, 1_000_000)),
    "shapes": (by_shapes, "shapes", (1, 10, 100, 1_000, 10_000)),
    "rejected": (by_rejected_pods, "rejected pods", (0, 1_000, 10_000, 50_000)),
    "offered": (by_offered_load, "pods/s offered", (100, 500, 1_000)),
    "cluster": (by_cluster, "bound pods", (1_000_000,)),
}


def main() -> None:
    """Run one of the measurements."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("measurement", choices=MEASUREMENTS)
    arguments.add_argument("sizes", type=int, nargs="*")
    arguments.add_argument("--nodes", type=int, default=5_000)
    options = arguments.parse_args()
    measure, unit, sizes = MEASUREMENTS[options.measurement]
    # A process for each size, so that none uses memory that another has freed.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as processes:
        for size in options.sizes or sizes:
            print(f"{size:,} {unit}: {processes.submit(measure, size, options.nodes).result()}", flush=True)


if __name__ == "__main__":
    main()
