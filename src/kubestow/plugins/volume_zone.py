"""VolumeZone keeps pods on nodes in the zones and regions of their volumes (semantics 8.13)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kubestow.api.storage import WAIT_FOR_FIRST_CONSUMER, PersistentVolume, PersistentVolumeClaim, StorageClass
from kubestow.cluster.events import Action, EventResource
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.cluster.storage.csi_migration import BETA_REGION, BETA_ZONE, REGION, ZONE
from kubestow.cluster.storage.pod_volumes import claim_names
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import Invalidation, on
from kubestow.framework.interface import FilterPlugin, PreFilterPlugin
from kubestow.framework.status import Status, Verdict

__all__ = ["VolumeZone"]

_REFUSAL = Status.unresolvable("node(s) had no available volume zone")

_LABELS = (BETA_ZONE, BETA_REGION, ZONE, REGION)
_STABLE = {BETA_ZONE: ZONE, BETA_REGION: REGION}

#: A label and the values of it that a volume allows.
Topology = tuple[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class _Topologies:
    """Where the pod's volumes are."""

    of_volumes: tuple[Topology, ...]


def _waits_for_consumers(pod: PodInfo, old: None, new: StorageClass) -> bool:
    return new.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER


def _is_wanted_claim(pod: PodInfo, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim) -> bool:
    return new.metadata.namespace == pod.namespace and new.metadata.name in claim_names(pod.shape)


def _moved(pod: PodInfo, old: PersistentVolume | None, new: PersistentVolume) -> bool:
    return old is None or _labels(old) != _labels(new)


def _labels(volume: PersistentVolume) -> Mapping[str, str]:
    return {key: value for key, value in volume.metadata.labels.items() if key in _LABELS}


class VolumeZone(PreFilterPlugin, FilterPlugin):
    """Compares the topology labels of bound volumes with those of nodes."""

    name = "VolumeZone"
    events_to_register = (
        on(EventResource.STORAGE_CLASS, Action.ADD, invalidates=Invalidation.ALL, hint=_waits_for_consumers),
        on(EventResource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
        on(
            EventResource.PERSISTENT_VOLUME_CLAIM,
            Action.ADD | Action.UPDATE,
            invalidates=Invalidation.ALL,
            hint=_is_wanted_claim,
        ),
        on(EventResource.PERSISTENT_VOLUME, Action.ADD | Action.UPDATE, invalidates=Invalidation.ALL, hint=_moved),
    )

    def applies_to(self, pod: PodInfo) -> bool:
        """Pods that mount claims by name."""
        return bool(claim_names(pod.shape))

    def signature(self, pod: PodInfo) -> Hashable:
        """The claims."""
        return pod.namespace, tuple(claim_names(pod.shape))

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        """Finds the topology of the pod's volumes; without any there is nothing to compare."""
        found = self._find(pod)
        if isinstance(found, Status):
            return found
        if not found.of_volumes:
            return Status.skip()
        state.put(found)
        return None

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        """A node without any of the labels takes every volume."""
        found = state.get(_Topologies) or self._find(pod)
        if isinstance(found, Status):
            return Verdict.rejecting(np.ones(len(nodes), np.bool_), found)
        if not found.of_volumes:
            return None
        topologies = found.of_volumes
        selections = self.handle.cluster.volumes.selections
        admitted = selections.get(("VolumeZone", topologies), lambda nodes: _admitted(nodes, topologies))
        return None if admitted.everywhere else Verdict.rejecting(~admitted.where[nodes.rows], _REFUSAL)

    def _find(self, pod: PodInfo) -> _Topologies | Status:
        topologies: list[Topology] = []
        for name in claim_names(pod.shape):
            volume = self._volume_of(pod.namespace, name)
            if isinstance(volume, Status):
                return volume
            if volume is not None:
                labels = volume.metadata.labels
                topologies += [(key, values) for key in _LABELS if key in labels and (values := _zones(labels[key]))]
        return _Topologies(tuple(topologies))

    def _volume_of(self, namespace: str, claim_name: str) -> PersistentVolume | Status | None:
        """The volume behind a claim; None for one that the claim is still to get once the pod has its node."""
        if not claim_name:
            return Status.unresolvable("PersistentVolumeClaim had no name")
        claim = self.handle.cluster.catalog(PersistentVolumeClaim).get(namespace, claim_name)
        if claim is None:
            return Status.unresolvable(f'persistentvolumeclaim "{claim_name}" not found')
        if not claim.spec.volume_name:
            return self._refusal_of_unbound(claim)
        volume = self.handle.cluster.catalog(PersistentVolume).get("", claim.spec.volume_name)
        if volume is None:
            return Status.unresolvable(f'persistentvolume "{claim.spec.volume_name}" not found')
        return volume

    def _refusal_of_unbound(self, claim: PersistentVolumeClaim) -> Status | None:
        name = claim.storage_class
        if not name:
            return Status.unresolvable("PersistentVolumeClaim had no pv name and storageClass name")
        storage_class = self.handle.cluster.catalog(StorageClass).get("", name)
        if storage_class is None:
            return Status.unresolvable(f'storageclass.storage.k8s.io "{name}" not found')
        if storage_class.volume_binding_mode is None:
            return Status.unresolvable(f'VolumeBindingMode not set for StorageClass "{name}"')
        if storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER:
            return None
        return Status.unresolvable("PersistentVolume had no name")


def _zones(label: str) -> frozenset[str] | None:
    """The values of a volume's label; None for one that cannot be read, which then does not count."""
    values = frozenset(value.strip() for value in label.split("__"))
    return None if "" in values else values


def _admitted(nodes: Nodes, topologies: tuple[Topology, ...]) -> NDArray[np.bool_]:
    admitted = np.ones(len(nodes), np.bool_)
    for key, values in topologies:
        admitted &= _is_in(nodes, key, values)
    unlabelled = np.ones(len(nodes), np.bool_)
    for key in _LABELS:
        unlabelled &= nodes.label(key) == 0
    return admitted | unlabelled


def _is_in(nodes: Nodes, key: str, values: frozenset[str]) -> NDArray[np.bool_]:
    inside = nodes.by_label(key, lambda value: value in values, np.bool_)
    if key in _STABLE:  # a node that has only the newer label
        newer = nodes.by_label(_STABLE[key], lambda value: value in values, np.bool_)
        inside = np.where(nodes.label(key) == 0, newer, inside)
    return inside
