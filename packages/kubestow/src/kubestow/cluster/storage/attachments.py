"""Volumes attached to nodes, counted per CSI driver (semantics 8.11).

A volume counts once per node, however many pods mount it there; one with a VolumeAttachment counts even if no pod does.
The volumes of a pod are resolved when the pod is placed, and each again only when its claim, the claim's volume or
storage class, or the node's CSINode changes. Placing or removing a pod costs as much as its own volumes, and a change
of a claim as much as the pods that use it, however many other claims they have.

The CSI volumes of a pod: for each of its volumes the driver that attaches it, and the driver's handle.

A claim is resolved through its PersistentVolume, one that is not bound yet through its storage class's provisioner, and
an in-tree volume through the CSI driver that its plugin has been migrated to (semantics 8.11).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import Volume
from kubestow.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeAttachment
from kubestow.cluster.changes.catalog import Catalog
from kubestow.cluster.nodes.columns import Column
from kubestow.cluster.nodes.table import NodeTable
from kubestow.cluster.nodes.views import HypotheticalNodes, Nodes
from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.cluster.storage.csi import CSINodes, InTreePlugin, in_tree_plugin, plugin_named, volume_handle
from kubestow.cluster.storage.pod_volumes import PodClaim, claim_of
from kubestow.errors import InvalidObject
from kubestow.rules.claims import ownership_problem

#: An object that a result depends on: ("claim", namespace, name), ("volume", name) or ("class", name).
Dependency = tuple[str, ...]


#: A volume of a pod, or the claim that it names.
VolumeUse = Volume | PodClaim


class CSIVolume(NamedTuple):
    """A volume by its CSI driver and the driver's handle."""

    driver: str
    handle: str


@dataclass(frozen=True, slots=True)
class ResolvedVolume:
    """A volume of a pod, or the ``problem`` with it; ``missing`` means that the problem is a claim that does not exist.

    One of an in-tree plugin (``in_tree``) counts only on nodes where that has been migrated
    (:meth:`CSINodes.counts_as_csi`).
    """

    volume: CSIVolume | None = None
    in_tree: InTreePlugin | None = None
    problem: str = ""
    missing: bool = False


def volume_uses(pod: PodInfo) -> Sequence[VolumeUse]:
    """The volumes of a pod, in order, each claim once however many volumes name it."""
    if not pod.spec.volumes:
        return ()
    claims = (claim_of(pod, volume) for volume in pod.spec.volumes)
    uses = (volume if claim is None else claim for volume, claim in zip(pod.spec.volumes, claims, strict=True))
    return list({id(use) if isinstance(use, Volume) else use: use for use in uses}.values())


class PodVolumeResolver:
    """Resolves the volumes of pods."""

    def __init__(
        self,
        claims: Catalog[PersistentVolumeClaim],
        volumes: Catalog[PersistentVolume],
        classes: Catalog[StorageClass],
    ) -> None:
        self._claims, self._volumes, self._classes = claims, volumes, classes

    def resolve(self, pod: PodInfo) -> Iterator[ResolvedVolume]:
        """The volumes of a pod, in order, without those that are never attached."""
        for use in volume_uses(pod):
            resolved, _ = self.resolve_use(pod, use)
            if resolved is not None:
                yield resolved

    def resolve_use(self, pod: PodInfo, use: VolumeUse) -> tuple[ResolvedVolume | None, Sequence[Dependency]]:
        """One of the volumes of a pod, None if it is never attached; and the objects that the result depends on."""
        if isinstance(use, Volume):
            return _resolve_inline(use), ()
        depends_on: list[Dependency] = []
        return self._resolve_claim(pod, use, depends_on.append), depends_on

    def _resolve_claim(
        self, pod: PodInfo, pod_claim: PodClaim, record_dependency: Callable[[Dependency], object]
    ) -> ResolvedVolume | None:
        if not pod_claim.name:
            return ResolvedVolume(problem="PersistentVolumeClaim had no name")
        record_dependency(("claim", pod.namespace, pod_claim.name))
        claim = self._claims.get(pod.namespace, pod_claim.name)
        if claim is None:
            not_found = f'persistentvolumeclaim "{pod_claim.name}" not found'
            return ResolvedVolume(problem=f"looking up PVC {pod.namespace}/{pod_claim.name}: {not_found}", missing=True)
        if pod_claim.ephemeral and (problem := ownership_problem(claim, pod=pod.key, pod_uid=pod.uid)):
            return ResolvedVolume(problem=problem)
        if claim.spec.volume_name:
            record_dependency(("volume", claim.spec.volume_name))
            volume = self._volumes.get("", claim.spec.volume_name)
            if volume is not None:
                return _resolve_persistent(volume)
        record_dependency(("class", claim.storage_class))
        return self._resolve_unbound(claim)

    def _resolve_unbound(self, claim: PersistentVolumeClaim) -> ResolvedVolume | None:
        """A claim without a volume counts as one volume of the driver that would provision it."""
        storage_class = self._classes.get("", claim.storage_class)
        if storage_class is None or not storage_class.provisioner:
            return None
        handle = f"claim {claim.key}"
        plugin = plugin_named(storage_class.provisioner)
        if plugin is None:
            return ResolvedVolume(CSIVolume(storage_class.provisioner, handle))
        return ResolvedVolume(CSIVolume(plugin.driver, handle), in_tree=plugin) if plugin.migrates else None


def _resolve_inline(volume: Volume) -> ResolvedVolume | None:
    plugin = in_tree_plugin(volume)
    if plugin is None or not plugin.migrates:
        return None
    try:
        return ResolvedVolume(CSIVolume(plugin.driver, volume_handle(plugin, volume)), in_tree=plugin)
    except InvalidObject as error:
        return ResolvedVolume(problem=f"converting volume({volume.name}) from inline to csi: {error}", in_tree=plugin)


def _resolve_persistent(volume: PersistentVolume) -> ResolvedVolume | None:
    csi = volume.spec.csi
    if csi is not None:
        return ResolvedVolume(CSIVolume(csi.driver, csi.volume_handle)) if csi.driver and csi.volume_handle else None
    plugin = in_tree_plugin(volume.spec)
    if plugin is None or not plugin.migrates:
        return None
    try:
        handle = volume_handle(plugin, volume.spec, volume.metadata.labels)
    except InvalidObject:
        return None  # a volume that cannot be translated does not count
    return ResolvedVolume(CSIVolume(plugin.driver, handle), in_tree=plugin) if handle else None


Mask = NDArray[np.bool_]


@dataclass(slots=True)
class _PodAttachments:
    """A pod on a node, the volumes that it uses, and what was found of each.

    The lists have an entry per use: ``found`` is the volume that is attached, None for none, or the text of a problem;
    ``depends_on`` are the objects that it was resolved from. Only what is found before the first problem counts: the
    first ``counted`` uses, which have these ``volumes``, each with the number of uses.
    """

    node_name: str
    pod: PodInfo
    uses: Sequence[VolumeUse]
    found: list[CSIVolume | str | None]
    depends_on: list[Sequence[Dependency]]
    counted: int = 0
    volumes: dict[CSIVolume, int] = field(default_factory=dict)


@dataclass(slots=True)
class _NodeAttachments:
    """The volumes attached to a node: the number of pods and of VolumeAttachments of each, and the pods by uid.

    ``problems`` are those of pods whose volumes cannot be resolved, by uid.
    """

    by_pods: Counter[CSIVolume] = field(default_factory=Counter)
    by_attachments: Counter[CSIVolume] = field(default_factory=Counter)
    pods: dict[str, _PodAttachments] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)

    def has(self, volume: CSIVolume) -> bool:
        return volume in self.by_pods or volume in self.by_attachments

    def distinct(self, driver: str) -> int:
        return sum(volume.driver == driver for volume in self.by_pods.keys() | self.by_attachments.keys())


class AttachedVolumes:
    """The volumes attached to the nodes of a table.

    VolumeAttachments may name nodes that are unknown; pods are always on known ones.
    """

    def __init__(self, table: NodeTable, resolver: PodVolumeResolver, csi_nodes: CSINodes) -> None:
        self._table = table
        self._resolver = resolver
        self._csi_nodes = csi_nodes
        self._counts: dict[str, Column] = {}
        self._nodes: dict[str, _NodeAttachments] = {}
        self._nodes_with: dict[CSIVolume, set[str]] = {}
        self._nodes_with_problems: set[str] = set()
        #: By the uid of the pod and the position of the use that depends on an object.
        self._dependents: dict[Dependency, dict[tuple[str, int], _PodAttachments]] = {}

    # -- reading -------------------------------------------------------------------------------------------------

    def count(self, nodes: Nodes, driver: str) -> NDArray[np.int64]:
        """The number of attached volumes of a driver, int64 per row of the view."""
        attached: NDArray[np.int64] = self._column(driver).values[nodes.rows]
        if isinstance(nodes, HypotheticalNodes):
            attached = attached.copy()
            for position in nodes.positions_changed_by(_has_volumes).tolist():
                attached[position] += self._delta(nodes, position, driver)
        return attached

    def mounted(self, nodes: Nodes, volume: CSIVolume) -> Mask | None:
        """Where a placed pod mounts a volume, bool per row of the view; None for nowhere."""
        rows = [self._table.rows[name] for name in self._nodes_with.get(volume, ())]
        if not rows and not isinstance(nodes, HypotheticalNodes):
            return None
        everywhere = np.zeros(len(self._table), np.bool_)
        everywhere[rows] = True
        mounted: Mask = everywhere[nodes.rows]
        if isinstance(nodes, HypotheticalNodes):
            mounted = mounted.copy()
            for position in nodes.positions_changed_by(_has_volumes).tolist():
                by_pods = self._node(nodes.name(position)).by_pods[volume]
                mounted[position] = by_pods + self._changes(nodes, position)[volume] > 0
        return mounted

    def problems(self, nodes: Nodes) -> Iterator[tuple[int, str]]:
        """The positions of nodes with a pod whose volumes cannot be resolved, each with the first such problem."""
        changed: set[str] = set()
        if isinstance(nodes, HypotheticalNodes):
            for position in nodes.positions_changed_by(_has_volumes).tolist():
                changed.add(nodes.name(position))
                change, row = nodes.change(position), int(nodes.row_numbers[position])
                kept = self._kept_problems(nodes.name(position), removed={pod.uid for pod in change.removed})
                added = (self._attached_by(pod, row)[1] for pod in change.added)
                first = next((problem for problem in (*kept, *added) if problem), None)
                if first is not None:
                    yield position, first
        for name in self._nodes_with_problems - changed:
            found = nodes.position(name)
            if found is not None:
                yield found, self._kept_problems(name)[0]

    def _kept_problems(self, node_name: str, removed: Collection[str] = ()) -> list[str]:
        """The problems of the pods on a node that are not ``removed`` (uids), in the order of the pods."""
        problems = self._node(node_name).problems
        kept = problems.keys() - removed
        return [problems[uid] for uid in self._table.pods[self._table.rows[node_name]] if uid in kept] if kept else []

    def _delta(self, nodes: HypotheticalNodes, position: int, driver: str) -> int:
        """The change of a driver's count by the hypothetical change of a row."""
        on_node = self._node(nodes.name(position))
        delta = 0
        for volume, by_pods in self._changes(nodes, position).items():
            if volume.driver == driver and volume not in on_node.by_attachments:
                before = on_node.by_pods[volume]
                delta += (before + by_pods > 0) - (before > 0)
        return delta

    def _changes(self, nodes: HypotheticalNodes, position: int) -> Counter[CSIVolume]:
        """The change of the number of pods that mount each volume, by the hypothetical change of a row."""
        changes: Counter[CSIVolume] = Counter()
        row = int(nodes.row_numbers[position])
        for sign, pod in nodes.change(position).signed_pods():
            if pod.spec.volumes:
                for volume in self._attached_by(pod, row)[0]:
                    changes[volume] += sign
        return changes

    # -- changes --------------------------------------------------------------------------------------------------

    def add_pod(self, node_name: str, pod: PodInfo) -> None:
        """Count the volumes of a pod that was added to a node."""
        self._attach(node_name, pod)

    def remove_pod(self, node_name: str, pod: PodInfo) -> None:
        """Stop counting the volumes of a pod that was removed from its node."""
        self._detach(self._nodes[node_name].pods[pod.uid])
        self._drop_if_empty(node_name)

    def refresh_node(self, row: int) -> None:
        """Recount the volumes of a node after it was added, or its CSINode added, changed or deleted."""
        on_node = self._node(self._table.names[row])
        for driver, column in self._counts.items():
            column.values[row] = on_node.distinct(driver)
        for attachments in list(on_node.pods.values()):
            self._detach(attachments)
            self._attach(attachments.node_name, attachments.pod)

    def refresh_dependents(self, dependency: Dependency) -> None:
        """Resolve the volumes again that depend on an object that has changed."""
        for (_, position), attachments in list(self._dependents.get(dependency, {}).items()):
            self._resolve_again(attachments, position)

    def count_attachment(self, node_name: str, volume: CSIVolume, sign: int) -> None:
        """Count a VolumeAttachment that was added (+1) or removed (-1)."""
        on_node = self._nodes.setdefault(node_name, _NodeAttachments())
        self._count(node_name, on_node.by_attachments, volume, sign)
        self._drop_if_empty(node_name)

    def _attach(self, node_name: str, pod: PodInfo) -> None:
        uses, row = volume_uses(pod), self._table.rows[node_name]
        attachments = _PodAttachments(node_name, pod, uses, [], [])
        self._nodes.setdefault(node_name, _NodeAttachments()).pods[pod.uid] = attachments
        for position, use in enumerate(uses):
            resolved, depends_on = self._resolver.resolve_use(pod, use)
            attachments.found.append(self._found(resolved, row))
            attachments.depends_on.append(depends_on)
            self._add_dependent(attachments, position)
        self._count_on(attachments)

    def _detach(self, attachments: _PodAttachments) -> None:
        uid, on_node = attachments.pod.uid, self._nodes[attachments.node_name]
        del on_node.pods[uid]
        self._set_problem(attachments, None)
        for volume in attachments.volumes:
            self._uncount_volume(attachments.node_name, volume)
        for position in range(len(attachments.uses)):
            self._remove_dependent(attachments, position)

    def _resolve_again(self, attachments: _PodAttachments, position: int) -> None:
        """Resolve one use of a pod again."""
        row = self._table.rows[attachments.node_name]
        resolved, depends_on = self._resolver.resolve_use(attachments.pod, attachments.uses[position])
        if depends_on != attachments.depends_on[position]:
            self._remove_dependent(attachments, position)
            attachments.depends_on[position] = depends_on
            self._add_dependent(attachments, position)
        before, now = attachments.found[position], self._found(resolved, row)
        if now == before:
            return
        attachments.found[position] = now
        if position > attachments.counted:
            return  # behind a problem
        if isinstance(now, str):
            counted, attachments.counted = attachments.counted, position
            uncounted = [before, *attachments.found[position + 1 : counted]] if position < counted else []
            for volume in uncounted:
                self._count_use(attachments, volume, -1)
            self._set_problem(attachments, now)
        elif position == attachments.counted:  # the problem is solved
            self._set_problem(attachments, None)
            self._count_on(attachments)
        else:
            self._count_use(attachments, before, -1)
            self._count_use(attachments, now, +1)

    def _add_dependent(self, attachments: _PodAttachments, position: int) -> None:
        for dependency in attachments.depends_on[position]:
            self._dependents.setdefault(dependency, {})[attachments.pod.uid, position] = attachments

    def _remove_dependent(self, attachments: _PodAttachments, position: int) -> None:
        for dependency in attachments.depends_on[position]:
            dependents = self._dependents[dependency]
            del dependents[attachments.pod.uid, position]
            if not dependents:
                del self._dependents[dependency]

    def _found(self, resolved: ResolvedVolume | None, row: int) -> CSIVolume | str | None:
        """What counts on a row of a resolved volume: the volume, a problem, or nothing."""
        if resolved is None or resolved.missing:
            return None
        if resolved.in_tree is not None and not self._csi_nodes.counts_as_csi(resolved.in_tree)[row]:
            return None
        return resolved.problem or resolved.volume

    def _attached_by(self, pod: PodInfo, row: int) -> tuple[set[CSIVolume], str]:
        """The volumes that a pod attaches to a node, and the problem that ends the list, if there is one."""
        volumes: set[CSIVolume] = set()
        for resolved in self._resolver.resolve(pod):
            found = self._found(resolved, row)
            if isinstance(found, str):
                return volumes, found
            if found is not None:
                volumes.add(found)
        return volumes, ""

    # -- counting ------------------------------------------------------------------------------------------------

    def _count_on(self, attachments: _PodAttachments) -> None:
        """Count the uses of a pod that are not counted yet, up to the next problem."""
        while attachments.counted < len(attachments.found):
            found = attachments.found[attachments.counted]
            if isinstance(found, str):
                self._set_problem(attachments, found)
                return
            self._count_use(attachments, found, +1)
            attachments.counted += 1

    def _count_use(self, attachments: _PodAttachments, volume: CSIVolume | str | None, sign: int) -> None:
        """Count one use of a volume by a pod; nothing if ``volume`` is not one."""
        if not isinstance(volume, CSIVolume):
            return
        node_name, volumes = attachments.node_name, attachments.volumes
        uses = volumes[volume] = volumes.get(volume, 0) + sign
        if not uses:
            del volumes[volume]
            self._uncount_volume(node_name, volume)
        elif sign > 0 and uses == 1:
            self._count(node_name, self._nodes[node_name].by_pods, volume, +1)
            self._nodes_with.setdefault(volume, set()).add(node_name)

    def _uncount_volume(self, node_name: str, volume: CSIVolume) -> None:
        """Count one pod less that uses a volume."""
        by_pods = self._nodes[node_name].by_pods
        self._count(node_name, by_pods, volume, -1)
        if volume not in by_pods:
            self._nodes_with[volume].discard(node_name)
            if not self._nodes_with[volume]:
                del self._nodes_with[volume]

    def _set_problem(self, attachments: _PodAttachments, problem: str | None) -> None:
        problems, node_name = self._nodes[attachments.node_name].problems, attachments.node_name
        if problem is None:
            problems.pop(attachments.pod.uid, None)
        else:
            problems[attachments.pod.uid] = problem
        if problems:
            self._nodes_with_problems.add(node_name)
        else:
            self._nodes_with_problems.discard(node_name)

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

    def _node(self, node_name: str) -> _NodeAttachments:
        return self._nodes.get(node_name) or _NodeAttachments()

    def _drop_if_empty(self, node_name: str) -> None:
        on_node = self._nodes[node_name]
        if not on_node.pods and not on_node.by_attachments:
            del self._nodes[node_name]


def _has_volumes(shape: Shape) -> bool:
    return bool(shape.spec.volumes)


class VolumeAttachments:
    """Counts VolumeAttachments in :class:`AttachedVolumes`, by the CSI volumes of the PersistentVolumes they name."""

    def __init__(self, counted_in: AttachedVolumes, volumes: Catalog[PersistentVolume]) -> None:
        self._counted_in = counted_in
        self._volumes = volumes
        self._by_volume: dict[str, dict[str, VolumeAttachment]] = {}
        self._counted: dict[str, tuple[str, CSIVolume]] = {}

    def changed(self, before: VolumeAttachment | None, after: VolumeAttachment | None) -> None:
        """A VolumeAttachment has been added, changed or deleted."""
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
        """A PersistentVolume has been added, changed or deleted."""
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
