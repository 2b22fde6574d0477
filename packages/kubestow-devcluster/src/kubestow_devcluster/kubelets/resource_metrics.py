"""NodeMetrics and PodMetrics (metrics.k8s.io/v1beta1) of the containers that run, by the rules for their usage.

As with metrics-server, usage is that of the last full interval, and an object that does not report has no metrics: pods
without a running container, and nodes that are not ready. Usage never exceeds the limits of a container.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

import msgspec

from kubestow.api.formats import quantity
from kubestow.errors import InvalidQuantity
from kubestow_devcluster.apiserver.storage.store import Collection, Store, StoredObject
from kubestow_devcluster.behaviour.resource_usage import (
    ContainerResources,
    Level,
    ResourceUsageRules,
    UsedAmounts,
    amount_at,
    container_resources,
)
from kubestow_devcluster.component_base.stored_objects import node_name_of, phase_of

#: Seconds between two measurements, metrics-server's default.
RESOLUTION = 15
_WINDOW = f"{RESOLUTION}s"


class _Container(NamedTuple):
    name: str
    resources: ContainerResources


class _Pod(NamedTuple):
    """What the usage of a pod depends on, read once per version of the pod."""

    stored: StoredObject
    uid: str
    containers: tuple[_Container, ...]
    cpu: Level
    memory: Level


class _Node(NamedTuple):
    stored: StoredObject
    is_ready: bool
    allocatable: UsedAmounts
    cpu: Level
    memory: Level


_T = TypeVar("_T", _Node, _Pod)


class SimulatedMetrics:
    """The metrics of the nodes and pods in a store. ``clock`` returns the current time."""

    #: Seconds between two measurements.
    resolution: float = RESOLUTION

    def __init__(self, rules: ResourceUsageRules, store: Store, clock: Callable[[], datetime]) -> None:
        self._node_collection, self._pod_collection = store.collection("nodes"), store.collection("pods")
        self._rules, self._clock = rules, clock
        self._nodes: dict[str, _Node] = {}
        self._pods: dict[str, _Pod] = {}

    def nodes(self) -> dict[str, StoredObject]:
        """NodeMetrics by node, in the order of the names."""
        time = self._time()
        used: dict[str, UsedAmounts] = {}
        for pod in self._read_pods().values():
            node = node_name_of(pod.stored)
            cpu, memory = used.get(node, (0.0, 0.0))
            for container in pod.containers:
                usage = _container_usage(pod, container, time)
                cpu, memory = cpu + usage.cpu, memory + usage.memory
            used[node] = UsedAmounts(cpu, memory)
        return {
            name: _metrics_of(node.stored, time, {"usage": _usage(self._node_usage(name, node, used, time))})
            for name, node in self._read_nodes().items()
            if node.is_ready
        }

    def pods(self) -> dict[str, StoredObject]:
        """PodMetrics by key of the pod, in the order of the keys."""
        time, nodes = self._time(), self._read_nodes()
        return {
            key: _metrics_of(
                pod.stored,
                time,
                {
                    "containers": [
                        {"name": container.name, "usage": _usage(_container_usage(pod, container, time))}
                        for container in pod.containers
                    ]
                },
            )
            for key, pod in self._read_pods().items()
            if pod.containers and (node := nodes.get(node_name_of(pod.stored))) is not None and node.is_ready
        }

    def measured_at(self) -> datetime:
        """The time of the last measurement."""
        return datetime.fromtimestamp(self._time(), UTC)

    def of_pod(self, pod: StoredObject) -> dict[str, UsedAmounts]:
        """The usage of the running containers of a pod, by name; empty for a pod without metrics."""
        node = self._node_collection.get(node_name_of(pod))
        if node is None or not self._read_node(node).is_ready:
            return {}
        read, time = self._read_pod(pod), self._time()
        return {container.name: _container_usage(read, container, time) for container in read.containers}

    def _time(self) -> int:
        """The Unix time of the last measurement."""
        return int(self._clock().timestamp()) // RESOLUTION * RESOLUTION

    @staticmethod
    def _node_usage(name: str, node: _Node, used: dict[str, UsedAmounts], time: int) -> UsedAmounts:
        pods = used.get(name, UsedAmounts(0.0, 0.0))
        own_cpu = amount_at(node.cpu, node.allocatable.cpu, time, name)
        own_memory = amount_at(node.memory, node.allocatable.memory, time, name)
        return UsedAmounts(pods.cpu + own_cpu, pods.memory + own_memory)

    def _read_nodes(self) -> dict[str, _Node]:
        self._nodes = _read(self._node_collection, self._nodes, self._read_node)
        return self._nodes

    def _read_pods(self) -> dict[str, _Pod]:
        self._pods = _read(self._pod_collection, self._pods, self._read_pod)
        return self._pods

    def _read_node(self, stored: StoredObject) -> _Node:
        node = msgspec.json.decode(stored.data)
        status = node.get("status") or {}
        conditions = status.get("conditions") or ()
        is_ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
        return _Node(stored, is_ready, _allocatable(status), *self._rules.node_levels(stored.name, stored.labels))

    def _read_pod(self, stored: StoredObject) -> _Pod:
        if phase_of(stored) != "Running":
            return _Pod(stored, "", (), 0, 0)
        pod = msgspec.json.decode(stored.data)
        cpu, memory = self._rules.pod_levels(pod)
        return _Pod(stored, pod["metadata"]["uid"], tuple(_running_containers(pod)), cpu, memory)


def _read(collection: Collection, known: dict[str, _T], read: Callable[[StoredObject], _T]) -> dict[str, _T]:
    """All objects, reading only those that have changed."""
    found = {}
    for stored in collection.snapshot():
        before = known.get(stored.key)
        found[stored.key] = before if before is not None and before.stored is stored else read(stored)
    return found


def _running_containers(pod: dict[str, Any]) -> list[_Container]:
    status, spec = pod.get("status") or {}, pod["spec"]
    statuses = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
    running = {one["name"] for one in statuses if "running" in (one.get("state") or {})}
    containers = [*spec["containers"], *(spec.get("initContainers") or ())]
    return [_Container(one["name"], container_resources(one)) for one in containers if one["name"] in running]


def _allocatable(status: dict[str, Any]) -> UsedAmounts:
    amounts = status.get("allocatable") or {}
    try:
        return UsedAmounts(*(float(quantity.parse(amounts.get(name, 0))) for name in UsedAmounts._fields))
    except InvalidQuantity:
        return UsedAmounts(0.0, 0.0)


def _container_usage(pod: _Pod, container: _Container, time: int) -> UsedAmounts:
    requests, limits = container.resources
    return UsedAmounts(
        min(amount_at(pod.cpu, requests.cpu, time, pod.uid), limits.cpu),
        min(amount_at(pod.memory, requests.memory, time, pod.uid), limits.memory),
    )


def _usage(used: UsedAmounts) -> dict[str, str]:
    """As metrics-server writes it: nanocores and KiB."""
    return {"cpu": f"{round(used.cpu * 1e9)}n", "memory": f"{round(used.memory / 1024)}Ki"}


def _metrics_of(measured: StoredObject, time: int, usage: dict[str, Any]) -> StoredObject:
    """NodeMetrics or PodMetrics with the name and labels of the measured object."""
    timestamp = datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    metadata: dict[str, Any] = {"name": measured.name}
    if measured.namespace:
        metadata["namespace"] = measured.namespace
    metadata["creationTimestamp"] = timestamp
    if measured.labels:
        metadata["labels"] = measured.labels
    metrics = {"metadata": metadata, "timestamp": timestamp, "window": _WINDOW, **usage}
    return StoredObject(measured.key, measured.resource_version, msgspec.json.encode(metrics), measured.labels)
