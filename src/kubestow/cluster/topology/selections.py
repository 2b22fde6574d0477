"""Selections of nodes that are worth remembering: the reach of a volume, the topology of a storage class.

Thousands of volumes share a handful of node affinities. A selection depends on nothing but the nodes' labels (and a
key that says what is selected), so it is worked out once and kept, as a mask over all rows, until the labels of some
node change.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.nodes.table import NodeTable
from kubestow.cluster.nodes.views import Nodes

__all__ = ["NodeSelection", "NodeSelections"]

#: Masks may fill about this many bytes.
_BUDGET = 64 * 2**20

Mask = NDArray[np.bool_]


class NodeSelection:
    """Some of the nodes: ``where`` is bool over all rows of the node table."""

    def __init__(self, where: Mask) -> None:
        self.where = where
        #: Whether it is all of them.
        self.everywhere = bool(where.all())

    @cached_property
    def rows(self) -> NDArray[np.intp]:
        """The rows' numbers, intp."""
        return np.flatnonzero(self.where)


class _Nameless(Nodes):
    """Nodes by their labels alone: QUIRK, a volume's affinity never finds a node by ``metadata.name``."""

    def position(self, name: str) -> int | None:
        return None


class NodeSelections:
    """The selections of a node table, by key; the least recently used are forgotten."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._revision = -1
        self._by_key: OrderedDict[Hashable, NodeSelection] = OrderedDict()

    @property
    def revision(self) -> int:
        """The state of the labels that selections are about; see :class:`~kubestow.cluster.nodes.table.NodeTable`."""
        return self._table.revision

    @property
    def total(self) -> int:
        """How many rows a selection covers."""
        return len(self._table)

    def get(self, key: Hashable, select: Callable[[Nodes], Mask]) -> NodeSelection:
        """The selection of a key; ``select`` works it out, by the labels of the nodes it is given."""
        if self._revision != self._table.revision:
            self._by_key.clear()
            self._revision = self._table.revision
        found = self._by_key.get(key)
        if found is None:
            found = self._by_key[key] = NodeSelection(select(_Nameless(self._table, slice(0, len(self._table)))))
            while len(self._by_key) * max(1, len(self._table)) > _BUDGET:
                self._by_key.popitem(last=False)
        else:
            self._by_key.move_to_end(key)
        return found
