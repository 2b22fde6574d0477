"""Soft (ScheduleAnyway) constraints: how Score weighs the matching pods of a node's domains (semantics 8.14).

:class:`SoftConstraints` is built once per pod shape and holds counters that follow every pod event. The number of
domains depends on the feasible nodes of a cycle: :class:`ScoredNodes` holds what follows from it, and is reused as long
as the same nodes are feasible and no node changes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.columns import MISSING
from kubestow.cluster.nodes.views import Nodes, Rows
from kubestow.cluster.pods.shapes import Shape
from kubestow.cluster.topology.counters import PodCounter
from kubestow.cluster.topology.domains import DomainSums, domain_sums
from kubestow.plugins.pod_topology_spread.constraints import SharedInclusion, SpreadConstraint, node_inclusions

Mask = NDArray[np.bool_]
DomainIDs = NDArray[np.int32]
Floats = NDArray[np.float64]

_HOSTNAME = "kubernetes.io/hostname"
_JUST_BELOW_HALF = math.nextafter(0.5, 0.0)


class SoftConstraints:
    """The ScheduleAnyway constraints of pods of one shape, at least one.

    With ``require_all_topologies`` nodes that lack a topology key of any of the constraints are ignored.
    """

    def __init__(
        self,
        cluster: Cluster,
        shape: Shape,
        constraints: Sequence[SpreadConstraint],
        *,
        require_all_topologies: bool,
        comparison_operators: bool,
    ) -> None:
        self._table = cluster.nodes
        self._required_keys = [c.topology_key for c in constraints] if require_all_topologies else []
        inclusions = node_inclusions(
            cluster.nodes,
            shape.spec,
            constraints,
            topology_keys=self._required_keys,
            comparison_operators=comparison_operators,
        )
        self._constraints = [
            _SoftConstraint(cluster, shape, constraint, inclusion)
            for constraint, inclusion in zip(constraints, inclusions, strict=True)
        ]
        self._latest: ScoredNodes | None = None

    def scored_nodes(self, nodes: Nodes) -> ScoredNodes:
        """The feasible nodes of a cycle, prepared for scoring; those of the previous cycle if they are the same."""
        latest, revision = self._latest, self._table.revision
        if latest is None or not latest.is_current(nodes, revision):
            self._latest = latest = ScoredNodes(nodes, revision, self._ignored(nodes), self._constraints)
        return latest

    def _ignored(self, nodes: Nodes) -> Mask | None:
        if not self._required_keys:
            return None
        ignored = np.logical_or.reduce([nodes.label(key) == MISSING for key in self._required_keys])
        return ignored if ignored.any() else None


class ScoredNodes:
    """The feasible nodes of a cycle with what the soft constraints derive from them alone.

    ``revision`` is that of the node table. ``ignored`` (bool, one per node; None for none) are the nodes that score 0.
    """

    def __init__(
        self, nodes: Nodes, revision: int, ignored: Mask | None, constraints: Iterable[_SoftConstraint]
    ) -> None:
        self._rows = nodes.rows
        self._revision = revision
        self.ignored = ignored
        self._scorers = [constraint.scorer(nodes, ignored) for constraint in constraints]

    def is_current(self, nodes: Nodes, revision: int) -> bool:
        """Whether these are the same rows of the node table at the same revision."""
        if self._revision != revision:
            return False
        rows, other = self._rows, nodes.rows
        if isinstance(rows, slice) or isinstance(other, slice):
            return isinstance(rows, slice) and isinstance(other, slice) and rows == other
        return np.array_equal(rows, other)

    def raw_scores(self) -> NDArray[np.int64]:
        """The raw score of each node, int64, 0 for ignored nodes; lower is better."""
        first, *others = self._scorers
        total = first.scores()
        for scorer in others:
            total += scorer.scores()
        scores = _rounded(total)
        if self.ignored is not None:
            scores[self.ignored] = 0
        return scores


class _SoftConstraint:
    def __init__(
        self, cluster: Cluster, shape: Shape, constraint: SpreadConstraint, inclusion: SharedInclusion
    ) -> None:
        self._topology_key = constraint.topology_key
        self._offset = float(constraint.max_skew - 1)
        self._pods = constraint.matching_pods(cluster, shape.namespace)
        self._counts = domain_sums(
            cluster.nodes,
            self._pods,
            self._topology_key,
            eligible=inclusion.rows,
            eligibility=inclusion.policies.key,
        )

    def scorer(self, nodes: Nodes, ignored: Mask | None) -> _HostnameScorer | _DomainScorer:
        """What scores feasible nodes; the weight of a pod grows with the number of domains of the scored nodes."""
        domains = nodes.label(self._topology_key)
        scored = domains if ignored is None else domains[~ignored]
        if self._topology_key == _HOSTNAME:
            missing = domains == MISSING
            weight = _normalizing_weight(len(scored))
            return _HostnameScorer(self._pods, nodes.rows, missing if missing.any() else None, weight, self._offset)
        column = nodes.label_column(self._topology_key)
        empty = column.id_of("")
        weight = _normalizing_weight(_topology_size(scored, known=len(column.values), empty=empty))
        return _DomainScorer(self._counts, domains, empty, weight, self._offset)


def _normalizing_weight(topology_size: int) -> float:
    return math.log(topology_size + 2)


def _topology_size(domains: DomainIDs, *, known: int, empty: int | None) -> int:
    """The number of distinct domains, of ``known`` ones; MISSING counts as the domain of the empty label value."""
    present = np.zeros(known, np.bool_)
    present[domains] = True
    if empty is not None and present[MISSING]:
        present[empty] = False
    return int(np.count_nonzero(present))


@dataclass(frozen=True, slots=True)
class _HostnameScorer:
    """Scores by ``kubernetes.io/hostname``: each node is its own domain, and node inclusion policies do not apply."""

    pods: PodCounter
    rows: Rows
    #: Nodes that lack the topology key, bool; None if there are none.
    missing_topology_key: Mask | None
    weight: float
    offset: float

    def scores(self) -> Floats:
        """count x weight + offset for each node, float64; 0.0 for nodes that lack the topology key."""
        scores: Floats = np.multiply(self.pods.by_row[self.rows], self.weight, dtype=np.float64)
        scores += self.offset
        if self.missing_topology_key is not None:
            scores[self.missing_topology_key] = 0.0
        return scores


@dataclass(frozen=True, slots=True)
class _DomainScorer:
    """Scores by any other topology key.

    QUIRK (semantics 8.14): nodes that lack the key, where they are not ignored, form one domain with those whose label
    value is empty.
    """

    counts: DomainSums
    #: The domain of each node, int32.
    domains: DomainIDs
    #: The domain of the empty label value; None if no node has it.
    empty: int | None
    weight: float
    offset: float

    def scores(self) -> Floats:
        """count x weight + offset for each node, float64; 0.0 for nodes that lack the topology key."""
        counts = self.counts.by_domain
        if self.empty is not None:
            counts = counts.copy()
            counts[self.empty] += counts[MISSING]
        by_domain: Floats = np.multiply(counts, self.weight, dtype=np.float64) + self.offset
        by_domain[MISSING] = 0.0
        return by_domain.take(self.domains)


def _rounded(scores: Floats) -> NDArray[np.int64]:
    """To the nearest integer, halves up, as Go's ``math.Round`` does for numbers that are not negative.

    Adding 0.5 itself would round 0.49999999999999994 up.
    """
    return (scores + _JUST_BELOW_HALF).astype(np.int64)
