"""The GPUs of the nodes: how much of each is idle, and which pods have which.

A pod requests whole GPUs, or a share of one in thousandths; a share lies on a single GPU. Which GPUs a pod has is known
from its reservation or its annotation. Pods of which it is not known, because another scheduler placed them, are taken
to fill GPUs up one after another; the result does not depend on the order in which the pods are listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import Node
from kubestow.cluster.cache import Cluster
from kubestow.cluster.changes.journal import NEVER, InvalidationMask
from kubestow.cluster.nodes.views import HypotheticalNodes, NodeRow, Nodes
from kubestow.cluster.pods.shapes import PodInfo

#: The thousandths of a whole GPU.
WHOLE = 1000
_DEVICE_SEPARATOR = "-"
#: The digits of a GPU's number at most: users may write the annotation, too.
_MOST_DIGITS = 4

Devices = tuple[int, ...]
"""Numbers of GPUs of one node, counted from 0."""


class GpuRequest(NamedTuple):
    """A number of GPUs with ``milli`` thousandths each: whole ones, or a share of a single one, or none."""

    gpus: int
    milli: int

    @property
    def total(self) -> int:
        """All thousandths."""
        return self.gpus * self.milli

    @property
    def is_share(self) -> bool:
        """Whether it is a share of one GPU."""
        return self.gpus == 1 and self.milli < WHOLE


@lru_cache
def _request(count: int, milli: int) -> GpuRequest:
    if not count and milli < WHOLE:
        return GpuRequest(1, milli) if milli else GpuRequest(0, 0)
    return GpuRequest(max(count, -(-milli // WHOLE)), WHOLE)


class DeviceResources(NamedTuple):
    """The names under which nodes and pods have GPUs: whole ones, thousandths, and the annotation of assignments."""

    gpu: str
    gpu_milli: str
    annotation: str

    def request(self, requests: Mapping[str, int]) -> GpuRequest:
        """What requests by resource name mean. More than 1000 thousandths without whole GPUs are rounded up to them."""
        return _request(requests.get(self.gpu, 0), requests.get(self.gpu_milli, 0))

    def recorded(self, pod: PodInfo, request: GpuRequest) -> Devices | None:
        """The GPUs in a pod's annotation, such as ``0-3``; None unless they are as many different ones as requested."""
        text = pod.metadata.annotations.get(self.annotation, "")
        numbers = text.split(_DEVICE_SEPARATOR, request.gpus)
        if not all(number.isdecimal() and len(number) <= _MOST_DIGITS for number in numbers):
            return None
        devices = tuple(map(int, numbers))
        return devices if len(devices) == len(set(devices)) == request.gpus else None

    def annotations(self, devices: Devices) -> dict[str, str]:
        """The annotation that records GPUs."""
        return {self.annotation: _DEVICE_SEPARATOR.join(map(str, devices))}


class IdleDevices(NamedTuple):
    """What is idle on some nodes, in thousandths of GPUs; int64.

    ``each`` has shape (nodes, GPUs of the largest node), 0 for GPUs that a node lacks. The others have shape (nodes,):
    ``total`` of all GPUs, ``most`` of one GPU, ``whole`` the number of wholly idle GPUs.
    """

    each: NDArray[np.int64]
    total: NDArray[np.int64]
    most: NDArray[np.int64]
    whole: NDArray[np.int64]

    @classmethod
    def of(cls, each: NDArray[np.int64]) -> IdleDevices:
        """Computed from what is idle of each GPU."""
        return cls(each, each.sum(axis=1), each.max(axis=1, initial=0), np.count_nonzero(each == WHOLE, axis=1))

    def fit(self, request: GpuRequest) -> NDArray[np.bool_]:
        """Where a request fits, bool."""
        return self.most >= request.milli if request.is_share else self.whole >= request.gpus


def device_table(cluster: Cluster, resources: DeviceResources, invalidation_mask: InvalidationMask) -> DeviceTable:
    """The table of a cluster, one for all plugins: those of a profile, and of others that place pods on its nodes.

    Until its annotation is written, only the reservation says which GPUs a pod has.
    """
    # A table keeps its cluster alive, so no other one can have the same id.
    key = id(cluster), resources
    table = _tables.get(key)
    if table is None:
        table = _tables[key] = DeviceTable(cluster, resources, invalidation_mask)
    return table


class DeviceTable:
    """What is idle of every GPU of a cluster, kept up to date by its journal, and the GPUs reserved for pods.

    An annotation that is changed while the pod is on its node counts from the next change of the node's pods on.
    """

    def __init__(self, cluster: Cluster, resources: DeviceResources, invalidation_mask: InvalidationMask) -> None:
        """The mask says what changes a row: pods that are added or removed, and allocatable amounts of nodes."""
        self._cluster, self._resources = cluster, resources
        self._mask = invalidation_mask
        self._generation = NEVER
        self._idle = IdleDevices.of(np.zeros((0, 0), np.int64))
        #: The number of GPUs of each row, and the node that they were counted for.
        self._counts: NDArray[np.int64] = np.zeros(0, np.int64)
        self._nodes: list[Node] = []
        self._reserved: dict[str, Devices] = {}
        #: The nodes on which GPUs were reserved since the last refresh.
        self._stale: set[str] = set()
        #: The number of reservations when stale ones were last dropped.
        self._kept = 0

    # -- reading -----------------------------------------------------------------------------------------------------

    def idle(self, nodes: Nodes) -> IdleDevices:
        """What is idle on nodes, real or hypothetical."""
        self._refresh()
        rows = nodes.rows
        if isinstance(nodes, HypotheticalNodes):
            request = self._resources.request
            positions = nodes.positions_changed_by(lambda shape: request(shape.requests).gpus > 0)
            if len(positions):
                return IdleDevices.of(self._idle_after_changes(nodes, positions.tolist()))
        idle = self._idle
        return IdleDevices(idle.each[rows], idle.total[rows], idle.most[rows], idle.whole[rows])

    def fit(self, nodes: Nodes, request: GpuRequest) -> NDArray[np.bool_]:
        """Where a request fits, bool."""
        if isinstance(nodes, HypotheticalNodes):
            return self.idle(nodes).fit(request)
        self._refresh()
        if request.is_share:
            return self._idle.most[nodes.rows] >= request.milli
        return self._idle.whole[nodes.rows] >= request.gpus

    def fits(self, node: NodeRow, request: GpuRequest) -> bool:
        """Whether a request fits on a single node."""
        self._refresh()
        if request.is_share:
            return bool(self._idle.most.item(node.row) >= request.milli)
        return bool(self._idle.whole.item(node.row) >= request.gpus)

    def idle_of(self, node: NodeRow) -> list[int]:
        """The idle thousandths of each GPU of a single node."""
        self._refresh()
        amounts: list[int] = self._idle.each[node.row].tolist()
        return amounts

    def _idle_after_changes(self, nodes: HypotheticalNodes, positions: list[int]) -> NDArray[np.int64]:
        rows = nodes.row_numbers
        each = self._idle.each[rows].copy()
        for position in positions:
            change = nodes.change(position)
            removed = {info.uid for info in change.removed}
            pods = [info for info in nodes.pods(position) if info.uid not in removed]
            amounts = self._idle_with(int(self._counts[rows[position]]), (*pods, *change.added))
            each[position, : len(amounts)] = amounts
        return each

    def counts(self, nodes: Nodes) -> NDArray[np.int64]:
        """The number of GPUs of each node, int64."""
        self._refresh()
        return self._counts[nodes.rows]

    def count(self, node: NodeRow) -> int:
        """The number of GPUs of a single node."""
        return max(node.allocatable(self._resources.gpu), node.allocatable(self._resources.gpu_milli) // WHOLE)

    def idle_without(self, uid: str, node_name: str) -> list[int]:
        """The idle thousandths of each GPU of one node if a pod was not there."""
        row = self._cluster.nodes.rows[node_name]
        pods = [info for info in self._cluster.nodes.pods[row].values() if info.uid != uid]
        return self._idle_with(self.count(NodeRow(self._cluster.nodes, row)), pods)

    # -- reservations ------------------------------------------------------------------------------------------------

    def reserve(self, uid: str, node_name: str, devices: Devices) -> None:
        """Record which GPUs of its node a pod has."""
        self._reserved[uid] = devices
        self._stale.add(node_name)

    def reserved(self, uid: str) -> Devices | None:
        """The GPUs reserved for a pod."""
        return self._reserved.get(uid)

    def release(self, uid: str) -> None:
        """Drop a reservation, if there is one; the pod is about to be removed from its node."""
        self._reserved.pop(uid, None)

    def drop_stale_reservations(self) -> None:
        """Drop the reservations of pods that are gone, now and then; not for use in a simulated block."""
        if len(self._reserved) > 2 * self._kept + 64:
            placed = self._cluster.placed_pod
            self._reserved = {uid: devices for uid, devices in self._reserved.items() if placed(uid) is not None}
            self._kept = len(self._reserved)

    # -- keeping up to date ------------------------------------------------------------------------------------------

    def _refresh(self) -> None:
        window = self._cluster.change_window
        if self._generation == window.begin() and not self._stale:
            return
        nodes = self._cluster.nodes
        rows = window.invalid_rows(self._generation, self._mask)
        if rows is not None:
            rows = [*rows, *(nodes.rows[name] for name in self._stale)]
            if any(self._nodes[row] is not nodes.objects[row] for row in rows):
                rows = None
        if rows is None:
            self._refresh_all()
        else:  # few rows, usually a single one; the four columns of each are computed without NumPy
            idle = self._idle
            for row in rows:
                amounts = self._idle_with(int(self._counts[row]), nodes.pods[row].values())
                idle.each[row, : len(amounts)] = amounts
                idle.total[row], idle.most[row] = sum(amounts), max(amounts, default=0)
                idle.whole[row] = amounts.count(WHOLE)
        self._stale.clear()
        self._generation = window.generation

    def _refresh_all(self) -> None:
        table, nodes, names = self._cluster.nodes, self._cluster.all_nodes(), self._resources
        self._nodes = list(table.objects)
        self._counts = np.maximum(nodes.allocatable(names.gpu), nodes.allocatable(names.gpu_milli) // WHOLE)
        each = np.zeros((len(table), int(self._counts.max(initial=0))), np.int64)
        for row, (count, pods) in enumerate(zip(self._counts.tolist(), table.pods, strict=True)):
            each[row, :count] = self._idle_with(count, pods.values())
        self._idle = IdleDevices.of(each)

    def _idle_with(self, count: int, pods: Iterable[PodInfo]) -> list[int]:
        """The idle thousandths of a node's GPUs with some pods."""
        idle = [WHOLE] * count
        unknown: list[tuple[int, int, str]] = []
        for pod in pods:
            request = self._resources.request(pod.requests)
            if not request.gpus:
                continue
            devices = self._reserved.get(pod.uid) or self._resources.recorded(pod, request)
            if devices is None or max(devices) >= count:
                unknown.append((-request.gpus, -request.milli, pod.uid))
                continue
            for device in devices:
                idle[device] -= request.milli
        for negative_count, negative_milli, _ in sorted(unknown):
            # From the GPUs with least idle that have enough, or else from those with most.
            for _ in range(min(-negative_count, count)):
                enough = [device for device, amount in enumerate(idle) if amount >= -negative_milli]
                fullest = min(enough, key=idle.__getitem__) if enough else max(range(count), key=idle.__getitem__)
                idle[fullest] += negative_milli
        return [max(0, amount) for amount in idle]


_tables: WeakValueDictionary[tuple[int, DeviceResources], DeviceTable] = WeakValueDictionary()
