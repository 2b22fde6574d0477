"""NodeVolumeLimits enforces the limits of CSI drivers on attached volumes (semantics 8.11).

The cluster cache counts the volumes that are attached to each node. The plugin determines which attachable volumes a
pod adds, and rejects the nodes where a driver would exceed the limit in its CSINode.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.api.storage import CSIDriver, CSINode, VolumeAttachment
from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.cluster.storage.attachments import CSIVolume
from kubestow.cluster.storage.csi import UNLIMITED, in_tree_plugin
from kubestow.cluster.storage.pod_volumes import claim_keys, is_claim_of_pod, keys_of_claim
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import (
    HintKeys,
    Invalidation,
    every_pod_if,
    for_every_pod,
    on,
    placed_pods,
)
from kubestow.framework.interface import FilterPlugin, Handle, PreFilterPlugin
from kubestow.framework.status import Status, Verdict
from kubestow.rules.minors import Behaviour

_MAX_VOLUME_COUNT_EXCEEDED = Status.unschedulable("node(s) exceed max volume count")
_DRIVER_NOT_INSTALLED = "{} CSI driver is not installed on the node"

_encode = msgspec.json.Encoder(order="deterministic").encode

Mask = NDArray[np.bool_]
#: The attachable volumes that a pod adds, each with the nodes where it counts (bool per node; None: on every node).
NewVolumes = dict[CSIVolume, Mask | None]


class NodeVolumeLimits(PreFilterPlugin, FilterPlugin):
    """Compares, driver by driver, the attached volumes plus those that the pod adds with the node's limit."""

    name = "NodeVolumeLimits"
    reads_requests = False
    label_keys = ()

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._volume_limit_scaling = handle.feature_enabled("VolumeLimitScaling")
        self._prevents_only_if_asked = handle.emulates(Behaviour.MISSING_DRIVERS_PREVENT_IF_ASKED)
        self._counts = placed_pods(handle, Behaviour.HINTS_LOOK_AT_NOMINATED_PODS)
        has_hints = handle.emulates(Behaviour.VOLUME_LIMIT_HINTS)
        node_events = Action.ADD
        if not handle.emulates(Behaviour.VOLUME_LIMITS_ARE_THOSE_OF_CSI_NODES):
            node_events |= Action.UPDATE_NODE_ALLOCATABLE
        self.events_to_register = (
            on(EventResource.CSI_NODE, Action.ADD, invalidates=Invalidation.ALL),
            on(
                EventResource.CSI_NODE,
                Action.UPDATE,
                invalidates=Invalidation.ALL,
                hint=for_every_pod(_has_greater_limit),
                hint_keys=every_pod_if(_has_greater_limit),
                requeues=has_hints,
            ),
            on(EventResource.POD, Action.ADD | Action.UPDATE, requeues=False),
            on(
                EventResource.POD,
                Action.DELETE,
                hint=for_every_pod(self._frees_volumes),
                hint_keys=every_pod_if(self._frees_volumes),
            ),
            on(EventResource.NODE, node_events, requeues=False),
            on(
                EventResource.PERSISTENT_VOLUME_CLAIM,
                Action.ADD,
                invalidates=Invalidation.ALL,
                hint=is_claim_of_pod,
                hint_keys=keys_of_claim,
            ),
            on(EventResource.PERSISTENT_VOLUME, Action.ALL, invalidates=Invalidation.ALL, requeues=False),
            on(EventResource.STORAGE_CLASS, Action.ALL, invalidates=Invalidation.ALL, requeues=False),
            on(EventResource.CSI_DRIVER, Action.ALL, invalidates=Invalidation.ALL, requeues=False),
            on(
                EventResource.VOLUME_ATTACHMENT,
                Action.DELETE,
                invalidates=Invalidation.ALL,
                hint=_is_schedulable_after_volume_attachment_deleted if has_hints else None,
                requeues=handle.emulates(Behaviour.ATTACHMENT_DELETIONS_REQUEUE),
            ),
        )

    def _frees_volumes(self, old: PodInfo, new: None) -> bool:
        """Whether a deleted pod was placed and had attachable volumes."""
        return self._counts(old) and _has_attachable_volumes(old.shape)

    def applies_to(self, pod: PodInfo) -> bool:
        """Pods with a PVC, ephemeral or migratable in-tree volume."""
        return _has_attachable_volumes(pod.shape)

    def signature(self, pod: PodInfo) -> Hashable | None:
        """The volumes. None with ephemeral volumes: their claims belong to one pod, so no result can be shared."""
        if any(volume.ephemeral is not None for volume in pod.spec.volumes):
            return None
        return pod.namespace, _encode(pod.spec.volumes)

    hint_signature = signature

    def hint_keys(self, pod: PodInfo) -> HintKeys:
        return claim_keys(pod)

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> None:
        """Nothing to prepare: the cluster cache counts the attached volumes."""

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        """The checks in kube-scheduler's order: the pod's volumes, drivers, the volumes of other pods, limits."""
        rejections = _Rejections(len(nodes))
        new_volumes = self._new_volumes(pod, nodes, rejections)
        if not new_volumes:
            return rejections.verdict()
        if self._volume_limit_scaling:
            self._reject_missing_drivers(new_volumes, nodes, rejections)
        self._reject_undetermined_volumes(new_volumes, nodes, rejections)
        for driver in sorted({volume.driver for volume in new_volumes}):
            rejections.add(self._exceeds_limit(driver, new_volumes, nodes), _MAX_VOLUME_COUNT_EXCEEDED)
        return rejections.verdict()

    def _new_volumes(self, pod: PodInfo, nodes: Nodes, rejections: _Rejections) -> NewVolumes:
        """The pod's attachable volumes; a volume that cannot be determined rejects the nodes where it counts."""
        new_volumes: NewVolumes = {}
        csi_nodes = self.handle.cluster.volumes.csi_nodes
        for use in self.handle.cluster.volumes.resolver.resolve(pod):
            counted_on = None if use.in_tree is None else csi_nodes.counts_as_csi(use.in_tree)[nodes.rows]
            if use.volume is not None:
                known = new_volumes.get(use.volume, counted_on)
                new_volumes[use.volume] = None if counted_on is None or known is None else counted_on | known
            else:
                status = Status.unresolvable(use.problem) if use.missing else Status.error(use.problem)
                rejections.add(np.ones(len(nodes), np.bool_) if counted_on is None else counted_on, status)
        return new_volumes

    def _reject_missing_drivers(self, new_volumes: NewVolumes, nodes: Nodes, rejections: _Rejections) -> None:
        """Rejects nodes without a driver whose CSIDriver has ``preventPodSchedulingIfMissing``; before, has or not."""
        drivers = self.handle.cluster.catalog(CSIDriver)
        for volume in sorted(new_volumes):
            driver = drivers.get("", volume.driver)
            if driver is None:
                continue
            if driver.spec.prevent_pod_scheduling_if_missing or not self._prevents_only_if_asked:
                missing: Mask = ~self.handle.cluster.volumes.csi_nodes.installed(volume.driver)[nodes.rows]
                counted_on = new_volumes[volume]
                status = Status.unschedulable(_DRIVER_NOT_INSTALLED.format(volume.driver))
                rejections.add(missing if counted_on is None else missing & counted_on, status)

    def _reject_undetermined_volumes(self, new_volumes: NewVolumes, nodes: Nodes, rejections: _Rejections) -> None:
        """On a node with limits, a pod whose volumes cannot be determined is an error for every pod with volumes."""
        problems = list(self.handle.cluster.volumes.attached.problems(nodes))
        if not problems:
            return
        limited = self.handle.cluster.volumes.csi_nodes.limited[nodes.rows]
        for position, problem in problems:
            counts = any(counted_on is None or counted_on[position] for counted_on in new_volumes.values())
            if limited[position] and counts:
                rejected = np.zeros(len(nodes), np.bool_)
                rejected[position] = True
                rejections.add(rejected, Status.error(problem))

    def _exceeds_limit(self, driver: str, new_volumes: NewVolumes, nodes: Nodes) -> Mask:
        """Where the attached and the new volumes of a driver together exceed its limit, bool per node."""
        attachments = self.handle.cluster.volumes.attached
        limits: NDArray[np.int64] = self.handle.cluster.volumes.csi_nodes.limit(driver)[nodes.rows]
        if (limits == UNLIMITED).all():
            return np.zeros(len(nodes), np.bool_)
        added: int | NDArray[np.int64] = 0
        for volume, counted_on in new_volumes.items():
            if volume.driver == driver:
                attached = attachments.mounted(nodes, volume)
                counts = True if counted_on is None else counted_on
                added = added + (counts if attached is None else counts & ~attached)
        # QUIRK: a pod that adds no volume of the driver passes even on a node above the limit.
        return (attachments.count(nodes, driver) + added > limits) & np.greater(added, 0)


class _Rejections:
    """Collects rejections of nodes; the first status of a node stays."""

    def __init__(self, size: int) -> None:
        #: Per node 0, or one more than the position of its status; int32.
        self._keys = np.zeros(size, np.int32)
        self._statuses: list[Status] = []

    def add(self, where: Mask, status: Status) -> None:
        new = where & (self._keys == 0)
        if new.any():
            if status not in self._statuses:
                self._statuses.append(status)
            self._keys[new] = self._statuses.index(status) + 1

    def verdict(self) -> Verdict | None:
        """None when every node passes."""
        return Verdict.of(self._keys, dict(enumerate(self._statuses, 1))) if self._statuses else None


# -- queueing hints --------------------------------------------------------------------------------------------------


def _has_greater_limit(old: CSINode, new: CSINode) -> bool:
    """Whether the limit of some driver grew; a missing limit counts as 0."""
    old_limits = _limits(old)
    return any(limit > old_limits.get(driver, 0) for driver, limit in _limits(new).items())


def _limits(csi_node: CSINode) -> dict[str, int]:
    allocatable = ((driver.name, driver.allocatable) for driver in csi_node.spec.drivers)
    return {name: found.count or 0 for name, found in allocatable if found is not None}


def _has_attachable_volumes(shape: Shape) -> bool:
    return any(
        volume.persistent_volume_claim is not None or volume.ephemeral is not None or in_tree_plugin(volume) is not None
        for volume in shape.spec.volumes
    )


def _is_schedulable_after_volume_attachment_deleted(pod: PodInfo, old: VolumeAttachment, new: None) -> bool:
    """Whether the pod has a claim volume, or an inline volume of the driver that detached one."""
    if any(volume.persistent_volume_claim is not None for volume in pod.spec.volumes):
        return True
    plugins = (in_tree_plugin(volume) for volume in pod.spec.volumes)
    return any(plugin is not None and plugin.driver == old.spec.attacher for plugin in plugins)
