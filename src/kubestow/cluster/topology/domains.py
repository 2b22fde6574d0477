"""Pods counted per topology domain: the nodes that share a value of some label.

A :class:`DomainSums` adds up a pod counter over the eligible nodes of every domain. It follows the counter pod by pod
in O(1) and is worked out afresh only when nodes come, go or change their labels or taints.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.nodes.labels import MISSING
from kubestow.cluster.nodes.table import NodeTable
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.topology.counters import PodCounter

__all__ = ["DomainSums", "domain_sums"]

Mask = NDArray[np.bool_]
Eligible = Callable[[Nodes], Mask]

_FAR = np.iinfo(np.int64).max


def domain_sums(
    table: NodeTable,
    counter: PodCounter,
    topology_key: str,
    *,
    eligible: Eligible | None = None,
    eligibility: Hashable = None,
) -> DomainSums:
    """The sums of a counter by the values of a label, over eligible nodes (all of them by default).

    Whoever asks for equal ``eligibility`` shares the sums; it has to say everything that ``eligible`` depends on.
    """
    key = (topology_key, eligibility)
    found = counter.listeners.get(key)
    if not isinstance(found, DomainSums):
        counter.listeners[key] = found = DomainSums(table, counter, topology_key, eligible)
    return found


class DomainSums:
    """Sums per domain. Domains are the numbers of the label's values (:mod:`kubestow.cluster.nodes.labels`)."""

    __slots__ = (
        "__weakref__",
        "_by_domain",
        "_counter",
        "_eligible",
        "_label",
        "_mask",
        "_present",
        "_present_revision",
        "_revision",
        "_table",
        "_total",
    )

    def __init__(self, table: NodeTable, counter: PodCounter, topology_key: str, eligible: Eligible | None) -> None:
        self._table = table
        self._counter = counter
        self._label = table.label(topology_key)
        self._eligible = eligible
        self._revision = self._present_revision = -1
        self._mask: Mask | None = None
        self._by_domain: NDArray[np.int64] = np.zeros(1, np.int64)
        self._present: NDArray[np.intp] = np.zeros(0, np.intp)
        self._total = 0

    @property
    def topology_key(self) -> str:
        """The label whose values are the domains."""
        return self._label.key

    @property
    def by_domain(self) -> NDArray[np.int64]:
        """The sum of each domain, int64; at MISSING that of the nodes without the label."""
        self._refresh()
        return self._by_domain

    @property
    def present(self) -> NDArray[np.intp]:
        """The domains that have an eligible node, intp."""
        self._refresh()
        if self._present_revision != self._revision:
            there = np.zeros(len(self._by_domain), np.bool_)
            there[self._label.ids if self._mask is None else self._label.ids[self._mask]] = True
            there[MISSING] = False
            self._present = np.flatnonzero(there)
            self._present_revision = self._revision
        return self._present

    @property
    def total(self) -> int:
        """The sum over all domains; nodes without the label are in none."""
        self._refresh()
        return self._total

    def minimum(self) -> int:
        """The smallest sum of the present domains, of which there must be one."""
        sums, present = self.by_domain, self.present
        return int((sums[1:] if len(present) == len(sums) - 1 else sums[present]).min())

    def critical_paths(self) -> tuple[int, int, int]:
        """The present domain with the smallest sum, that sum, and the smallest sum of the others.

        Where there is none, MISSING stands for the domain and the largest int64 for a sum.
        """
        present = self.present
        sums = self._by_domain[present]
        if not len(sums):
            return MISSING, _FAR, _FAR
        first = int(sums.argmin())
        others = np.delete(sums, first)
        return int(present[first]), int(sums[first]), int(others.min(initial=_FAR))

    def add(self, row: int, amount: int) -> None:
        """The counter's sum of a row has changed."""
        if self._revision != self._table.revision or (self._mask is not None and not self._mask[row]):
            return
        domain = self._label.ids[row]
        self._by_domain[domain] += amount
        if domain != MISSING:
            self._total += amount

    def _refresh(self) -> None:
        if self._revision == self._table.revision:
            return
        values = self._counter.by_row
        counted = values != 0
        if self._eligible is not None:
            self._mask = self._eligible(Nodes(self._table, slice(0, len(self._table))))
            counted &= self._mask
        rows = np.flatnonzero(counted)
        self._by_domain = np.zeros(len(self._label.values), np.int64)
        np.add.at(self._by_domain, self._label.ids[rows], values[rows])
        self._total = int(self._by_domain[1:].sum())
        self._revision = self._table.revision
