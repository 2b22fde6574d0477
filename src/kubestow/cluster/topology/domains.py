"""Pods counted per topology domain, that is per value of a node label.

A :class:`DomainSums` sums a pod counter over the eligible nodes of each domain. Every change of the counter updates it
in O(1); it is recomputed only when nodes are added or removed or change their labels or taints.
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

_MAX = np.iinfo(np.int64).max


def domain_sums(
    table: NodeTable,
    counter: PodCounter,
    topology_key: str,
    *,
    eligible: Eligible | None = None,
    eligibility: Hashable = None,
) -> DomainSums:
    """The sums of a counter by the values of a label, over eligible nodes (by default all).

    Calls with equal ``eligibility`` share their sums, so it must identify what ``eligible`` (bool per row) selects.
    """
    key = (topology_key, eligibility)
    found = counter.listeners.get(key)
    if not isinstance(found, DomainSums):
        counter.listeners[key] = found = DomainSums(table, counter, topology_key, eligible)
    return found


class DomainSums:
    """Sums per domain, which is the number of a label value (:mod:`kubestow.cluster.nodes.labels`)."""

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
        "topology_key",
    )

    def __init__(self, table: NodeTable, counter: PodCounter, topology_key: str, eligible: Eligible | None) -> None:
        self._table = table
        self._counter = counter
        #: The label whose values are the domains.
        self.topology_key = topology_key
        self._label = table.label(topology_key)
        self._eligible = eligible
        self._revision = self._present_revision = -1
        self._mask: Mask | None = None
        self._by_domain: NDArray[np.int64] = np.zeros(1, np.int64)
        self._present: NDArray[np.intp] = np.zeros(0, np.intp)
        self._total = 0

    @property
    def by_domain(self) -> NDArray[np.int64]:
        """The sum of each domain, int64; at MISSING that of the nodes without the label."""
        self._refresh()
        return self._by_domain

    @property
    def present(self) -> NDArray[np.intp]:
        """The domains with an eligible node, intp."""
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
        """The sum over all domains, which excludes nodes without the label."""
        self._refresh()
        return self._total

    def minimum(self) -> int:
        """The smallest sum of the present domains. There must be at least one."""
        sums, present = self.by_domain, self.present
        return int((sums[1:] if len(present) == len(sums) - 1 else sums[present]).min())

    def critical_paths(self) -> tuple[int, int, int]:
        """The present domain with the smallest sum, its sum, and the next smallest sum (semantics 8.14).

        A domain that does not exist is MISSING, and its sum the largest int64.
        """
        present = self.present
        sums = self._by_domain[present]
        if not len(sums):
            return MISSING, _MAX, _MAX
        first = int(sums.argmin())
        others = np.delete(sums, first)
        return int(present[first]), int(sums[first]), int(others.min(initial=_MAX))

    def add(self, row: int, amount: int) -> None:
        """Add an amount to the sum of a row's domain."""
        if self._revision != self._table.revision or (self._mask is not None and not self._mask[row]):
            return
        domain = self._label.ids[row]
        self._by_domain[domain] += amount
        if domain != MISSING:
            self._total += amount

    def _refresh(self) -> None:
        if self._revision == self._table.revision:
            return
        self._label = self._table.label(self.topology_key)
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
