"""Hard (DoNotSchedule) constraints: how Filter compares the skew with maxSkew (semantics 8.14).

:class:`HardConstraints` is built once per pod shape. It holds counters that follow every pod event, so filtering is
arithmetic on one count per domain and one lookup per node.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.labels import MISSING
from kubestow.cluster.nodes.views import HypotheticalNodes, Nodes
from kubestow.cluster.pods.shapes import Shape
from kubestow.cluster.topology.domains import DomainSums, domain_sums
from kubestow.plugins.pod_topology_spread.constraints import SpreadConstraint
from kubestow.plugins.pod_topology_spread.node_inclusion import SharedInclusion, node_inclusions

__all__ = ["MAX_SKEW_EXCEEDED", "MISSING_TOPOLOGY_KEY", "HardConstraints"]

VerdictKeys = NDArray[np.int32]

#: Verdict keys.
MAX_SKEW_EXCEEDED, MISSING_TOPOLOGY_KEY = 1, 2


class HardConstraints:
    """The DoNotSchedule constraints of pods of one shape, at least one."""

    def __init__(
        self, cluster: Cluster, shape: Shape, constraints: Sequence[SpreadConstraint], *, comparison_operators: bool
    ) -> None:
        topology_keys = [constraint.topology_key for constraint in constraints]
        inclusions = node_inclusions(
            cluster.nodes,
            shape.spec,
            constraints,
            topology_keys=topology_keys,
            comparison_operators=comparison_operators,
        )
        self._constraints = [
            _HardConstraint(cluster, shape, constraint, inclusion)
            for constraint, inclusion in zip(constraints, inclusions, strict=True)
        ]

    def verdict_keys(self, nodes: Nodes) -> VerdictKeys:
        """0 or the result of the first constraint that fails, for each row of ``nodes``, int32."""
        first, *others = (constraint.verdict_keys(nodes) for constraint in self._constraints)
        for keys in others:
            first = np.where(first, first, keys)
        return first


class _HardConstraint:
    def __init__(
        self, cluster: Cluster, shape: Shape, constraint: SpreadConstraint, inclusion: SharedInclusion
    ) -> None:
        self._constraint = constraint
        self._namespace = shape.namespace
        self._self_match = int(constraint.matches(shape.labels))
        self._counts: DomainSums = domain_sums(
            cluster.nodes,
            constraint.matching_pods(cluster, shape.namespace),
            constraint.topology_key,
            eligible=inclusion.rows,
            eligibility=inclusion.policies.key,
        )

    def verdict_keys(self, nodes: Nodes) -> VerdictKeys:
        if isinstance(nodes, HypotheticalNodes):
            return self._simulated(nodes)
        counts = self._counts.by_domain
        minimum = 0 if self._has_too_few_domains else self._counts.minimum()
        limit = self._constraint.max_skew - self._self_match + minimum
        keys = (counts > limit).view(np.int8).astype(np.int32)
        keys[MISSING] = MISSING_TOPOLOGY_KEY
        return keys.take(nodes.label(self._constraint.topology_key))

    def _simulated(self, nodes: HypotheticalNodes) -> VerdictKeys:
        """Each hypothetical row changes the count of its own domain, and so has its own minimum over all domains."""
        by_domain, domains = self._counts.by_domain, nodes.label(self._constraint.topology_key)
        included = self._counts.eligible[nodes.rows]
        counts = by_domain[domains] + np.where(included, self._change(nodes), 0)
        if self._has_too_few_domains:
            minimum = np.zeros(len(nodes), np.int64)
        else:
            critical_domain, smallest, second_smallest = self._counts.critical_paths()
            of_other_domains = np.where(domains == critical_domain, second_smallest, smallest)
            minimum = np.where(included, np.minimum(of_other_domains, counts), smallest)
        keys = (counts + self._self_match - minimum > self._constraint.max_skew).astype(np.int32)
        keys[domains == MISSING] = MISSING_TOPOLOGY_KEY
        return keys

    @property
    def _has_too_few_domains(self) -> bool:
        return len(self._counts.present) < max(1, self._constraint.min_domains)

    def _change(self, nodes: HypotheticalNodes) -> NDArray[np.int64]:
        """The number of added minus removed matching pods of each row, int64.

        QUIRK (semantics 8.14): unlike the counts, this includes terminating pods and, for an empty selector, all pods.
        """
        return nodes.sum_of_changes(self._matches)

    def _matches(self, shape: Shape) -> bool:
        return shape.namespace == self._namespace and self._constraint.matches(shape.labels)
