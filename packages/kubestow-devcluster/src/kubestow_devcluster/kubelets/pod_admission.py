"""The admission of bound pods by the kubelet of their node, and the resources and host ports of admitted pods.

A scheduler can be wrong, and a pod can be created with a node. The kubelet therefore checks each pod against the pods
that it has admitted before: resources, node selector and required affinity, host ports and NoExecute taints, in this
order. The first misfit rejects the pod, which fails with the kubelet's reason and message. Extended resources that the
node does not have are not checked. Unlike a kubelet, this one never evicts other pods in favour of a critical pod.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kubestow.api import meta
from kubestow.api.core import Node, Pod, ResourceRequirements
from kubestow.api.formats.names import is_extended_resource
from kubestow.cluster.pods.requests import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, Amounts, allocatable_amounts
from kubestow.cluster.pods.shapes import HostPort, PodInfo, Shape, Shapes
from kubestow_devcluster.apiserver.storage.store import StoredObject

__all__ = ["PodAdmission", "Rejection", "Resize"]

_AFFINITY = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
_PORTS = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
_TAINTS = "Predicate TaintToleration failed: node(s) had untolerated taint(s)"


class Rejection(NamedTuple):
    """Why a kubelet rejects a pod: the reason in the pod's status, and the message of the event."""

    reason: str
    message: str


class Resize(NamedTuple):
    """The outcome of a resize of a pod's containers.

    ``reason`` is empty for one that is done, else Deferred or Infeasible. ``resources`` are those in effect, by the
    container's name.
    """

    reason: str
    message: str
    resources: dict[str, ResourceRequirements]


class _Admitted(NamedTuple):
    """An admitted pod: its node, what it counts for there (millicores, bytes or counts), and its shape."""

    node: str
    requests: Amounts
    shape: Shape


class _Node(NamedTuple):
    """What admission reads of a node, decoded once per version. ``allocatable`` is in millicores, bytes or counts."""

    resource_version: int
    object: Node
    allocatable: Amounts


class PodAdmission:
    """The admitted pods of all nodes; pods are identified by key, ``namespace/name``."""

    def __init__(self) -> None:
        self._shapes = Shapes()
        self._admitted: dict[str, _Admitted] = {}
        self._nodes: dict[str, _Node] = {}
        #: Node -> the keys of its admitted pods, and the sum of their requests.
        self._pods_on: dict[str, set[str]] = {}
        self._used: dict[str, Amounts] = {}

    def admit(self, stored: StoredObject, stored_node: StoredObject) -> Rejection | None:
        """Admit a pod to its node, or return why not. A pod that was admitted before stays admitted."""
        if stored.key in self._admitted:
            return None
        info, node = self._info(stored), self._node(stored_node)
        rejection = next(self._misfits(info, node), None)
        if rejection is None:
            self._add(stored.key, info)
        return rejection

    def restore(self, stored: StoredObject) -> None:
        """Count a pod that was admitted before the kubelets started."""
        self._add(stored.key, self._info(stored))

    def resize(self, stored: StoredObject, stored_node: StoredObject) -> Resize | None:
        """Resize an admitted pod as its spec says if the node has the resources; None if they have not changed."""
        admitted, info, node = self._admitted.get(stored.key), self._info(stored), self._node(stored_node)
        if admitted is None or _resources(admitted.shape) == _resources(info.shape):
            return None
        self.release(stored.key)
        requests = info.shape.requests
        misfit = next(self._insufficient(requests, node), None)
        if misfit is None:
            self._put(stored.key, _Admitted(admitted.node, requests, info.shape))
            return Resize("", "", _resources(info.shape))
        self._put(stored.key, admitted)
        is_infeasible = any(amount > node.allocatable.get(name, 0) for name, amount in requests.items())
        return Resize("Infeasible" if is_infeasible else "Deferred", misfit.message, _resources(admitted.shape))

    def release(self, key: str) -> str:
        """Free what a pod has that is finished or deleted. Returns its node; empty if it had not been admitted."""
        admitted = self._admitted.pop(key, None)
        if admitted is None:
            return ""
        self._pods_on[admitted.node].discard(key)
        used = self._used[admitted.node]
        for name, amount in admitted.requests.items():
            used[name] -= amount
        return admitted.node

    def discard_node(self, node: str) -> None:
        """Drop a deleted node, and its sums once none of its pods is left."""
        self._nodes.pop(node, None)
        if not self._pods_on.get(node):
            self._pods_on.pop(node, None)
            self._used.pop(node, None)

    def _node(self, stored: StoredObject) -> _Node:
        node = self._nodes.get(stored.name)
        if node is None or node.resource_version != stored.resource_version:
            decoded = meta.decode(Node, stored.data)
            node = _Node(stored.resource_version, decoded, allocatable_amounts(decoded.status.allocatable))
            self._nodes[stored.name] = node
        return node

    def _info(self, stored: StoredObject) -> PodInfo:
        return self._shapes.info(meta.decode(Pod, stored.data))

    def _add(self, key: str, info: PodInfo) -> None:
        self._put(key, _Admitted(info.spec.node_name, info.requests, info.shape))

    def _put(self, key: str, admitted: _Admitted) -> None:
        self._admitted[key] = admitted
        self._pods_on.setdefault(admitted.node, set()).add(key)
        used = self._used.setdefault(admitted.node, {})
        for name, amount in admitted.requests.items():
            used[name] = used.get(name, 0) + amount

    def _misfits(self, info: PodInfo, node: _Node) -> Iterator[Rejection]:
        yield from self._insufficient(info.requests, node)
        if not _is_selected(info, node.object):
            yield Rejection("NodeAffinity", _AFFINITY)
        if any(port.conflicts_with(used) for used in self._used_ports(info) for port in info.shape.host_ports):
            yield Rejection("NodePorts", _PORTS)
        if not _tolerates_taints(info, node.object):
            yield Rejection("TaintToleration", _TAINTS)

    def _insufficient(self, requests: Amounts, node: _Node) -> Iterator[Rejection]:
        name, allocatable = node.object.metadata.name, node.allocatable
        used = self._used.get(name, {})
        pods = len(self._pods_on.get(name, ()))
        if pods + 1 > allocatable.get(PODS, 0):
            yield _out_of(PODS, 1, pods, allocatable.get(PODS, 0))
        native = (CPU, MEMORY, EPHEMERAL_STORAGE)
        for resource in (*native, *(name for name in requests if name not in native)):
            requested, capacity = requests.get(resource, 0), allocatable.get(resource, 0)
            is_missing = resource not in allocatable and is_extended_resource(resource)
            if requested > capacity - used.get(resource, 0) and requested > 0 and not is_missing:
                yield _out_of(resource, requested, used.get(resource, 0), capacity)

    def _used_ports(self, info: PodInfo) -> Iterator[HostPort]:
        if info.shape.host_ports:
            for key in self._pods_on.get(info.spec.node_name, ()):
                yield from self._admitted[key].shape.host_ports


def _resources(shape: Shape) -> dict[str, ResourceRequirements]:
    """The resources of containers and sidecars by name."""
    sidecars = (one for one in shape.spec.init_containers if one.restart_policy == "Always")
    return {container.name: container.resources for container in (*shape.spec.containers, *sidecars)}


def _out_of(resource: str, requested: int, used: int, capacity: int) -> Rejection:
    message = (
        f"Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
    )
    return Rejection(f"OutOf{resource}", message)


def _is_selected(info: PodInfo, node: Node) -> bool:
    """Whether the node matches the pod's node selector and required node affinity."""
    spec = info.spec
    if not spec.node_selector and (spec.affinity is None or spec.affinity.node_affinity is None):
        return True
    # Imported here, like below, because NumPy would slow the start of an API server alone.
    from kubestow.cluster.nodes.selectors import selected_by
    from kubestow.cluster.nodes.table import NodeTable
    from kubestow.cluster.nodes.views import Nodes

    table = NodeTable()
    table.add(node)
    return bool(selected_by(Nodes(table, slice(0, 1)), spec)[0])


def _tolerates_taints(info: PodInfo, node: Node) -> bool:
    """Whether the pod tolerates all NoExecute taints of the node."""
    if not any(taint.effect == "NoExecute" for taint in node.spec.taints):
        return True
    from kubestow.cluster.nodes.taints import NO_EXECUTE, untolerated

    return not untolerated(node.spec.taints, info.spec.tolerations, effects=(NO_EXECUTE,))
