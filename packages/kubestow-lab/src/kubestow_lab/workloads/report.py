"""Reports about a scheduled workload, computed from its final nodes and pods.

Pure functions without output. Pending pods are grouped by requests and reason. Each group has an explanation from
:mod:`kubestow_lab.workloads.feasibility`, independent of the scheduler, and the scheduler's own message.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kubestow.rules.node_with_pods import pod_requests, resource_amounts
from kubestow_lab.workloads.explanation import describe_requests, explain, pending_reason
from kubestow_lab.workloads.feasibility import Feasibility, check_feasibility, holds_resources
from kubestow_lab.workloads.workload import Object

__all__ = ["Latency", "PendingGroup", "Summary", "Utilisation", "latency", "summarise", "utilisation"]


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
    """Pending pods with the same requests and reason.

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


def summarise(nodes: Sequence[Object], pods: Sequence[Object], latencies: Iterable[float] = ()) -> Summary:
    """Summarise a run from its final nodes and pods, as returned by the API server, and pod latencies in seconds.

    Raises InvalidQuantity.
    """
    bound = [pod for pod in pods if pod["spec"].get("nodeName")]
    pending = [pod for pod in pods if not pod["spec"].get("nodeName") and holds_resources(pod)]
    return Summary(
        pods=len(pods),
        placed=len(bound),
        nodes=len(nodes),
        nodes_used=len({pod["spec"]["nodeName"] for pod in bound}),
        utilisation=utilisation(nodes, bound),
        latency=latency(latencies),
        pending=_groups(pending, check_feasibility(pending, nodes, bound)),
    )


def utilisation(nodes: Iterable[Object], bound_pods: Iterable[Object]) -> tuple[Utilisation, ...]:
    """The utilisation of each allocatable resource, including the number of pods."""
    allocatable, requested = Counter[str](), Counter[str]()
    for node in nodes:
        allocatable.update(resource_amounts((node.get("status") or {}).get("allocatable") or {}))
    for pod in filter(holds_resources, bound_pods):
        requested.update(pod_requests(pod))
        requested["pods"] += 1
    return tuple(Utilisation(name, requested[name], total) for name, total in allocatable.items())


def latency(samples: Iterable[float]) -> Latency | None:
    """The percentiles of latencies in seconds, or None without samples."""
    ordered = sorted(samples)
    if not ordered:
        return None
    p50, p90, p99 = (ordered[math.ceil(len(ordered) * percent / 100) - 1] for percent in (50, 90, 99))
    return Latency(len(ordered), p50, p90, p99, ordered[-1])


def _groups(pods: Sequence[Object], results: Sequence[Feasibility]) -> tuple[PendingGroup, ...]:
    members: dict[tuple[str, ...], list[tuple[Object, Feasibility]]] = defaultdict(list)
    for pod, result in zip(pods, results, strict=True):
        members[(describe_requests(pod), pending_reason(result), *result.gates)].append((pod, result))
    groups = [_group(key[0], pairs) for key, pairs in members.items()]
    return tuple(sorted(groups, key=lambda group: (-len(group.pods), group.requests, group.explanation)))


def _group(requests: str, pairs: list[tuple[Object, Feasibility]]) -> PendingGroup:
    messages = Counter(filter(None, (_message(pod) for pod, _ in pairs)))
    return PendingGroup(
        requests=requests,
        explanation=explain([result for _, result in pairs]),
        message=messages.most_common(1)[0][0] if messages else "",
        pods=tuple(_full_name(pod) for pod, _ in pairs),
        feasible=tuple(_full_name(pod) for pod, result in pairs if result.is_feasible),
    )


def _full_name(pod: Object) -> str:
    return f"{pod['metadata'].get('namespace') or 'default'}/{pod['metadata']['name']}"


def _message(pod: Object) -> str:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return next((c.get("message") or "" for c in conditions if c.get("type") == "PodScheduled"), "")
