"""One node of a view at a time, as kube-scheduler's NodeInfo: for plugins that are written per node.

All values are those of the view, so they hold for hypothetical nodes, too. Amounts are read from the columns, once per
view and resource, and not parsed from the node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from kubestow.api.core import Affinity, Node
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.rules.pods import HostPort
from kubestow.rules.requests import CPU, EPHEMERAL_STORAGE, MEMORY, PODS


class ImageState(NamedTuple):
    """An image on a node: its size in bytes, and the number of nodes in the cluster that have it."""

    size: int
    num_nodes: int


class NodeInfos(Sequence["NodeInfo"]):
    """The nodes of a view, one :class:`NodeInfo` per row. They share the columns that they have read."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._amounts: dict[tuple[str, str], list[int]] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def __getitem__(self, position: int) -> NodeInfo:  # type: ignore[override]
        if not 0 <= position < len(self._nodes):
            raise IndexError(position)
        return NodeInfo(self._nodes, position, self)

    @cached_property
    def resources(self) -> tuple[str, ...]:
        """The resources that some node or pod of the cluster has, and ``pods``."""
        return (*self._nodes.resources, PODS)

    def amount(self, kind: str, resource: str, position: int) -> int:
        """One amount; ``kind`` is the kind of amounts, as in :class:`Resources`."""
        column = self._amounts.get((kind, resource))
        if column is None:
            column = self._amounts[kind, resource] = _column(self._nodes, kind, resource)
        return column[position]


def _column(nodes: Nodes, kind: str, resource: str) -> list[int]:
    if kind == "nonzero_requested":
        column = {CPU: nodes.nonzero_cpu, MEMORY: nodes.nonzero_memory}.get(resource)
        if column is None:
            return [0] * len(nodes)
    elif kind == "requested":
        column = nodes.requested(resource)
    else:
        column = nodes.allowed_pods if resource == PODS else nodes.allocatable(resource)
    amounts: list[int] = column.tolist()
    return amounts


class Resources(Mapping[str, int]):
    """Amounts on one node by resource, as whole numbers: millicores of CPU, bytes, or counts; 0 for any other name.

    Iteration and length cover the resources that some node or pod of the cluster has.
    """

    __slots__ = ("_infos", "_kind", "_names", "_position")

    def __init__(self, infos: NodeInfos, kind: str, position: int, names: Sequence[str]) -> None:
        self._infos, self._kind, self._position, self._names = infos, kind, position, names

    def __getitem__(self, resource: str) -> int:
        return self._infos.amount(self._kind, resource, self._position)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    @property
    def milli_cpu(self) -> int:
        """CPU in millicores."""
        return self[CPU]

    @property
    def memory(self) -> int:
        """Memory in bytes."""
        return self[MEMORY]

    @property
    def ephemeral_storage(self) -> int:
        """Ephemeral storage in bytes."""
        return self[EPHEMERAL_STORAGE]

    @property
    def allowed_pod_number(self) -> int:
        """The number of pods; of allocatable amounts only, as in kube-scheduler."""
        return self[PODS]

    @property
    def scalar_resources(self) -> dict[str, int]:
        """The extended resources and huge pages that the node has any of."""
        others = (CPU, MEMORY, EPHEMERAL_STORAGE, PODS)
        return {name: self[name] for name in self._names if name not in others and self[name]}


class NodeInfo:
    """One node and the pods on it."""

    __slots__ = ("__dict__", "_infos", "_nodes", "_position")

    def __init__(self, nodes: Nodes, position: int, infos: NodeInfos) -> None:
        self._nodes, self._position, self._infos = nodes, position, infos

    @cached_property
    def node(self) -> Node:
        """The node object."""
        return self._nodes.node(self._position)

    @property
    def name(self) -> str:
        """The name of the node."""
        return self._nodes.name(self._position)

    @cached_property
    def pods(self) -> Sequence[PodInfo]:
        """The pods on the node."""
        return self._nodes.pods(self._position)

    @property
    def pods_with_affinity(self) -> list[PodInfo]:
        """The pods on the node that have a podAffinity or podAntiAffinity."""
        return [info for info in self.pods if _has_pod_affinity(info.spec.affinity)]

    @property
    def pods_with_required_anti_affinity(self) -> list[PodInfo]:
        """The pods on the node that have required terms of podAntiAffinity."""
        return [info for info in self.pods if info.shape.affinity_terms.required_anti]

    @property
    def allocatable(self) -> Resources:
        """The allocatable amounts, with the number of pods as ``pods``."""
        return Resources(self._infos, "allocatable", self._position, self._infos.resources)

    @property
    def requested(self) -> Resources:
        """The sums of the pods' requests."""
        return Resources(self._infos, "requested", self._position, self._infos.resources)

    @property
    def nonzero_requested(self) -> Resources:
        """The sums of the pods' requests of CPU and memory, with the defaults for pods without one."""
        return Resources(self._infos, "nonzero_requested", self._position, (CPU, MEMORY))

    @cached_property
    def used_ports(self) -> frozenset[HostPort]:
        """The host ports that pods on the node use."""
        return self._nodes.used_ports(self._position)

    @cached_property
    def image_states(self) -> dict[str, ImageState]:
        """The images on the node by name."""
        names = (name for image in self.node.status.images for name in image.names)
        found = ((name, self._nodes.image(name)) for name in names)
        return {name: ImageState(image[0], image[1]) for name, image in found if image is not None}


def _has_pod_affinity(affinity: Affinity | None) -> bool:
    return affinity is not None and (affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None)
