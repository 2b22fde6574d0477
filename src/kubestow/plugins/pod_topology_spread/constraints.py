"""Topology spread constraints in the form that deciding needs (semantics 8.14).

A pod's own constraints, or else the profile's default ones with a selector deduced from the services and the controller
that the pod belongs to; of either kind those that are hard (DoNotSchedule) or soft (ScheduleAnyway).
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
from kubestow.cluster.nodes.selectors import selected_by
from kubestow.cluster.nodes.taints import NO_EXECUTE, NO_SCHEDULE, untolerated
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import Shape
from kubestow.errors import InvalidSelector

__all__ = ["HARD", "SOFT", "SYSTEM_DEFAULTS", "Eligibility", "SpreadConstraint", "deduced_selector", "prepared"]

HARD, SOFT = "DoNotSchedule", "ScheduleAnyway"

SYSTEM_DEFAULTS = (
    TopologySpreadConstraint(max_skew=3, topology_key="kubernetes.io/hostname", when_unsatisfiable=SOFT),
    TopologySpreadConstraint(max_skew=5, topology_key="topology.kubernetes.io/zone", when_unsatisfiable=SOFT),
)

_HONOR = "Honor"


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """One constraint. The policies say whether nodes that the pod could not go to are left out of the counts."""

    topology_key: str
    max_skew: int
    selector: Selector
    min_domains: int = 1
    honors_affinity: bool = True
    honors_taints: bool = False

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Whether a pod's labels are meant."""
        return self.selector.matches(labels)

    def counts(self, labels: Mapping[str, str]) -> bool:
        """Whether pods with these labels are counted where they are.

        QUIRK (semantics 8.14): an empty selector means every pod but counts none.
        """
        return not self.selector.is_empty and self.selector.matches(labels)


def prepared(
    constraints: Iterable[TopologySpreadConstraint],
    labels: Mapping[str, str],
    *,
    action: str,
    match_label_keys: bool,
    selector: Selector | None = None,
) -> list[SpreadConstraint]:
    """The hard or the soft ones (``action``) among constraints, for a pod with these labels.

    ``selector`` takes the place of the constraints' own. Raises InvalidSelector.
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
        if constraint.when_unsatisfiable == action
    ]


def _selector(constraint: TopologySpreadConstraint, labels: Mapping[str, str]) -> Selector:
    selector = compile_selector(constraint.label_selector)
    return selector.also(
        Requirement(key, "In", frozenset((labels[key],))) for key in constraint.match_label_keys if key in labels
    )


# -- default constraints -------------------------------------------------------------------------------------------


def deduced_selector(cluster: Cluster, shape: Shape) -> Selector:
    """What the pod's services and its controller select, all of it; empty when nothing selects the pod."""
    merged: dict[str, str] = {}
    for service in cluster.catalog(Service).in_namespace(shape.namespace):
        wanted = service.spec.selector
        if wanted and wanted.items() <= shape.labels.items():
            merged |= wanted
    match controller(cluster, shape):
        case ReplicationController() as owner:
            merged |= owner.spec.selector
        case ReplicaSet() | StatefulSet() as owner:
            return _narrowed(_of_labels(merged), owner.spec.selector)
    return _of_labels(merged)


def controller(cluster: Cluster, shape: Shape) -> ReplicationController | ReplicaSet | StatefulSet | None:
    """The object that manages the pods, where it is of a kind whose selector counts; None when it is not known."""
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


def _of_labels(labels: dict[str, str]) -> Selector:
    return compile_selector(LabelSelector(match_labels=labels))


def _narrowed(selector: Selector, further: LabelSelector | None) -> Selector:
    try:
        return selector.also(compile_selector(further).requirements)
    except InvalidSelector:
        return selector


# -- which nodes count ---------------------------------------------------------------------------------------------


class Eligibility:
    """Which nodes a constraint counts pods on: those with all of the labels ``keys`` that its policies admit."""

    def __init__(self, constraint: SpreadConstraint, spec: PodSpec, *, keys: Sequence[str], comparisons: bool) -> None:
        self._keys = tuple(keys)
        self._selecting = spec if constraint.honors_affinity and _selects_nodes(spec) else None
        self._tolerations = tuple(spec.tolerations) if constraint.honors_taints else None
        self._comparisons = comparisons
        selection = (spec.node_selector, spec.affinity.node_affinity if spec.affinity else None)
        #: Equal for those that admit the same nodes.
        self.key = (self._keys, self._tolerations, msgspec.json.encode(selection) if self._selecting else b"")

    def __call__(self, nodes: Nodes) -> NDArray[np.bool_]:
        """Which of the nodes count, bool."""
        mask = np.ones(len(nodes), np.bool_)
        for key in self._keys:
            mask &= nodes.label(key) != 0
        if self._selecting is not None:
            mask &= selected_by(nodes, self._selecting)
        if self._tolerations is not None:
            mask &= nodes.by_taints(self._tolerated, np.bool_)
        return mask

    def _tolerated(self, taints: Sequence[Taint]) -> bool:
        assert self._tolerations is not None
        effects = (NO_SCHEDULE, NO_EXECUTE)
        return not untolerated(taints, self._tolerations, effects=effects, comparisons=self._comparisons)


def _selects_nodes(spec: PodSpec) -> bool:
    return bool(spec.node_selector or (spec.affinity and spec.affinity.node_affinity))
