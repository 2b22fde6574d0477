"""The cluster during one descheduling loop: its nodes as columns, and the pods on them that have not been evicted.

A loop starts from a :class:`~kubestow.descheduling.snapshot.Snapshot`. The only change is the removal of evicted pods,
which later decisions of the loop no longer see. What is requested per node is kept in arrays, one entry per node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from kubestow.api.meta import OwnerReference
from kubestow.api.selectors import EVERYTHING, Selector
from kubestow.cluster.nodes.columns import Columns, SumColumn
from kubestow.cluster.nodes.table import NodeTable
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodFields, Shape, Shapes
from kubestow.descheduling.snapshot import (
    ContainerStatus,
    Node,
    NodeMetrics,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    PodMetrics,
    PodSpec,
    PodStatus,
    Snapshot,
)
from kubestow.rules.pods import is_terminal

#: The creation time of a pod that has none: before that of any other.
_BEFORE_ALL = datetime(1, 1, 1, tzinfo=UTC)


class AssignedPod(PodFields):
    """A pod that is assigned to a node. Compared by identity.

    ``shape`` is what it shares with its copies, ``row`` the number of its node in the arrays of the cluster.
    ``finished`` is set if it has succeeded or failed, and uses no resources any more. ``spec``, ``status`` and those
    that follow are fields of the pod; ``owners`` are its ownerReferences.
    """

    __slots__ = ("annotations", "finished", "node_name", "owners", "pod", "priority", "row", "shape", "spec", "status")

    pod: Pod
    spec: PodSpec
    status: PodStatus

    def __init__(self, pod: Pod, shape: Shape, row: int) -> None:
        self.pod, self.shape, self.row = pod, shape, row
        self.spec, self.status = pod.spec, pod.status
        self.annotations: dict[str, str] = pod.metadata.annotations
        self.owners: Sequence[OwnerReference] = pod.metadata.owner_references
        self.node_name, self.priority = pod.spec.node_name, pod.spec.priority
        self.finished = is_terminal(pod.status.phase)

    @property
    def terminating(self) -> bool:
        """Whether the pod is being deleted."""
        return self.pod.metadata.deletion_timestamp is not None

    @property
    def created(self) -> datetime:
        """``metadata.creationTimestamp``; a pod without one is older than any other."""
        text = self.pod.metadata.creation_timestamp
        return datetime.fromisoformat(text) if text else _BEFORE_ALL

    def __repr__(self) -> str:
        """The pod and its node."""
        return f"<AssignedPod {self.key} on {self.node_name}>"


class ClusterState:
    """The nodes, the pods on them, and the objects that evictions depend on.

    ``now`` is the moment of the loop. ``ready`` are the rows (intp) of the nodes that descheduling is about: ready, and
    selected by ``node_selector``. ``evicted`` are the pods that have been removed, in order.
    """

    def __init__(self, snapshot: Snapshot, *, now: datetime, node_selector: Selector = EVERYTHING) -> None:
        """Raises InvalidQuantity for a node or pod with an invalid amount of a resource."""
        self.now = now
        self.evicted: list[AssignedPod] = []
        self.nodes: Sequence[Node] = snapshot.nodes
        self._table = NodeTable()
        for node in snapshot.nodes:
            self._table.add(node)
        self.ready = self.ready_rows(node_selector)
        self.namespaces: Mapping[str, Mapping[str, str]] = {
            namespace.metadata.name: namespace.metadata.labels for namespace in snapshot.namespaces
        }
        self.claims: Mapping[tuple[str, str], PersistentVolumeClaim] = {
            (claim.metadata.namespace, claim.metadata.name): claim for claim in snapshot.claims
        }
        self.budgets: Sequence[PodDisruptionBudget] = snapshot.budgets
        self.node_metrics: Mapping[str, NodeMetrics] = {found.metadata.name: found for found in snapshot.node_metrics}
        self.pod_metrics: Mapping[tuple[str, str], PodMetrics] = {
            (found.metadata.namespace, found.metadata.name): found for found in snapshot.pod_metrics
        }
        #: The results of Prometheus queries, by query.
        self.query_results = snapshot.query_results
        self._shapes = Shapes()
        self._on_node: list[dict[str, AssignedPod]] = [{} for _ in snapshot.nodes]
        #: The unfinished pods, those that have been evicted since included.
        self._by_shape: dict[Shape, list[AssignedPod]] = {}
        #: How many pods have an owner, by its uid; pods without a node included.
        self._owned: Counter[str] = Counter()
        #: One row per node.
        self._columns = Columns()
        for _ in snapshot.nodes:
            self._columns.append_row()
        self._requested: dict[str, SumColumn] = {}
        self.pod_count = np.zeros(len(snapshot.nodes), np.int64)
        self._load(snapshot.pods)

    def _load(self, pods: Iterable[Pod]) -> None:
        rows, shapes = self._table.rows, self._shapes
        for pod in pods:
            for owner in pod.metadata.owner_references:
                self._owned[owner.uid] += 1
            row = rows.get(pod.spec.node_name)
            if row is None:
                continue
            shape = shapes.shape(pod)
            assigned = self._on_node[row][pod.metadata.uid] = AssignedPod(pod, shape, row)
            if not assigned.finished:
                self._by_shape.setdefault(shape, []).append(assigned)
        # Sums that saturate come last: whole columns are added as long as all amounts are small.
        by_shape = sorted(self._by_shape.items(), key=lambda item: item[0].family.has_extreme_requests)
        for shape, unfinished in by_shape:
            counts = np.bincount([pod.row for pod in unfinished], minlength=len(self.nodes))
            self.pod_count += counts
            for resource, amount in shape.requests.items():
                requested = self._requested.get(resource)
                if requested is None:
                    requested = self._requested[resource] = self._columns.new_sums()
                if shape.family.has_extreme_requests:
                    for row in np.flatnonzero(counts).tolist():
                        requested.add_part(row, int(counts[row]) * amount, self._columns)
                else:
                    requested.values += counts * amount

    # -- nodes ---------------------------------------------------------------------------------------------------

    def view(self) -> Nodes:
        """All nodes, as a view with their labels, taints and allocatable amounts."""
        return Nodes(self._table, slice(0, len(self._table)))

    def row(self, node_name: str) -> int | None:
        """The row of a node, None if it does not exist."""
        return self._table.rows.get(node_name)

    def ready_rows(self, selector: Selector) -> NDArray[np.intp]:
        """The rows of the ready nodes whose labels match, intp."""
        rows = (
            row
            for row, node in enumerate(self.nodes)
            if node.is_ready and (selector.is_empty or selector.matches(node.metadata.labels))
        )
        return np.fromiter(rows, np.intp)

    def requested(self, resource: str) -> NDArray[np.int64]:
        """What the unfinished pods on each node request of a resource (millicores, bytes or counts), int64."""
        requested = self._requested.get(resource)
        return np.zeros(len(self.nodes), np.int64) if requested is None else requested.readonly

    # -- pods ----------------------------------------------------------------------------------------------------

    def pods_on(self, row: int, *, finished: bool = False) -> list[AssignedPod]:
        """The pods on a node that have not been evicted, with or without those that have finished."""
        on_node = self._on_node[row].values()
        return list(on_node) if finished else [pod for pod in on_node if not pod.finished]

    def pods(self, *, finished: bool = False) -> Iterator[AssignedPod]:
        """The pods on all nodes that descheduling is about, node by node."""
        for row in self.ready.tolist():
            yield from self.pods_on(row, finished=finished)

    def unfinished_pods_of(self, shapes: Callable[[Shape], bool]) -> Iterator[AssignedPod]:
        """The unfinished pods of some shapes on all nodes, whether descheduling is about these or not."""
        for shape, pods in self._by_shape.items():
            if shapes(shape):
                yield from (pod for pod in pods if self.contains(pod))

    def contains(self, pod: AssignedPod) -> bool:
        """Whether a pod has not been evicted in this loop."""
        return pod.uid in self._on_node[pod.row]

    def owned_by(self, uid: str) -> int:
        """How many pods an owner has, in whatever phase."""
        return self._owned[uid]

    def remove(self, pod: AssignedPod) -> None:
        """Remove an evicted pod."""
        del self._on_node[pod.row][pod.uid]
        for owner in pod.owners:
            self._owned[owner.uid] -= 1
        if not pod.finished:
            self.pod_count[pod.row] -= 1
            for resource, amount in pod.shape.requests.items():
                self._requested[resource].add_part(pod.row, -amount, self._columns)
        self.evicted.append(pod)


def _statuses(pod: AssignedPod, *, init: bool, ephemeral: bool = False) -> Iterator[ContainerStatus]:
    yield from pod.status.container_statuses
    if init:
        yield from pod.status.init_container_statuses
    if ephemeral:
        yield from pod.status.ephemeral_container_statuses


def waiting_reasons(pod: AssignedPod, *, init: bool) -> set[str]:
    """Why containers wait, and with ``init`` init containers."""
    states = (status.state for status in _statuses(pod, init=init))
    return {state.waiting.reason for state in states if state.waiting is not None}


def reasons(pod: AssignedPod, *, init: bool, ephemeral: bool = False) -> set[str]:
    """Why containers wait or were terminated, and with ``init`` and ``ephemeral`` those containers."""
    found = set()
    for status in _statuses(pod, init=init, ephemeral=ephemeral):
        for state in (status.state.waiting, status.state.terminated):
            if state is not None and state.reason:
                found.add(state.reason)
    return found


def exit_codes(pod: AssignedPod, *, init: bool) -> set[int]:
    """The exit codes of terminated containers, and with ``init`` of init containers."""
    states = (status.state for status in _statuses(pod, init=init))
    return {state.terminated.exit_code for state in states if state.terminated is not None}


def restarts(pod: AssignedPod, *, init: bool) -> int:
    """How often containers were restarted, and with ``init`` init containers."""
    return sum(status.restart_count for status in _statuses(pod, init=init))
