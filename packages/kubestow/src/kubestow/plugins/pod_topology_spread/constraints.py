"""Topology spread constraints with compiled selectors (semantics 8.14).

:func:`compile_constraints` selects the hard (DoNotSchedule) or the soft (ScheduleAnyway) constraints of a pod. Pods
without constraints of their own are the subject of :mod:`.default_constraints`; on which nodes a constraint counts pods
is decided in :mod:`.node_inclusion`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kubestow.api.core import TopologySpreadConstraint
from kubestow.api.selectors import Requirement, Selector, compile_selector
from kubestow.cluster.cache import Cluster
from kubestow.cluster.pods.index_keys import selected_index_keys
from kubestow.cluster.topology.counters import PodCounter

__all__ = ["DO_NOT_SCHEDULE", "SCHEDULE_ANYWAY", "SpreadConstraint", "compile_constraints", "selected_label_keys"]

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

    def counts(self, labels: Mapping[str, str]) -> bool:
        """Whether an existing pod with these labels adds to the count of its domain.

        QUIRK (semantics 8.14): an empty selector matches every pod but counts none.
        """
        return not self.selector.is_empty and self.selector.matches(labels)

    def matching_pods(self, cluster: Cluster, namespace: str) -> PodCounter:
        """The existing pods of a namespace that the constraint counts, per node."""
        return cluster.counter(
            ("spread", namespace, self.selector),
            lambda other: int(self.counts(other.labels)),
            index_keys=selected_index_keys(frozenset((namespace,)), self.selector),
        )


def compile_constraints(
    constraints: Iterable[TopologySpreadConstraint],
    labels: Mapping[str, str],
    *,
    when_unsatisfiable: str,
    match_label_keys: bool,
    selector: Selector | None = None,
) -> list[SpreadConstraint]:
    """The constraints with the given ``whenUnsatisfiable``, for a pod with these labels.

    ``match_label_keys`` is the feature gate; ``selector`` replaces the constraints' own. Raises InvalidSelector.
    """
    return [
        SpreadConstraint(
            constraint.topology_key,
            constraint.max_skew,
            _selector(constraint, labels if match_label_keys else {}) if selector is None else selector,
            1 if constraint.min_domains is None else constraint.min_domains,
            (constraint.node_affinity_policy or _HONOR) == _HONOR,
            constraint.node_taints_policy == _HONOR,
        )
        for constraint in constraints
        if constraint.when_unsatisfiable == when_unsatisfiable
    ]


def selected_label_keys(constraints: Iterable[TopologySpreadConstraint]) -> frozenset[str]:
    """The keys of the pod labels that the selectors of constraints read."""
    keys: set[str] = set()
    for constraint in constraints:
        keys.update(constraint.match_label_keys)
        if constraint.label_selector is not None:
            keys.update(constraint.label_selector.label_keys)
    return frozenset(keys)


def _selector(constraint: TopologySpreadConstraint, labels: Mapping[str, str]) -> Selector:
    selector = compile_selector(constraint.label_selector)
    return selector.with_requirements(
        Requirement(key, "In", frozenset((labels[key],))) for key in constraint.match_label_keys if key in labels
    )
