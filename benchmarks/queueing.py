"""The scheduling queue under cluster events: what one event costs with thousands of rejected pods waiting.

    .venv/bin/python benchmarks/queueing.py [--pods 50000] [--shapes 50]

Prints the CPU time of one call of ``move_all_to_active_or_backoff`` per kind of event, for events that help no pod, one
shape of pods, and all pods, the CPU time to queue and reject a pod, and the memory of the queue per waiting pod. The
last line is a preemption: the pods wait for their own victims while other pods are deleted.
"""

from __future__ import annotations

import argparse
import gc
import resource
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from kubestow import config
from kubestow.api.core import Node, Pod
from kubestow.api.meta import convert
from kubestow.cluster.changes.events import Action, ClusterEvent, EventResource
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.profile import implements
from kubestow.observability.metrics import SchedulerMetrics
from kubestow.observability.metrics_recorder import MetricsRecorder
from kubestow.plugins import in_tree_registry
from kubestow.scheduling.environment import Environment
from kubestow.scheduling.scheduler import Scheduler
from kubestow.testing import MemoryCluster

NODE_LABEL = ClusterEvent(EventResource.NODE, Action.UPDATE_NODE_LABEL)
NODE_ALLOCATABLE = ClusterEvent(EventResource.NODE, Action.UPDATE_NODE_ALLOCATABLE)
NODE_ADD = ClusterEvent(EventResource.NODE, Action.ADD)
POD_DELETE = ClusterEvent(EventResource.ASSIGNED_POD, Action.DELETE)


class ManualClock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        """The time in seconds."""
        return self.seconds


def node(labels: dict[str, str], cpu: str = "4") -> Node:
    """A node with these labels."""
    status = {"allocatable": {"cpu": cpu, "memory": "32Gi", "pods": "110"}}
    return convert(Node, {"metadata": {"name": "n", "labels": labels}, "status": status})


def pod(number: int, shapes: int, node_name: str = "") -> Pod:
    """A pod that requires a pool of its own shape and more CPU than the node has."""
    shape = number % shapes
    requests = {"cpu": f"{5000 + shape}m", "memory": "500Mi"}
    spec = {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "pool", "operator": "In", "values": [f"pool-{shape}"]}]}
                    ]
                }
            }
        },
        "nodeName": node_name,
        "schedulerName": "default-scheduler",
        "containers": [{"name": "c", "image": "pause", "resources": {"requests": requests}}],
    }
    metadata = {"name": f"pod-{number}", "namespace": "default", "uid": f"uid-{number}", "labels": {"app": f"a{shape}"}}
    return convert(Pod, {"metadata": metadata, "spec": spec})


class World:
    """A scheduler whose loop does not run, with its queue and pods."""

    def __init__(self, pods: int, shapes: int) -> None:
        gates = config.FeatureGates({})
        registry = in_tree_registry()
        document = {"apiVersion": config.API_VERSION, "kind": config.KIND}
        self.clock = ManualClock()
        recorder = MetricsRecorder(SchedulerMetrics())
        self.scheduler = Scheduler(
            config.load(document, subject="benchmark", gates=gates, implements=implements(registry)),
            registry=registry,
            environment=Environment(MemoryCluster(), self.clock, Random(1), recorder),  # type: ignore[arg-type]
            gates=gates,
        )
        self.queue = self.scheduler.queue
        self.infos = [self.info(pod(number, shapes)) for number in range(pods)]
        self.other = self.info(pod(pods, shapes, node_name="n"))

    def info(self, obj: Pod) -> PodInfo:
        """A pod with its shape."""
        return self.scheduler.cluster.shapes.info(obj)

    def fill(self, rejectors: frozenset[str]) -> float:
        """Queue all pods and have each rejected; CPU seconds."""
        began = time.process_time()
        for info in self.infos:
            self.queue.add(info)
        while (queued := self.queue.pop()) is not None:
            self.queue.requeue(queued, rejectors=rejectors, pending=frozenset())
        return time.process_time() - began


def measure(pods: int, shapes: int, rejector: str, event: ClusterEvent, old: Any, new: Any) -> tuple[float, int, float]:
    """CPU seconds of one event, how many pods it requeued, CPU seconds to fill the queue."""
    world = World(pods, shapes)
    filling = world.fill(frozenset({rejector}))
    world.clock.seconds += 60.0  # the backoff of all pods is over
    gc.collect()
    gc.disable()
    before = world.other if old == "pod" else old
    began = time.process_time()
    world.queue.move_all_to_active_or_backoff(event, before, new)
    seconds = time.process_time() - began
    gc.enable()
    requeued = 0
    while world.queue.pop() is not None:
        requeued += 1
    return seconds, requeued, filling


def memory(pods: int, shapes: int) -> float:
    """Bytes of the queue per waiting pod, the pods themselves not counted."""
    world = World(pods, shapes)
    gc.collect()
    before = _resident()
    world.fill(frozenset({"NodeAffinity", "NodeResourcesFit"}))
    gc.collect()
    return (_resident() - before) / pods


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def preemption(preemptors: int, shapes: int, deletions: int) -> float:
    """CPU seconds per deletion of another pod while all preemptors wait for their own victims."""
    world = World(preemptors, shapes)
    world.fill(frozenset({"NodeResourcesFit"}))
    world.clock.seconds += 60.0
    start = _start_of(world.scheduler)
    for info in world.infos:
        start(info)
    world.queue.move_all_to_active_or_backoff(POD_DELETE, world.other, None)
    began = time.process_time()
    for _ in range(deletions):
        world.queue.move_all_to_active_or_backoff(POD_DELETE, world.other, None)
    return (time.process_time() - began) / deletions


def _start_of(scheduler: Scheduler) -> Callable[[PodInfo], None]:
    """Starts evictions that never end."""
    evictions = scheduler._evictions
    evictions.tasks.start = lambda work: work.close()  # type: ignore[assignment, method-assign, return-value]
    victim = scheduler.cluster.shapes.info(pod(10**9, 1, node_name="n"))
    return lambda info: evictions.start(info, "n", victims=[victim], lower_priority_nominated=[])


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, nargs="*", default=[10_000, 50_000])
    parser.add_argument("--shapes", type=int, default=50)
    options = parser.parse_args()
    cases: list[tuple[str, str, ClusterEvent, Any, Any]] = [
        ("label, helps none", "NodeAffinity", NODE_LABEL, node({}), node({"a": "b"})),
        ("label, helps one shape", "NodeAffinity", NODE_LABEL, node({}), node({"pool": "pool-7"})),
        ("allocatable, helps none", "NodeResourcesFit", NODE_ALLOCATABLE, node({}), node({}, cpu="4500m")),
        ("allocatable, helps one shape", "NodeResourcesFit", NODE_ALLOCATABLE, node({}), node({}, cpu="5")),
        ("node added, helps all", "NodeResourcesFit", NODE_ADD, None, node({}, cpu="64")),
        ("pod deleted, helps all", "NodeResourcesFit", POD_DELETE, "pod", None),
    ]
    print(f"{max(options.pods):6} pods: {memory(max(options.pods), options.shapes):.0f} bytes per waiting pod")
    for pods in options.pods:
        for label, rejector, event, old, new in cases:
            seconds, requeued, filling = measure(pods, options.shapes, rejector, event, old, new)
            print(
                f"{pods:6} pods, {label:28}: {seconds * 1e3:8.2f} ms, {requeued} requeued; "
                f"queue and reject {filling / pods * 1e6:.1f} us/pod"
            )
    print(f"1000 preemptors waiting: {preemption(1000, options.shapes, 20) * 1e3:.2f} ms per deletion")


if __name__ == "__main__":
    main()
