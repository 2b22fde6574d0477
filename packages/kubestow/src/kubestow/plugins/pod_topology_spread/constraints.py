"""Topology spread constraints with compiled selectors, and the pods that they count (semantics 8.14).

:func:`compile_constraints` selects the hard (DoNotSchedule) or the soft (ScheduleAnyway) constraints of a pod. System
default constraints apply to pods without their own; their selector is deduced from the services that select the pod and
from the controller that owns it.

The node inclusion policies of a constraint exclude nodes that the incoming pod could not be placed on, so that their
pods and domains do not affect the skew. Whether the pod can be placed on a node is not decided here, but by
NodeAffinity and TaintToleration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.api.apps import ReplicaSet, StatefulSet
from kubestow.api.core import PodSpec, ReplicationController, Service, Taint, TopologySpreadConstraint
from kubestow.api.meta import LabelSelector
from kubestow.api.selectors import Requirement, Selector, compile_selector
from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.columns import MISSING
from kubestow.cluster.nodes.selectors import selected_by
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.affinity_terms import selected_index_keys
from kubestow.cluster.pods.shapes import Shape
from kubestow.cluster.topology.counters import PodCounter
from kubestow.cluster.topology.domains import DomainSums, EligibleRows, SharedSums, domain_sums
from kubestow.errors import InvalidSelector
from kubestow.rules.matching import NO_EXECUTE, NO_SCHEDULE, untolerated

#: The values of ``whenUnsatisfiable``: hard and soft constraints.
DO_NOT_SCHEDULE, SCHEDULE_ANYWAY = "DoNotSchedule", "ScheduleAnyway"

_HONOR = "Honor"


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """One constraint; ``honors_node_affinity`` and ``honors_node_taints`` are its node inclusion policies."""

    topology_key: str
    max_skew: int
    selector: Selector
    min_domains: int = 1
    honors_node_affinity: bool = True
    honors_node_taints: bool = False

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the selector matches a pod's labels."""
        return self.selector.matches(labels)

    def counts(self, shape: Shape, namespace: str) -> bool:
        """Whether a pod of a shape counts for pods of a namespace, once it is placed; see :meth:`matching_pods`."""
        return shape.namespace == namespace and not self.selector.is_empty and self.matches(shape.labels)

    def matching_pods(self, cluster: Cluster, namespace: str) -> PodCounter:
        """The existing pods of a namespace that the constraint counts, per node.

        QUIRK (semantics 8.14): an empty selector matches every pod but counts none.
        """
        selector = self.selector
        return cluster.counter(
            ("spread", namespace, selector),
            lambda other: int(not selector.is_empty and selector.matches(other.labels)),
            index_keys=selected_index_keys(frozenset((namespace,)), selector),
        )


def compile_constraints(
    constraints: Iterable[TopologySpreadConstraint],
    labels: Mapping[str, str],
    *,
    when_unsatisfiable: str,
    match_label_keys: bool,
    node_inclusion_policies: bool,
    selector: Selector | None = None,
) -> list[SpreadConstraint]:
    """The constraints with the given ``whenUnsatisfiable``, for a pod with these labels.

    ``match_label_keys`` and ``node_inclusion_policies`` are the feature gates MatchLabelKeysInPodTopologySpread and
    NodeInclusionPolicyInPodTopologySpread; ``selector`` replaces the constraints' own. Raises InvalidSelector.
    """
    compiled = []
    for constraint in constraints:
        if constraint.when_unsatisfiable != when_unsatisfiable:
            continue
        own = selector
        if own is None:
            keys = [key for key in constraint.match_label_keys if key in labels] if match_label_keys else []
            required = (Requirement(key, "In", frozenset((labels[key],))) for key in keys)
            own = compile_selector(constraint.label_selector).with_requirements(required)
        compiled.append(
            SpreadConstraint(
                constraint.topology_key,
                constraint.max_skew,
                own,
                1 if constraint.min_domains is None else constraint.min_domains,
                not node_inclusion_policies or (constraint.node_affinity_policy or _HONOR) == _HONOR,
                node_inclusion_policies and constraint.node_taints_policy == _HONOR,
            )
        )
    return compiled


def selected_label_keys(constraints: Iterable[TopologySpreadConstraint]) -> frozenset[str]:
    """The keys of the pod labels that the selectors of constraints read."""
    keys: set[str] = set()
    for constraint in constraints:
        keys.update(constraint.match_label_keys)
        if constraint.label_selector is not None:
            keys.update(constraint.label_selector.label_keys)
    return frozenset(keys)


SYSTEM_DEFAULT_CONSTRAINTS = (
    TopologySpreadConstraint(max_skew=3, topology_key="kubernetes.io/hostname", when_unsatisfiable=SCHEDULE_ANYWAY),
    TopologySpreadConstraint(
        max_skew=5, topology_key="topology.kubernetes.io/zone", when_unsatisfiable=SCHEDULE_ANYWAY
    ),
)


def default_selector(cluster: Cluster, shape: Shape) -> Selector:
    """The merged selectors of the pod's services AND the selector of its controller; empty if it has neither."""
    merged: dict[str, str] = {}
    for service in cluster.catalog(Service).in_namespace(shape.namespace):
        selector = service.spec.selector
        if selector and selector.items() <= shape.labels.items():
            merged |= selector
    controller = owning_controller(cluster, shape)
    if isinstance(controller, ReplicationController):
        merged |= controller.spec.selector
    selected = compile_selector(LabelSelector(match_labels=merged))
    if isinstance(controller, (ReplicaSet, StatefulSet)):
        try:
            return selected.with_requirements(compile_selector(controller.spec.selector).requirements)
        except InvalidSelector:
            pass  # an invalid selector adds nothing
    return selected


def default_label_keys(cluster: Cluster, shape: Shape) -> frozenset[str]:
    """The keys of the pod labels on which :func:`default_selector` depends, and of those that it reads."""
    keys: set[str] = set()
    for service in cluster.catalog(Service).in_namespace(shape.namespace):
        keys.update(service.spec.selector)
    match owning_controller(cluster, shape):
        case ReplicationController() as controller:
            keys.update(controller.spec.selector)
        case ReplicaSet() | StatefulSet() as controller if controller.spec.selector is not None:
            keys.update(controller.spec.selector.label_keys)
    return frozenset(keys)


def owning_controller(cluster: Cluster, shape: Shape) -> ReplicationController | ReplicaSet | StatefulSet | None:
    """The controller of the pods, if it is of one of these kinds and in the cache."""
    owner = shape.controller
    if owner is None:
        return None
    match owner.api_version, owner.kind:
        case "v1", "ReplicationController":
            return cluster.catalog(ReplicationController).get(shape.namespace, owner.name)
        case "apps/v1", "ReplicaSet":
            return cluster.catalog(ReplicaSet).get(shape.namespace, owner.name)
        case "apps/v1", "StatefulSet":
            return cluster.catalog(StatefulSet).get(shape.namespace, owner.name)
    return None


_EFFECTS = (NO_SCHEDULE, NO_EXECUTE)


def domain_counts(
    cluster: Cluster,
    shape: Shape,
    constraints: Sequence[SpreadConstraint],
    *,
    topology_keys: Sequence[str],
    comparison_operators: bool,
) -> list[DomainSums]:
    """For each constraint of pods of a shape the existing pods that it counts, by domain.

    Only nodes with all ``topology_keys`` are included.
    """
    included = included_nodes(
        cluster, shape, constraints, topology_keys=topology_keys, comparison_operators=comparison_operators
    )
    counts = []
    for constraint, (inclusion, rows) in zip(constraints, included, strict=True):
        pods = constraint.matching_pods(cluster, shape.namespace)
        counts.append(
            domain_sums(cluster.nodes, pods, constraint.topology_key, eligible=rows, eligibility=inclusion.key)
        )
    return counts


def included_nodes(
    cluster: Cluster,
    shape: Shape,
    constraints: Sequence[SpreadConstraint],
    *,
    topology_keys: Sequence[str],
    comparison_operators: bool,
) -> list[tuple[NodeInclusion, EligibleRows]]:
    """The nodes that each constraint includes, of those with all ``topology_keys``.

    Constraints with equal policies share their nodes, so that the cost does not grow with the square of their number.
    """
    shared: dict[tuple[bool, bool], tuple[NodeInclusion, EligibleRows]] = {}
    included = []
    for constraint in constraints:
        policies = (constraint.honors_node_affinity, constraint.honors_node_taints)
        if policies not in shared:
            inclusion = NodeInclusion(constraint, shape.spec, topology_keys, comparison_operators=comparison_operators)
            shared[policies] = inclusion, EligibleRows(cluster.nodes, inclusion)
        included.append(shared[policies])
    return included


def counts_of_last_constraint(
    cluster: Cluster, shape: Shape, constraints: Sequence[tuple[SpreadConstraint, NodeInclusion]]
) -> SharedSums:
    """On each node the pods that the last of some constraints with one topology key counts that includes the node.

    The rule of Filter before :attr:`Behaviour.SPREAD_CONSTRAINTS_COUNT_APART`.
    """
    parts: list[DomainSums] = []
    later: list[NodeInclusion] = []
    for constraint, inclusion in reversed(constraints):
        if all(inclusion.key != other.key for other in later):
            rows = EligibleRows(cluster.nodes, _IncludedFirst(inclusion, tuple(later)))
            eligibility = (inclusion.key, tuple(other.key for other in later))
            pods = constraint.matching_pods(cluster, shape.namespace)
            parts.append(
                domain_sums(cluster.nodes, pods, constraint.topology_key, eligible=rows, eligibility=eligibility)
            )
            later.append(inclusion)
    return SharedSums(parts)


@dataclass(frozen=True, slots=True)
class _IncludedFirst:
    """Selects nodes that are included, and that none of the ``others`` includes."""

    inclusion: NodeInclusion
    others: Sequence[NodeInclusion]

    def __call__(self, nodes: Nodes) -> NDArray[np.bool_]:
        included = self.inclusion(nodes)
        for other in self.others:
            included &= ~other(nodes)
        return included


class NodeInclusion:
    """Selects nodes that have all ``topology_keys`` and pass nodeAffinityPolicy and nodeTaintsPolicy for a pod.

    ``comparison_operators`` is the feature gate TaintTolerationComparisonOperators.
    """

    def __init__(
        self, constraint: SpreadConstraint, spec: PodSpec, topology_keys: Sequence[str], *, comparison_operators: bool
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
