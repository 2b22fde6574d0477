"""The results of Prometheus queries, as a loop gets them: what was measured per node, or why nothing was."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kubestow.api.meta import decode
from kubestow.descheduling.objects import (
    Namespace,
    Node,
    NodeMetrics,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    PodMetrics,
    PriorityClass,
)


class QuerySample(NamedTuple):
    """A value; ``instance`` is the label that names the node, ``time`` is in seconds since the Unix epoch."""

    instance: str
    time: float
    value: float


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The samples that a query returned; ``problem`` says why there are none if it failed."""

    samples: Sequence[QuerySample] = ()
    problem: str = ""


#: The kinds of a snapshot by API version and kind, and the attribute of the snapshot that holds them.
KINDS: dict[tuple[str, str], tuple[type[Any], str]] = {
    ("v1", "Node"): (Node, "nodes"),
    ("v1", "Pod"): (Pod, "pods"),
    ("v1", "Namespace"): (Namespace, "namespaces"),
    ("v1", "PersistentVolumeClaim"): (PersistentVolumeClaim, "claims"),
    ("policy/v1", "PodDisruptionBudget"): (PodDisruptionBudget, "budgets"),
    ("scheduling.k8s.io/v1", "PriorityClass"): (PriorityClass, "priority_classes"),
    ("metrics.k8s.io/v1beta1", "NodeMetrics"): (NodeMetrics, "node_metrics"),
    ("metrics.k8s.io/v1beta1", "PodMetrics"): (PodMetrics, "pod_metrics"),
}


@dataclass(slots=True)
class Snapshot:
    """The objects of a cluster; finished pods and pods without a node included.

    Metrics are there if measured utilization matters, and so are the results of Prometheus queries, by query.
    """

    nodes: list[Node] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)
    namespaces: list[Namespace] = field(default_factory=list)
    claims: list[PersistentVolumeClaim] = field(default_factory=list)
    budgets: list[PodDisruptionBudget] = field(default_factory=list)
    priority_classes: list[PriorityClass] = field(default_factory=list)
    node_metrics: list[NodeMetrics] = field(default_factory=list)
    pod_metrics: list[PodMetrics] = field(default_factory=list)
    query_results: Mapping[str, QueryResult] = field(default_factory=dict)

    @classmethod
    def of(cls, objects: Iterable[Any]) -> Snapshot:
        """A snapshot of decoded objects, in their order."""
        snapshot = cls()
        lists: dict[type[Any], list[Any]] = {kind: getattr(snapshot, name) for kind, name in KINDS.values()}
        for obj in objects:
            lists[type(obj)].append(obj)
        return snapshot

    @staticmethod
    def decoded(api_version: str, kind: str, raw: bytes) -> Any | None:
        """An object of a snapshot from its JSON, None if it is of another kind. Raises InvalidObject."""
        known = KINDS.get((api_version, kind))
        return None if known is None else decode(known[0], raw)
