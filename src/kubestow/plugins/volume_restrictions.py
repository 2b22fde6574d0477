"""VolumeRestrictions keeps pods from volumes that others must not share with them (semantics 8.11)."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kubestow.api.storage import READ_WRITE_ONCE_POD, PersistentVolumeClaim
from kubestow.cluster.events import Action, EventResource
from kubestow.cluster.nodes.views import HypotheticalNodes, Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.cluster.storage.pod_volumes import claim_names, disks_of
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import Invalidation, on
from kubestow.framework.interface import FilterPlugin, PreFilterPlugin
from kubestow.framework.status import Status, Verdict

__all__ = ["VolumeRestrictions"]

_DISK_TAKEN, _CLAIM_TAKEN = 1, 2
_STATUSES = {
    _DISK_TAKEN: Status.unschedulable("node(s) had no available disk"),
    _CLAIM_TAKEN: Status.unschedulable(
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
        "already in-use by another pod"
    ),
}


@dataclass(frozen=True, slots=True)
class _ExclusiveClaims:
    """The pod's claims that only one pod at a time may use, and how many of them are in use."""

    names: frozenset[str]
    in_use: int


def _freed_a_wanted_volume(pod: PodInfo, old: PodInfo, new: None) -> bool:
    if old.namespace != pod.namespace:
        return False
    freed = disks_of(old.shape)
    return any(disk.conflicts_with(other) for disk in disks_of(pod.shape) for other in freed) or not set(
        claim_names(pod.shape)
    ).isdisjoint(claim_names(old.shape))


def _is_wanted_claim(pod: PodInfo, old: None, new: PersistentVolumeClaim) -> bool:
    return new.metadata.namespace == pod.namespace and new.metadata.name in claim_names(pod.shape)


class VolumeRestrictions(PreFilterPlugin, FilterPlugin):
    """Legacy disks are compared with those on the node, ReadWriteOncePod claims with the whole cluster's."""

    name = "VolumeRestrictions"
    missing_pre_filter_error = 'cannot read "PreFilterVolumeRestrictions" from cycleState'
    #: A claim taken anywhere is taken everywhere, so pods spoil all answers.
    events_to_register = (
        on(EventResource.POD, Action.ADD | Action.UPDATE, invalidates=Invalidation.ALL, requeues=False),
        on(EventResource.POD, Action.DELETE, invalidates=Invalidation.ALL, hint=_freed_a_wanted_volume),
        on(EventResource.NODE, Action.ADD),
        on(EventResource.PERSISTENT_VOLUME_CLAIM, Action.ADD, invalidates=Invalidation.ALL, hint=_is_wanted_claim),
    )

    def applies_to(self, pod: PodInfo) -> bool:
        """Pods that mount claims by name, or legacy disks."""
        return bool(claim_names(pod.shape) or disks_of(pod.shape))

    def signature(self, pod: PodInfo) -> Hashable:
        """The claims and the disks."""
        return pod.namespace, tuple(claim_names(pod.shape)), tuple(disks_of(pod.shape))

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        """Counts the pod's exclusive claims that are in use; without any, and without disks, there is nothing to do."""
        claims = self.handle.cluster.catalog(PersistentVolumeClaim)
        exclusive = set()
        for name in claim_names(pod.shape):
            claim = claims.get(pod.namespace, name)
            if claim is None:
                return Status.unresolvable(f'persistentvolumeclaim "{name}" not found')
            if READ_WRITE_ONCE_POD in claim.spec.access_modes:
                exclusive.add(name)
        mounts = self.handle.cluster.volumes.mounts
        in_use = sum(mounts.is_claim_used(pod.namespace, name) for name in exclusive)
        if not in_use and not disks_of(pod.shape):
            return Status.skip()
        state.put(_ExclusiveClaims(frozenset(exclusive), in_use))
        return None

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        """A taken disk is reported before a taken claim."""
        keys = self._claims_in_use(state[_ExclusiveClaims], nodes).astype(np.int32) * _CLAIM_TAKEN
        keys[self.handle.cluster.volumes.mounts.conflicts(nodes, disks_of(pod.shape))] = _DISK_TAKEN
        return Verdict.of(keys, _STATUSES) if keys.any() else None

    @staticmethod
    def _claims_in_use(exclusive: _ExclusiveClaims, nodes: Nodes) -> NDArray[np.bool_]:
        in_use = np.full(len(nodes), exclusive.in_use)
        if isinstance(nodes, HypotheticalNodes):
            # QUIRK: here claims are compared by name alone, whatever their namespace.
            in_use += nodes.changed_by(lambda info: sum(name in exclusive.names for name in claim_names(info.shape)))
        taken: NDArray[np.bool_] = np.greater(in_use, 0)
        return taken
