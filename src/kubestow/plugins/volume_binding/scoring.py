"""How well the volumes that a pod would get use what they are taken from (gate StorageCapacityScoring).

Per storage class, what the pod's claims request is set against the volumes chosen for them, or where none are chosen
against the capacity that could provide them. A shape turns that utilisation into a score; classes count alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kubestow.api.quantity import Quantity, units
from kubestow.api.storage import STORAGE
from kubestow.cluster.storage.available_volumes import NO_CHOICE
from kubestow.cluster.storage.capacities import NOWHERE, StorageCapacities
from kubestow.errors import InvalidQuantity
from kubestow.plugins.node_resources.scoring import UtilizationShape
from kubestow.plugins.volume_binding.finder import Finding, Match, Provision

__all__ = ["storage_scores"]

Int64s = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(slots=True)
class _ClassUsage:
    """What is requested of one class and what there is, in bytes per row, where the class matters at all."""

    where: Mask
    requested: Int64s
    capacity: Int64s


def storage_scores(found: Finding, shape: UtilizationShape, capacities: StorageCapacities, rows: int) -> Int64s:
    """Scores 0 to 100 per row, int64; 0 where no volume has to be bound."""
    matched = np.zeros(rows, np.bool_)
    for match in found.matches:
        matched |= match.numbers != NO_CHOICE
    static = list(_of_matches(found.matches, rows))
    dynamic = list(_of_provisions(found.provisions, capacities, ~matched))
    total = np.zeros(rows, np.int64)
    classes = np.zeros(rows, np.int64)
    for usage in (*static, *dynamic):
        total += np.where(usage.where, shape.scores(usage.requested, usage.capacity), 0)
        classes += usage.where
    mean = total / np.maximum(classes, 1)
    return np.floor(mean + 0.5).astype(np.int64)  # rounds half away from zero: scores are not negative


def _of_matches(matches: list[Match], rows: int) -> Iterator[_ClassUsage]:
    by_class: dict[str, _ClassUsage] = {}
    for match in matches:
        sizes = np.array([*(_bytes(v.spec.capacity.get(STORAGE)) for v in match.volumes), 0], np.int64)
        classes = [volume.spec.storage_class_name for volume in match.volumes]
        for name in set(classes):
            mine = np.array([*(other == name for other in classes), False], np.bool_)[match.numbers]
            usage = by_class.setdefault(name, _nothing(rows))
            usage.where |= mine
            usage.requested += mine * _bytes(match.claim.spec.resources.requests.get(STORAGE))
            usage.capacity += np.where(mine, sizes[match.numbers], 0)
    yield from by_class.values()


def _of_provisions(
    provisions: list[Provision], capacities: StorageCapacities, unmatched: Mask
) -> Iterator[_ClassUsage]:
    by_class: dict[str, _ClassUsage] = {}
    for provision in provisions:
        if provision.capacities is None:
            continue
        name = provision.claim.storage_class
        mine = provision.where & unmatched & (provision.capacities != NOWHERE)
        usage = by_class.setdefault(name, _nothing(len(mine)))
        usage.where |= mine
        usage.requested += mine * _bytes(provision.claim.spec.resources.requests.get(STORAGE))
        # Not added up: claims of one class are provided from the same capacity.
        usage.capacity = np.where(mine, capacities.capacity(name, provision.capacities), usage.capacity)
    yield from by_class.values()


def _nothing(rows: int) -> _ClassUsage:
    return _ClassUsage(np.zeros(rows, np.bool_), np.zeros(rows, np.int64), np.zeros(rows, np.int64))


def _bytes(quantity: Quantity | None) -> int:
    try:
        return 0 if quantity is None else units(quantity)
    except InvalidQuantity:
        return 0
