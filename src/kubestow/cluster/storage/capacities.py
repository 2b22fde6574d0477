"""How much storage classes can still provide, and to which nodes (CSIStorageCapacity, semantics 8.12).

Drivers report capacity per class and topology segment, often one object per node, and report anew after every volume.
So the objects of a class are laid out once as pairs of a node and an object that covers it; a report that changes
nothing but an amount changes one number.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import NodeSelectorRequirement, NodeSelectorTerm
from kubestow.api.meta import LabelSelector
from kubestow.api.quantity import Quantity, units
from kubestow.api.storage import CSIStorageCapacity
from kubestow.cluster.nodes.selectors import matches_any_term
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.storage.node_selections import NodeSelections
from kubestow.errors import InvalidQuantity

__all__ = ["NO_CAPACITY", "CSIStorageCapacities"]

#: Stands for "no capacity object" in an array of their numbers.
NO_CAPACITY = -1

#: Sizes whose answers are remembered per class.
_SIZES = 64

_encode = msgspec.json.Encoder(order="deterministic").encode

Key = tuple[str, str]


@dataclass(slots=True)
class _Layout:
    """The objects of one class: amounts in bytes by number, and (row, number) for every node that one covers."""

    numbers: dict[Key, int]
    limits: NDArray[np.int64]
    capacities: NDArray[np.int64]
    rows: NDArray[np.intp]
    covered_by: NDArray[np.int64]
    revision: int
    #: Answers by size, good until an amount changes.
    first_sufficient: dict[int, NDArray[np.int64]] = field(default_factory=dict)


class CSIStorageCapacities:
    """The CSIStorageCapacity objects of a cluster by class."""

    def __init__(self, selections: NodeSelections) -> None:
        self._selections = selections
        self._by_class: dict[str, dict[Key, CSIStorageCapacity]] = {}
        self._layouts: dict[str, _Layout] = {}

    def changed(self, before: CSIStorageCapacity | None, after: CSIStorageCapacity | None) -> None:
        """An object is new, changed or gone."""
        if before is not None and after is not None and _covers_the_same(before, after):
            self._by_class[after.storage_class_name][_key(after)] = after
            layout = self._layouts.get(after.storage_class_name)
            if layout is not None:
                number = layout.numbers[_key(after)]
                layout.first_sufficient.clear()
                layout.limits[number], layout.capacities[number] = _bytes(after.limit), _bytes(after.capacity)
            return
        for obj in (before, after):
            if obj is not None:
                self._layouts.pop(obj.storage_class_name, None)
        if before is not None:
            del self._by_class[before.storage_class_name][_key(before)]
        if after is not None:
            self._by_class.setdefault(after.storage_class_name, {})[_key(after)] = after

    def first_sufficient(self, storage_class: str, size: int) -> NDArray[np.int64]:
        """For every row the number of the first object that has room for so many bytes, NOWHERE where none has."""
        layout = self._layout(storage_class)
        known = layout.first_sufficient.get(size)
        if known is None:
            if len(layout.first_sufficient) >= _SIZES:
                layout.first_sufficient.clear()
            known = layout.first_sufficient[size] = self._first_with_room(layout, size)
        return known

    def _first_with_room(self, layout: _Layout, size: int) -> NDArray[np.int64]:
        nothing = len(layout.numbers)
        number = np.where(layout.limits[layout.covered_by] >= size, layout.covered_by, nothing)
        first = np.full(self._selections.total, nothing)
        np.minimum.at(first, layout.rows, number)
        return np.where(first == nothing, NO_CAPACITY, first)

    def capacity(self, storage_class: str, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The capacities in bytes of objects by their numbers, 0 for NOWHERE and for objects that do not say."""
        known = np.append(self._layout(storage_class).capacities, 0)
        amounts: NDArray[np.int64] = np.maximum(known[numbers], 0)
        return amounts

    def _layout(self, storage_class: str) -> _Layout:
        layout = self._layouts.get(storage_class)
        if layout is None or layout.revision != self._selections.revision:
            layout = self._layouts[storage_class] = self._laid_out(storage_class)
        return layout

    def _laid_out(self, storage_class: str) -> _Layout:
        objects = sorted(self._by_class.get(storage_class, {}).items())
        rows = [self._covered(obj.node_topology) for _, obj in objects]
        sizes = np.array([len(covered) for covered in rows], np.intp)
        return _Layout(
            numbers={key: number for number, (key, _) in enumerate(objects)},
            limits=np.array([_bytes(obj.limit) for _, obj in objects], np.int64),
            capacities=np.array([_bytes(obj.capacity) for _, obj in objects], np.int64),
            rows=np.concatenate([*rows, np.empty(0, np.intp)]),
            covered_by=np.repeat(np.arange(len(objects)), sizes),
            revision=self._selections.revision,
        )

    def _covered(self, topology: LabelSelector | None) -> NDArray[np.intp]:
        if topology is None:  # not available anywhere
            return np.empty(0, np.intp)
        return self._selections.get(("topology", _encode(topology)), lambda nodes: _selected(nodes, topology)).rows


def _selected(nodes: Nodes, topology: LabelSelector) -> NDArray[np.bool_]:
    """Nodes by a label selector; one that cannot be read selects nothing."""
    expressions = [
        NodeSelectorRequirement(key=key, operator="In", values=[value]) for key, value in topology.match_labels.items()
    ]
    expressions += [
        NodeSelectorRequirement(key=wanted.key, operator=_as_label_operator(wanted.operator), values=wanted.values)
        for wanted in topology.match_expressions
    ]
    if not expressions:
        return np.ones(len(nodes), np.bool_)
    return matches_any_term(nodes, [NodeSelectorTerm(match_expressions=expressions)])


def _as_label_operator(operator: str) -> str:
    return f"no label operator: {operator}" if operator in ("Gt", "Lt") else operator


def _bytes(quantity: Quantity | None) -> int:
    """An amount in bytes; -1 where there is none, or none that can be read."""
    try:
        return -1 if quantity is None else units(quantity)
    except InvalidQuantity:
        return -1


def _covers_the_same(before: CSIStorageCapacity, after: CSIStorageCapacity) -> bool:
    return before.storage_class_name == after.storage_class_name and before.node_topology == after.node_topology


def _key(obj: CSIStorageCapacity) -> Key:
    return obj.metadata.namespace, obj.metadata.name
