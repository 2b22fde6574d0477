"""What the API server and controllers add to objects other than pods, as far as scheduling depends on it.

Manifests lack it, objects from a dump have it already. :mod:`kubestow.engine.input.admission` completes pods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from kubestow.api.core import Node
from kubestow.api.meta import convert
from kubestow.api.resource import ResourceClaim, ResourceClaimSpec
from kubestow.api.storage import (
    BETA_STORAGE_CLASS,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeStatus,
    StorageClass,
)
from kubestow.rules.defaults import default_resource_claim_spec
from kubestow.rules.volumes import default_storage_class

_AVAILABLE = PersistentVolumeStatus(phase="Available")


def with_defaults(obj: Any) -> Any:
    """The object with the defaults of its kind."""
    complete = _DEFAULTS.get(type(obj))
    return obj if complete is None else complete(obj)


def with_default_class(objects: Iterable[Any], classes: Iterable[Any]) -> list[Any]:
    """The objects, of which claims without a class and a volume get the default class, if ``classes`` have one."""
    name = default_storage_class(one for one in classes if isinstance(one, StorageClass))
    if name is None:
        return list(objects)
    return [_of_class(obj, name) if isinstance(obj, PersistentVolumeClaim) else obj for obj in objects]


def _of_class(claim: PersistentVolumeClaim, name: str) -> PersistentVolumeClaim:
    spec = claim.spec
    if spec.storage_class_name is not None or spec.volume_name or BETA_STORAGE_CLASS in claim.metadata.annotations:
        return claim
    return msgspec.structs.replace(claim, spec=msgspec.structs.replace(spec, storage_class_name=name))


def _node(node: Node) -> Node:
    if node.status.allocatable or not node.status.capacity:
        return node
    status = msgspec.structs.replace(node.status, allocatable=node.status.capacity)
    return msgspec.structs.replace(node, status=status)


def _storage_class(storage_class: StorageClass) -> StorageClass:
    mode = storage_class.volume_binding_mode or "Immediate"
    return msgspec.structs.replace(storage_class, volume_binding_mode=mode)


def _volume(volume: PersistentVolume) -> PersistentVolume:
    """An unbound volume is made available by its controller."""
    if volume.status.phase or volume.spec.claim_ref is not None:
        return volume
    return msgspec.structs.replace(volume, status=_AVAILABLE)


def _resource_claim(claim: ResourceClaim) -> ResourceClaim:
    spec = msgspec.to_builtins(claim.spec)
    default_resource_claim_spec(spec)
    return msgspec.structs.replace(claim, spec=convert(ResourceClaimSpec, spec))


_DEFAULTS: dict[type[Any], Callable[[Any], Any]] = {
    Node: _node,
    StorageClass: _storage_class,
    PersistentVolume: _volume,
    ResourceClaim: _resource_claim,
}
