"""VolumeZone rejects nodes outside the zones and regions of the pod's volumes (semantics 8.13).

Zones and regions are labels of the bound volumes; node affinity of volumes is checked by VolumeBinding.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kubestow.api.storage import WAIT_FOR_FIRST_CONSUMER, PersistentVolume, PersistentVolumeClaim, StorageClass
from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.nodes.columns import MISSING
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.cluster.storage.csi import BETA_REGION, BETA_ZONE, REGION, ZONE
from kubestow.cluster.storage.pod_volumes import claim_keys, claim_names, is_claim_named, keys_of_claim
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import HintKeys, Invalidation, every_pod_if, for_every_pod, on
from kubestow.framework.interface import FilterPlugin, Handle, PreFilterPlugin
from kubestow.framework.status import Status, Verdict

_CONFLICT = Status.unresolvable("node(s) had no available volume zone")
_UNNAMED_CLAIM = Status.unresolvable("PersistentVolumeClaim had no name")
_NO_VOLUME_NOR_CLASS = Status.unresolvable("PersistentVolumeClaim had no pv name and storageClass name")
_UNBOUND_IMMEDIATE = Status.unresolvable("PersistentVolume had no name")

_TOPOLOGY_LABELS = (BETA_ZONE, BETA_REGION, ZONE, REGION)
_GA_LABELS = {BETA_ZONE: ZONE, BETA_REGION: REGION}

#: A topology label of a volume and the values that it permits on nodes.
Topology = tuple[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class _VolumeTopologies:
    """The topology labels of all bound volumes of the pod."""

    topologies: tuple[Topology, ...]


class VolumeZone(PreFilterPlugin, FilterPlugin):
    """Compares the topology labels of bound volumes with those of nodes."""

    name = "VolumeZone"
    reads_requests = False
    label_keys = ()

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self.events_to_register = (
            on(
                EventResource.STORAGE_CLASS,
                Action.ADD,
                invalidates=Invalidation.ALL,
                hint=for_every_pod(_waits_for_first_consumer),
                hint_keys=every_pod_if(_waits_for_first_consumer),
            ),
            on(EventResource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
            on(
                EventResource.PERSISTENT_VOLUME_CLAIM,
                Action.ADD | Action.UPDATE,
                invalidates=Invalidation.ALL,
                hint=is_claim_named,
                hint_keys=keys_of_claim,
            ),
            on(
                EventResource.PERSISTENT_VOLUME,
                Action.ADD | Action.UPDATE,
                invalidates=Invalidation.ALL,
                hint=for_every_pod(_has_new_topology),
                hint_keys=every_pod_if(_has_new_topology),
            ),
        )

    def applies_to(self, pod: PodInfo) -> bool:
        """Pods with PersistentVolumeClaim volumes."""
        return bool(claim_names(pod.shape))

    def signature(self, pod: PodInfo) -> Hashable:
        """The claims."""
        return pod.namespace, tuple(claim_names(pod.shape))

    hint_signature = signature

    def hint_keys(self, pod: PodInfo) -> HintKeys:
        return claim_keys(pod)

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        """Skips pods whose volumes have no topology labels."""
        found = self._volume_topologies(pod)
        if isinstance(found, Status):
            return found
        if not found.topologies:
            return Status.skip()
        state.put(found)
        return None

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        """Passes nodes with permitted labels, and nodes without any topology label. Works without PreFilter."""
        found = state.get(_VolumeTopologies) or self._volume_topologies(pod)
        if isinstance(found, Status):
            return Verdict.rejecting(np.ones(len(nodes), np.bool_), found)
        if not found.topologies:
            return None
        topologies = found.topologies
        node_masks = self.handle.cluster.volumes.node_masks
        permitted = node_masks.get(("VolumeZone", topologies), lambda nodes: _permitted(nodes, topologies))
        return None if permitted.everywhere else Verdict.rejecting(~permitted.where[nodes.rows], _CONFLICT)

    # -- volumes ---------------------------------------------------------------------------------------------------

    def _volume_topologies(self, pod: PodInfo) -> _VolumeTopologies | Status:
        topologies: list[Topology] = []
        for name in claim_names(pod.shape):
            volume = self._bound_volume(pod.namespace, name)
            if isinstance(volume, Status):
                return volume
            if volume is not None:
                labels = _topology_labels(volume)
                topologies += [(key, values) for key, value in labels.items() if (values := _zones(value))]
        return _VolumeTopologies(tuple(dict.fromkeys(topologies)))

    def _bound_volume(self, namespace: str, claim_name: str) -> PersistentVolume | Status | None:
        """The volume of a claim; None for an unbound claim of a WaitForFirstConsumer class."""
        if not claim_name:
            return _UNNAMED_CLAIM
        claim = self.handle.cluster.catalog(PersistentVolumeClaim).get(namespace, claim_name)
        if claim is None:
            return Status.unresolvable(f'persistentvolumeclaim "{claim_name}" not found')
        if not claim.spec.volume_name:
            return self._rejection_of_unbound(claim)
        volume = self.handle.cluster.catalog(PersistentVolume).get("", claim.spec.volume_name)
        if volume is None:
            return Status.unresolvable(f'persistentvolume "{claim.spec.volume_name}" not found')
        return volume

    def _rejection_of_unbound(self, claim: PersistentVolumeClaim) -> Status | None:
        name = claim.storage_class
        if not name:
            return _NO_VOLUME_NOR_CLASS
        storage_class = self.handle.cluster.catalog(StorageClass).get("", name)
        if storage_class is None:
            return Status.unresolvable(f'storageclass.storage.k8s.io "{name}" not found')
        if storage_class.volume_binding_mode is None:
            return Status.unresolvable(f'VolumeBindingMode not set for StorageClass "{name}"')
        return None if storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER else _UNBOUND_IMMEDIATE


# -- queueing hints ------------------------------------------------------------------------------------------------


def _waits_for_first_consumer(old: None, new: StorageClass) -> bool:
    return new.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER


def _has_new_topology(old: PersistentVolume | None, new: PersistentVolume) -> bool:
    return old is None or _topology_labels(old) != _topology_labels(new)


# -- topology labels -----------------------------------------------------------------------------------------------


def _topology_labels(volume: PersistentVolume) -> Mapping[str, str]:
    labels = volume.metadata.labels
    return {key: labels[key] for key in _TOPOLOGY_LABELS if key in labels}


def _zones(value: str) -> frozenset[str] | None:
    """The set of zones (or regions) in a label value, separated by ``__``; None if an element is empty."""
    zones = frozenset(zone.strip() for zone in value.split("__"))
    return None if "" in zones else zones


def _permitted(nodes: Nodes, topologies: tuple[Topology, ...]) -> NDArray[np.bool_]:
    """The nodes that satisfy all topologies or have no topology label at all, bool."""
    permitted = np.ones(len(nodes), np.bool_)
    for key, values in topologies:
        matches = nodes.by_label(key, values.__contains__, np.bool_)
        if key in _GA_LABELS:  # the GA label of a node replaces a missing beta label
            ga_matches = nodes.by_label(_GA_LABELS[key], values.__contains__, np.bool_)
            matches = np.where(nodes.label(key) == MISSING, ga_matches, matches)
        permitted &= matches
    unlabelled = np.ones(len(nodes), np.bool_)
    for key in _TOPOLOGY_LABELS:
        unlabelled &= nodes.label(key) == MISSING
    return permitted | unlabelled
