"""The collections a scheduler watches (reference 1.5).

Pods, nodes and namespaces have a place of their own in the cluster's state; every other kind is kept in a catalog under
its struct. Most are watched always; those that few clusters have, only where a plugin asks for them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from kubestow.api.apps import ReplicaSet, StatefulSet
from kubestow.api.core import Namespace, Node, Pod, ReplicationController, Service
from kubestow.api.policy import PodDisruptionBudget
from kubestow.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from kubestow.api.scheduling import CoschedulingPodGroup, PodGroup, VolcanoPodGroup
from kubestow.api.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from kubestow.scheduling.ports import Resource

__all__ = ["CATALOGUED", "NAMESPACES", "NODES", "PODS", "WATCHED", "watched"]

_STORAGE = "/apis/storage.k8s.io/v1"

PODS = Resource("/api/v1", "pods", "Pod", Pod, field_selector="status.phase!=Succeeded,status.phase!=Failed")
NODES = Resource("/api/v1", "nodes", "Node", Node, namespaced=False)
NAMESPACES = Resource("/api/v1", "namespaces", "Namespace", Namespace, namespaced=False)

_DEVICES = "/apis/resource.k8s.io/v1"

_ON_DEMAND = (
    Resource("/apis/scheduling.k8s.io/v1alpha2", "podgroups", "PodGroup", PodGroup, optional=True),
    Resource("/apis/scheduling.x-k8s.io/v1alpha1", "podgroups", "PodGroup", CoschedulingPodGroup, optional=True),
    Resource("/apis/scheduling.volcano.sh/v1beta1", "podgroups", "PodGroup", VolcanoPodGroup, optional=True),
)

CATALOGUED = (
    Resource("/api/v1", "services", "Service", Service),
    Resource("/api/v1", "replicationcontrollers", "ReplicationController", ReplicationController),
    Resource("/apis/policy/v1", "poddisruptionbudgets", "PodDisruptionBudget", PodDisruptionBudget),
    Resource("/api/v1", "persistentvolumes", "PersistentVolume", PersistentVolume, namespaced=False),
    Resource("/api/v1", "persistentvolumeclaims", "PersistentVolumeClaim", PersistentVolumeClaim),
    Resource(_STORAGE, "storageclasses", "StorageClass", StorageClass, namespaced=False, optional=True),
    Resource(_STORAGE, "csinodes", "CSINode", CSINode, namespaced=False, optional=True),
    Resource(_STORAGE, "csidrivers", "CSIDriver", CSIDriver, namespaced=False, optional=True),
    Resource(_STORAGE, "csistoragecapacities", "CSIStorageCapacity", CSIStorageCapacity, optional=True),
    Resource(_STORAGE, "volumeattachments", "VolumeAttachment", VolumeAttachment, namespaced=False, optional=True),
    Resource("/apis/apps/v1", "replicasets", "ReplicaSet", ReplicaSet),
    Resource("/apis/apps/v1", "statefulsets", "StatefulSet", StatefulSet),
    Resource(_DEVICES, "deviceclasses", "DeviceClass", DeviceClass, namespaced=False, optional=True),
    Resource(_DEVICES, "resourceslices", "ResourceSlice", ResourceSlice, namespaced=False, optional=True),
    Resource(_DEVICES, "resourceclaims", "ResourceClaim", ResourceClaim, optional=True),
    *_ON_DEMAND,
)

WATCHED = (NODES, NAMESPACES, *CATALOGUED, PODS)
"""All of them, in the order in which they should be read first: what pods depend on before the pods."""


def watched(kinds: Collection[type[Any]]) -> tuple[Resource, ...]:
    """What a scheduler watches whose plugins ask for some kinds beside what is watched always."""
    return tuple(resource for resource in WATCHED if resource not in _ON_DEMAND or resource.type in kinds)
