"""Sampling: how many feasible nodes are scored when ``percentageOfNodesToScore`` asks for fewer (semantics 5.4)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.nodes.table import NodeTable
from kubestow.cluster.nodes.views import Nodes, Rows

__all__ = ["NodeSampler"]

#: Fewer feasible nodes than this are never cut down.
_MIN_FEASIBLE_NODES = 100


class NodeSampler:
    """Walks round robin over the nodes: each sample starts where the previous one ended."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._next_start = 0

    def sample(
        self, percentage: int, rows: Rows, count: int, *, within: NDArray[np.bool_] | None = None
    ) -> tuple[Rows, int]:
        """The feasible ``rows`` to score, and how many they are.

        ``percentage`` is of the nodes ``within`` (bool, one per node; None for all); 0 and 100 mean every feasible
        node. ``count`` is the number of feasible rows.
        """
        total = len(self._nodes) if within is None else int(np.count_nonzero(within))
        if not 0 < percentage < 100 or total < _MIN_FEASIBLE_NODES:
            return rows, count
        wanted = max(_MIN_FEASIBLE_NODES, total * percentage // 100)
        walk = Nodes(self._nodes, rows).row_numbers
        start = int(np.searchsorted(walk, self._next_start % len(self._nodes)))
        walk = np.concatenate((walk[start:], walk[:start]))
        if count <= wanted:
            return rows, count
        # The walk stops at the first feasible node beyond those wanted; the next pod starts there.
        self._next_start = int(walk[wanted])
        return np.sort(walk[:wanted]), wanted
