"""Volumes attached to nodes, counted per CSI driver (semantics 8.11).

A volume counts once per node, however many pods there mount it; a VolumeAttachment counts even when no pod does. What
stands behind a pod's volumes is looked up when it comes to its node, and again only when one of its claims, their
volumes or classes, or the node's CSINode change. A pod that comes or goes then costs as much as its own volumes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kubestow.api.storage import PersistentVolume, VolumeAttachment
from kubestow.cluster.catalog import Catalog
from kubestow.cluster.nodes.columns import Column
from kubestow.cluster.nodes.table import NodeTable
from kubestow.cluster.nodes.views import HypotheticalNodes, Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.cluster.storage.attachable_volumes import CSIVolume, Dependency, PodVolumeResolver
from kubestow.cluster.storage.csi_nodes import CSINodes

__all__ = ["Attachments", "VolumeAttachments"]

Mask = NDArray[np.bool_]


@dataclass(slots=True)
class _Holder:
    """A pod on a node, and what it was found to have attached there."""

    node_name: str
    pod: PodInfo
    volumes: set[CSIVolume] = field(default_factory=set)
    depends_on: list[Dependency] = field(default_factory=list)


@dataclass(slots=True)
class _OnNode:
    """What is attached to one node: each volume by how many pods and by how many VolumeAttachments.

    ``broken`` tells, by uid, of pods whose volumes cannot be made out.
    """

    by_pods: Counter[CSIVolume] = field(default_factory=Counter)
    by_attachments: Counter[CSIVolume] = field(default_factory=Counter)
    holders: dict[str, _Holder] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)

    def has(self, volume: CSIVolume) -> bool:
        return volume in self.by_pods or volume in self.by_attachments

    def distinct(self, driver: str) -> int:
        return sum(volume.driver == driver for volume in self.by_pods.keys() | self.by_attachments.keys())


class Attachments:
    """The volumes attached to the nodes of a table."""

    def __init__(self, table: NodeTable, resolver: PodVolumeResolver, csi_nodes: CSINodes) -> None:
        self._table = table
        self._resolver = resolver
        self._csi_nodes = csi_nodes
        self._counts: dict[str, Column] = {}
        self._nodes: dict[str, _OnNode] = {}
        self._nodes_with: dict[CSIVolume, set[str]] = {}
        self._broken_nodes: set[str] = set()
        self._dependents: dict[Dependency, dict[str, _Holder]] = {}

    # -- reading -------------------------------------------------------------------------------------------------

    def count(self, nodes: Nodes, driver: str) -> NDArray[np.int64]:
        """How many volumes of a driver are attached, int64 per row of the view."""
        attached: NDArray[np.int64] = self._column(driver).values[nodes.rows]
        if isinstance(nodes, HypotheticalNodes):
            attached = attached.copy()
            for position in nodes.positions_changed_by(_has_volumes).tolist():
                attached[position] += self._delta(nodes, position, driver)
        return attached

    def held(self, nodes: Nodes, volume: CSIVolume) -> Mask | None:
        """Where a pod mounts a volume already, bool per row of the view; None for nowhere."""
        rows = [self._table.rows[name] for name in self._nodes_with.get(volume, ())]
        if not rows and not isinstance(nodes, HypotheticalNodes):
            return None
        everywhere = np.zeros(len(self._table), np.bool_)
        everywhere[rows] = True
        held: Mask = everywhere[nodes.rows]
        if isinstance(nodes, HypotheticalNodes):
            held = held.copy()
            for position in nodes.positions_changed_by(_has_volumes).tolist():
                by_pods = self._node(nodes.name(position)).by_pods[volume]
                held[position] = by_pods + self._changes(nodes, position)[volume] > 0
        return held

    def problems(self, nodes: Nodes) -> Iterator[tuple[int, str]]:
        """Rows of the view with a pod whose volumes cannot be made out, each with what is wrong."""
        changed: set[str] = set()
        if isinstance(nodes, HypotheticalNodes):
            for position in nodes.positions_changed_by(_has_volumes).tolist():
                changed.add(nodes.name(position))
                yield from ((position, problem) for problem in self._problems(nodes, position)[:1])
        for name in self._broken_nodes - changed:
            found = nodes.position(name)
            if found is not None:
                yield found, self._kept_problems(name)[0]

    def _problems(self, nodes: HypotheticalNodes, position: int) -> list[str]:
        change = nodes.change(position)
        kept = self._kept_problems(nodes.name(position), gone={pod.uid for pod in change.removed})
        row = int(nodes.row_numbers[position])
        added = (self._attached_by(pod, row)[1] for pod in change.added)
        return kept + [problem for problem in added if problem]

    def _kept_problems(self, node_name: str, gone: Collection[str] = ()) -> list[str]:
        """What is wrong with the pods on a node that are not ``gone`` (uids), in the order of these pods."""
        broken, row = self._node(node_name).broken, self._table.rows[node_name]
        return [broken[uid] for uid in self._table.pods[row] if uid in broken and uid not in gone] if broken else []

    def _delta(self, nodes: HypotheticalNodes, position: int, driver: str) -> int:
        """How the count of a driver changes with what is imagined of a row."""
        on_node = self._node(nodes.name(position))
        delta = 0
        for volume, by_pods in self._changes(nodes, position).items():
            if volume.driver == driver and volume not in on_node.by_attachments:
                before = on_node.by_pods[volume]
                delta += (before + by_pods > 0) - (before > 0)
        return delta

    def _changes(self, nodes: HypotheticalNodes, position: int) -> Counter[CSIVolume]:
        """By how many pods more or less each volume would be mounted on a row."""
        changes: Counter[CSIVolume] = Counter()
        row = int(nodes.row_numbers[position])
        for sign, pod in nodes.change(position).signed_pods():
            if pod.spec.volumes:
                for volume in self._attached_by(pod, row)[0]:
                    changes[volume] += sign
        return changes

    # -- pods come and go ----------------------------------------------------------------------------------------

    def add_pod(self, node_name: str, pod: PodInfo) -> None:
        """A pod is on a node."""
        holder = _Holder(node_name, pod)
        self._nodes.setdefault(node_name, _OnNode()).holders[pod.uid] = holder
        self._attach(holder)

    def remove_pod(self, node_name: str, pod: PodInfo) -> None:
        """A pod is no longer on its node."""
        self._detach(self._nodes[node_name].holders.pop(pod.uid))
        self._drop_if_empty(node_name)

    def refresh_node(self, row: int) -> None:
        """The node of a row or its CSINode is new, changed or gone: count what is attached to it afresh."""
        on_node = self._node(self._table.names[row])
        for driver, column in self._counts.items():
            column.values[row] = on_node.distinct(driver)
        for holder in list(on_node.holders.values()):
            self._look_again(holder)

    def refresh_dependents(self, dependency: Dependency) -> None:
        """An object behind volumes has changed: look again at those who depend on it."""
        for holder in list(self._dependents.get(dependency, {}).values()):
            self._look_again(holder)

    def count_attachment(self, node_name: str, volume: CSIVolume, sign: int) -> None:
        """A VolumeAttachment is there (+1) or gone (-1)."""
        on_node = self._nodes.setdefault(node_name, _OnNode())
        self._count(node_name, on_node.by_attachments, volume, sign)
        self._drop_if_empty(node_name)

    def _attach(self, holder: _Holder) -> None:
        row = self._table.rows[holder.node_name]
        uid, on_node = holder.pod.uid, self._nodes[holder.node_name]
        holder.volumes, problem = self._attached_by(holder.pod, row, holder.depends_on)
        for dependency in holder.depends_on:
            self._dependents.setdefault(dependency, {})[uid] = holder
        if problem:
            on_node.broken[uid] = problem
            self._broken_nodes.add(holder.node_name)
        for volume in holder.volumes:
            self._count(holder.node_name, on_node.by_pods, volume, +1)
            self._nodes_with.setdefault(volume, set()).add(holder.node_name)

    def _detach(self, holder: _Holder) -> None:
        uid, on_node = holder.pod.uid, self._nodes[holder.node_name]
        on_node.broken.pop(uid, None)
        if not on_node.broken:
            self._broken_nodes.discard(holder.node_name)
        for volume in holder.volumes:
            self._count(holder.node_name, on_node.by_pods, volume, -1)
            if volume not in on_node.by_pods:
                self._nodes_with[volume].discard(holder.node_name)
                if not self._nodes_with[volume]:
                    del self._nodes_with[volume]
        for dependency in holder.depends_on:
            dependents = self._dependents.get(dependency, {})
            if dependents.pop(uid, None) is not None and not dependents:
                del self._dependents[dependency]
        holder.depends_on.clear()

    def _look_again(self, holder: _Holder) -> None:
        self._detach(holder)
        self._attach(holder)

    def _attached_by(
        self, pod: PodInfo, row: int, depends_on: list[Dependency] | None = None
    ) -> tuple[set[CSIVolume], str]:
        """The volumes that a pod on a row has attached, and what is wrong with the rest, if anything."""
        volumes: set[CSIVolume] = set()
        for use in self._resolver.resolve(pod, (lambda _: None) if depends_on is None else depends_on.append):
            if use.missing or (use.in_tree and not self._csi_nodes.present[row]):
                continue
            if use.problem:
                return volumes, use.problem
            if use.volume is not None:
                volumes.add(use.volume)
        return volumes, ""

    # -- counting ------------------------------------------------------------------------------------------------

    def _count(self, node_name: str, counter: Counter[CSIVolume], volume: CSIVolume, sign: int) -> None:
        on_node = self._nodes[node_name]
        before = on_node.has(volume)
        counter[volume] += sign
        if not counter[volume]:
            del counter[volume]
        row = self._table.rows.get(node_name)
        column = self._counts.get(volume.driver)
        if row is not None and column is not None:
            column.values[row] += on_node.has(volume) - before

    def _column(self, driver: str) -> Column:
        column = self._counts.get(driver)
        if column is None:
            column = self._counts[driver] = self._table.columns.new(np.int64)
            for row, node_name in enumerate(self._table.names):
                column.values[row] = self._node(node_name).distinct(driver)
        return column

    def _node(self, node_name: str) -> _OnNode:
        return self._nodes.get(node_name) or _OnNode()

    def _drop_if_empty(self, node_name: str) -> None:
        on_node = self._nodes[node_name]
        if not on_node.holders and not on_node.by_attachments:
            del self._nodes[node_name]


def _has_volumes(pod: PodInfo) -> bool:
    return bool(pod.spec.volumes)


class VolumeAttachments:
    """Keeps count of VolumeAttachments, and of the volumes they name."""

    def __init__(self, counted_in: Attachments, volumes: Catalog[PersistentVolume]) -> None:
        self._counted_in = counted_in
        self._volumes = volumes
        self._by_volume: dict[str, dict[str, VolumeAttachment]] = {}
        self._counted: dict[str, tuple[str, CSIVolume]] = {}

    def changed(self, before: VolumeAttachment | None, after: VolumeAttachment | None) -> None:
        """A VolumeAttachment is new, changed or gone."""
        if before is not None:
            self._uncount(before)
            of_volume = self._by_volume[before.spec.source.persistent_volume_name or ""]
            del of_volume[before.metadata.name]
            if not of_volume:
                del self._by_volume[before.spec.source.persistent_volume_name or ""]
        if after is not None:
            of_volume = self._by_volume.setdefault(after.spec.source.persistent_volume_name or "", {})
            of_volume[after.metadata.name] = after
            self._count(after)

    def volume_changed(self, name: str) -> None:
        """A PersistentVolume is new, changed or gone."""
        for attachment in self._by_volume.get(name, {}).values():
            self._uncount(attachment)
            self._count(attachment)

    def _count(self, attachment: VolumeAttachment) -> None:
        volume = self._volumes.get("", attachment.spec.source.persistent_volume_name or "")
        if volume is not None and volume.spec.csi is not None and attachment.spec.attacher:
            counted = CSIVolume(attachment.spec.attacher, volume.spec.csi.volume_handle)
            self._counted[attachment.metadata.name] = (attachment.spec.node_name, counted)
            self._counted_in.count_attachment(attachment.spec.node_name, counted, +1)

    def _uncount(self, attachment: VolumeAttachment) -> None:
        counted = self._counted.pop(attachment.metadata.name, None)
        if counted is not None:
            self._counted_in.count_attachment(*counted, -1)
