"""Generator of clusters like openb, with features that the trace lacks.

Shapes are drawn by systematic sampling from :mod:`kubestow_lab.workloads.openb_shapes`: at the size of the trace every
shape occurs exactly as often as there, at other sizes within one of its exact share. The order is random. Added are
zones and regions, nodes dedicated to a team, node affinity to GPU models, priority classes, scheduling gates that are
removed over time, a few infeasible pods, and optionally topology spread and inter-pod affinity. Their proportions are
arbitrary, chosen to exercise a scheduler; they are not from the trace.

The same arguments generate the same objects. Each feature has its own random stream, so that one feature does not
change the others.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate
from random import Random
from typing import TypeVar

from kubestow_lab.workloads import gpu, openb_shapes
from kubestow_lab.workloads.gpu import NodeShape, PodShape
from kubestow_lab.workloads.workload import GateRemoval, Object, Workload

T = TypeVar("T")

SEED = 42

#: The size of openb.
NODES, PODS = 1213, 8152
REGION, ZONE, HOSTNAME = "topology.kubernetes.io/region", "topology.kubernetes.io/zone", "kubernetes.io/hostname"
ZONES = (("north", "north-a"), ("north", "north-b"), ("north", "north-c"), ("south", "south-a"), ("south", "south-b"))

#: The label and taint of dedicated nodes, and the name of their team.
DEDICATED, TEAM = "kubestow.dev/dedicated", "research"
#: The gate that is removed while the workload is submitted, and the one that is never removed.
QUOTA_GATE, APPROVAL_GATE = "kubestow.dev/quota", "kubestow.dev/approval"

#: One in this many nodes is dedicated; coprime to the number of zones, so that every zone has dedicated nodes.
_DEDICATED_EVERY = 16
#: Fractions of all pods; for model affinity, fractions of the pods with one GPU or a GPU share.
_TOLERATES, _STAYS_DEDICATED, _CRITICAL, _GATED = 0.05, 0.5, 0.01, 0.01
_NEEDS_MODEL, _PREFERS_MODEL = 0.08, 0.08
_IN_SPREAD_APP, _IN_AFFINITY_APP, _APPS = 0.06, 0.04, 12
#: The reasons why pods are made infeasible.
_OBSTACLES = 5


def _priority_class(name: str, value: int, policy: str, description: str) -> Object:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        "preemptionPolicy": policy,
        "description": description,
    }


#: Only ``critical`` pods preempt; otherwise most of the batch pods would be evicted.
PRIORITY_CLASSES: dict[str, Object] = {
    "critical": _priority_class("critical", 100_000, "PreemptLowerPriority", "Preempts pods of lower priority."),
    "service": _priority_class("service", 1_000, "Never", "Latency sensitive; never preempts."),
    "batch": _priority_class("batch", 0, "Never", "Best effort; never preempts."),
}


def generate(
    *, nodes: int = NODES, pods: int = PODS, seed: int = SEED, spread: bool = False, pod_affinity: bool = False
) -> Workload:
    """Generate a cluster of ``nodes`` nodes and a workload of ``pods`` pods, both at least 0.

    ``spread`` adds topology spread constraints, ``pod_affinity`` inter-pod affinity and anti-affinity.
    """
    shapes: list[PodShape] = sample(openb_shapes.PODS, pods, Random(f"{seed}/pods"))
    manifests = [gpu.pod(f"pod-{i:05}", shape) for i, shape in enumerate(shapes)]
    # The names of the random streams determine the generated objects; changing one changes every workload.
    _add_model_affinity(manifests, Random(f"{seed}/models"))
    _add_team_tolerations(manifests, Random(f"{seed}/team"))
    _add_priorities(manifests, Random(f"{seed}/priority"))
    if spread:
        _add_topology_spread(manifests, Random(f"{seed}/spread"))
    if pod_affinity:
        _add_pod_affinity(manifests, Random(f"{seed}/company"))
    removals = _add_gates(manifests, Random(f"{seed}/gates"))
    infeasible = _make_infeasible(manifests)
    return Workload(
        title=f"{nodes:,} nodes and {pods:,} pods like those of openb",
        attribution=f"Shapes and frequencies: {openb_shapes.ATTRIBUTION}",
        nodes=_nodes(nodes, seed),
        pods=tuple(manifests),
        priority_classes=tuple(PRIORITY_CLASSES.values()),
        gate_removals=tuple(removal for removal in removals if removal.pod not in infeasible),
    )


def sample(table: Mapping[T, int], size: int, random: Random) -> list[T]:
    """``size`` samples from a frequency table, each key within one of its exact share, in random order."""
    keys, bounds = list(table), list(accumulate(table.values()))
    total = bounds[-1]
    offset = random.randrange(total)
    samples = [keys[bisect_right(bounds, (offset + i * total) // size)] for i in range(size)]
    random.shuffle(samples)
    return samples


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


def _add_model_affinity(pods: list[Object], random: Random) -> None:
    """Make some pods require or prefer GPU models, with the frequencies of the trace."""
    for pod, models in zip(pods, sample(openb_shapes.GPU_MODELS, len(pods), random), strict=True):
        roll, term = random.random(), gpu.model_term(models)
        requests = pod["spec"]["containers"][0]["resources"]["requests"]
        if not 0 < int(requests.get(gpu.GPU_MILLI, "0")) <= 1000 or roll >= _NEEDS_MODEL + _PREFERS_MODEL:
            continue
        if roll < _NEEDS_MODEL:
            required = {"nodeSelectorTerms": [term]}
            affinity: Object = {"requiredDuringSchedulingIgnoredDuringExecution": required}
        else:
            affinity = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 50, "preference": term}]}
        pod["spec"]["affinity"] = {"nodeAffinity": affinity}


def _add_team_tolerations(pods: list[Object], random: Random) -> None:
    """Make some pods tolerate the taint of dedicated nodes, and some of these run only there."""
    for pod in pods:
        roll, stays = random.random(), random.random() < _STAYS_DEDICATED
        if roll >= _TOLERATES:
            continue
        pod["spec"]["tolerations"] = [{"key": DEDICATED, "operator": "Equal", "value": TEAM, "effect": "NoSchedule"}]
        if stays:
            pod["spec"]["nodeSelector"] = {DEDICATED: TEAM}


def _add_priorities(pods: list[Object], random: Random) -> None:
    """Set the priority class of each pod, with priority and preemption policy as admission sets them."""
    for pod in pods:
        default = "batch" if pod["metadata"]["labels"][gpu.QOS] == "BE" else "service"
        priority_class = PRIORITY_CLASSES["critical" if random.random() < _CRITICAL else default]
        pod["spec"] |= {
            "priorityClassName": priority_class["metadata"]["name"],
            "priority": priority_class["value"],
            "preemptionPolicy": priority_class["preemptionPolicy"],
        }


def _add_topology_spread(pods: list[Object], random: Random) -> None:
    """Make some pods replicas of applications that spread over zones (hard) and nodes (soft)."""
    for pod in pods:
        roll, number = random.random(), random.randrange(_APPS)
        if roll >= _IN_SPREAD_APP:
            continue
        labels = {"app": f"frontend-{number}"}
        pod["metadata"]["labels"] |= labels
        pod["spec"]["topologySpreadConstraints"] = [
            _constraint(ZONE, max_skew=5, when_unsatisfiable="DoNotSchedule", labels=labels),
            _constraint(HOSTNAME, max_skew=1, when_unsatisfiable="ScheduleAnyway", labels=labels),
        ]


def _constraint(topology: str, *, max_skew: int, when_unsatisfiable: str, labels: dict[str, str]) -> Object:
    return {
        "maxSkew": max_skew,
        "topologyKey": topology,
        "whenUnsatisfiable": when_unsatisfiable,
        "labelSelector": {"matchLabels": dict(labels)},
    }


def _add_pod_affinity(pods: list[Object], random: Random) -> None:
    """Make some pods replicas with anti-affinity per node, and some prefer the zone of such a replica."""
    for pod in pods:
        roll, number = random.random(), random.randrange(_APPS)
        if roll >= _IN_AFFINITY_APP or "app" in pod["metadata"]["labels"]:
            continue
        store = {"matchLabels": {"app": f"store-{number}"}}
        affinity = pod["spec"].setdefault("affinity", {})
        if roll < _IN_AFFINITY_APP / 2:
            pod["metadata"]["labels"]["app"] = f"store-{number}"
            anti_affinity = {"topologyKey": HOSTNAME, "labelSelector": store}
            affinity["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [anti_affinity]}
        else:
            preferred = {"weight": 100, "podAffinityTerm": {"topologyKey": ZONE, "labelSelector": store}}
            affinity["podAffinity"] = {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]}


def _add_gates(pods: list[Object], random: Random) -> tuple[GateRemoval, ...]:
    """Add a quota gate to some pods; it is removed when half, three quarters or all of the pods are submitted."""
    milestones = (len(pods) // 2, len(pods) * 3 // 4, len(pods))
    removals = []
    for i, pod in enumerate(pods):
        roll, pick = random.random(), random.randrange(len(milestones))
        if roll >= _GATED:
            continue
        pod["spec"]["schedulingGates"] = [{"name": QUOTA_GATE}]
        after_submitted = max(i + 1, milestones[pick])
        removals.append(GateRemoval(gpu.NAMESPACE, pod["metadata"]["name"], QUOTA_GATE, after_submitted))
    return tuple(sorted(removals, key=lambda removal: removal.after_submitted))


def _make_infeasible(pods: list[Object]) -> set[str]:
    """Make a few pods infeasible, for different reasons in turn; their names."""
    stride = max(20, min(400, len(pods) // _OBSTACLES))
    infeasible = pods[stride - 1 :: stride]
    for i, pod in enumerate(infeasible):
        spec = pod["spec"]
        resources = spec["containers"][0]["resources"]
        spec.pop("schedulingGates", None)
        match i % _OBSTACLES:
            case 0:  # more GPUs than any node has
                for kind in ("requests", "limits"):
                    resources[kind] = {**resources.get(kind, {}), gpu.GPU: "16", gpu.GPU_MILLI: "16000"}
            case 1:  # a GPU model that there is not
                required = {"nodeSelectorTerms": [gpu.model_term(["H100"])]}
                spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
            case 2:  # the dedicated nodes, without a toleration
                spec.pop("tolerations", None)
                spec["nodeSelector"] = {DEDICATED: TEAM}
            case 3:  # more memory than any node has
                resources["requests"]["memory"] = "2Ti"
                if "memory" in resources.get("limits", {}):
                    resources["limits"]["memory"] = "2Ti"
            case _:
                spec["schedulingGates"] = [{"name": APPROVAL_GATE}]
    return {pod["metadata"]["name"] for pod in infeasible}
