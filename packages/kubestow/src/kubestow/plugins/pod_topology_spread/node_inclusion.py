"""The node inclusion policies of a constraint: the nodes on which it counts pods (semantics 8.14).

A policy excludes nodes that the incoming pod could not be placed on, so that their pods and domains do not affect the
skew. Whether the pod can be placed on a node is not decided here, but by NodeAffinity and TaintToleration.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import PodSpec, Taint
from kubestow.cluster.nodes.labels import MISSING
from kubestow.cluster.nodes.selectors import selected_by
from kubestow.cluster.nodes.table import NodeTable
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.topology.domains import EligibleRows
from kubestow.plugins.pod_topology_spread.constraints import SpreadConstraint
from kubestow.rules.matching import NO_EXECUTE, NO_SCHEDULE, untolerated

__all__ = ["NodeInclusion", "SharedInclusion", "node_inclusions"]

_EFFECTS = (NO_SCHEDULE, NO_EXECUTE)


class SharedInclusion(NamedTuple):
    """A node inclusion, and its rows of the node table, for all constraints that include the same nodes."""

    policies: NodeInclusion
    rows: EligibleRows


def node_inclusions(
    table: NodeTable,
    spec: PodSpec,
    constraints: Sequence[SpreadConstraint],
    *,
    topology_keys: Sequence[str],
    comparison_operators: bool,
) -> list[SharedInclusion]:
    """The node inclusion of each constraint of a pod.

    Constraints with equal policies share it, so that its cost does not grow with the square of their number.
    """
    shared: dict[tuple[bool, bool], SharedInclusion] = {}
    for constraint in constraints:
        policies = (constraint.honors_node_affinity, constraint.honors_node_taints)
        if policies not in shared:
            inclusion = NodeInclusion(
                constraint, spec, topology_keys=topology_keys, comparison_operators=comparison_operators
            )
            shared[policies] = SharedInclusion(inclusion, EligibleRows(table, inclusion))
    return [shared[constraint.honors_node_affinity, constraint.honors_node_taints] for constraint in constraints]


class NodeInclusion:
    """Selects nodes that have all ``topology_keys`` and pass nodeAffinityPolicy and nodeTaintsPolicy for a pod.

    ``comparison_operators`` is the feature gate TaintTolerationComparisonOperators.
    """

    def __init__(
        self,
        constraint: SpreadConstraint,
        spec: PodSpec,
        *,
        topology_keys: Sequence[str],
        comparison_operators: bool,
    ) -> None:
        node_affinity = spec.affinity.node_affinity if spec.affinity else None
        selects_nodes = bool(spec.node_selector or node_affinity)
        self._topology_keys = tuple(topology_keys)
        self._node_selection = spec if constraint.honors_node_affinity and selects_nodes else None
        self._tolerations = tuple(spec.tolerations) if constraint.honors_node_taints else None
        self._comparison_operators = comparison_operators
        encoded = msgspec.json.encode((spec.node_selector, node_affinity)) if self._node_selection else b""
        #: Equal for instances that include the same nodes.
        self.key = (self._topology_keys, self._tolerations, encoded)

    def __call__(self, nodes: Nodes) -> NDArray[np.bool_]:
        """Which rows of ``nodes`` are included, bool."""
        included = np.ones(len(nodes), np.bool_)
        for topology_key in self._topology_keys:
            included &= nodes.label(topology_key) != MISSING
        if self._node_selection is not None:
            included &= selected_by(nodes, self._node_selection)
        if self._tolerations is not None:
            included &= nodes.by_taints(self._tolerates, np.bool_)
        return included

    def _tolerates(self, taints: Sequence[Taint]) -> bool:
        assert self._tolerations is not None
        return not untolerated(taints, self._tolerations, effects=_EFFECTS, comparisons=self._comparison_operators)
