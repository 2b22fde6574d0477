"""The scheduling queue alone."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from random import Random
from statistics import median
from time import process_time
from typing import Any

from benchmarks.harness import Rows
from benchmarks.measurement import resident
from kubestow import config
from kubestow.api.core import Pod
from kubestow.api.meta import convert
from kubestow.api.resource import ResourceClaim
from kubestow.api.storage import PersistentVolumeClaim
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


def events(pods: int = 10_000) -> Rows:
    """What one cluster event costs with thousands of rejected pods waiting, each for something else.

    No two pods have the same labels, requests, affinity, tolerations, ports or claims. The CPU time of one call of
    ``move_all_to_active_or_backoff`` by rejecting plugin and event; of events that help no pod, the median of several.
    """
    for rejector, cases in _CASES.items():
        world = _World(pods, pods, make=_gated_pod if rejector == "DynamicResources" else _distinct_pod)
        world.fill(frozenset({rejector}))
        world.clock.seconds += 60.0
        gc.collect()
        gc.disable()
        for label, event, old, new in cases:
            before, after = (world.info(each) if isinstance(each, Pod) else each for each in (old, new))
            seconds, requeued = [], 0
            while len(seconds) < _EVENTS and not requeued:
                began = process_time()
                world.queue.move_all_to_active_or_backoff(event, before, after)
                seconds.append(process_time() - began)
                while (queued := world.queue.pop()) is not None:
                    requeued += 1
                    world.queue.return_after_failure(
                        queued, rejectors=frozenset({rejector}), pending_plugins=frozenset(), now=world.clock.seconds
                    )
            world.clock.seconds += 60.0
            yield f"{rejector}, {label}", {"µs": median(seconds) * 1e6, "requeued": requeued}
        gc.enable()


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


def _distinct_pod(number: int, shapes: int, node_name: str = "") -> Pod:
    """A pod that waits for what no other pod waits for."""
    required, app = "requiredDuringSchedulingIgnoredDuringExecution", {"matchLabels": {"app": f"a{number}"}}
    pool = [{"matchExpressions": [{"key": "pool", "operator": "In", "values": [f"pool-{number}"]}]}]
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": f"claim-{number}"}}
    return builders.pod(
        f"pod-{number}",
        cpu=f"{5000 + number}m",
        memory="500Mi",
        labels={"app": f"a{number}"},
        tolerations=[{"key": "team", "value": f"t{number}", "effect": "NoSchedule"}],
        host_ports=[1 + number],
        affinity={
            "nodeAffinity": {required: {"nodeSelectorTerms": pool}},
            "podAffinity": {required: [{"labelSelector": app, "topologyKey": "zone"}]},
        },
        spread=[
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": app},
        ],
        spec={"volumes": [claim]},
    )


def _gated_pod(number: int, shapes: int, node_name: str = "") -> Pod:
    """A pod that DynamicResources gates until its claim exists."""
    return builders.pod(
        f"pod-{number}", spec={"resourceClaims": [{"name": "device", "resourceClaimName": f"claim-{number}"}]}
    )


def _placed(number: int = -1, cpu: str = "1") -> Pod:
    """A pod on a node of which the pod with a number waits, or no pod."""
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": f"claim-{number}"}}
    return builders.pod(
        "placed",
        node="n",
        cpu=cpu,
        labels={"app": f"a{number}", "tier": "web"},
        host_ports=[1 + number] if number >= 0 else [],
        spec={"volumes": [claim]},
    )


def _tainted(team: str) -> Any:
    return builders.node("n", cpu="4", memory="32Gi", taints=[f"team={team}:NoSchedule"])


def _claim(number: int) -> PersistentVolumeClaim:
    return convert(PersistentVolumeClaim, {"metadata": {"name": f"claim-{number}", "namespace": "default"}})


def _device_claim(number: int) -> ResourceClaim:
    metadata = {"name": f"claim-{number}", "namespace": "default", "uid": f"claim-{number}"}
    return convert(ResourceClaim, {"metadata": metadata})


_NODE_TAINT = ClusterEvent(EventResource.NODE, Action.UPDATE_NODE_TAINT)
_POD_ADD = ClusterEvent(EventResource.ASSIGNED_POD, Action.ADD)
_POD_LABEL = ClusterEvent(EventResource.ASSIGNED_POD, Action.UPDATE_POD_LABEL)
_POD_SCALE_DOWN = ClusterEvent(EventResource.ASSIGNED_POD, Action.UPDATE_POD_SCALE_DOWN)
_PVC_ADD = ClusterEvent(EventResource.PERSISTENT_VOLUME_CLAIM, Action.ADD)
_CLAIM_ADD = ClusterEvent(EventResource.RESOURCE_CLAIM, Action.ADD)
#: Events that help no pod are repeated so often.
_EVENTS = 9
#: By rejecting plugin the events, with the object before and after; those that help all pods last.
_CASES: dict[str, list[tuple[str, ClusterEvent, Any, Any]]] = {
    "InterPodAffinity": [
        ("pod added, helps none", _POD_ADD, None, _placed()),
        ("pod deleted, helps none", _POD_DELETE, _placed(7), None),
        ("pod labels, helps none", _POD_LABEL, _placed(-1), _placed(-2)),
        ("node label, helps none", _NODE_LABEL, _node({}), _node({"a": "b"})),
        ("pod added, helps one", _POD_ADD, None, _placed(7)),
    ],
    "PodTopologySpread": [
        ("pod added, helps none", _POD_ADD, None, _placed()),
        ("pod deleted, helps none", _POD_DELETE, _placed(), None),
        ("node label, helps none", _NODE_LABEL, _node({"zone": "1"}), _node({"zone": "1", "a": "b"})),
        ("pod deleted, helps one", _POD_DELETE, _placed(7), None),
    ],
    "NodeAffinity": [
        ("node label, helps none", _NODE_LABEL, _node({}), _node({"a": "b"})),
        ("node added, helps none", _NODE_ADD, None, _node({"pool": "x"})),
        ("node label, helps one", _NODE_LABEL, _node({}), _node({"pool": "pool-7"})),
        ("node added, helps one", _NODE_ADD, None, _node({"pool": "pool-7"})),
    ],
    "TaintToleration": [
        ("node taint, helps none", _NODE_TAINT, _tainted("x"), _tainted("y")),
        ("node added, helps none", _NODE_ADD, None, _tainted("y")),
        ("node taint, helps one", _NODE_TAINT, _tainted("x"), _tainted("t7")),
    ],
    "NodeResourcesFit": [
        ("allocatable, helps none", _NODE_ALLOCATABLE, _node({}), _node({}, cpu="4500m")),
        ("node added, helps none", _NODE_ADD, None, _node({})),
        ("pod scaled down, helps none", _POD_SCALE_DOWN, _placed(), _placed()),
        ("allocatable, helps one", _NODE_ALLOCATABLE, _node({}), _node({}, cpu="5")),
        ("allocatable, helps 501", _NODE_ALLOCATABLE, _node({}), _node({}, cpu="5500m")),
        ("pod deleted, helps all", _POD_DELETE, _placed(), None),
    ],
    "NodePorts": [
        ("pod deleted, helps none", _POD_DELETE, _placed(), None),
        ("pod deleted, helps one", _POD_DELETE, _placed(7), None),
    ],
    "VolumeRestrictions": [
        ("pod deleted, helps none", _POD_DELETE, _placed(), None),
        ("claim added, helps none", _PVC_ADD, None, _claim(-1)),
        ("pod deleted, helps one", _POD_DELETE, _placed(7), None),
    ],
    "DynamicResources": [
        ("claim added, helps none", _CLAIM_ADD, None, _device_claim(-1)),
    ],
}


class _World:
    """A scheduler whose loop does not run, with its queue and pods, which ``make`` makes."""

    def __init__(self, pods: int, shapes: int, *, make: Callable[..., Pod] = _pod) -> None:
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
        self._infos = [self.info(make(number, shapes)) for number in range(pods)]
        self.other = self.info(make(pods, shapes, node_name="n"))

    def info(self, obj: Pod) -> PodInfo:
        """What scheduling derives from a pod."""
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
        victim = self.info(_pod(10**9, 1, node_name="n"))
        for info in self._infos:
            evictions.start(info, "n", victims=[victim], lower_priority_nominated=[])
