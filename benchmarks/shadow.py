"""The shadow of a scheduler, fed from memory: what a decision costs that it compares."""

from __future__ import annotations

import cProfile
import gc
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from benchmarks.clusters import ZONE, Engine, node, pod
from benchmarks.harness import Rows, chosen
from benchmarks.measurement import Spent, measured, print_profile
from benchmarks.shadow_traffic import Traffic, WatchEvent, mixed_traffic
from kubestow import config, gc_tuning
from kubestow.api.core import Pod
from kubestow.api.meta import decode
from kubestow.client.watch_decoding import ObjectDecoder, WatchLine
from kubestow.plugins import in_tree_registry
from kubestow.scheduling.events.resources import PODS
from kubestow.shadow.shadow import EVICTION_SECONDS, Shadow

_SPREAD = {
    "maxSkew": 5,
    "topologyKey": ZONE,
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "app-1"}},
}
_PREFERRED = {"weight": 10, "preference": {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["zone-1"]}]}}
_APART = {"weight": 10, "podAffinityTerm": {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "app-3"}}}}
#: The fields of specs, in turn; each workload has requests of its own.
_KINDS: Sequence[Mapping[str, Any]] = (
    {},
    {"topologySpreadConstraints": [_SPREAD]},
    {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [_PREFERRED]}}},
    {"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [_APART]}}},
    {"nodeSelector": {ZONE: "zone-2"}},
)
#: The number of workloads, of which pods are created in turn, and the percentage of nodes that the scheduler scores.
_WORKLOADS = {"copies": (1, 100), "workloads": (20, 100), "sampled": (20, 10), "templates": (200, 10)}
_MIXED = "mixed"
_PERCENTAGE = 10
"""Of the nodes, what the scheduler of mixed pods scores."""
#: The shadow looks at decisions so often, in seconds.
_PERIOD = 0.2
_MANAGED = [
    {"manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsV1": {f"f:{n}": {} for n in "abcdefgh"}}
    for manager in ("kube-controller-manager", "kube-scheduler")
]


def shadow(
    nodes: int = 5000, pods: int = 4000, rate: float = 200.0, cases: Sequence[str] = (), profile: bool = False
) -> Rows:
    """What a decision costs a shadow that reads the watch events of pods from memory, in CPU time.

    The events are lines as an API server sends them, two per pod: its creation and its binding to the node that the
    engine has chosen. Cases are copies of one pod, pods of 20 workloads in turn, and these and those of 200 with a
    scheduler that scores a tenth of the nodes; and, with such a scheduler too, a mixture of which hardly two are alike,
    with rejections, preemption, volumes, deletions and changes of nodes. Without HTTP and without output. ``--rate`` is
    how many pods per second there seem to be.
    """
    gc_tuning.raise_thresholds()  # as the command
    for case in chosen((*_WORKLOADS, _MIXED), cases):
        if case == _MIXED:
            percentage = _PERCENTAGE
            traffic = mixed_traffic(nodes, pods, rate, percentage)
        else:
            workloads, percentage = _WORKLOADS[case]
            initial = [*(node(number) for number in range(nodes)), *_placed(nodes)]
            traffic = Traffic(initial, list(_pod_events(nodes, pods, rate, workloads, percentage)))
        watched = _WatchedShadow(traffic.objects, percentage)
        warm_up = len(traffic.events) // 5
        watched.feed(traffic.events[:warm_up])
        gc.collect()
        profiler = cProfile.Profile() if profile else None
        if profiler is not None:
            profiler.enable()
        with measured() as spent:
            watched.feed(traffic.events[warm_up:])
            watched.end()
        if profiler is not None:
            profiler.disable()
            print_profile(profiler)
        yield case, watched.figures(spent)


def _placed(nodes: int) -> list[Pod]:
    """A pod on every node, of many sizes, so that few nodes have the same score."""
    return [
        pod(
            nodes + number,
            cpu=f"{number * 7 % 3001}m",
            memory=f"{number * 11 % 24001}Mi",
            node=f"node-{number:05}",
        )
        for number in range(nodes)
    ]


def _pod_events(nodes: int, pods: int, rate: float, workloads: int, percentage: int) -> Iterator[WatchEvent]:
    """The watch events of each pod: its creation and its binding."""
    engine = Engine(nodes, profile={"percentageOfNodesToScore": percentage}, pods=_placed(nodes))
    for number in range(pods):
        document = _pod(number, number % workloads)
        created = _line("ADDED", document)
        info = engine.cluster.shapes.info(decode(Pod, msgspec.json.encode(document)))
        decision = engine.pipeline.decide_by_plugins(info)
        assert decision.node_name is not None, decision.message
        engine.cluster.assume(info, decision.node_name)
        document["metadata"]["resourceVersion"] = str(2 * number + 1)
        document["spec"]["nodeName"] = decision.node_name
        document["status"]["conditions"] = [{"type": "PodScheduled", "status": "True", "observedGeneration": 1}]
        yield WatchEvent(number / rate, PODS, created)
        yield WatchEvent(number / rate, PODS, _line("MODIFIED", document))


def _line(event: str, document: Any) -> bytes:
    return msgspec.json.encode({"type": event, "object": document})


def _pod(number: int, workload: int) -> dict[str, Any]:
    """A pod of a workload, with the fields that it has on an API server."""
    app = f"app-{workload}"
    container = {
        "name": "main",
        "image": f"registry/{app}:v1",
        "resources": {"requests": {"cpu": f"{100 + workload}m", "memory": "256Mi"}},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": app, "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{app}-{number:06}",
            "namespace": "default",
            "uid": f"00000000-0000-0000-0000-{number:012}",
            "resourceVersion": str(2 * number),
            "creationTimestamp": "2026-06-01T00:00:00Z",
            "labels": {"app": app, "pod-template-hash": "7d9f8c6b5d"},
            "ownerReferences": [owner],
            "managedFields": _MANAGED,
        },
        "spec": {
            "schedulerName": "default-scheduler",
            "containers": [container],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "securityContext": {},
            "priority": 0,
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}],
            **_KINDS[workload % len(_KINDS)],
        },
        "status": {"phase": "Pending", "qosClass": "Burstable"},
    }


def _configuration(percentage: int) -> config.KubeSchedulerConfiguration:
    return msgspec.structs.replace(config.default_configuration(), percentage_of_nodes_to_score=percentage)


class _WatchedShadow:
    """A shadow of a cluster that has these objects, and what it has found."""

    def __init__(self, objects: Sequence[Any], percentage: int) -> None:
        self._time, self._next, self._labels = 0.0, 0.0, Counter[str]()
        self._shadow = Shadow(
            _configuration(percentage),
            in_tree_registry(),
            config.FeatureGates(),
            monotonic=lambda: self._time,
            on_result=lambda found: self._labels.update((found.label,)),
        )
        self._decoders = {
            resource: ObjectDecoder(resource, lambda metadata, problem: None) for resource in self._shadow.resources
        }
        for resource in self._shadow.resources:
            self._shadow.replace(resource, [obj for obj in objects if isinstance(obj, resource.type)])

    def feed(self, events: Sequence[WatchEvent]) -> None:
        """Handle events, and look at decisions from time to time."""
        self._labels.clear()
        for time, resource, line in events:
            if time >= self._next:
                self._time, self._next = time, time + _PERIOD
                while self._shadow.judge():
                    pass
            self._time = time
            event = WatchLine.parse(line)
            self._shadow.apply(resource, event.type, self._decoders[resource].decode(event.object))

    def end(self) -> None:
        """Look at all decisions that are left."""
        self._time += EVICTION_SECONDS
        self._shadow.judge()
        self._shadow.judge(everything=True)

    def figures(self, spent: Spent) -> dict[str, Any]:
        """What was spent per decision, and the verdicts."""
        verdicts = ", ".join(f"{count} {label}" for label, count in self._labels.most_common())
        return {"µs of CPU per decision": spent.cpu / self._labels.total() * 1e6, "": verdicts}
