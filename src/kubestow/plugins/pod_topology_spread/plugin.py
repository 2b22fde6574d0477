"""PodTopologySpread keeps matching pods evenly spread over zones, hosts and other domains (semantics 8.14)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import Node, Service, TopologySpreadConstraint
from kubestow.cluster.events import Action, ClusterEvent, EventResource
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.config.plugin_args import PodTopologySpreadArgs
from kubestow.errors import InvalidSelector
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import Invalidation, on
from kubestow.framework.interface import MAX_SCORE, FilterPlugin, Handle, PreFilterPlugin, PreScorePlugin, ScorePlugin
from kubestow.framework.status import Status, Verdict
from kubestow.plugins.pod_topology_spread.constraints import (
    HARD,
    SOFT,
    SYSTEM_DEFAULTS,
    SpreadConstraint,
    controller,
    deduced_selector,
    prepared,
)
from kubestow.plugins.pod_topology_spread.state import LACKS_LABEL, TOO_SKEWED, HardSpread, Participants, SoftSpread
from kubestow.plugins.shape_cache import ShapeMemory

__all__ = ["PodTopologySpread"]

_REFUSALS = {
    TOO_SKEWED: Status.unschedulable("node(s) didn't match pod topology spread constraints"),
    LACKS_LABEL: Status.unresolvable("node(s) didn't match pod topology spread constraints (missing required label)"),
}
_SKIP = Status.skip()


@dataclass(frozen=True, slots=True)
class _Spread:
    """What pods of a shape ask for; a status in place of constraints that are not there or cannot be read."""

    hard: HardSpread | Status
    soft: SoftSpread | Status
    #: What it was made from, besides the shape.
    stamp: Hashable


class PodTopologySpread(PreFilterPlugin, FilterPlugin, PreScorePlugin, ScorePlugin):
    """Hard constraints filter, soft ones score; pods without any may get the profile's default ones."""

    name = "PodTopologySpread"
    scores_feasible_set = True
    missing_pre_filter_error = 'reading "PreFilterPodTopologySpread" from cycleState: not found'
    missing_pre_score_error = 'error reading "PreScorePodTopologySpread" from cycleState: not found'
    applicability_events = (ClusterEvent(EventResource.WORKLOAD, Action.ALL),)

    def __init__(self, args: PodTopologySpreadArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._cluster = handle.cluster
        self._system_defaults = args.defaulting_type == "System"
        self._defaults = SYSTEM_DEFAULTS if self._system_defaults else args.default_constraints
        self._match_label_keys = handle.feature_enabled("MatchLabelKeysInPodTopologySpread")
        self._comparisons = handle.feature_enabled("TaintTolerationComparisonOperators")
        self._services = self._cluster.catalog(Service)
        self._memory: ShapeMemory[_Spread] = ShapeMemory(handle.cluster.has_placed)
        pod_events = Action.ADD | Action.UPDATE_POD_LABEL | Action.UPDATE_POD_TOLERATION | Action.DELETE
        node_events = Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_TAINT
        self.events_to_register = (
            on(EventResource.POD, pod_events, invalidates=Invalidation.ALL, hint=self._changes_a_count),
            on(EventResource.NODE, node_events, invalidates=Invalidation.ALL, hint=self._changes_domains),
            on(EventResource.WORKLOAD, Action.ALL, invalidates=Invalidation.ALL, requeues=False),
        )

    def applies_to(self, pod: PodInfo) -> bool:
        """Pods with constraints, their own or the default ones, which are for pods that something selects."""
        spread = self._spread(pod.shape)
        return spread.hard is not _SKIP or spread.soft is not _SKIP

    def signature(self, pod: PodInfo) -> Hashable:
        """Nearly all of the shape matters."""
        return pod.shape

    # -- filtering -----------------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        """Skips without hard constraints."""
        hard = self._spread(pod.shape).hard
        if isinstance(hard, Status):
            return hard
        state.put(hard)
        return None

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        """Whether one more matching pod on a node keeps every skew small enough."""
        keys = state[HardSpread].keys(nodes)
        return Verdict.of(keys, _REFUSALS) if keys.any() else None

    # -- scoring -------------------------------------------------------------------------------------------------

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        """Skips without soft constraints."""
        soft = self._spread(pod.shape).soft
        if isinstance(soft, Status):
            return soft
        state.put(soft.participants(nodes))
        return None

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        """The matching pods in the node's domains, weighted by how many domains there are."""
        return state[Participants].scores()

    def normalize(self, state: CycleState, pod: PodInfo, scores: NDArray[np.int64], nodes: Nodes) -> NDArray[np.int64]:
        """The emptiest domains get 100; nodes that take no part get 0."""
        left_out = state[Participants].left_out
        if left_out is None:
            return _reversed(scores, scores)
        normalized = _reversed(scores, scores[~left_out])
        normalized[left_out] = 0
        return normalized

    # -- preparing -----------------------------------------------------------------------------------------------

    def _spread(self, shape: Shape) -> _Spread:
        own = shape.spec.topology_spread_constraints
        stamp = None if own else (self._services.version, controller(self._cluster, shape))
        known = self._memory.get(shape)
        if known is not None and known.stamp == stamp:
            return known
        return self._memory.put(shape, _Spread(self._hard(shape), self._soft(shape), stamp))

    def _hard(self, shape: Shape) -> HardSpread | Status:
        try:
            constraints = self._constraints(shape, HARD)
        except InvalidSelector as error:
            return Status.error(f"get constraints from pod: obtaining pod's hard topology spread constraints: {error}")
        return HardSpread(self._cluster, shape, constraints, comparisons=self._comparisons) if constraints else _SKIP

    def _soft(self, shape: Shape) -> SoftSpread | Status:
        try:
            constraints = self._constraints(shape, SOFT)
        except InvalidSelector as error:
            return Status.error(f"calculating preScoreState: obtaining pod's soft topology spread constraints: {error}")
        if not constraints:
            return _SKIP
        all_topologies = bool(shape.spec.topology_spread_constraints) or not self._system_defaults
        return SoftSpread(
            self._cluster, shape, constraints, all_topologies=all_topologies, comparisons=self._comparisons
        )

    def _constraints(self, shape: Shape, action: str) -> list[SpreadConstraint]:
        """The pod's own constraints, or the default ones. Raises InvalidSelector."""
        own: Sequence[TopologySpreadConstraint] = shape.spec.topology_spread_constraints
        keys = self._match_label_keys
        if own:
            return prepared(own, shape.labels, action=action, match_label_keys=keys)
        if not any(constraint.when_unsatisfiable == action for constraint in self._defaults):
            return []
        selector = deduced_selector(self._cluster, shape)
        if selector.is_empty:
            return []
        return prepared(self._defaults, shape.labels, action=action, match_label_keys=keys, selector=selector)

    # -- hints ---------------------------------------------------------------------------------------------------

    def _changes_a_count(self, pod: PodInfo, old: PodInfo | None, new: PodInfo | None) -> bool:
        if not all(_is_involved(pod, changed) for changed in (old, new) if changed is not None):
            return False
        constraints = self._hinted(pod)
        if old is None or new is None:
            labels = (old or new or pod).labels
            return any(constraint.selects(labels) for constraint in constraints)
        tolerates_otherwise = new.uid == pod.uid and old.spec.tolerations != new.spec.tolerations
        if tolerates_otherwise and any(constraint.honors_taints for constraint in constraints):
            return True
        return any(constraint.selects(old.labels) != constraint.selects(new.labels) for constraint in constraints)

    def _changes_domains(self, pod: PodInfo, old: Node | None, new: Node | None) -> bool:
        keys = [constraint.topology_key for constraint in self._hinted(pod)]
        before, after = _has_all(old, keys), _has_all(new, keys)
        if old is None or new is None or before != after:
            return before or after
        return after and (
            old.spec.taints != new.spec.taints
            or any(old.metadata.labels[key] != new.metadata.labels[key] for key in keys)
        )

    def _hinted(self, pod: PodInfo) -> Sequence[SpreadConstraint]:
        try:
            return self._constraints(pod.shape, HARD)
        except InvalidSelector:  # the pod fails whatever happens
            return ()


def _reversed(scores: NDArray[np.int64], among: NDArray[np.int64]) -> NDArray[np.int64]:
    """The lower, the better: relative to the highest and lowest score of those that take part."""
    highest = int(among.max(initial=0))
    if highest == 0:
        return np.full_like(scores, MAX_SCORE)
    lowest = int(among.min())
    return MAX_SCORE * (highest + lowest - scores) // highest


def _is_involved(pod: PodInfo, changed: PodInfo) -> bool:
    placed = changed.spec.node_name or changed.status.nominated_node_name
    return changed.uid == pod.uid or (bool(placed) and changed.namespace == pod.namespace)


def _has_all(node: Node | None, keys: Sequence[str]) -> bool:
    labels: Mapping[str, str] = node.metadata.labels if node is not None else {}
    return node is not None and all(key in labels for key in keys)
