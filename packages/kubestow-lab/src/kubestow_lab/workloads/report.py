"""Reports about a scheduled workload, computed from its final nodes and pods.

Pure functions without output. Pending pods are grouped by what they request and wait for. Each group has the engine's
explanation, which is computed afresh from the final state, and the message that the scheduler wrote.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kubestow.api.core import Node, NodeSelectorTerm, Pod
from kubestow.cluster.pods.shapes import Shapes
from kubestow.engine.explanation.explain import explain_pending
from kubestow.engine.explanation.explanation import Explanation, reasons_text
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions
from kubestow.rules.matching import required_terms
from kubestow.rules.pods import is_terminal
from kubestow.rules.requests import PODS, allocatable_amounts, requests_by_spec
from kubestow_lab.workloads.gpu import GPU, GPU_MILLI, GPU_MODEL


@dataclass(frozen=True, slots=True)
class Utilisation:
    """Requests of running pods and allocatable amount of a resource over all nodes: millicores, bytes, or counts."""

    resource: str
    requested: int
    allocatable: int

    @property
    def share(self) -> float:
        """``requested / allocatable``, or 0 if nothing is allocatable."""
        return self.requested / self.allocatable if self.allocatable else 0.0


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles of ``samples`` latencies, in seconds (nearest rank)."""

    samples: int
    p50: float
    p90: float
    p99: float
    maximum: float


@dataclass(frozen=True, slots=True)
class PendingGroup:
    """Pending pods with the same requests that wait for nodes, or that all have the same obstacle of their own.

    ``requests`` and ``explanation`` are for people; ``message`` is the most frequent PodScheduled message of the group;
    ``feasible`` are those of ``pods`` (namespace/name) for which a feasible node exists.
    """

    requests: str
    explanation: str
    message: str
    pods: tuple[str, ...]
    feasible: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """The final state of a run. ``latency`` is None without samples; ``pending`` is sorted by size, largest first."""

    pods: int
    placed: int
    nodes: int
    nodes_used: int
    utilisation: tuple[Utilisation, ...]
    latency: Latency | None
    pending: tuple[PendingGroup, ...]

    @property
    def feasible_pending(self) -> tuple[str, ...]:
        """The pending pods for which a feasible node exists: a correct scheduler leaves none."""
        return tuple(pod for group in self.pending for pod in group.feasible)


def summarise(nodes: Sequence[Node], pods: Sequence[Pod], latencies: Iterable[float] = ()) -> Summary:
    """Summarise a run from its final nodes and pods, and pod latencies in seconds. Raises InvalidQuantity."""
    bound = [pod for pod in pods if pod.spec.node_name]
    live = [pod for pod in pods if not is_terminal(pod.status.phase)]
    return Summary(
        pods=len(pods),
        placed=len(bound),
        nodes=len(nodes),
        nodes_used=len({pod.spec.node_name for pod in bound}),
        utilisation=utilisation(nodes, bound),
        latency=latency(latencies),
        pending=_groups(ClusterObjects.of(nodes, live)),
    )


def utilisation(nodes: Iterable[Node], bound_pods: Iterable[Pod]) -> tuple[Utilisation, ...]:
    """The utilisation of each allocatable resource, including the number of pods."""
    allocatable, requested = Counter[str](), Counter[str]()
    for node in nodes:
        allocatable.update(allocatable_amounts(node.status.allocatable))
    for pod in bound_pods:
        if not is_terminal(pod.status.phase):
            requested.update(requests_by_spec(pod))
            requested[PODS] += 1
    return tuple(Utilisation(name, requested[name], total) for name, total in allocatable.items())


def latency(samples: Iterable[float]) -> Latency | None:
    """The percentiles of latencies in seconds, or None without samples."""
    ordered = sorted(samples)
    if not ordered:
        return None
    p50, p90, p99 = (ordered[math.ceil(len(ordered) * percent / 100) - 1] for percent in (50, 90, 99))
    return Latency(len(ordered), p50, p90, p99, ordered[-1])


def _groups(cluster: ClusterObjects) -> tuple[PendingGroup, ...]:
    pending = [pod for pod in cluster.pods if not pod.spec.node_name]
    explained = _explained(cluster, pending)
    members: dict[tuple[str, bool, str], list[tuple[Pod, dict[str, int]]]] = defaultdict(list)
    for pod, found in zip(pending, explained, strict=True):
        if found is not None:
            reasons = found.waits_for()
        else:
            nominated = pod.status.nominated_node_name
            reasons = {f"nominated for {nominated}" if nominated else "the scheduler has no profile for it": 0}
        is_feasible = found is not None and bool(found.feasible) and not found.gate
        about_the_pod = next((reason for reason, nodes in reasons.items() if not nodes), "")
        members[describe_requests(pod), is_feasible, about_the_pod].append((pod, reasons))
    groups = []
    for (requests, is_feasible, _), pairs in members.items():
        conditions = (one for pod, _ in pairs for one in pod.status.conditions if one.type == "PodScheduled")
        messages = Counter(condition.message for condition in conditions if condition.message)
        names = tuple(_full_name(pod) for pod, _ in pairs)
        explanation, message = reasons_text(found for _, found in pairs), messages.most_common(1)
        feasible = names if is_feasible else ()
        groups.append(PendingGroup(requests, explanation, message[0][0] if message else "", names, feasible))
    return tuple(sorted(groups, key=lambda group: (-len(group.pods), group.requests, group.explanation)))


def _explained(cluster: ClusterObjects, pending: Sequence[Pod]) -> list[Explanation | None]:
    """The explanation of each pod, of copies the same; None for pods that the engine does not explain."""
    shapes = Shapes()
    keys = [(shapes.shape(pod), pod.status.nominated_node_name) for pod in pending]
    sample = dict(zip(keys, pending, strict=True))
    explained = {found.pod: found for found in explain_pending(cluster, sample.values(), SchedulerOptions())}
    return [explained.get(_full_name(sample[key])) for key in keys]


def _full_name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


# -- what a pod requests -----------------------------------------------------------------------------------------------


def describe_requests(pod: Pod) -> str:
    """A short description of a pod's GPUs, other extended resources, node selector and required node affinity."""
    constraints = [f"{key}={value}" for key, value in pod.spec.node_selector.items()]
    if terms := [" and ".join(_requirements(term)) for term in required_terms(pod.spec) or ()]:
        constraints.append(" or ".join(terms))
    node_constraints = ", ".join(constraints)
    return ", ".join(_devices(requests_by_spec(pod))) + (f" on {node_constraints}" if node_constraints else "")


def _devices(requested: Mapping[str, int]) -> Iterator[str]:
    gpus, share = requested.get(GPU, 0), requested.get(GPU_MILLI, 0)
    if gpus:
        yield f"{gpus} GPU" if gpus == 1 else f"{gpus} GPUs"
    elif share:
        yield "a GPU share"
    rest = sorted(requested.items())
    others = [f"{n} {name}" for name, n in rest if n and "/" in name and name not in (GPU, GPU_MILLI)]
    yield from others
    if not (gpus or share or others):
        yield "CPU and memory"


def _requirements(term: NodeSelectorTerm) -> Iterator[str]:
    for requirement in (*term.match_expressions, *term.match_fields):
        if (requirement.key, requirement.operator) == (GPU_MODEL, "In"):
            yield " or ".join(requirement.values)
        else:
            yield f"{requirement.key} {requirement.operator} {', '.join(requirement.values)}".rstrip()
