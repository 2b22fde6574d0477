"""Random cluster events, made from the nodes, pods and objects of a test.

Nodes are added, removed, and updated with labels, taints or resources of each other; pods are added, updated and
removed; other objects are added and removed. So everything that a plugin reads from the given objects changes. Equal
seeds produce equal events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from msgspec.structs import replace

from kubestow.api.core import Node, Pod
from kubestow.cluster.cache import Cluster

_HOSTNAME = "kubernetes.io/hostname"


def replicate_nodes(nodes: Sequence[Node], size: int) -> list[Node]:
    """At least ``size`` nodes: the given ones, and copies of them with unique names."""
    copies = range(len(nodes), max(size, len(nodes)))
    return [*nodes, *(_named(nodes[n % len(nodes)], f"{nodes[n % len(nodes)].metadata.name}-{n}") for n in copies)]


def _named(node: Node, name: str) -> Node:
    labels = node.metadata.labels | ({_HOSTNAME: name} if _HOSTNAME in node.metadata.labels else {})
    return replace(node, metadata=replace(node.metadata, name=name, uid=f"uid-{name}", labels=labels))


def _with_labels(node: Node, other: Node) -> Node:
    hostname = {_HOSTNAME: node.metadata.labels[_HOSTNAME]} if _HOSTNAME in node.metadata.labels else {}
    return replace(node, metadata=replace(node.metadata, labels=other.metadata.labels | hostname))


#: The updates of a node with fields of another node.
_UPDATES: dict[str, Callable[[Node, Node], Node]] = {
    "labels": _with_labels,
    "annotations": lambda m, o: replace(m, metadata=replace(m.metadata, annotations=o.metadata.annotations)),
    "taints": lambda m, o: replace(m, spec=replace(m.spec, taints=o.spec.taints)),
    "cordon": lambda m, o: replace(m, spec=replace(m.spec, unschedulable=not m.spec.unschedulable)),
    "allocatable": lambda m, o: replace(m, status=replace(m.status, allocatable=o.status.allocatable)),
    "images": lambda m, o: replace(m, status=replace(m.status, images=o.status.images)),
    "conditions": lambda m, o: replace(m, status=replace(m.status, conditions=o.status.conditions)),
}


@dataclass
class RandomEvents:
    """A generator of cluster events. ``objects`` are of kinds that the cluster keeps in catalogs."""

    cluster: Cluster
    nodes: Sequence[Node]
    pods: Sequence[Pod]
    objects: Sequence[Any]
    random: Random
    _placed: dict[str, Pod] = field(default_factory=dict)
    _copies: int = 0

    def next(self) -> str:
        """Apply a random event; a description of it."""
        events = [self._add_or_remove_node, *[self._update_node] * 3]
        if self.pods:
            events += [*[self._add_pod] * 3, self._remove_pod, self._update_pod, self._terminate_pod]
        if self.objects:
            events += [self._add_or_remove_object] * 2
        return self.random.choice(events)()

    # -- nodes ---------------------------------------------------------------------------------------------------

    def _add_or_remove_node(self) -> str:
        chosen = self.random.choice(self.nodes)
        name = chosen.metadata.name
        if name not in self.cluster.nodes.rows:
            self.cluster.add_node(chosen)
            return f"node {name} was added"
        if len(self.cluster.nodes) == 1:
            return self._update_node()
        self.cluster.remove_node(name)
        return f"node {name} was removed"

    def _update_node(self) -> str:
        node = self.random.choice(self.cluster.nodes.objects)
        aspect = self.random.choice(list(_UPDATES))
        self.cluster.update_node(_UPDATES[aspect](node, self.random.choice(self.nodes)))
        return f"node {node.metadata.name} was updated ({aspect})"

    # -- pods ----------------------------------------------------------------------------------------------------

    def copy_to_node(self, pod: Pod, node_name: str) -> Pod:
        """A copy of a pod with a unique name, bound to a node."""
        self._copies += 1
        name = f"{pod.metadata.name}-copy-{self._copies}"
        metadata = replace(pod.metadata, name=name, uid=f"uid-{name}")
        return replace(pod, metadata=metadata, spec=replace(pod.spec, node_name=node_name))

    def _add_pod(self) -> str:
        node_name = self.random.choice(self.nodes).metadata.name
        return self._put(self.copy_to_node(self.random.choice(self.pods), node_name), "was added to")

    def _remove_pod(self) -> str:
        if not self._placed:
            return self._add_pod()
        uid = self.random.choice(list(self._placed))
        pod = self._placed.pop(uid)
        self.cluster.remove_pod(uid)
        return f"pod {pod.metadata.name} was removed from node {pod.spec.node_name}"

    def _update_pod(self) -> str:
        if not self._placed:
            return self._add_pod()
        pod = self.random.choice(list(self._placed.values()))
        labels = self.random.choice(self.pods).metadata.labels
        return self._put(replace(pod, metadata=replace(pod.metadata, labels=labels)), "was relabelled on")

    def _terminate_pod(self) -> str:
        if not self._placed:
            return self._add_pod()
        pod = self.random.choice(list(self._placed.values()))
        metadata = replace(pod.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
        return self._put(replace(pod, metadata=metadata), "is terminating on")

    def _put(self, pod: Pod, event: str) -> str:
        self._placed[pod.metadata.uid] = pod
        self.cluster.put_pod(self.cluster.shapes.info(pod))
        return f"pod {pod.metadata.name} {event} node {pod.spec.node_name}"

    # -- other objects -------------------------------------------------------------------------------------------

    def _add_or_remove_object(self) -> str:
        chosen = self.random.choice(self.objects)
        catalog, metadata = self.cluster.catalog(type(chosen)), chosen.metadata
        subject = f"{type(chosen).__name__} {metadata.name}"
        if catalog.get(metadata.namespace, metadata.name) is None:
            catalog.put(chosen)
            return f"{subject} was added"
        catalog.remove(metadata.namespace, metadata.name)
        return f"{subject} was removed"
