"""The admission of bound pods by the kubelet of their node, and the resources and host ports of admitted pods.

A scheduler can be wrong, and a pod can be created with a node. The kubelet therefore checks each pod against the pods
that it has admitted before: resources, node selector and required affinity, host ports and NoExecute taints, in this
order. The first misfit rejects the pod, which fails with the kubelet's reason and message. Extended resources that the
node does not have are not checked. Unlike a kubelet, this one never evicts other pods in favour of a critical pod.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import msgspec

from kubestow.api import meta
from kubestow.api.core import Node, Pod, PodSpec, ResourceRequirements
from kubestow.api.formats.names import is_extended_resource
from kubestow.rules.matching import NO_EXECUTE, selects_node, untolerated
from kubestow.rules.pods import HostPort, HostPorts, host_ports
from kubestow.rules.requests import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, Amounts, allocatable_amounts, placed_requests
from kubestow_devcluster.apiserver.storage.store import StoredObject

_AFFINITY = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
_PORTS = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
_TAINTS = "Predicate TaintToleration failed: node(s) had untolerated taint(s)"


class PodRejection(NamedTuple):
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


class _Needs(NamedTuple):
    """What a pod takes of its node: ``requests`` in millicores, bytes or counts, and host ports.

    ``resources`` are those of containers and sidecars, by name. Pods with equal containers share them.
    """

    requests: Amounts
    host_ports: HostPorts
    resources: dict[str, ResourceRequirements]


class _Admitted(NamedTuple):
    """An admitted pod: its node, and what it takes of it."""

    node: str
    needs: _Needs


class _Node(NamedTuple):
    """What admission reads of a node, decoded once per version. ``allocatable`` is in millicores, bytes or counts."""

    resource_version: int
    object: Node
    allocatable: Amounts


class PodAdmission:
    """The admitted pods of all nodes; pods are identified by key, ``namespace/name``."""

    def __init__(self) -> None:
        self._admitted: dict[str, _Admitted] = {}
        self._nodes: dict[str, _Node] = {}
        #: Node -> the keys of its admitted pods, and the sum of their requests.
        self._pods_on: dict[str, set[str]] = {}
        self._used: dict[str, Amounts] = {}

    def admit(self, stored: StoredObject, stored_node: StoredObject) -> PodRejection | None:
        """Admit a pod to its node, or return why not. A pod that was admitted before stays admitted."""
        if stored.key in self._admitted:
            return None
        pod, node = meta.decode(Pod, stored.data), self._node(stored_node)
        needs = _needs(pod)
        rejection = next(self._misfits(pod.spec, needs, node), None)
        if rejection is None:
            self._put(stored.key, _Admitted(pod.spec.node_name, needs))
        return rejection

    def restore(self, stored: StoredObject) -> None:
        """Count a pod that was admitted before the kubelets started."""
        pod = meta.decode(Pod, stored.data)
        self._put(stored.key, _Admitted(pod.spec.node_name, _needs(pod)))

    def resize(self, stored: StoredObject, stored_node: StoredObject) -> Resize | None:
        """Resize an admitted pod as its spec says if the node has the resources; None if they have not changed."""
        admitted, needs = self._admitted.get(stored.key), _needs(meta.decode(Pod, stored.data))
        if admitted is None or admitted.needs.resources == needs.resources:
            return None
        node = self._node(stored_node)
        self.release(stored.key)
        misfit = next(self._insufficient(needs.requests, node), None)
        if misfit is None:
            self._put(stored.key, _Admitted(admitted.node, needs))
            return Resize("", "", needs.resources)
        self._put(stored.key, admitted)
        is_infeasible = any(amount > node.allocatable.get(name, 0) for name, amount in needs.requests.items())
        return Resize("Infeasible" if is_infeasible else "Deferred", misfit.message, admitted.needs.resources)

    def release(self, key: str) -> str:
        """Free what a pod has that is finished or deleted. Returns its node; empty if it had not been admitted."""
        admitted = self._admitted.pop(key, None)
        if admitted is None:
            return ""
        self._pods_on[admitted.node].discard(key)
        used = self._used[admitted.node]
        for name, amount in admitted.needs.requests.items():
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

    def _put(self, key: str, admitted: _Admitted) -> None:
        self._admitted[key] = admitted
        self._pods_on.setdefault(admitted.node, set()).add(key)
        used = self._used.setdefault(admitted.node, {})
        for name, amount in admitted.needs.requests.items():
            used[name] = used.get(name, 0) + amount

    def _misfits(self, spec: PodSpec, needs: _Needs, node: _Node) -> Iterator[PodRejection]:
        yield from self._insufficient(needs.requests, node)
        metadata, taints = node.object.metadata, node.object.spec.taints
        if not selects_node(spec, metadata.name, metadata.labels):
            yield PodRejection("NodeAffinity", _AFFINITY)
        if needs.host_ports and any(map(needs.host_ports.conflicts_with, self._used_ports(spec.node_name))):
            yield PodRejection("NodePorts", _PORTS)
        if untolerated(taints, spec.tolerations, effects=(NO_EXECUTE,)):
            yield PodRejection("TaintToleration", _TAINTS)

    def _insufficient(self, requests: Amounts, node: _Node) -> Iterator[PodRejection]:
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

    def _used_ports(self, node: str) -> Iterator[HostPort]:
        for key in self._pods_on.get(node, ()):
            yield from self._admitted[key].needs.host_ports


def _needs(pod: Pod) -> _Needs:
    """What a pod takes of its node, with the resources that its status reports during a resize."""
    spec, status = pod.spec, pod.status
    needs = _needs_of(
        msgspec.json.encode(
            PodSpec(
                containers=spec.containers,
                init_containers=spec.init_containers,
                overhead=spec.overhead,
                resources=spec.resources,
            )
        )
    )
    containers = (*status.container_statuses, *status.init_container_statuses)
    if status.resources is None and all(each.resources is None for each in containers):
        return needs
    return needs._replace(requests=placed_requests(pod)[0])


@lru_cache(maxsize=1024)
def _needs_of(encoded: bytes) -> _Needs:
    """What pods with this part of a spec take of a node."""
    spec = msgspec.json.decode(encoded, type=PodSpec)
    sidecars = (one for one in spec.init_containers if one.restart_policy == "Always")
    resources = {container.name: container.resources for container in (*spec.containers, *sidecars)}
    return _Needs(placed_requests(Pod(spec=spec))[0], host_ports(spec), resources)


def _out_of(resource: str, requested: int, used: int, capacity: int) -> PodRejection:
    message = (
        f"Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
    )
    return PodRejection(f"OutOf{resource}", message)
