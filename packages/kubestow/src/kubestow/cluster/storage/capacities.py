"""Storage capacity by storage class and node (CSIStorageCapacity, semantics 8.12).

Drivers publish capacity per class and topology segment, often one object per node, and update it after every volume.
The objects of a class are therefore arranged once as pairs of a row and an object whose topology includes the node; an
update of an amount then changes one number.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import NodeSelectorRequirement, NodeSelectorTerm
from kubestow.api.formats.quantity import Quantity, units
from kubestow.api.meta import LabelSelector
from kubestow.api.storage import CSIStorageCapacity
from kubestow.cluster.nodes.selectors import matches_any_term
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.caches import BoundedCache
from kubestow.cluster.storage.available_volumes import NodeMasks
from kubestow.errors import InvalidQuantity

#: Stands for "no capacity object" in an array of numbers of capacity objects.
NO_CAPACITY = -1

#: The most storage classes, and the most sizes per class, for which results are cached.
_MOST_CLASSES = 256
_MOST_SIZES = 64

_encode = msgspec.json.Encoder(order="deterministic").encode

Key = tuple[str, str]


@dataclass(slots=True)
class _ClassCapacities:
    """The objects of a class: the largest volumes and the capacities in bytes by number, and (row, number) pairs."""

    numbers: dict[Key, int]
    limits: NDArray[np.int64]
    capacities: NDArray[np.int64]
    rows: NDArray[np.intp]
    numbers_of_rows: NDArray[np.int64]
    #: Results of first_sufficient by size.
    first_sufficient: BoundedCache[int, NDArray[np.int64]] = field(default_factory=lambda: BoundedCache(_MOST_SIZES))


class CSIStorageCapacities:
    """The CSIStorageCapacity objects of a cluster, by storage class."""

    def __init__(self, masks: NodeMasks) -> None:
        self._masks = masks
        self._by_class: dict[str, dict[Key, CSIStorageCapacity]] = {}
        self._arranged: BoundedCache[str, _ClassCapacities] = BoundedCache(_MOST_CLASSES)

    def changed(self, before: CSIStorageCapacity | None, after: CSIStorageCapacity | None) -> None:
        """An object has been added, changed or deleted."""
        if before is not None and after is not None and _has_same_topology(before, after):
            self._update_amounts(after)
            return
        if before is not None:
            self._arranged.discard(before.storage_class_name)
            objects = self._by_class[before.storage_class_name]
            del objects[_key(before)]
            if not objects:
                del self._by_class[before.storage_class_name]
        if after is not None:
            self._arranged.discard(after.storage_class_name)
            self._by_class.setdefault(after.storage_class_name, {})[_key(after)] = after

    def first_sufficient(self, storage_class: str, size: int) -> NDArray[np.int64]:
        """The number of the first object with capacity for a volume of ``size`` bytes, int64 over all rows.

        NO_CAPACITY where there is none.
        """
        arranged = self._arrange(storage_class)
        numbers = arranged.first_sufficient.get(size)
        return arranged.first_sufficient.put(size, self._first(arranged, size)) if numbers is None else numbers

    def _first(self, arranged: _ClassCapacities, size: int) -> NDArray[np.int64]:
        none = len(arranged.numbers)
        is_sufficient = arranged.limits[arranged.numbers_of_rows] >= size
        first = np.full(self._masks.total, none)
        np.minimum.at(first, arranged.rows, np.where(is_sufficient, arranged.numbers_of_rows, none))
        return np.where(first == none, NO_CAPACITY, first)

    def capacity(self, storage_class: str, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The capacities in bytes (int64) of objects by their numbers; 0 for NO_CAPACITY and objects without one."""
        capacities = np.append(self._arrange(storage_class).capacities, 0)
        amounts: NDArray[np.int64] = np.maximum(capacities[numbers], 0)
        return amounts

    def _update_amounts(self, obj: CSIStorageCapacity) -> None:
        self._by_class[obj.storage_class_name][_key(obj)] = obj
        arranged = self._arranged.get(obj.storage_class_name)
        if arranged is not None:
            number = arranged.numbers[_key(obj)]
            arranged.limits[number] = _bytes(obj.limit)
            arranged.capacities[number] = _bytes(obj.capacity)
            arranged.first_sufficient.clear()

    def _arrange(self, storage_class: str) -> _ClassCapacities:
        self._arranged.start_generation(self._masks.revision)
        arranged = self._arranged.get(storage_class)
        if arranged is not None:
            return arranged
        objects = sorted(self._by_class.get(storage_class, {}).items())
        rows = [self._rows_of(obj.node_topology) for _, obj in objects]
        arranged = _ClassCapacities(
            numbers={key: number for number, (key, _) in enumerate(objects)},
            limits=np.array([_bytes(obj.limit) for _, obj in objects], np.int64),
            capacities=np.array([_bytes(obj.capacity) for _, obj in objects], np.int64),
            rows=np.concatenate([*rows, np.empty(0, np.intp)]),
            numbers_of_rows=np.repeat(np.arange(len(objects)), np.array(list(map(len, rows)), np.intp)),
        )
        return self._arranged.put(storage_class, arranged)

    def _rows_of(self, topology: LabelSelector | None) -> NDArray[np.intp]:
        if topology is None:  # not available anywhere
            return np.empty(0, np.intp)
        return self._masks.get(("topology", _encode(topology)), lambda nodes: _selected(nodes, topology)).rows


def _selected(nodes: Nodes, topology: LabelSelector) -> NDArray[np.bool_]:
    """The nodes that a label selector selects, bool; none if it is invalid."""
    expressions = [
        NodeSelectorRequirement(key=key, operator="In", values=[value]) for key, value in topology.match_labels.items()
    ]
    expressions += [
        NodeSelectorRequirement(
            key=requirement.key, operator=_as_label_operator(requirement.operator), values=requirement.values
        )
        for requirement in topology.match_expressions
    ]
    if not expressions:
        return np.ones(len(nodes), np.bool_)
    return matches_any_term(nodes, [NodeSelectorTerm(match_expressions=expressions)])


def _as_label_operator(operator: str) -> str:
    return f"no label operator: {operator}" if operator in ("Gt", "Lt") else operator


def _bytes(quantity: Quantity | None) -> int:
    """A quantity in bytes, -1 when it is missing or invalid."""
    try:
        return -1 if quantity is None else units(quantity)
    except InvalidQuantity:
        return -1


def _has_same_topology(before: CSIStorageCapacity, after: CSIStorageCapacity) -> bool:
    return before.storage_class_name == after.storage_class_name and before.node_topology == after.node_topology


def _key(obj: CSIStorageCapacity) -> Key:
    return obj.metadata.namespace, obj.metadata.name
