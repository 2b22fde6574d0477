"""How evenly matching pods are spread over topology domains, as verdicts and as scores (reference 8.14).

Both classes are made once per shape of pods; they hold the counters, so that asking is arithmetic on one number per
domain and one lookup per node.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.counters import PodCounter
from kubestow.cluster.domains import DomainSums, domain_sums
from kubestow.cluster.groups import groups_meant
from kubestow.cluster.labels import MISSING
from kubestow.cluster.pods import PodInfo, Shape
from kubestow.cluster.state import Cluster
from kubestow.cluster.views import HypotheticalNodes, Nodes
from kubestow.plugins.spread_constraints import Eligibility, SpreadConstraint

__all__ = ["LACKS_LABEL", "TOO_SKEWED", "HardSpread", "SoftSpread"]

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
        """QUIRK (reference 8.14): what is imagined counts terminating pods, and for empty selectors too."""

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


class _Preference:
    """One soft constraint on pods of one shape."""

    def __init__(self, cluster: Cluster, shape: Shape, constraint: SpreadConstraint, eligible: Eligibility) -> None:
        self.topology_key = constraint.topology_key
        self._base = float(constraint.max_skew - 1)
        self._pods = _matching_pods(cluster, shape, constraint)
        self._sums = domain_sums(
            cluster.nodes, self._pods, self.topology_key, eligible=eligible, eligibility=eligible.key
        )

    def domains(self, nodes: Nodes) -> int:
        """How many domains the nodes are in; each node is its own where nodes are the domains.

        QUIRK (reference 8.14): the nodes without the label, where they count at all, are one domain, that of ``""``.
        """
        if self.topology_key == _HOSTNAME:
            return len(nodes)
        column = nodes.label_column(self.topology_key)
        there = np.zeros(len(column.values), np.bool_)
        there[nodes.label(self.topology_key)] = True
        empty = column.id_of("")
        if empty is not None and there[MISSING]:
            there[empty] = False
        return int(np.count_nonzero(there))

    def cost(self, nodes: Nodes, domains: int) -> Floats:
        """What the node's domain adds to its score, 0.0 where the node is in none; ``domains`` sets the weight."""
        weight = math.log(domains + 2)
        ids = nodes.label(self.topology_key)
        if self.topology_key == _HOSTNAME:
            costs: Floats = np.multiply(self._pods.by_row[nodes.rows], weight, dtype=np.float64) + self._base
            costs[ids == MISSING] = 0.0
            return costs
        sums = self._sums.by_domain
        empty = nodes.label_column(self.topology_key).id_of("")
        if empty is not None:
            sums = sums.copy()
            sums[empty] += sums[MISSING]
        by_domain: Floats = np.multiply(sums, weight, dtype=np.float64) + self._base
        by_domain[MISSING] = 0.0
        return by_domain.take(ids)


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
        self._lacking: Mask | None = None
        self._revision = -1
        self._preferences = [
            _Preference(cluster, shape, c, Eligibility(c, shape.spec, keys=self._keys, comparisons=comparisons))
            for c in constraints
        ]

    def domains(self, nodes: Nodes) -> list[int]:
        """For each constraint, how many domains the feasible nodes are in."""
        left_out = self.left_out(nodes)
        if left_out is not None:
            nodes = nodes.select(~left_out)
        return [preference.domains(nodes) for preference in self._preferences]

    def left_out(self, nodes: Nodes) -> Mask | None:
        """The nodes that take no part and end with a score of 0, bool; None when all take part."""
        if self._revision != self._table.revision:
            lacking = np.zeros(len(self._table), np.bool_)
            for key in self._keys:
                lacking |= self._table.label(key).ids == MISSING
            self._lacking = lacking if lacking.any() else None
            self._revision = self._table.revision
        return None if self._lacking is None else self._lacking[nodes.rows]

    def scores(self, nodes: Nodes, domains: Sequence[int]) -> NDArray[np.int64]:
        """The sum of the costs per node, rounded; the lower the better."""
        first, *others = self._preferences
        total = first.cost(nodes, domains[0])
        for preference, size in zip(others, domains[1:], strict=True):
            total += preference.cost(nodes, size)
        scores = _rounded(total)
        left_out = self.left_out(nodes)
        if left_out is not None:
            scores[left_out] = 0
        return scores


_JUST_BELOW_HALF = math.nextafter(0.5, 0.0)


def _rounded(values: Floats) -> NDArray[np.int64]:
    """To the nearest integer, halves away from zero."""
    return (values + np.copysign(_JUST_BELOW_HALF, values)).astype(np.int64)
