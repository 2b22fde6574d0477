"""The openb cluster drawn from its shapes' frequencies, with what the trace lacks laid over it.

Shapes are drawn by systematic sampling from :mod:`kubestow.workloads.openb_shapes`: at the trace's own size every shape
occurs exactly as often as there, and at any other size within one of its share, the rare ones included now and then.
The order is shuffled. Over that lie zones and regions, nodes dedicated to a team, node affinity to GPU models, priority
classes, scheduling gates that are lifted on the way, a few pods that no node will ever take, and on request topology
spread and inter-pod affinity. The proportions of these are inventions, chosen to exercise a scheduler, not figures of
Alibaba's.

The same arguments give the same objects. Each concern draws from its own random stream, so that switching one on leaves
the others as they were.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from itertools import accumulate
from random import Random
from typing import TypeVar

from kubestow.workloads import gpu, openb_shapes
from kubestow.workloads.gpu import NodeShape, PodShape
from kubestow.workloads.workload import GateLift, Object, Workload

__all__ = ["APPROVAL_GATE", "DEDICATED", "PRIORITY_CLASSES", "QUOTA_GATE", "SEED", "TEAM", "draw"]

T = TypeVar("T")

SEED = 42

#: The size of openb itself.
NODES, PODS = 1213, 8152
REGION, ZONE, HOSTNAME = "topology.kubernetes.io/region", "topology.kubernetes.io/zone", "kubernetes.io/hostname"
ZONES = (("north", "north-a"), ("north", "north-b"), ("north", "north-c"), ("south", "south-a"), ("south", "south-b"))

#: The label and taint of nodes that belong to a team, and the team.
DEDICATED, TEAM = "kubestow.dev/dedicated", "research"
#: The gate that is lifted while the workload is submitted, and the one that never is.
QUOTA_GATE, APPROVAL_GATE = "kubestow.dev/quota", "kubestow.dev/approval"

#: One node in so many is dedicated; coprime to the number of zones, so that each zone gets its part.
_DEDICATED_EVERY = 16
#: Shares of all pods, except those of model affinity, which are shares of the pods with one GPU or a part of one.
_TOLERATES, _STAYS_DEDICATED, _CRITICAL, _GATED = 0.05, 0.5, 0.01, 0.01
_NEEDS_MODEL, _PREFERS_MODEL = 0.08, 0.08
_IN_SPREAD_APP, _IN_AFFINITY_APP, _APPS = 0.06, 0.04, 12


def _priority_class(name: str, value: int, policy: str, description: str) -> Object:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        "preemptionPolicy": policy,
        "description": description,
    }


#: Only ``critical`` pods may evict others: everybody else waits for room, or most of the batch work would be evicted.
PRIORITY_CLASSES: dict[str, Object] = {
    "critical": _priority_class("critical", 100_000, "PreemptLowerPriority", "May evict pods of lower priority."),
    "service": _priority_class("service", 1_000, "Never", "Latency sensitive; goes first but evicts nobody."),
    "batch": _priority_class("batch", 0, "Never", "Best effort; goes last and evicts nobody."),
}


def draw(
    *, nodes: int = NODES, pods: int = PODS, seed: int = SEED, spread: bool = False, pod_affinity: bool = False
) -> Workload:
    """The cluster and workload at a size: ``nodes`` nodes and ``pods`` pods, both at least 0.

    ``spread`` adds topology spread constraints, ``pod_affinity`` inter-pod affinity and anti-affinity: for schedulers
    that have those plugins.
    """
    manifests = _pods(pods, seed)
    _toward_models(manifests, Random(f"{seed}/models"))
    _toward_team(manifests, Random(f"{seed}/team"))
    _with_priority(manifests, Random(f"{seed}/priority"))
    if spread:
        _spread(manifests, Random(f"{seed}/spread"))
    if pod_affinity:
        _with_company(manifests, Random(f"{seed}/company"))
    lifts = _with_gates(manifests, Random(f"{seed}/gates"))
    hopeless = _without_hope(manifests)
    return Workload(
        title=f"{nodes:,} nodes and {pods:,} pods drawn after openb",
        attribution=f"Shapes and frequencies: {openb_shapes.ATTRIBUTION}",
        nodes=_nodes(nodes, seed),
        pods=tuple(manifests),
        priority_classes=tuple(PRIORITY_CLASSES.values()),
        gate_lifts=tuple(lift for lift in lifts if lift.pod not in hopeless),
    )


def sample(table: Mapping[T, int], size: int, random: Random) -> list[T]:
    """``size`` draws from a frequency table, each key within one of its exact share, in random order."""
    keys, bounds = list(table), list(accumulate(table.values()))
    total = bounds[-1]
    offset = random.randrange(total)
    drawn = [keys[bisect_right(bounds, (offset + i * total) // size)] for i in range(size)]
    random.shuffle(drawn)
    return drawn


def _nodes(size: int, seed: int) -> tuple[Object, ...]:
    shapes: list[NodeShape] = sample(openb_shapes.NODES, size, Random(f"{seed}/nodes"))
    nodes = [gpu.node(f"node-{i:04}", shape) for i, shape in enumerate(shapes)]
    for i, node in enumerate(nodes):
        region, zone = ZONES[i % len(ZONES)]
        node["metadata"]["labels"] |= {REGION: region, ZONE: zone}
        if i % _DEDICATED_EVERY == _DEDICATED_EVERY - 1:
            node["metadata"]["labels"][DEDICATED] = TEAM
            node["spec"]["taints"] = [{"key": DEDICATED, "value": TEAM, "effect": "NoSchedule"}]
    return tuple(nodes)


def _pods(size: int, seed: int) -> list[Object]:
    shapes: list[PodShape] = sample(openb_shapes.PODS, size, Random(f"{seed}/pods"))
    return [gpu.pod(f"pod-{i:05}", shape) for i, shape in enumerate(shapes)]


def _toward_models(pods: list[Object], random: Random) -> None:
    """Some pods need certain GPU models, and some prefer them. Models are drawn as often as the trace binds pods to
    them."""
    for pod, term in zip(pods, _model_terms(len(pods), random), strict=True):
        roll = random.random()
        if not _asks_one_gpu(pod) or roll >= _NEEDS_MODEL + _PREFERS_MODEL:
            continue
        if roll < _NEEDS_MODEL:
            required = {"nodeSelectorTerms": [term]}
            affinity: Object = {"requiredDuringSchedulingIgnoredDuringExecution": required}
        else:
            affinity = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 50, "preference": term}]}
        pod["spec"]["affinity"] = {"nodeAffinity": affinity}


def _model_terms(size: int, random: Random) -> list[Object]:
    return [gpu.model_term(models) for models in sample(openb_shapes.GPU_MODELS, size, random)]


def _asks_one_gpu(pod: Object) -> bool:
    requests = pod["spec"]["containers"][0]["resources"]["requests"]
    return 0 < int(requests.get(gpu.GPU_MILLI, "0")) <= 1000


def _toward_team(pods: list[Object], random: Random) -> None:
    """The team's pods tolerate the taint of its nodes; a part of them runs nowhere else."""
    for pod in pods:
        roll, stays = random.random(), random.random() < _STAYS_DEDICATED
        if roll >= _TOLERATES:
            continue
        pod["spec"]["tolerations"] = [{"key": DEDICATED, "operator": "Equal", "value": TEAM, "effect": "NoSchedule"}]
        if stays:
            pod["spec"]["nodeSelector"] = {DEDICATED: TEAM}


def _with_priority(pods: list[Object], random: Random) -> None:
    """Best effort goes last; a few of the others are critical. The class's figures are written out, as admission
    does."""
    for pod in pods:
        usual = "batch" if pod["metadata"]["labels"][gpu.QOS] == "BE" else "service"
        chosen = PRIORITY_CLASSES["critical" if random.random() < _CRITICAL else usual]
        pod["spec"] |= {
            "priorityClassName": chosen["metadata"]["name"],
            "priority": chosen["value"],
            "preemptionPolicy": chosen["preemptionPolicy"],
        }


def _spread(pods: list[Object], random: Random) -> None:
    """Some pods are replicas of an application that keeps its zones level, and its nodes if it can."""
    for pod in pods:
        roll, number = random.random(), random.randrange(_APPS)
        if roll >= _IN_SPREAD_APP:
            continue
        labels = {"app": f"frontend-{number}"}
        pod["metadata"]["labels"] |= labels
        pod["spec"]["topologySpreadConstraints"] = [
            _constraint(ZONE, max_skew=5, otherwise="DoNotSchedule", labels=labels),
            _constraint(HOSTNAME, max_skew=1, otherwise="ScheduleAnyway", labels=labels),
        ]


def _constraint(topology: str, *, max_skew: int, otherwise: str, labels: dict[str, str]) -> Object:
    return {
        "maxSkew": max_skew,
        "topologyKey": topology,
        "whenUnsatisfiable": otherwise,
        "labelSelector": {"matchLabels": dict(labels)},
    }


def _with_company(pods: list[Object], random: Random) -> None:
    """Some pods are replicas that share no node, and some want to be in the zone of such a replica."""
    for pod in pods:
        roll, number = random.random(), random.randrange(_APPS)
        if roll >= _IN_AFFINITY_APP or "app" in pod["metadata"]["labels"]:
            continue
        store = {"matchLabels": {"app": f"store-{number}"}}
        affinity = pod["spec"].setdefault("affinity", {})
        if roll < _IN_AFFINITY_APP / 2:
            pod["metadata"]["labels"]["app"] = f"store-{number}"
            apart = {"topologyKey": HOSTNAME, "labelSelector": store}
            affinity["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
        else:
            near = {"weight": 100, "podAffinityTerm": {"topologyKey": ZONE, "labelSelector": store}}
            affinity["podAffinity"] = {"preferredDuringSchedulingIgnoredDuringExecution": [near]}


def _with_gates(pods: list[Object], random: Random) -> tuple[GateLift, ...]:
    """Some pods wait for quota, which is granted when half, three quarters and all of the pods are submitted."""
    milestones = (len(pods) // 2, len(pods) * 3 // 4, len(pods))
    lifts = []
    for i, pod in enumerate(pods):
        roll, pick = random.random(), random.randrange(len(milestones))
        if roll >= _GATED:
            continue
        pod["spec"]["schedulingGates"] = [{"name": QUOTA_GATE}]
        due = max(i + 1, milestones[pick])
        lifts.append(GateLift(gpu.NAMESPACE, pod["metadata"]["name"], QUOTA_GATE, due))
    return tuple(sorted(lifts, key=lambda lift: lift.after_submitted))


def _without_hope(pods: list[Object]) -> set[str]:
    """Every so often a pod asks for what it can't have, each time another thing. Answers with their names."""
    stride = max(20, min(400, len(pods) // len(_DEMANDS)))
    hopeless = pods[stride - 1 :: stride]
    for i, pod in enumerate(hopeless):
        pod["spec"].pop("schedulingGates", None)
        _DEMANDS[i % len(_DEMANDS)](pod["spec"])
    return {pod["metadata"]["name"] for pod in hopeless}


def _sixteen_gpus(spec: Object) -> None:
    resources = spec["containers"][0]["resources"]
    for side in ("requests", "limits"):
        resources[side] = {**resources.get(side, {}), gpu.GPU: "16", gpu.GPU_MILLI: "16000"}


def _absent_model(spec: Object) -> None:
    required = {"nodeSelectorTerms": [gpu.model_term(["H100"])]}
    spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def _team_without_tolerating(spec: Object) -> None:
    spec.pop("tolerations", None)
    spec["nodeSelector"] = {DEDICATED: TEAM}


def _two_tebibytes(spec: Object) -> None:
    resources = spec["containers"][0]["resources"]
    resources["requests"]["memory"] = "2Ti"
    if "memory" in resources.get("limits", {}):
        resources["limits"]["memory"] = "2Ti"


def _approval(spec: Object) -> None:
    spec["schedulingGates"] = [{"name": APPROVAL_GATE}]


_DEMANDS: tuple[Callable[[Object], None], ...] = (
    _sixteen_gpus,
    _absent_model,
    _team_without_tolerating,
    _two_tebibytes,
    _approval,
)
