"""A cycle's filters followed by a check of one node at a time, for preemption within quotas and shares."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.nodes.views import Nodes
from kubestow.framework.diagnosis import Rejection
from kubestow.framework.interface import FilterRunner
from kubestow.framework.invalidation import InvalidationMask
from kubestow.framework.status import Status, Verdict

__all__ = ["NodeChecks"]


class NodeChecks(ABC):
    """Implements :class:`kubestow.framework.interface.FilterRunner` on another one, for the nodes that pass there.

    ``plugin`` and ``status`` are of the rejections by the check.
    """

    def __init__(self, filters: FilterRunner, plugin: str, status: Status) -> None:
        self._filters, self._plugin, self._status = filters, plugin, status

    @abstractmethod
    def rejects(self, nodes: Nodes, position: int) -> bool:
        """Whether the check rejects the node at a position of ``nodes``, by the pods that it has or would lose."""

    def rejects_first(self, nodes: Nodes, position: int) -> bool:
        """The same before any pod is put back on the node; as :meth:`rejects` by default."""
        return self.rejects(nodes, position)

    @property
    def active(self) -> Sequence[object]:
        """Those of the cycle."""
        return self._filters.active

    @property
    def invalidation_mask(self) -> InvalidationMask | None:
        """None: the results are valid for this cycle only."""
        return None

    def rejections(self, nodes: Nodes) -> list[Rejection]:
        """The rejections of some nodes, at last those by the check."""
        found = self._filters.rejections(nodes)
        keys = np.zeros(nodes.total, np.int32)
        for position, row in enumerate(nodes.row_numbers.tolist()):
            if not any(rejection.where[row] for rejection in found):
                keys[row] = self.rejects_first(nodes, position)
        if keys.any():
            verdict = Verdict.of(keys, {1: self._status})
            found = [*found, Rejection(self._plugin, ~verdict.passes, verdict)]
        return found

    def still_pass(self, nodes: Nodes) -> NDArray[np.bool_]:
        """Which nodes pass (bool, one per node)."""
        passes = self._filters.still_pass(nodes).copy()
        for position in np.flatnonzero(passes).tolist():
            passes[position] = not self.rejects(nodes, position)
        return passes
