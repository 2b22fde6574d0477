"""VolumeRestrictions rejects pods whose volumes are in use and cannot be shared (semantics 8.11).

Legacy disks conflict with those of pods on the same node, ReadWriteOncePod claims with those of pods on any node.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kubestow.api.storage import READ_WRITE_ONCE_POD, PersistentVolumeClaim
from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.nodes.views import HypotheticalNodes, Nodes
from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.cluster.storage.pod_volumes import Disk, claim_keys, claim_names, disks_of, is_claim_named, keys_of_claim
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import HintKeys, Invalidation, on
from kubestow.framework.interface import FilterPlugin, Handle, PreFilterPlugin
from kubestow.framework.status import Status, Verdict
from kubestow.rules.minors import Behaviour

_REASON_DISK_CONFLICT = "node(s) had no available disk"
_REASON_READ_WRITE_ONCE_POD_CONFLICT = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
#: The reason before :attr:`Behaviour.READ_WRITE_ONCE_POD_REASON_IS_USE`.
_FORMER_READ_WRITE_ONCE_POD_REASON = (
    "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
)

#: Verdict keys.
_DISK_CONFLICT, _READ_WRITE_ONCE_POD_CONFLICT = 1, 2


@dataclass(frozen=True, slots=True)
class _ReadWriteOncePodClaims:
    """The names of the pod's ReadWriteOncePod claims, and how many of these claims existing pods use."""

    names: frozenset[str]
    conflicts: int

    def used_by(self, shape: Shape) -> int:
        """How many of the claims a pod uses. QUIRK (semantics 8.11): simulations compare claims by name only."""
        return sum(name in self.names for name in claim_names(shape))


class VolumeRestrictions(PreFilterPlugin, FilterPlugin):
    """Compares legacy disks with those of the pods on the node, ReadWriteOncePod claims with those of all pods."""

    name = "VolumeRestrictions"
    reads_requests = False
    label_keys = ()
    missing_pre_filter_error = 'cannot read "PreFilterVolumeRestrictions" from cycleState'

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        reason = (
            _REASON_READ_WRITE_ONCE_POD_CONFLICT
            if handle.emulates(Behaviour.READ_WRITE_ONCE_POD_REASON_IS_USE)
            else _FORMER_READ_WRITE_ONCE_POD_REASON
        )
        self._statuses = {
            _DISK_CONFLICT: Status.unschedulable(_REASON_DISK_CONFLICT),
            _READ_WRITE_ONCE_POD_CONFLICT: Status.unschedulable(reason),
        }
        # A ReadWriteOncePod claim in use conflicts on every node, so pod events invalidate all rows.
        self.events_to_register = (
            on(EventResource.POD, Action.ADD | Action.UPDATE, invalidates=Invalidation.ALL, requeues=False),
            on(
                EventResource.POD,
                Action.DELETE,
                invalidates=Invalidation.ALL,
                hint=_is_schedulable_after_pod_deleted,
                hint_keys=_keys_of_deleted_pod,
            ),
            on(EventResource.NODE, Action.ADD),
            on(
                EventResource.PERSISTENT_VOLUME_CLAIM,
                Action.ADD,
                invalidates=Invalidation.ALL,
                hint=is_claim_named,
                hint_keys=keys_of_claim,
            ),
        )

    def applies_to(self, pod: PodInfo) -> bool:
        """Pods with PersistentVolumeClaim volumes or legacy disks."""
        return bool(claim_names(pod.shape) or disks_of(pod.shape))

    def signature(self, pod: PodInfo) -> Hashable:
        """The claims and the disks."""
        return pod.namespace, tuple(claim_names(pod.shape)), tuple(disks_of(pod.shape))

    hint_signature = signature

    def hint_keys(self, pod: PodInfo) -> HintKeys:
        """The claims and the disks."""
        return (*claim_keys(pod), *_keys_of_disks(pod))

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        """Skips pods without legacy disks whose ReadWriteOncePod claims are not in use."""
        claims = self.handle.cluster.catalog(PersistentVolumeClaim)
        names = set()
        for name in claim_names(pod.shape):
            claim = claims.get(pod.namespace, name)
            if claim is None:
                return Status.unresolvable(f'persistentvolumeclaim "{name}" not found')
            if READ_WRITE_ONCE_POD in claim.spec.access_modes:
                names.add(name)
        mounts = self.handle.cluster.volumes.in_use
        conflicts = sum(mounts.is_claim_used(pod.namespace, name) for name in names)
        if not conflicts and not disks_of(pod.shape):
            return Status.skip()
        state.put(_ReadWriteOncePodClaims(frozenset(names), conflicts))
        return None

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        """Reports a disk conflict before a ReadWriteOncePod conflict."""
        claims = state[_ReadWriteOncePodClaims]
        conflicts = np.full(len(nodes), claims.conflicts)
        if isinstance(nodes, HypotheticalNodes):
            conflicts += nodes.sum_of_changes(claims.used_by)
        keys: NDArray[np.int32] = (conflicts > 0).astype(np.int32) * _READ_WRITE_ONCE_POD_CONFLICT
        keys[self.handle.cluster.volumes.in_use.conflicts(nodes, disks_of(pod.shape))] = _DISK_CONFLICT
        return Verdict.of(keys, self._statuses) if keys.any() else None


# -- queueing hints ------------------------------------------------------------------------------------------------


def _keys_of_deleted_pod(old: PodInfo, new: None) -> HintKeys:
    """The claims and the disks that it used."""
    return (*((old.namespace, name) for name in old.shape.family.claims.names), *_keys_of_disks(old))


def _keys_of_disks(pod: PodInfo) -> list[tuple[str, ...]]:
    return [(pod.namespace, *disk.key) for disk in disks_of(pod.shape)]


def _is_schedulable_after_pod_deleted(pod: PodInfo, old: PodInfo, new: None) -> bool:
    """Whether the deleted pod used a claim of the pod or a disk that conflicts with one of the pod's."""
    if old.namespace != pod.namespace:
        return False
    if not pod.shape.family.claims.names.isdisjoint(old.shape.family.claims.names):
        return True
    disks = disks_of(old.shape)
    if not disks:
        return False
    released: dict[tuple[str, ...], set[Disk]] = {}
    for disk in disks:
        released.setdefault(disk.key, set()).add(disk)
    return any(disk.conflicts_with(other) for disk in disks_of(pod.shape) for other in released.get(disk.key, ()))
