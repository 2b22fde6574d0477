"""Pods counted per topology domain, that is per value of a node label.

A :class:`DomainSums` sums a pod counter over the eligible nodes of each domain. Every change of the counter updates it
in O(1); it is recomputed only when nodes are added or removed or change their labels or taints.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.nodes.columns import MISSING
from kubestow.cluster.nodes.table import NodeTable
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.topology.counters import PodCounter

Mask = NDArray[np.bool_]
_MAX = np.iinfo(np.int64).max


def domain_sums(
    table: NodeTable,
    counter: PodCounter,
    topology_key: str,
    *,
    eligible: EligibleRows | None = None,
    eligibility: Hashable = None,
) -> DomainSums:
    """The sums of a counter by the values of a label, over eligible nodes (by default all).

    Calls with equal ``eligibility`` share their sums, so it must identify what ``eligible`` selects.
    """
    key = (topology_key, eligibility)
    found = counter.listeners.get(key)
    if not isinstance(found, DomainSums):
        counter.listeners[key] = found = DomainSums(table, counter, topology_key, eligible)
    return found


class EligibleRows:
    """The rows of a table that ``select`` selects (bool per row), computed once per revision for all sums that use it.

    What ``select`` returns may depend on names, labels and taints only.
    """

    def __init__(self, table: NodeTable, select: Callable[[Nodes], Mask]) -> None:
        self._table, self._select = table, select
        self._revision = -1
        self._mask: Mask = np.zeros(0, np.bool_)

    @property
    def mask(self) -> Mask:
        """The selected rows, bool; not to be changed."""
        if self._revision != self._table.revision:
            self._mask = self._select(Nodes(self._table, slice(0, len(self._table))))
            self._revision = self._table.revision
        return self._mask


class DomainSums:
    """Sums per domain, which is the number of a label value (:mod:`kubestow.cluster.nodes.columns`)."""

    __slots__ = (
        "__weakref__",
        "_by_domain",
        "_counter",
        "_critical_paths",
        "_eligible",
        "_is_zero",
        "_label",
        "_mask",
        "_present",
        "_present_revision",
        "_revision",
        "_table",
        "_total",
        "topology_key",
    )

    def __init__(self, table: NodeTable, counter: PodCounter, topology_key: str, eligible: EligibleRows | None) -> None:
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
        #: Whether the counter had counted no pod, so that the sums are shared zeros.
        self._is_zero = False
        self._critical_paths: tuple[int, int, int] | None = None

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
    def eligible(self) -> Mask:
        """The nodes whose pods are counted, bool per row of the node table."""
        self._refresh()
        return self._table.every.readonly if self._mask is None else self._mask

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
        if self._critical_paths is None:
            self._critical_paths = _critical_paths(present, self._by_domain[present])
        return self._critical_paths

    def add(self, row: int, amount: int) -> None:
        """Add an amount to the sum of a row's domain."""
        if self._revision != self._table.revision or (self._mask is not None and not self._mask[row]):
            return
        if self._is_zero:
            self._revision = -1
            return
        domain = self._label.ids[row]
        self._by_domain[domain] += amount
        self._critical_paths = None
        if domain != MISSING:
            self._total += amount

    def _refresh(self) -> None:
        if self._revision == self._table.revision:
            return
        self._label = self._table.label(self.topology_key)
        if self._eligible is not None:
            self._mask = self._eligible.mask
        self._is_zero = not self._counter.has_counted
        if self._is_zero:
            self._by_domain, self._total = self._table.columns.zeros(len(self._label.values)), 0
        else:
            self._by_domain = self._summed(self._counter.by_row)
            self._total = int(self._by_domain[1:].sum())
        self._critical_paths = None
        self._revision = self._table.revision

    def _summed(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        counted = values != 0
        if self._mask is not None:
            counted &= self._mask
        rows = np.flatnonzero(counted)
        by_domain = np.zeros(len(self._label.values), np.int64)
        np.add.at(by_domain, self._label.ids[rows], values[rows])
        return by_domain


class SharedSums:
    """The sums of several :class:`DomainSums` with one topology key, added up."""

    def __init__(self, parts: Sequence[DomainSums]) -> None:
        self._parts = parts

    @property
    def by_domain(self) -> NDArray[np.int64]:
        """The sum of each domain, int64, as in :attr:`DomainSums.by_domain`."""
        first, *others = (part.by_domain for part in self._parts)
        return sum(others, start=first)

    @property
    def present(self) -> NDArray[np.intp]:
        """The domains with an eligible node of any part, intp."""
        return np.unique(np.concatenate([part.present for part in self._parts]))

    @property
    def eligible(self) -> Mask:
        """The nodes whose pods any part counts, bool per row of the node table."""
        eligible: Mask = np.logical_or.reduce([part.eligible for part in self._parts])
        return eligible

    def minimum(self) -> int:
        """The smallest sum of the present domains. There must be at least one."""
        return int(self.by_domain[self.present].min())

    def critical_paths(self) -> tuple[int, int, int]:
        """The same as :meth:`DomainSums.critical_paths`."""
        present = self.present
        return _critical_paths(present, self.by_domain[present])


def _critical_paths(domains: NDArray[np.intp], sums: NDArray[np.int64]) -> tuple[int, int, int]:
    if not len(sums):
        return MISSING, _MAX, _MAX
    first = int(sums.argmin())
    others = np.delete(sums, first)
    return int(domains[first]), int(sums[first]), int(others.min(initial=_MAX))
