"""The claims and in-tree disks that placed pods use.

Every pod that is added or removed updates the counts, so finding conflicts costs as much as the number of nodes that
use the same disk, not as the number of pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.nodes.table import NodeTable
from kubestow.cluster.nodes.views import HypotheticalNodes, NodeChange, Nodes
from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.cluster.storage.pod_volumes import Disk, claim_names, disks_of

__all__ = ["VolumesInUse"]

Mask = NDArray[np.bool_]


class VolumesInUse:
    """The claims and disks in use on the nodes of a table."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._claims: Counter[tuple[str, str]] = Counter()
        #: The number of pods by the disk's identity, the node, and the disk as it is mounted there.
        self._disks: dict[tuple[str, ...], dict[str, Counter[Disk]]] = {}

    def count(self, node_name: str, pod: PodInfo, sign: int) -> None:
        """Count the volumes of a pod that was added to (+1) or removed from (-1) a node."""
        for name in claim_names(pod.shape):
            key = (pod.namespace, name)
            self._claims[key] += sign
            if not self._claims[key]:
                del self._claims[key]
        for disk in disks_of(pod.shape):
            self._count_disk(node_name, disk, sign)

    def _count_disk(self, node_name: str, disk: Disk, sign: int) -> None:
        on_nodes = self._disks.setdefault(disk.key, {})
        mounted = on_nodes.setdefault(node_name, Counter())
        mounted[disk] += sign
        if not mounted[disk]:
            del mounted[disk]
        if not mounted:
            del on_nodes[node_name]
        if not on_nodes:
            del self._disks[disk.key]

    def is_claim_used(self, namespace: str, name: str) -> bool:
        """Whether a placed pod uses a claim by name, that is not as an ephemeral volume."""
        return (namespace, name) in self._claims

    def conflicts(self, nodes: Nodes, disks: Iterable[Disk]) -> Mask:
        """Where a placed pod mounts a disk that conflicts with one of these, bool per row of the view."""
        wanted = list(disks)
        everywhere = np.zeros(len(self._table), np.bool_)
        for disk in wanted:
            for node_name, mounted in self._disks.get(disk.key, {}).items():
                everywhere[self._table.rows[node_name]] |= any(disk.conflicts_with(other) for other in mounted)
        found = everywhere[nodes.rows]
        if isinstance(nodes, HypotheticalNodes):
            for position in nodes.positions_changed_by(_has_disks).tolist():
                found[position] = self._would_conflict(nodes.name(position), nodes.change(position), wanted)
        return found

    def _would_conflict(self, node_name: str, change: NodeChange, wanted: Iterable[Disk]) -> bool:
        changes: Counter[Disk] = Counter()
        for sign, pod in change.signed_pods():
            for disk in disks_of(pod.shape):
                changes[disk] += sign
        for disk in wanted:
            mounted = Counter(self._disks.get(disk.key, {}).get(node_name, {}))
            mounted.update(changes)
            if any(count > 0 and disk.conflicts_with(other) for other, count in mounted.items()):
                return True
        return False


def _has_disks(shape: Shape) -> bool:
    return bool(disks_of(shape))
