"""The scope of a decision: which nodes are considered, and whether preemption and extenders take part.

A single pod is decided about in the whole cluster. A gang's scheduling cycle restricts its decisions: to one placement
after another, or to what plugins alone can decide while pods are removed in a simulation. Nodes are given by name,
because rows of the node table move while extenders are awaited.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.cache import Cluster


class Scope:
    """``names`` are the nodes to consider (None: all) without those ``excluded``.

    ``preempts`` runs PostFilter plugins when no node fits; ``calls_extenders`` runs the extender stages, without which
    a decision never awaits.
    """

    __slots__ = ("_excluded", "_mask", "_names", "_structure", "calls_extenders", "is_whole", "preempts")

    def __init__(
        self,
        names: Iterable[str] | None = None,
        *,
        excluded: Iterable[str] = (),
        preempts: bool = True,
        calls_extenders: bool = True,
    ) -> None:
        self._names = None if names is None else frozenset(names)
        self._excluded = frozenset(excluded)
        self.preempts, self.calls_extenders = preempts, calls_extenders
        #: Whether all nodes are considered.
        self.is_whole = self._names is None and not self._excluded
        self._mask: NDArray[np.bool_] | None = None
        self._structure = -1

    def rows(self, cluster: Cluster) -> NDArray[np.bool_] | None:
        """A mask over the rows of the node table as it is now (bool, one per node); None for all."""
        if self.is_whole:
            return None
        if self._structure != cluster.nodes.structure or self._mask is None:
            self._mask, self._structure = self._mask_of(cluster), cluster.nodes.structure
        return self._mask

    def _mask_of(self, cluster: Cluster) -> NDArray[np.bool_]:
        rows = cluster.nodes.rows
        if self._names is None:
            mask = np.ones(len(rows), np.bool_)
        else:
            mask = np.zeros(len(rows), np.bool_)
            mask[[row for row in map(rows.get, self._names) if row is not None]] = True
        mask[[row for row in map(rows.get, self._excluded) if row is not None]] = False
        return mask


WHOLE_CLUSTER = Scope()
"""All nodes, with preemption and extenders."""
