"""Which nodes are considered and scored, and which of those with the highest score is selected (semantics 5.4, 5.7).

A profile may ask for a sample of the feasible nodes instead of all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.table import NodeTable
from kubestow.cluster.nodes.views import Rows
from kubestow.framework.evaluation.row_totals import BestRows


class Scope:
    """The scope of a decision: ``names`` are the nodes to consider (None: all) without those ``excluded``.

    A single pod is decided about in the whole cluster. A gang's scheduling cycle restricts its decisions: to one
    placement after another, or to what plugins alone can decide while pods are removed in a simulation. Nodes are given
    by name, because rows of the node table move while extenders are awaited.

    ``preempts`` runs PostFilter plugins when no node fits; ``calls_extenders`` runs the extender stages, without which
    a decision never awaits.
    """

    __slots__ = ("_excluded", "_mask", "_structure", "calls_extenders", "is_whole", "names", "preempts")

    def __init__(
        self,
        names: Iterable[str] | None = None,
        *,
        excluded: Iterable[str] = (),
        preempts: bool = True,
        calls_extenders: bool = True,
    ) -> None:
        #: The names of the nodes to consider; None for all.
        self.names = None if names is None else frozenset(names)
        self._excluded = frozenset(excluded)
        self.preempts, self.calls_extenders = preempts, calls_extenders
        #: Whether all nodes are considered.
        self.is_whole = self.names is None and not self._excluded
        self._mask: NDArray[np.bool_] | None = None
        self._structure = -1

    def without_post_filter(self) -> Scope:
        """The same nodes, without PostFilter plugins."""
        calls = self.calls_extenders
        return Scope(self.names, excluded=self._excluded, preempts=False, calls_extenders=calls)

    def rows(self, cluster: Cluster) -> NDArray[np.bool_] | None:
        """A mask over the rows of the node table as it is now (bool, one per node); None for all."""
        if self.is_whole:
            return None
        if self._structure != cluster.nodes.structure or self._mask is None:
            self._mask, self._structure = self._mask_of(cluster), cluster.nodes.structure
        return self._mask

    def _mask_of(self, cluster: Cluster) -> NDArray[np.bool_]:
        rows = cluster.nodes.rows
        if self.names is None:
            mask = np.ones(len(rows), np.bool_)
        else:
            mask = np.zeros(len(rows), np.bool_)
            mask[[row for row in map(rows.get, self.names) if row is not None]] = True
        mask[[row for row in map(rows.get, self._excluded) if row is not None]] = False
        return mask


WHOLE_CLUSTER = Scope()
"""All nodes, with preemption and extenders."""


_MIN_FEASIBLE_NODES = 100
_MIN_ADAPTIVE_PERCENTAGE = 5
_ADAPTIVE_START_PERCENTAGE = 50
_NODES_PER_PERCENT_LESS = 125


def feasible_nodes_to_find(nodes: int, percentage: int) -> int:
    """kube-scheduler's rule: a percentage of the nodes, but at least 100; 0 means less the more nodes there are."""
    if nodes < _MIN_FEASIBLE_NODES:
        return nodes
    adaptive = max(_MIN_ADAPTIVE_PERCENTAGE, _ADAPTIVE_START_PERCENTAGE - nodes // _NODES_PER_PERCENT_LESS)
    return max(_MIN_FEASIBLE_NODES, nodes * (percentage or adaptive) // 100)


class NodeSampler:
    """Walks round robin over the nodes, zone by zone: each walk starts where the previous one ended."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._next_start = 0

    def sample(
        self,
        percentage: int,
        rows: Rows,
        count: int,
        *,
        candidates: NDArray[np.bool_],
        within: NDArray[np.bool_] | None = None,
    ) -> tuple[Rows, int]:
        """The feasible ``rows`` to score, and how many they are.

        ``percentage`` is of the ``candidates``: the nodes that PreFilter and the scope have left (bool, one per node);
        0 is kube-scheduler's adaptive rule. ``count`` is the number of feasible rows, ``within`` the scope (bool, one
        per node; None for all).
        """
        order = self._nodes.zone_order()
        order = order[candidates[order]]
        if not len(order):
            return rows, count
        feasible = np.zeros(len(self._nodes), np.bool_)
        feasible[rows] = True
        start = self._next_start % len(order)
        positions = np.flatnonzero(feasible[order])
        first = int(np.searchsorted(positions, start))
        positions = np.concatenate((positions[first:], positions[:first]))
        wanted = feasible_nodes_to_find(len(order), percentage)
        # The walk ends at the first feasible node beyond those wanted; the next one starts there.
        walked = len(order) if count <= wanted else int(positions[wanted] - start) % len(order)
        everything = len(self._nodes) if within is None else int(np.count_nonzero(within))
        self._next_start = (self._next_start + walked) % everything
        if count <= wanted:
            return rows, count
        return np.sort(order[positions[:wanted]]), wanted


class TieBreak(Protocol):
    """Chooses among the nodes with the highest score."""

    def choose(self, cluster: Cluster, rows: BestRows) -> int:
        """One of the rows, of which there are at least two."""


@dataclass(frozen=True, slots=True)
class RandomTie:
    """Each of the best nodes has the same chance, by the injected random source."""

    random: Random

    def choose(self, cluster: Cluster, rows: BestRows) -> int:
        """A random row."""
        return int(rows[self.random.randrange(len(rows))])


@dataclass(frozen=True, slots=True)
class FirstByName:
    """The first of the best nodes by name, as recorded decisions assume."""

    def choose(self, cluster: Cluster, rows: BestRows) -> int:
        """The row whose node name sorts first."""
        return int(rows[cluster.nodes.name_rank()[np.asarray(rows)].argmin()])
