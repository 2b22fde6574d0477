"""Mixed traffic of a cluster for a shadow: a scheduler's decisions as watch events, with the delays of its watches.

Pods of 20 kinds, most of them with requests of their own, so that hardly two are alike; some fit nowhere, some preempt,
some have volumes. Pods are deleted and nodes change. The scheduler runs in virtual time, and each event takes a moment
to reach it and another one to reach the shadow; so do its own writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, NamedTuple

import msgspec

from benchmarks.clusters import HOSTNAME, ZONE
from kubestow import config
from kubestow.api.core import Pod
from kubestow.api.meta import convert
from kubestow.api.policy import PodDisruptionBudget
from kubestow.api.storage import PersistentVolume, PersistentVolumeClaim
from kubestow.engine.cluster_api.memory_api import MemoryAPI
from kubestow.plugins import in_tree_registry
from kubestow.scheduling.environment import Environment
from kubestow.scheduling.interfaces import EventRecord, ObjectReference, PodStatusPatch, Resource
from kubestow.scheduling.scheduler import Scheduler
from kubestow.shadow.preemptions import PREEMPTED_EVENTS
from kubestow.testing import builders
from kubestow.testing.virtual_time import VirtualClock, run

#: Nodes full of pods that may be evicted, and the labels of their budgets.
_POOL, _BUDGETS = 30, 4
_VOLUMES = 200
#: The most that an event and a write take, in seconds.
_DELAY = 0.01
_MANAGED = [
    {"manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsV1": {f"f:{n}": {} for n in "abcdefgh"}}
    for manager in ("kube-controller-manager", "kube-scheduler")
]


class WatchEvent(NamedTuple):
    """A line of a watch, and when it arrives, in seconds."""

    time: float
    resource: Resource
    line: bytes


class Traffic(NamedTuple):
    """What a cluster has at first, and what happens then."""

    objects: list[Any]
    events: list[WatchEvent]


def mixed_traffic(nodes: int, pods: int, rate: float, percentage: int, *, seed: int = 0) -> Traffic:
    """The watch events of so many pods that are created at a constant rate, per second.

    The scheduler scores a ``percentage`` of the nodes.
    """
    random = Random(seed)
    objects = list(initial_objects(nodes))
    events: list[WatchEvent] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        cluster = _WatchedCluster(random, events)
        for obj in objects:
            cluster.put(obj)
        environment = Environment(cluster, VirtualClock(loop), Random(seed))
        configuration = msgspec.structs.replace(config.default_configuration(), percentage_of_nodes_to_score=percentage)
        scheduler = Scheduler(configuration, registry=in_tree_registry(), environment=environment)
        scheduling = asyncio.create_task(scheduler.run())
        await asyncio.sleep(1.0)
        cluster.is_recorded = True
        began = loop.time()
        for number in range(pods):
            await asyncio.sleep(max(0.0, began + number / rate - loop.time()))
            cluster.put(mixed_pod(random, number))
            if number % 10 == 0:
                cluster.delete_a_pod()
            if number % 40 == 0:
                cluster.change_a_node(number)
        await asyncio.sleep(12.0)
        scheduling.cancel()
        await asyncio.gather(scheduling, return_exceptions=True)

    run(main())
    events.sort(key=lambda event: event.time)
    return Traffic(objects, events)


class _WatchedCluster(MemoryAPI):
    """A cluster whose events and writes take a moment; what a further watch gets is recorded."""

    def __init__(self, random: Random, events: list[WatchEvent]) -> None:
        super().__init__()
        self.is_recorded = False
        self._random, self._events = random, events
        #: When the last event of each kind arrives at the scheduler, and at the further watch.
        self._arrivals: dict[tuple[str, Resource], float] = {}

    def _notify(self, resource: Resource, event_type: str, obj: Any) -> None:
        loop = asyncio.get_running_loop()
        for subscriber in self._subscribers:
            loop.call_at(self._arrival("scheduler", resource), subscriber.apply, resource, event_type, obj)
        if self.is_recorded:
            document = msgspec.to_builtins(obj)
            document["metadata"]["managedFields"] = _MANAGED
            line = msgspec.json.encode({"type": event_type, "object": document})
            self._events.append(WatchEvent(self._arrival("watch", resource), resource, line))

    def _arrival(self, watch: str, resource: Resource) -> float:
        time = asyncio.get_running_loop().time() + self._random.random() * _DELAY
        time = self._arrivals[watch, resource] = max(time, self._arrivals.get((watch, resource), 0.0) + 1e-6)
        return time

    async def bind(self, pod: ObjectReference, node_name: str) -> None:
        await asyncio.sleep(self._random.random() * _DELAY)
        await super().bind(pod, node_name)

    async def patch_pod_status(self, pod: ObjectReference, patch: PodStatusPatch) -> None:
        await asyncio.sleep(self._random.random() * _DELAY)
        await super().patch_pod_status(pod, patch)

    async def delete_pod(self, pod: ObjectReference) -> None:
        await asyncio.sleep(self._random.random() * _DELAY)
        await super().delete_pod(pod)

    def record(self, event: EventRecord) -> None:
        if event.reason == "Preempted" and self.is_recorded:
            document = {"regarding": {"uid": event.regarding.uid}, "reason": event.reason, "note": event.note}
            line = msgspec.json.encode({"type": "ADDED", "object": document})
            self._events.append(WatchEvent(self._arrival("watch", PREEMPTED_EVENTS), PREEMPTED_EVENTS, line))

    def delete_a_pod(self) -> None:
        """Delete a pod, mostly one that has a node."""
        found = self.pods()
        self.remove(found[-1] if self._random.random() < 0.2 else self._random.choice(found))

    def change_a_node(self, number: int) -> None:
        """Change the labels, the capacity or the schedulability of a node, or delete it and create it again."""
        each = self._random.choice(self.nodes())
        kind = self._random.randrange(4)
        if kind == 0:
            labels = {**each.metadata.labels, "revision": str(number)}
            self.put(msgspec.structs.replace(each, metadata=msgspec.structs.replace(each.metadata, labels=labels)))
        elif kind == 1:
            allocatable = {**each.status.allocatable, "cpu": str(3 + number % 3)}
            self.put(
                msgspec.structs.replace(each, status=msgspec.structs.replace(each.status, allocatable=allocatable))
            )
        elif kind == 2:
            spec = msgspec.structs.replace(each.spec, unschedulable=not each.spec.unschedulable)
            self.put(msgspec.structs.replace(each, spec=spec))
        else:
            self.remove(each)
            self.put(each)


# -- objects -----------------------------------------------------------------------------------------------------------


def initial_objects(nodes: int) -> Iterator[Any]:
    """Nodes, of which 30 are full of pods that may be evicted, a pod on each other one, budgets and bound volumes."""
    for number in range(nodes):
        taints = {0: ["dedicated=batch:NoSchedule"], 1: ["old=true:PreferNoSchedule"]}.get(number % 10, [])
        yield builders.node(
            f"node-{number:05}",
            cpu="4" if number % 2 else "8",
            memory="32Gi",
            zone=f"zone-{number % 3}",
            labels={"disk": "ssd" if number % 4 else "hdd"},
            taints=taints if number >= _POOL else ["pool=full:NoSchedule"],
            allocatable={"example.com/card": "4"} if number % 5 == 0 else None,
            images={f"registry/app-{image}:v1": 10**8 * (image + 1) for image in range(20) if (number + image) % 3},
        )
    for number in range(_POOL * 8):
        yield builders.pod(
            f"victim-{number}",
            node=f"node-{number % _POOL:05}",
            cpu="500m" if number % _POOL % 2 else "1",
            priority=number % 5,
            labels={"budget": str(number % (_BUDGETS + 1))},
            status={"phase": "Running", "startTime": f"2026-06-01T{number % 24:02}:{number // 24:02}:00Z"},
        )
    for number in range(_POOL, nodes):
        requests = {"cpu": f"{number * 7 % 1501}m", "memory": f"{number * 11 % 12001}Mi"}
        app = f"app-{number % 20}"
        yield builders.pod(f"placed-{number}", node=f"node-{number:05}", requests=requests, labels={"app": app})
    for number in range(_BUDGETS):
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"budget": str(number)}}}
        budget = {"metadata": {"name": f"budget-{number}", "namespace": "default"}, "spec": spec}
        yield convert(PodDisruptionBudget, {**budget, "status": {"disruptionsAllowed": number}})
    for number in range(_VOLUMES):
        terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [f"zone-{number % 3}"]}]}]
        claim = {"name": f"claim-{number}", "namespace": "default"}
        yield convert(
            PersistentVolume,
            {
                "metadata": {"name": f"volume-{number}"},
                "spec": {
                    "capacity": {"storage": "1Gi"},
                    "csi": {"driver": "example.com", "volumeHandle": f"volume-{number}"},
                    "accessModes": ["ReadWriteOnce"],
                    "claimRef": claim,
                    "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
                },
                "status": {"phase": "Bound"},
            },
        )
        yield convert(
            PersistentVolumeClaim,
            {
                "metadata": {**claim, "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
                "spec": {
                    "volumeName": f"volume-{number}",
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}},
                },
                "status": {"phase": "Bound"},
            },
        )


def _spread(key: str, when: str, app: str, skew: int = 5) -> dict[str, Any]:
    selector = {"matchLabels": {"app": app}}
    return {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": selector}


def _term(key: str, app: str) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}


def _preferred(term: dict[str, Any]) -> dict[str, Any]:
    return {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 10, "podAffinityTerm": term}]}


def _required(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}


def _in(key: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}


_NODE_PREFERENCES = {
    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 10, "preference": _in(ZONE, "zone-1")}]
}
_SIDECAR = {
    "name": "proxy",
    "image": "registry/proxy:v1",
    "restartPolicy": "Always",
    "resources": {"requests": {"cpu": "50m", "memory": "32Mi"}},
}
#: What distinguishes the kinds, by the app of the pod.
_KINDS: Sequence[Callable[[str], dict[str, Any]]] = (
    lambda app: {},
    lambda app: {"requests": {"memory": "2Gi"}},
    lambda app: {"spread": [_spread(ZONE, "DoNotSchedule", app)]},
    lambda app: {"spread": [_spread(ZONE, "ScheduleAnyway", app)]},
    lambda app: {"spread": [_spread(HOSTNAME, "ScheduleAnyway", app, skew=1)]},
    lambda app: {"spread": [_spread(ZONE, "DoNotSchedule", app), _spread(HOSTNAME, "ScheduleAnyway", app)]},
    lambda app: {"affinity": {"podAntiAffinity": _required(_term(HOSTNAME, app))}},
    lambda app: {"affinity": {"podAntiAffinity": _preferred(_term(ZONE, app))}},
    lambda app: {"affinity": {"podAffinity": _preferred(_term(ZONE, "app-3"))}},
    lambda app: {"affinity": {"podAffinity": _required(_term(ZONE, "app-1"))}},
    lambda app: {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_in("disk", "ssd")]}
            }
        }
    },
    lambda app: {"affinity": {"nodeAffinity": _NODE_PREFERENCES}},
    lambda app: {"node_selector": {ZONE: "zone-2"}},
    lambda app: {"tolerations": [{"key": "dedicated", "operator": "Exists"}]},
    lambda app: {"requests": {"example.com/card": "1"}},
    lambda app: {"host_ports": [8080]},
    lambda app: {"image": f"registry/{app}:v1"},
    lambda app: {"init_containers": [_SIDECAR]},
    lambda app: {"node_selector": {"disk": "none"}},
    lambda app: {"has_volume": True},
)


def mixed_pod(random: Random, number: int) -> Pod:
    """A pod of a random kind with random requests; one of 33 has a high priority, and fits only on the full nodes."""
    kind = random.randrange(len(_KINDS))
    app = f"app-{kind}"
    if kind == 18 and random.random() < 0.5:
        kind = 0
    fields = _KINDS[kind](app)
    spec: dict[str, Any] = {"terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst"}
    requests = {"cpu": f"{random.randrange(50, 400)}m", "memory": f"{random.randrange(32, 512)}Mi"}
    requests |= fields.pop("requests", {})
    if "init_containers" in fields:
        spec["initContainers"] = fields.pop("init_containers")
    if fields.pop("has_volume", False):
        claim = {"claimName": f"claim-{number % _VOLUMES}"}
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": claim}]
    image = fields.pop("image", "registry/other:v1")
    priority = 0
    if random.random() < 0.03:
        priority = 100
        pool = [f"node-{each:05}" for each in range(_POOL)]
        chosen = [random.choice(pool)] if random.random() < 0.3 else pool
        terms = {"nodeSelectorTerms": [_in(HOSTNAME, *chosen)]}
        fields = {
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
            "tolerations": [{"key": "pool", "operator": "Exists"}],
        }
    metadata = {"creationTimestamp": "2026-06-01T00:00:00Z", "uid": f"uid-{app}-{number}"}
    each = builders.pod(
        f"{app}-{number:06}",
        requests=requests,
        priority=priority,
        labels={"app": app, "pod-template-hash": "7d9f8c6b5d"},
        metadata=metadata,
        spec=spec,
        **fields,
    )
    containers = [msgspec.structs.replace(container, image=image) for container in each.spec.containers]
    return msgspec.structs.replace(each, spec=msgspec.structs.replace(each.spec, containers=containers))
