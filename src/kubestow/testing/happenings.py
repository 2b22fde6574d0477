"""Random events: a cluster to which things keep happening, all made of material that a test gives.

Nodes come, go, and take on each other's labels, taints or resources; pods come, change and go; other objects appear and
disappear. Whatever a plugin looks at in the given nodes and pods will thus change under its eyes. Seeded: the same seed
tells the same story.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from msgspec.structs import replace

from kubestow.api.core import Node, Pod
from kubestow.cluster.cache import Cluster

__all__ = ["Happenings", "crowd"]

_HOSTNAME = "kubernetes.io/hostname"


def crowd(nodes: Sequence[Node], size: int) -> list[Node]:
    """At least so many nodes: the given ones, and copies of them in turn under names of their own."""
    copies = range(len(nodes), max(size, len(nodes)))
    return [*nodes, *(_named(nodes[n % len(nodes)], f"{nodes[n % len(nodes)].metadata.name}-{n}") for n in copies)]


def _named(node: Node, name: str) -> Node:
    labels = node.metadata.labels | ({_HOSTNAME: name} if _HOSTNAME in node.metadata.labels else {})
    return replace(node, metadata=replace(node.metadata, name=name, uid=f"uid-{name}", labels=labels))


def _with_labels(mine: Node, other: Node) -> Node:
    own = {_HOSTNAME: mine.metadata.labels[_HOSTNAME]} if _HOSTNAME in mine.metadata.labels else {}
    return replace(mine, metadata=replace(mine.metadata, labels=other.metadata.labels | own))


#: What a node can take on of another one.
_CHANGES: dict[str, Callable[[Node, Node], Node]] = {
    "labels": _with_labels,
    "annotations": lambda m, o: replace(m, metadata=replace(m.metadata, annotations=o.metadata.annotations)),
    "taints": lambda m, o: replace(m, spec=replace(m.spec, taints=o.spec.taints)),
    "cordon": lambda m, o: replace(m, spec=replace(m.spec, unschedulable=not m.spec.unschedulable)),
    "allocatable": lambda m, o: replace(m, status=replace(m.status, allocatable=o.status.allocatable)),
    "images": lambda m, o: replace(m, status=replace(m.status, images=o.status.images)),
    "conditions": lambda m, o: replace(m, status=replace(m.status, conditions=o.status.conditions)),
}


@dataclass
class Happenings:
    """What happens to a cluster, one event after another. ``objects`` are of kinds that catalogs hold."""

    cluster: Cluster
    nodes: Sequence[Node]
    pods: Sequence[Pod]
    objects: Sequence[Any]
    random: Random
    _placed: dict[str, Pod] = field(default_factory=dict)
    _guests: int = 0

    def next(self) -> str:
        """Let something happen; what it was, in words."""
        events = [self._node_comes_or_goes, *[self._node_changes] * 3]
        if self.pods:
            events += [*[self._pod_comes] * 3, self._pod_goes, self._pod_changes, self._pod_is_deleted]
        if self.objects:
            events += [self._object_comes_or_goes] * 2
        return self.random.choice(events)()

    # -- nodes ---------------------------------------------------------------------------------------------------

    def _node_comes_or_goes(self) -> str:
        chosen = self.random.choice(self.nodes)
        name = chosen.metadata.name
        if name not in self.cluster.nodes.rows:
            self.cluster.add_node(chosen)
            return f"node {name} was added"
        if len(self.cluster.nodes) == 1:
            return self._node_changes()
        self.cluster.remove_node(name)
        return f"node {name} was removed"

    def _node_changes(self) -> str:
        mine = self.random.choice(self.cluster.nodes.objects)
        aspect = self.random.choice(list(_CHANGES))
        self.cluster.update_node(_CHANGES[aspect](mine, self.random.choice(self.nodes)))
        return f"node {mine.metadata.name} changed ({aspect})"

    # -- pods ----------------------------------------------------------------------------------------------------

    def guest(self, pod: Pod, node_name: str) -> Pod:
        """A copy of a pod, on a node."""
        self._guests += 1
        name = f"{pod.metadata.name}-guest-{self._guests}"
        metadata = replace(pod.metadata, name=name, uid=f"uid-{name}")
        return replace(pod, metadata=metadata, spec=replace(pod.spec, node_name=node_name))

    def _pod_comes(self) -> str:
        node_name = self.random.choice(self.nodes).metadata.name
        return self._put(self.guest(self.random.choice(self.pods), node_name), "came to")

    def _pod_goes(self) -> str:
        if not self._placed:
            return self._pod_comes()
        uid = self.random.choice(list(self._placed))
        pod = self._placed.pop(uid)
        self.cluster.remove_pod(uid)
        return f"pod {pod.metadata.name} left node {pod.spec.node_name}"

    def _pod_changes(self) -> str:
        if not self._placed:
            return self._pod_comes()
        mine = self.random.choice(list(self._placed.values()))
        labels = self.random.choice(self.pods).metadata.labels
        return self._put(replace(mine, metadata=replace(mine.metadata, labels=labels)), "got other labels on")

    def _pod_is_deleted(self) -> str:
        if not self._placed:
            return self._pod_comes()
        mine = self.random.choice(list(self._placed.values()))
        metadata = replace(mine.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
        return self._put(replace(mine, metadata=metadata), "is being deleted on")

    def _put(self, pod: Pod, what: str) -> str:
        self._placed[pod.metadata.uid] = pod
        self.cluster.put_pod(self.cluster.shapes.info(pod))
        return f"pod {pod.metadata.name} {what} node {pod.spec.node_name}"

    # -- everything else -----------------------------------------------------------------------------------------

    def _object_comes_or_goes(self) -> str:
        chosen = self.random.choice(self.objects)
        catalog, metadata = self.cluster.catalog(type(chosen)), chosen.metadata
        told = f"{type(chosen).__name__} {metadata.name}"
        if catalog.get(metadata.namespace, metadata.name) is None:
            catalog.put(chosen)
            return f"{told} was added"
        catalog.remove(metadata.namespace, metadata.name)
        return f"{told} was removed"
