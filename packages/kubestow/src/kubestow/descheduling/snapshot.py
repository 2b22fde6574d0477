"""The objects of a cluster as descheduling reads them, and a snapshot of all that a loop needs.

Objects are scheduling's structs with the further fields that evictions depend on, so a :class:`Pod` here is also a pod
of :mod:`kubestow.api.core`, and shapes, requests and selectors apply to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from kubestow.api import core, policy
from kubestow.api.core import ResourceList
from kubestow.api.meta import APIObject, ObjectMeta, decode

Namespace = core.Namespace
PodDisruptionBudget = policy.PodDisruptionBudget


class Volume(core.Volume, frozen=True):
    """``spec.volumes[]`` of a pod; ``empty_dir`` and ``host_path`` are local storage."""

    empty_dir: dict[str, Any] | None = None
    host_path: dict[str, Any] | None = None


class PodSpec(core.PodSpec, frozen=True):
    """``spec`` of a pod."""

    volumes: list[Volume] = []  # type: ignore[assignment]  # never written, so a list of a subclass will do


class ContainerStateWaiting(APIObject, frozen=True):
    """``state.waiting`` of a container."""

    reason: str = ""


class ContainerStateTerminated(APIObject, frozen=True):
    """``state.terminated`` of a container."""

    reason: str = ""
    exit_code: int = 0


class ContainerState(APIObject, frozen=True):
    """``state`` of a container."""

    waiting: ContainerStateWaiting | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(core.ContainerStatus, frozen=True):
    """``status.containerStatuses[]``, and those of init and ephemeral containers."""

    restart_count: int = 0
    state: ContainerState = ContainerState()


class PodStatus(core.PodStatus, frozen=True):
    """``status`` of a pod."""

    reason: str = ""
    qos_class: str = ""
    container_statuses: list[ContainerStatus] = []  # type: ignore[assignment]  # as above
    init_container_statuses: list[ContainerStatus] = []  # type: ignore[assignment]
    ephemeral_container_statuses: list[ContainerStatus] = []


class Pod(core.Pod, frozen=True):
    """A pod whose times are valid, as strategies compare them."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    def __post_init__(self) -> None:
        _check_time(self.metadata.creation_timestamp, "metadata.creationTimestamp")
        for condition in self.status.conditions:
            _check_time(condition.last_transition_time, "status.conditions[].lastTransitionTime")


class NodeStatus(core.NodeStatus, frozen=True):
    """``status`` of a node."""

    capacity: ResourceList = {}


class Node(core.Node, frozen=True):
    """A node."""

    status: NodeStatus = NodeStatus()

    @property
    def is_ready(self) -> bool:
        """Whether no Ready condition says otherwise; a node without conditions is ready."""
        return all(condition.type != "Ready" or condition.status == "True" for condition in self.status.conditions)


class PersistentVolumeClaimSpec(APIObject, frozen=True):
    """``spec`` of a PersistentVolumeClaim."""

    storage_class_name: str = ""


class PersistentVolumeClaim(APIObject, frozen=True):
    """A PersistentVolumeClaim; read for its storage class."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()


class PriorityClass(APIObject, frozen=True):
    """A PriorityClass; policies name it as a threshold."""

    metadata: ObjectMeta = ObjectMeta()
    value: int = 0


class NodeMetrics(APIObject, frozen=True):
    """What a node uses (metrics.k8s.io/v1beta1); ``timestamp`` is the end of the measured window."""

    metadata: ObjectMeta = ObjectMeta()
    timestamp: str = ""
    usage: ResourceList = {}


class ContainerMetrics(APIObject, frozen=True):
    """``containers[]`` of PodMetrics."""

    usage: ResourceList = {}


class PodMetrics(APIObject, frozen=True):
    """What the containers of a pod use (metrics.k8s.io/v1beta1)."""

    metadata: ObjectMeta = ObjectMeta()
    timestamp: str = ""
    containers: list[ContainerMetrics] = []


def _check_time(text: str | None, path: str) -> None:
    """Raises ValueError for a time that is malformed or has no time zone."""
    if not text:
        return
    try:
        zone = datetime.fromisoformat(text).tzinfo
    except ValueError:
        zone = None
    if zone is None:
        raise ValueError(f'{path} is "{text[:40]}", expected a time such as 2026-07-01T00:00:00Z')


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
