"""What came of a workload, as data: computed from the nodes and pods that the API server shows at the end.

Pure functions, no printing. Pods left pending come in groups that ask alike and are held up alike, each with a sentence
in plain words that rests on :mod:`kubestow.workloads.placeability`, not on what the scheduler said; the scheduler's own
message stands beside it.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kubestow.workloads.explanation import asks, obstacle, why
from kubestow.workloads.placeability import Verdict, holds_resources, placeable
from kubestow.workloads.site import amounts, requests
from kubestow.workloads.workload import Object

__all__ = ["Latency", "PendingGroup", "Summary", "Utilisation", "latency", "summarise", "utilisation"]


@dataclass(frozen=True, slots=True)
class Utilisation:
    """A resource over all nodes: what bound, unfinished pods request of what is allocatable. Millicores for CPU, bytes
    for memory, otherwise counts."""

    resource: str
    requested: int
    allocatable: int

    @property
    def share(self) -> float:
        """Requested by allocatable, 0 where nothing is allocatable."""
        return self.requested / self.allocatable if self.allocatable else 0.0


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles of ``samples`` latencies, in seconds, each a latency that occurred (nearest rank)."""

    samples: int
    p50: float
    p90: float
    p99: float
    maximum: float


@dataclass(frozen=True, slots=True)
class PendingGroup:
    """Pending pods that ask alike and are held up alike.

    ``asks`` and ``why`` are plain words; ``message`` is the scheduler's most frequent PodScheduled message in the
    group; ``missed`` are those of ``pods`` (namespace/name) that some node could have taken.
    """

    asks: str
    why: str
    message: str
    pods: tuple[str, ...]
    missed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """The end of a run. ``latency`` is absent without samples; ``pending`` lists the largest group first."""

    pods: int
    placed: int
    nodes: int
    nodes_used: int
    utilisation: tuple[Utilisation, ...]
    latency: Latency | None
    pending: tuple[PendingGroup, ...]

    @property
    def missed(self) -> tuple[str, ...]:
        """Every pending pod that some node could have taken; a good scheduler leaves none."""
        return tuple(pod for group in self.pending for pod in group.missed)


def summarise(nodes: Sequence[Object], pods: Sequence[Object], latencies: Iterable[float] = ()) -> Summary:
    """Sum up a run from its final nodes and pods, as the API server shows them, and per-pod latencies in seconds.

    Raises InvalidQuantity for an object that carries an unreadable quantity.
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
        pending=_groups(pending, placeable(pending, nodes, bound)),
    )


def utilisation(nodes: Iterable[Object], bound_pods: Iterable[Object]) -> tuple[Utilisation, ...]:
    """The utilisation of each resource that some node offers, the number of pods included."""
    allocatable, requested = Counter[str](), Counter[str]()
    for node in nodes:
        allocatable.update(amounts((node.get("status") or {}).get("allocatable") or {}))
    for pod in filter(holds_resources, bound_pods):
        requested.update(requests(pod))
        requested["pods"] += 1
    return tuple(Utilisation(name, requested[name], total) for name, total in allocatable.items())


def latency(samples: Iterable[float]) -> Latency | None:
    """The percentiles of latencies in seconds, or none without any."""
    ordered = sorted(samples)
    if not ordered:
        return None
    p50, p90, p99 = (ordered[math.ceil(len(ordered) * percent / 100) - 1] for percent in (50, 90, 99))
    return Latency(len(ordered), p50, p90, p99, ordered[-1])


def _groups(pods: Sequence[Object], verdicts: Sequence[Verdict]) -> tuple[PendingGroup, ...]:
    members: dict[tuple[str, ...], list[tuple[Object, Verdict]]] = defaultdict(list)
    for pod, verdict in zip(pods, verdicts, strict=True):
        members[(asks(pod), obstacle(verdict), *verdict.gates)].append((pod, verdict))
    groups = [_group(key[0], pairs) for key, pairs in members.items()]
    return tuple(sorted(groups, key=lambda group: (-len(group.pods), group.asks, group.why)))


def _group(what: str, pairs: list[tuple[Object, Verdict]]) -> PendingGroup:
    messages = Counter(filter(None, (_message(pod) for pod, _ in pairs)))
    return PendingGroup(
        asks=what,
        why=why([verdict for _, verdict in pairs]),
        message=messages.most_common(1)[0][0] if messages else "",
        pods=tuple(_full_name(pod) for pod, _ in pairs),
        missed=tuple(_full_name(pod) for pod, verdict in pairs if verdict.could_run),
    )


def _full_name(pod: Object) -> str:
    return f"{pod['metadata'].get('namespace') or 'default'}/{pod['metadata']['name']}"


def _message(pod: Object) -> str:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return next((c.get("message") or "" for c in conditions if c.get("type") == "PodScheduled"), "")
