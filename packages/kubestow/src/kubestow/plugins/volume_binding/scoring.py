"""Scores nodes by the utilization of the storage that a pod's unbound claims would use (gate StorageCapacityScoring).

Per storage class, the requested bytes are compared with the capacity of the chosen volumes or, on nodes without static
bindings, with that of the CSIStorageCapacity objects. A utilization shape maps each class to a score; the node's score
is their mean (semantics 8.12).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kubestow.api.formats.quantity import Quantity, units
from kubestow.api.storage import STORAGE
from kubestow.cluster.storage.available_volumes import NO_VOLUME
from kubestow.cluster.storage.capacities import NO_CAPACITY, CSIStorageCapacities
from kubestow.errors import InvalidQuantity
from kubestow.plugins.node_resources.scoring import UtilizationShape
from kubestow.plugins.volume_binding.finder import PodVolumes, StaticBinding

__all__ = ["storage_scores"]

Int64s = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(slots=True)
class _StorageResource:
    """The requested bytes and the capacity in bytes of one class per row; ``where`` (bool) the class is used."""

    where: Mask
    requested: Int64s
    capacity: Int64s

    @classmethod
    def empty(cls, rows: int) -> _StorageResource:
        return cls(np.zeros(rows, np.bool_), np.zeros(rows, np.int64), np.zeros(rows, np.int64))


def storage_scores(volumes: PodVolumes, shape: UtilizationShape, capacities: CSIStorageCapacities) -> Int64s:
    """The score of each row of ``volumes``, 0 to 100, int64; 0 for rows without a volume to bind or provision."""
    rows = len(volumes.keys)
    total = np.zeros(rows, np.int64)
    classes = np.zeros(rows, np.int64)
    for resource in (*_static_resources(volumes), *_dynamic_resources(volumes, capacities)):
        total += np.where(resource.where, shape.scores(resource.requested, resource.capacity), 0)
        classes += resource.where
    mean = total / np.maximum(classes, 1)
    return np.floor(mean + 0.5).astype(np.int64)  # rounds half away from zero: scores are not negative


def _static_resources(volumes: PodVolumes) -> list[_StorageResource]:
    by_class: dict[str, _StorageResource] = {}
    for binding in volumes.static_bindings:
        # NO_VOLUME, -1, indexes the last entry.
        sizes = np.array([*(_bytes(v.spec.capacity.get(STORAGE)) for v in binding.volumes), 0], np.int64)
        for name, of_class in _masks_by_class(binding).items():
            resource = by_class.setdefault(name, _StorageResource.empty(len(volumes.keys)))
            resource.where |= of_class
            resource.requested += of_class * _bytes(binding.claim.spec.resources.requests.get(STORAGE))
            resource.capacity += np.where(of_class, sizes[binding.numbers], 0)
    return list(by_class.values())


def _masks_by_class(binding: StaticBinding) -> dict[str, Mask]:
    """The rows on which the chosen volume is of a class, bool, by class name."""
    classes = [volume.spec.storage_class_name for volume in binding.volumes]
    return {
        name: np.array([*(other == name for other in classes), False], np.bool_)[binding.numbers]
        for name in dict.fromkeys(classes)
    }


def _dynamic_resources(volumes: PodVolumes, capacities: CSIStorageCapacities) -> list[_StorageResource]:
    without_static = np.ones(len(volumes.keys), np.bool_)
    for binding in volumes.static_bindings:
        without_static &= binding.numbers == NO_VOLUME
    by_class: dict[str, _StorageResource] = {}
    for provision in volumes.dynamic_provisions:
        if provision.capacities is None:
            continue
        name = provision.claim.storage_class
        where = provision.where & without_static & (provision.capacities != NO_CAPACITY)
        resource = by_class.setdefault(name, _StorageResource.empty(len(volumes.keys)))
        resource.where |= where
        resource.requested += where * _bytes(provision.claim.spec.resources.requests.get(STORAGE))
        # Not added up: claims of one class are provisioned from the same capacity.
        resource.capacity = np.where(where, capacities.capacity(name, provision.capacities), resource.capacity)
    return list(by_class.values())


def _bytes(quantity: Quantity | None) -> int:
    try:
        return 0 if quantity is None else units(quantity)
    except InvalidQuantity:
        return 0
