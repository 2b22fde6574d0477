"""The scheduling queue alone."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from random import Random
from time import process_time
from typing import Any

from benchmarks.harness import Rows
from benchmarks.measurement import resident
from kubestow import config
from kubestow.api.core import Pod
from kubestow.cluster.changes.events import Action, ClusterEvent, EventResource
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.profile import implements
from kubestow.observability.metrics import SchedulerMetrics
from kubestow.observability.metrics_recorder import MetricsRecorder
from kubestow.plugins import in_tree_registry
from kubestow.scheduling.environment import Environment
from kubestow.scheduling.scheduler import Scheduler
from kubestow.testing import MemoryCluster, builders

_NODE_LABEL = ClusterEvent(EventResource.NODE, Action.UPDATE_NODE_LABEL)
_NODE_ALLOCATABLE = ClusterEvent(EventResource.NODE, Action.UPDATE_NODE_ALLOCATABLE)
_NODE_ADD = ClusterEvent(EventResource.NODE, Action.ADD)
_POD_DELETE = ClusterEvent(EventResource.ASSIGNED_POD, Action.DELETE)
_PREEMPTORS, _DELETIONS = 1000, 20


def queueing(pods: Sequence[int] = (10_000, 50_000), shapes: int = 50) -> Rows:
    """What one cluster event costs with thousands of rejected pods waiting in the queue.

    The CPU time of one call of ``move_all_to_active_or_backoff`` per kind of event, for events that help no pod, one
    shape of pods, and all pods, the CPU time to queue and reject a pod, and the memory of the queue per waiting pod.
    The last line is a preemption: the pods wait for their own victims while other pods are deleted.
    """
    cases: list[tuple[str, str, ClusterEvent, Any, Any]] = [
        ("label, helps none", "NodeAffinity", _NODE_LABEL, _node({}), _node({"a": "b"})),
        ("label, helps one shape", "NodeAffinity", _NODE_LABEL, _node({}), _node({"pool": "pool-7"})),
        ("allocatable, helps none", "NodeResourcesFit", _NODE_ALLOCATABLE, _node({}), _node({}, cpu="4500m")),
        ("allocatable, helps one shape", "NodeResourcesFit", _NODE_ALLOCATABLE, _node({}), _node({}, cpu="5")),
        ("node added, helps all", "NodeResourcesFit", _NODE_ADD, None, _node({}, cpu="64")),
        ("pod deleted, helps all", "NodeResourcesFit", _POD_DELETE, "pod", None),
    ]
    world = _World(max(pods), shapes)
    gc.collect()
    before = resident()
    world.fill(frozenset({"NodeAffinity", "NodeResourcesFit"}))
    gc.collect()
    yield f"{max(pods):,} pods", {"bytes per waiting pod": (resident() - before) / max(pods)}
    for number in pods:
        for label, rejector, event, old, new in cases:
            world = _World(number, shapes)
            filling = world.fill(frozenset({rejector}))
            world.clock.seconds += 60.0  # the backoff of all pods is over
            gc.collect()
            gc.disable()
            began = process_time()
            world.queue.move_all_to_active_or_backoff(event, world.other if old == "pod" else old, new)
            seconds = process_time() - began
            gc.enable()
            requeued = 0
            while world.queue.pop() is not None:
                requeued += 1
            figures = {"ms": seconds * 1e3, "requeued": requeued, "µs/pod to queue and reject": filling / number * 1e6}
            yield f"{number:,} pods, {label}", figures
    world = _World(_PREEMPTORS, shapes)
    world.fill(frozenset({"NodeResourcesFit"}))
    world.clock.seconds += 60.0
    world.start_evictions()
    world.queue.move_all_to_active_or_backoff(_POD_DELETE, world.other, None)
    began = process_time()
    for _ in range(_DELETIONS):
        world.queue.move_all_to_active_or_backoff(_POD_DELETE, world.other, None)
    yield f"{_PREEMPTORS:,} preemptors waiting", {"ms per deletion": (process_time() - began) / _DELETIONS * 1e3}


class _ManualClock:
    """A clock that stands still until it is moved."""

    seconds = 0.0

    def monotonic(self) -> float:
        """The time in seconds."""
        return self.seconds


def _node(labels: dict[str, str], cpu: str = "4") -> Any:
    return builders.node("n", cpu=cpu, memory="32Gi", labels=labels)


def _pod(number: int, shapes: int, node_name: str = "") -> Pod:
    """A pod that requires a pool of its own shape and more CPU than the node has."""
    shape = number % shapes
    terms = [{"matchExpressions": [{"key": "pool", "operator": "In", "values": [f"pool-{shape}"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return builders.pod(
        f"pod-{number}",
        node=node_name,
        cpu=f"{5000 + shape}m",
        memory="500Mi",
        labels={"app": f"a{shape}"},
        affinity={"nodeAffinity": required},
    )


class _World:
    """A scheduler whose loop does not run, with its queue and pods."""

    def __init__(self, pods: int, shapes: int) -> None:
        gates = config.FeatureGates({})
        registry = in_tree_registry()
        document = {"apiVersion": config.API_VERSION, "kind": config.KIND}
        self.clock = _ManualClock()
        recorder = MetricsRecorder(SchedulerMetrics())
        self._scheduler = Scheduler(
            config.load(document, subject="benchmark", gates=gates, implements=implements(registry)),
            registry=registry,
            environment=Environment(MemoryCluster(), self.clock, Random(1), recorder),
            gates=gates,
        )
        self.queue = self._scheduler.queue
        self._infos = [self._info(_pod(number, shapes)) for number in range(pods)]
        self.other = self._info(_pod(pods, shapes, node_name="n"))

    def _info(self, obj: Pod) -> PodInfo:
        return self._scheduler.cluster.shapes.info(obj)

    def fill(self, rejectors: frozenset[str]) -> float:
        """Queue all pods and have each rejected; CPU seconds."""
        began = process_time()
        for info in self._infos:
            self.queue.add(info)
        while (queued := self.queue.pop()) is not None:
            self.queue.return_after_failure(
                queued, rejectors=rejectors, pending_plugins=frozenset(), now=self.clock.seconds
            )
        return process_time() - began

    def start_evictions(self) -> None:
        """Start evictions for all pods that never end."""
        evictions = self._scheduler._evictions
        evictions.tasks.start = lambda work: work.close()
        victim = self._info(_pod(10**9, 1, node_name="n"))
        for info in self._infos:
            evictions.start(info, "n", victims=[victim], lower_priority_nominated=[])
