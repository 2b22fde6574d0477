"""A cycle's filters as changed for preemption, and followed by a check within quotas and shares."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.changes.journal import InvalidationMask
from kubestow.cluster.nodes.views import Nodes
from kubestow.framework.diagnosis import Rejection
from kubestow.framework.interface import FilterRunner
from kubestow.framework.status import Status, Verdict


class FiltersOfCycle:
    """Filters that are made of those of a cycle, and whose results are valid for it only."""

    def __init__(self, filters: FilterRunner) -> None:
        self._filters = filters

    @property
    def active(self) -> Sequence[object]:
        """Those of the cycle."""
        return self._filters.active

    @property
    def invalidation_mask(self) -> InvalidationMask | None:
        """None: the results are valid for this cycle only."""
        return None


class NodeChecks(FiltersOfCycle, ABC):
    """Implements :class:`kubestow.framework.interface.FilterRunner` on another one, for the nodes that pass there.

    ``plugin`` and ``status`` are of the rejections by the check.
    """

    def __init__(self, filters: FilterRunner, plugin: str, status: Status) -> None:
        super().__init__(filters)
        self._plugin, self._status = plugin, status

    @abstractmethod
    def rejects(self, nodes: Nodes) -> NDArray[np.bool_]:
        """Which nodes the check rejects (bool, one per node), by the pods that each has or would lose."""

    def rejects_first(self, nodes: Nodes) -> NDArray[np.bool_]:
        """The same before any pod is put back on the nodes; as :meth:`rejects` by default."""
        return self.rejects(nodes)

    def rejections(self, nodes: Nodes) -> list[Rejection]:
        """The rejections of some nodes, at last those by the check."""
        found = self._filters.rejections(nodes)
        passes = np.ones(nodes.total, np.bool_)
        for rejection in found:
            passes &= ~rejection.where
        left = nodes.select(passes[nodes.row_numbers])
        rejected = np.zeros(nodes.total, np.bool_)
        rejected[left.row_numbers] = self.rejects_first(left)
        if rejected.any():
            found = [*found, Rejection(self._plugin, rejected, Verdict.rejecting(rejected, self._status))]
        return found

    def still_pass(self, nodes: Nodes) -> NDArray[np.bool_]:
        """Which nodes pass (bool, one per node)."""
        passes = self._filters.still_pass(nodes).copy()
        passes[passes] = ~self.rejects(nodes.select(passes))
        return passes
