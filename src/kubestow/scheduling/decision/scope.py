"""The scope of a decision: which nodes are in question, and what may be done to find one.

A pod that is scheduled by itself may go anywhere, and room may be made for it. A gang asks about its pods more often
than that: in one part of the cluster after another, or what would be if some pods were gone. Nodes go by name here,
because a decision may take time, and the rows of the node table move meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.cache import Cluster

__all__ = ["EVERYWHERE", "Scope"]


class Scope:
    """``names`` are the nodes in question, None for all; those that are ``barred`` are not, whatever the names say.

    With ``makes_room`` False nobody is asked whom one could evict; with ``asks_extenders`` False only plugins decide,
    and the decision takes no time.
    """

    __slots__ = ("_barred", "_mask", "_names", "_structure", "asks_extenders", "makes_room")

    def __init__(
        self,
        names: Iterable[str] | None = None,
        *,
        barred: Iterable[str] = (),
        makes_room: bool = True,
        asks_extenders: bool = True,
    ) -> None:
        self._names = None if names is None else frozenset(names)
        self._barred = frozenset(barred)
        self.makes_room, self.asks_extenders = makes_room, asks_extenders
        self._mask: NDArray[np.bool_] | None = None
        self._structure = -1

    def rows(self, cluster: Cluster) -> NDArray[np.bool_] | None:
        """The rows in question as the node table is now, bool; None for all."""
        if self._names is None and not self._barred:
            return None
        if self._structure != cluster.nodes.structure or self._mask is None:
            self._mask, self._structure = self._masked(cluster), cluster.nodes.structure
        return self._mask

    def _masked(self, cluster: Cluster) -> NDArray[np.bool_]:
        rows = cluster.nodes.rows
        if self._names is None:
            mask = np.ones(len(rows), np.bool_)
        else:
            mask = np.zeros(len(rows), np.bool_)
            mask[[row for row in map(rows.get, self._names) if row is not None]] = True
        mask[[row for row in map(rows.get, self._barred) if row is not None]] = False
        return mask


EVERYWHERE = Scope()
"""The whole cluster, with everything that can be done."""
