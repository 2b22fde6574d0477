"""The resources that a scheduler watches (semantics 1.5).

The cluster cache has tables for pods, nodes and namespaces, and a catalog for each other kind. Most kinds are always
watched; those that few clusters serve, only if a plugin registers for them or their feature gate is on. Custom kinds of
plugins are not in these tables: their structs name their resources.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable
from typing import Any

from kubestow.api.apps import ReplicaSet, StatefulSet
from kubestow.api.core import Namespace, Node, Pod, ReplicationController, Service
from kubestow.api.custom import CustomObject
from kubestow.api.policy import PodDisruptionBudget
from kubestow.api.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from kubestow.api.scheduling import PodGroup
from kubestow.api.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from kubestow.config import FeatureGates
from kubestow.config.feature_gates import device_taint_rules_gate
from kubestow.errors import KubestowError
from kubestow.scheduling.interfaces import Resource

_STORAGE = "/apis/storage.k8s.io/v1"

PODS = Resource("/api/v1", "pods", "Pod", Pod, field_selector="status.phase!=Succeeded,status.phase!=Failed")
NODES = Resource("/api/v1", "nodes", "Node", Node, namespaced=False)
NAMESPACES = Resource("/api/v1", "namespaces", "Namespace", Namespace, namespaced=False)

_DEVICES = "/apis/resource.k8s.io/v1"
_DEVICES_GATE = "DynamicResourceAllocation"

#: Their gate depends on the minor version.
_DEVICE_TAINT_RULES = Resource(
    _DEVICES, "devicetaintrules", "DeviceTaintRule", DeviceTaintRule, namespaced=False, optional=True
)
_ON_DEMAND = (Resource("/apis/scheduling.k8s.io/v1beta1", "podgroups", "PodGroup", PodGroup, optional=True),)

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
    Resource(
        _DEVICES, "deviceclasses", "DeviceClass", DeviceClass, namespaced=False, optional=True, gate=_DEVICES_GATE
    ),
    Resource(
        _DEVICES, "resourceslices", "ResourceSlice", ResourceSlice, namespaced=False, optional=True, gate=_DEVICES_GATE
    ),
    _DEVICE_TAINT_RULES,
    Resource(_DEVICES, "resourceclaims", "ResourceClaim", ResourceClaim, optional=True, gate=_DEVICES_GATE),
    *_ON_DEMAND,
)

WATCHED = (NODES, NAMESPACES, *CATALOGUED, PODS)
"""All built-in resources, in the order in which they are listed: pods last, after what they depend on."""


_BY_KIND = {resource.type: resource for resource in WATCHED}
#: How often discovery is repeated for a plugin's custom kind while it is not served, in seconds.
_NOT_DEFINED_YET = 30.0


def watched(kinds: Collection[type[Any]], gates: FeatureGates | None = None) -> tuple[Resource, ...]:
    """The resources to watch when plugins register for some ``kinds`` beside those that are always watched.

    Raises KubestowError for a kind without a known resource, and for one that is decoded into two structs.
    """
    asked = {resource_of(kind) for kind in kinds}
    own = sorted(asked - set(WATCHED), key=lambda resource: (resource.prefix, resource.plural, resource.kind))
    for one, other in itertools.pairwise(own):
        if one.type.resource == other.type.resource:
            names = " and ".join(f"{kind.__module__}.{kind.__qualname__}" for kind in (one.type, other.type))
            raise KubestowError(f"{one.type.resource} is read into both {names}, expected one struct for all plugins")
    always = set(watched_always(gates or FeatureGates())) - set(_ON_DEMAND)
    usual = [resource for resource in WATCHED if resource in always or resource in asked]
    return (*usual[:-1], *own, usual[-1])


def watched_always(gates: FeatureGates) -> tuple[Resource, ...]:
    """The built-in resources that no disabled feature gate is in front of."""
    of_rules = {_DEVICES_GATE, device_taint_rules_gate(gates.minor.has)}
    return tuple(
        resource
        for resource in WATCHED
        if all(map(gates.enabled, of_rules if resource is _DEVICE_TAINT_RULES else {resource.gate} - {""}))
    )


def with_custom(kinds: Iterable[type[CustomObject]]) -> tuple[Resource, ...]:
    """All built-in resources and those of custom ``kinds``, in the order in which they are listed."""
    return (*WATCHED[:-1], *map(resource_of, kinds), PODS)


def resource_of(kind: type[Any]) -> Resource:
    """The resource of a kind. Raises KubestowError if it is unknown."""
    if kind in _BY_KIND:
        return _BY_KIND[kind]
    if not issubclass(kind, CustomObject):
        raise KubestowError(f"{kind.__name__} has no known resource, expected a kubestow.api.custom.CustomObject")
    prefix, plural = kind.address()
    return Resource(prefix, plural, kind.__name__, kind, optional=True, absent_seconds=_NOT_DEFINED_YET)
