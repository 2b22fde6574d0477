"""Cached masks of nodes: those that can access a volume, those of a storage class's topologies.

Thousands of volumes share a handful of node affinities. A mask depends only on the labels of the nodes and on its key,
so it is kept until the labels of a node change.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.bounded_cache import BoundedCache
from kubestow.cluster.nodes.table import NodeTable
from kubestow.cluster.nodes.views import Nodes

__all__ = ["NodeMask", "NodeMasks"]

#: The most bytes that masks take.
_BUDGET = 64 * 2**20

Mask = NDArray[np.bool_]


class NodeMask:
    """A mask of nodes: ``where`` is bool over all rows of the node table."""

    def __init__(self, where: Mask) -> None:
        self.where = where
        #: Whether it is True for all nodes.
        self.everywhere = bool(where.all())

    @cached_property
    def rows(self) -> NDArray[np.intp]:
        """The numbers of the rows where it is True, intp."""
        return np.flatnonzero(self.where)


class _NodesByLabels(Nodes):
    """All nodes. QUIRK (semantics 8.12): the field ``metadata.name`` in a volume's node affinity matches no node."""

    def position(self, name: str) -> int | None:
        return None


class NodeMasks:
    """The masks of the nodes of a table, by key."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._by_key: BoundedCache[Hashable, NodeMask] = BoundedCache(_BUDGET)

    @property
    def revision(self) -> int:
        """The revision of the node table, which masks are valid for."""
        return self._table.revision

    @property
    def total(self) -> int:
        """The number of rows that a mask covers."""
        return len(self._table)

    def get(self, key: Hashable, select: Callable[[Nodes], Mask]) -> NodeMask:
        """The mask with a key; ``select`` computes it from all nodes, by their labels."""
        self._by_key.start_generation(self._table.revision)
        mask = self._by_key.get(key)
        if mask is not None:
            return mask
        where = select(_NodesByLabels(self._table, slice(0, len(self._table))))
        return self._by_key.put(key, NodeMask(where), cost=len(where))
