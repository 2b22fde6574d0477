"""How evenly matching pods are spread over topology domains, as verdicts and as scores (semantics 8.14).

Hard and soft constraints are prepared once per shape of pods; they hold the counters, so that asking is arithmetic on
one number per domain and one lookup per node. Which domains there are to score is found out once for as long as the
same nodes are feasible.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.labels import MISSING
from kubestow.cluster.nodes.views import HypotheticalNodes, Nodes, Rows
from kubestow.cluster.pods.index_keys import groups_meant
from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.cluster.topology.counters import PodCounter
from kubestow.cluster.topology.domains import DomainSums, domain_sums
from kubestow.plugins.pod_topology_spread.constraints import Eligibility, SpreadConstraint

__all__ = ["LACKS_LABEL", "TOO_SKEWED", "HardSpread", "Participants", "SoftSpread"]

Mask = NDArray[np.bool_]
Keys = NDArray[np.int32]
Floats = NDArray[np.float64]

#: The keys of a verdict.
TOO_SKEWED, LACKS_LABEL = 1, 2

_HOSTNAME = "kubernetes.io/hostname"


def _matching_pods(cluster: Cluster, shape: Shape, constraint: SpreadConstraint) -> PodCounter:
    namespace = shape.namespace
    return cluster.counter(
        ("spread", namespace, constraint.selector),
        lambda other: int(constraint.counts(other.labels)),
        groups=groups_meant(frozenset((namespace,)), constraint.selector),
    )


class _Limit:
    """One hard constraint on pods of one shape."""

    def __init__(self, cluster: Cluster, shape: Shape, constraint: SpreadConstraint, eligible: Eligibility) -> None:
        self._constraint = constraint
        self._namespace = shape.namespace
        self._itself = int(constraint.selects(shape.labels))
        self._eligible = eligible
        self._sums: DomainSums = domain_sums(
            cluster.nodes,
            _matching_pods(cluster, shape, constraint),
            constraint.topology_key,
            eligible=eligible,
            eligibility=eligible.key,
        )

    def keys(self, nodes: Nodes) -> Keys:
        """The verdict on nodes."""
        if isinstance(nodes, HypotheticalNodes):
            return self._imagined(nodes)
        sums = self._sums.by_domain
        most = self._constraint.max_skew - self._itself + (0 if self._too_few_domains else self._sums.minimum())
        keys = (sums > most).view(np.int8).astype(np.int32)
        keys[MISSING] = LACKS_LABEL
        return keys.take(nodes.label(self._sums.topology_key))

    def _imagined(self, nodes: HypotheticalNodes) -> Keys:
        """Each row has its own count in one domain, and hence its own minimum over all of them."""
        sums, ids = self._sums.by_domain, nodes.label(self._sums.topology_key)
        eligible = self._eligible(nodes)
        counts = sums[ids] + np.where(eligible, self._change(nodes), 0)
        if self._too_few_domains:
            minimum = np.zeros(len(nodes), np.int64)
        else:
            fewest, smallest, others = self._sums.two_smallest()
            elsewhere = np.where(ids == fewest, others, smallest)
            minimum = np.where(eligible, np.minimum(elsewhere, counts), smallest)
        keys = (counts + self._itself - minimum > self._constraint.max_skew).astype(np.int32)
        keys[ids == MISSING] = LACKS_LABEL
        return keys

    @property
    def _too_few_domains(self) -> bool:
        return len(self._sums.present) < max(1, self._constraint.min_domains)

    def _change(self, nodes: HypotheticalNodes) -> NDArray[np.int64]:
        """QUIRK (semantics 8.14): what is imagined counts terminating pods, and for empty selectors too."""

        @cache
        def weight(shape: Shape) -> int:
            return int(shape.namespace == self._namespace and self._constraint.selects(shape.labels))

        def amount(info: PodInfo) -> int:
            return weight(info.shape)

        return nodes.changed_by(amount)


class HardSpread:
    """The DoNotSchedule constraints of pods of one shape, of which there is at least one."""

    def __init__(
        self, cluster: Cluster, shape: Shape, constraints: Sequence[SpreadConstraint], *, comparisons: bool
    ) -> None:
        keys = [constraint.topology_key for constraint in constraints]
        self._limits = [
            _Limit(cluster, shape, c, Eligibility(c, shape.spec, keys=keys, comparisons=comparisons))
            for c in constraints
        ]

    def keys(self, nodes: Nodes) -> Keys:
        """0, TOO_SKEWED or LACKS_LABEL per row, by the first constraint that is not met."""
        first, *others = (limit.keys(nodes) for limit in self._limits)
        for keys in others:
            first = np.where(first, first, keys)
        return first


@dataclass(frozen=True, slots=True)
class _Hosts:
    """Feasible nodes as a soft constraint sees them to which every node is a domain of its own."""

    pods: PodCounter
    rows: Rows
    #: Where a node is in no domain, bool; None when there is no such node.
    nowhere: Mask | None
    weight: float
    base: float

    def costs(self) -> Floats:
        """What the nodes' domains add to their scores, 0.0 where a node is in none."""
        costs: Floats = np.multiply(self.pods.by_row[self.rows], self.weight, dtype=np.float64)
        costs += self.base
        if self.nowhere is not None:
            costs[self.nowhere] = 0.0
        return costs


@dataclass(frozen=True, slots=True)
class _Regions:
    """Feasible nodes as a soft constraint sees them to which nodes share domains.

    QUIRK (semantics 8.14): the nodes without the label, where they count at all, are one domain, that of ``""``.
    """

    sums: DomainSums
    #: The domain of each node, int32.
    ids: Keys
    #: The domain of the nodes whose label is empty.
    empty: int | None
    weight: float
    base: float

    def costs(self) -> Floats:
        """What the nodes' domains add to their scores, 0.0 where a node is in none."""
        sums = self.sums.by_domain
        if self.empty is not None:
            sums = sums.copy()
            sums[self.empty] += sums[MISSING]
        by_domain: Floats = np.multiply(sums, self.weight, dtype=np.float64) + self.base
        by_domain[MISSING] = 0.0
        return by_domain.take(self.ids)

    @staticmethod
    def size(ids: Keys, *, known: int, empty: int | None) -> int:
        """How many of the ``known`` domains nodes are in."""
        there = np.zeros(known, np.bool_)
        there[ids] = True
        if empty is not None and there[MISSING]:
            there[empty] = False
        return int(np.count_nonzero(there))


class _Preference:
    """One soft constraint on pods of one shape."""

    def __init__(self, cluster: Cluster, shape: Shape, constraint: SpreadConstraint, eligible: Eligibility) -> None:
        self._key = constraint.topology_key
        self._base = float(constraint.max_skew - 1)
        self._pods = _matching_pods(cluster, shape, constraint)
        self._sums = domain_sums(cluster.nodes, self._pods, self._key, eligible=eligible, eligibility=eligible.key)

    def among(self, nodes: Nodes, left_out: Mask | None) -> _Hosts | _Regions:
        """How it sees feasible nodes. The more domains there are of those that take part, the more a pod weighs."""
        ids = nodes.label(self._key)
        taking_part = ids if left_out is None else ids[~left_out]
        if self._key == _HOSTNAME:
            nowhere = ids == MISSING
            weight = _weight(len(taking_part))
            return _Hosts(self._pods, nodes.rows, nowhere if nowhere.any() else None, weight, self._base)
        column = nodes.label_column(self._key)
        empty = column.id_of("")
        weight = _weight(_Regions.size(taking_part, known=len(column.values), empty=empty))
        return _Regions(self._sums, ids, empty, weight, self._base)


def _weight(domains: int) -> float:
    return math.log(domains + 2)


class Participants:
    """Feasible nodes as the soft constraints see them: what does not depend on pods, and holds until a node changes."""

    def __init__(self, nodes: Nodes, revision: int, left_out: Mask | None, preferences: Iterable[_Preference]) -> None:
        self._rows = nodes.rows
        self._revision = revision
        #: The nodes that take no part and end with a score of 0, bool; None when all take part.
        self.left_out = left_out
        self._seen = [preference.among(nodes, left_out) for preference in preferences]

    def are(self, nodes: Nodes, revision: int) -> bool:
        """Whether they are these nodes as of a revision of the node table."""
        if self._revision != revision:
            return False
        ours, theirs = self._rows, nodes.rows
        if isinstance(ours, slice) or isinstance(theirs, slice):
            return isinstance(ours, slice) and isinstance(theirs, slice) and ours == theirs
        return np.array_equal(ours, theirs)

    def scores(self) -> NDArray[np.int64]:
        """The sum of the costs per node, rounded; the lower the better."""
        first, *others = self._seen
        total = first.costs()
        for seen in others:
            total += seen.costs()
        scores = _rounded(total)
        if self.left_out is not None:
            scores[self.left_out] = 0
        return scores


class SoftSpread:
    """The ScheduleAnyway constraints of pods of one shape, of which there is at least one.

    With ``all_topologies`` only nodes that have all of the labels take part.
    """

    def __init__(
        self,
        cluster: Cluster,
        shape: Shape,
        constraints: Sequence[SpreadConstraint],
        *,
        all_topologies: bool,
        comparisons: bool,
    ) -> None:
        self._table = cluster.nodes
        self._keys = [constraint.topology_key for constraint in constraints] if all_topologies else []
        self._preferences = [
            _Preference(cluster, shape, c, Eligibility(c, shape.spec, keys=self._keys, comparisons=comparisons))
            for c in constraints
        ]
        self._last: Participants | None = None

    def participants(self, nodes: Nodes) -> Participants:
        """The feasible nodes of a cycle: mostly the same as in the last one, of which all that is needed is known."""
        last, revision = self._last, self._table.revision
        if last is None or not last.are(nodes, revision):
            self._last = last = Participants(nodes, revision, self._left_out(nodes), self._preferences)
        return last

    def _left_out(self, nodes: Nodes) -> Mask | None:
        if not self._keys:
            return None
        lacking = np.logical_or.reduce([nodes.label(key) == MISSING for key in self._keys])
        return lacking if lacking.any() else None


_JUST_BELOW_HALF = math.nextafter(0.5, 0.0)


def _rounded(values: Floats) -> NDArray[np.int64]:
    """To the nearest integer, halves up; for costs, which ``maxSkew``, at least 1, keeps from being negative."""
    return (values + _JUST_BELOW_HALF).astype(np.int64)
