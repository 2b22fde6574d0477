"""NodeVolumeLimits keeps a node from having more volumes attached than its CSI drivers can attach (semantics 8.11)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.api.storage import CSIDriver, CSINode, PersistentVolumeClaim, VolumeAttachment
from kubestow.cluster.events import Action, EventResource
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.cluster.storage.attachable_volumes import Attachable
from kubestow.cluster.storage.csi_migration import in_tree_plugin
from kubestow.cluster.storage.csi_nodes import UNLIMITED
from kubestow.cluster.storage.pod_volumes import claims_of
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import Invalidation, on
from kubestow.framework.interface import FilterPlugin, Handle, PreFilterPlugin
from kubestow.framework.status import Status, Verdict

__all__ = ["NodeVolumeLimits"]

_EXCEEDED = Status.unschedulable("node(s) exceed max volume count")

_encode = msgspec.json.Encoder(order="deterministic").encode

Mask = NDArray[np.bool_]


class NodeVolumeLimits(PreFilterPlugin, FilterPlugin):
    """Counts the volumes that the pod would add to those attached, driver by driver."""

    name = "NodeVolumeLimits"
    events_to_register = (
        on(EventResource.CSI_NODE, Action.ADD, invalidates=Invalidation.ALL),
        on(
            EventResource.CSI_NODE,
            Action.UPDATE,
            invalidates=Invalidation.ALL,
            hint=lambda _, old, new: _grew(old, new),
        ),
        on(EventResource.POD, Action.ADD | Action.UPDATE, requeues=False),
        on(EventResource.POD, Action.DELETE, hint=lambda _, old, new: _left_with_volumes(old)),
        on(EventResource.NODE, Action.ADD, requeues=False),
        on(
            EventResource.PERSISTENT_VOLUME_CLAIM,
            Action.ADD,
            invalidates=Invalidation.ALL,
            hint=lambda pod, old, new: _is_wanted(pod, new),
        ),
        on(EventResource.PERSISTENT_VOLUME, Action.ALL, invalidates=Invalidation.ALL, requeues=False),
        on(EventResource.STORAGE_CLASS, Action.ALL, invalidates=Invalidation.ALL, requeues=False),
        on(EventResource.CSI_DRIVER, Action.ALL, invalidates=Invalidation.ALL, requeues=False),
        on(
            EventResource.VOLUME_ATTACHMENT,
            Action.DELETE,
            invalidates=Invalidation.ALL,
            hint=lambda pod, old, new: _may_free_a_place(pod, old),
        ),
    )

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._refuses_missing_drivers = handle.feature_enabled("VolumeLimitScaling")

    def applies_to(self, pod: PodInfo) -> bool:
        """Pods with volumes that may have to be attached."""
        return _has_attachable_volumes(pod.shape)

    def signature(self, pod: PodInfo) -> Hashable | None:
        """The volumes. An ephemeral one's claim is the pod's own, so then nothing is shared."""
        if any(volume.ephemeral is not None for volume in pod.spec.volumes):
            return None
        return pod.namespace, _encode(pod.spec.volumes)

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        """Nothing to prepare: the attached volumes are counted already."""
        return None

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        """First what is wrong with the pod's own volumes, then with drivers, then with those of others, then limits."""
        refusals = _Refusals(len(nodes))
        new = self._new_volumes(pod, nodes, refusals)
        if not new:
            return refusals.verdict()
        if self._refuses_missing_drivers:
            self._refuse_missing_drivers(new, nodes, refusals)
        self._refuse_unaccountable(new, nodes, refusals)
        for driver in sorted({volume.driver for volume in new}):
            refusals.add(self._exceeds(driver, new, nodes), _EXCEEDED)
        return refusals.verdict()

    def _new_volumes(self, pod: PodInfo, nodes: Nodes, refusals: _Refusals) -> dict[Attachable, Mask | None]:
        """The pod's volumes, each with where it counts (None: everywhere)."""
        new: dict[Attachable, Mask | None] = {}
        for use in self.handle.cluster.volumes.uses.of(pod):
            where = self.handle.cluster.volumes.csi_nodes.present[nodes.rows] if use.in_tree else None
            if use.volume is not None:
                known = new.get(use.volume, where)
                new[use.volume] = None if where is None or known is None else where | known
            else:
                status = Status.unresolvable(use.problem) if use.missing else Status.error(use.problem)
                refusals.add(np.ones(len(nodes), np.bool_) if where is None else where, status)
        return new

    def _refuse_missing_drivers(self, new: dict[Attachable, Mask | None], nodes: Nodes, refusals: _Refusals) -> None:
        drivers = self.handle.cluster.catalog(CSIDriver)
        for volume in sorted(new):
            driver = drivers.get("", volume.driver)
            if driver is not None and driver.spec.prevent_pod_scheduling_if_missing:
                missing: Mask = ~self.handle.cluster.volumes.csi_nodes.installed(volume.driver)[nodes.rows]
                where = new[volume]
                status = Status.unschedulable(f"{volume.driver} CSI driver is not installed on the node")
                refusals.add(missing if where is None else missing & where, status)

    def _refuse_unaccountable(self, new: dict[Attachable, Mask | None], nodes: Nodes, refusals: _Refusals) -> None:
        """On a node with limits, a pod whose volumes cannot be made out is an error for everybody with volumes."""
        problems = list(self.handle.cluster.volumes.attachments.problems(nodes))
        if not problems:
            return
        limited = self.handle.cluster.volumes.csi_nodes.limited[nodes.rows]
        for position, problem in problems:
            counts = any(where is None or where[position] for where in new.values())
            if limited[position] and counts:
                here = np.zeros(len(nodes), np.bool_)
                here[position] = True
                refusals.add(here, Status.error(problem))

    def _exceeds(self, driver: str, new: dict[Attachable, Mask | None], nodes: Nodes) -> Mask:
        attachments, limit = (
            self.handle.cluster.volumes.attachments,
            self.handle.cluster.volumes.csi_nodes.limit(driver),
        )
        limits: NDArray[np.int64] = limit[nodes.rows]
        if (limits == UNLIMITED).all():
            return np.zeros(len(nodes), np.bool_)
        more: int | NDArray[np.int64] = 0
        for volume, where in new.items():
            if volume.driver == driver:
                held = attachments.held(nodes, volume)
                adds = True if where is None else where
                more = more + (adds if held is None else adds & ~held)
        # QUIRK: a pod that adds nothing is welcome on a node that is over its limit already.
        return (attachments.count(nodes, driver) + more > limits) & np.greater(more, 0)


class _Refusals:
    """Collects refusals of rows; the first of a row stays."""

    def __init__(self, rows: int) -> None:
        self._keys = np.zeros(rows, np.int32)
        self._statuses: list[Status] = []

    def add(self, where: Mask, status: Status) -> None:
        fresh = where & (self._keys == 0)
        if fresh.any():
            if status not in self._statuses:
                self._statuses.append(status)
            self._keys[fresh] = self._statuses.index(status) + 1

    def verdict(self) -> Verdict | None:
        if not self._statuses:
            return None
        return Verdict.of(self._keys, dict(enumerate(self._statuses, 1)))


# -- queueing hints ------------------------------------------------------------------------------------------------


def _has_attachable_volumes(shape: Shape) -> bool:
    return any(
        volume.persistent_volume_claim is not None or volume.ephemeral is not None or in_tree_plugin(volume) is not None
        for volume in shape.spec.volumes
    )


def _left_with_volumes(old: PodInfo) -> bool:
    placed = old.spec.node_name or old.status.nominated_node_name
    return bool(placed) and _has_attachable_volumes(old.shape)


def _is_wanted(pod: PodInfo, claim: PersistentVolumeClaim) -> bool:
    wanted = [wanted.name for wanted in claims_of(pod)]
    return claim.metadata.namespace == pod.namespace and claim.metadata.name in wanted


def _may_free_a_place(pod: PodInfo, old: VolumeAttachment) -> bool:
    inline: Sequence[Any] = [in_tree_plugin(volume) for volume in pod.spec.volumes]
    return any(volume.persistent_volume_claim is not None for volume in pod.spec.volumes) or any(
        plugin is not None and plugin.driver == old.spec.attacher for plugin in inline
    )


def _grew(old: CSINode, new: CSINode) -> bool:
    before = _limits(old)
    return any(count > before.get(driver, 0) for driver, count in _limits(new).items())


def _limits(csi_node: CSINode) -> dict[str, int]:
    allocatable = ((driver.name, driver.allocatable) for driver in csi_node.spec.drivers)
    return {name: found.count or 0 for name, found in allocatable if found is not None}
