"""PodTopologySpread spreads matching pods evenly over zones, hosts and other topology domains (semantics 8.14).

Hard (DoNotSchedule) constraints filter, soft (ScheduleAnyway) constraints score. Both are compiled and cached per group
of pod shapes that agree in the labels that the constraints' selectors read. They hold counters that follow every pod
event, so filtering and scoring are arithmetic on one count per domain and one lookup per node.

The number of domains that Score weighs by depends on the feasible nodes of a cycle: :class:`ScoredNodes` holds what
follows from it, and is reused as long as the same nodes are feasible and no node changes.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import Node, Service
from kubestow.cluster.cache import Cluster
from kubestow.cluster.changes.events import Action, ClusterEvent, EventResource
from kubestow.cluster.nodes.columns import MISSING
from kubestow.cluster.nodes.views import HypotheticalNodes, Nodes, Rows
from kubestow.cluster.pods.affinity_terms import selected_index_keys
from kubestow.cluster.pods.shapes import PodInfo, Shape, ShapeCache, ShapeFamily
from kubestow.cluster.topology.counters import PodCounter
from kubestow.cluster.topology.domains import DomainSums, EligibleRows, SharedSums
from kubestow.config.plugin_args import PodTopologySpreadArgs
from kubestow.errors import InvalidSelector
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import HintKeys, Invalidation, on, placed_pods
from kubestow.framework.interface import MAX_SCORE, FilterPlugin, Handle, PreFilterPlugin, PreScorePlugin, ScorePlugin
from kubestow.framework.status import Status, Verdict
from kubestow.plugins.pod_topology_spread.constraints import (
    DO_NOT_SCHEDULE,
    SCHEDULE_ANYWAY,
    SYSTEM_DEFAULT_CONSTRAINTS,
    NodeInclusion,
    SpreadConstraint,
    compile_constraints,
    counts_of_last_constraint,
    default_label_keys,
    default_selector,
    domain_counts,
    included_nodes,
    owning_controller,
    selected_label_keys,
)
from kubestow.rules.matching import changed_labels
from kubestow.rules.minors import Behaviour

#: Verdict keys.
MAX_SKEW_EXCEEDED, MISSING_TOPOLOGY_KEY = 1, 2
_STATUSES = {
    MAX_SKEW_EXCEEDED: Status.unschedulable("node(s) didn't match pod topology spread constraints"),
    MISSING_TOPOLOGY_KEY: Status.unresolvable(
        "node(s) didn't match pod topology spread constraints (missing required label)"
    ),
}
_SKIP = Status.skip()
#: The hint key of pods without constraints. Those of topology keys are tuples of one name, unlike index keys of pods.
_ANY_TOPOLOGY = ("",)
Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]

_HOSTNAME = "kubernetes.io/hostname"
_JUST_BELOW_HALF = math.nextafter(0.5, 0.0)
#: The label keys of at most this many families are kept.
_MOST_FAMILIES = 1024


@dataclass(frozen=True, slots=True)
class _ShapeConstraints:
    """The constraints of a group of shapes; a status where there are none or one is invalid.

    ``version`` is what default constraints depend on besides the shape; None for a pod with its own constraints.
    """

    hard: HardConstraints | Status
    soft: SoftConstraints | Status
    version: Hashable


class PodTopologySpread(PreFilterPlugin, FilterPlugin, PreScorePlugin, ScorePlugin):
    """Filters by hard and scores by soft constraints; pods without their own get the profile's default constraints."""

    name = "PodTopologySpread"
    reads_requests = reads_volumes = False
    scores_feasible_set = True
    missing_pre_filter_error = 'reading "PreFilterPodTopologySpread" from cycleState: not found'
    missing_pre_score_error = 'error reading "PreScorePodTopologySpread" from cycleState: not found'
    applicability_events = (ClusterEvent(EventResource.WORKLOAD, Action.ALL),)

    def __init__(self, args: PodTopologySpreadArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._cluster = handle.cluster
        self._system_defaulted = args.defaulting_type == "System"
        self._default_constraints = SYSTEM_DEFAULT_CONSTRAINTS if self._system_defaulted else args.default_constraints
        self._match_label_keys = handle.feature_enabled("MatchLabelKeysInPodTopologySpread")
        self._comparison_operators = handle.feature_enabled("TaintTolerationComparisonOperators")
        self._node_inclusion_policies = handle.feature_enabled("NodeInclusionPolicyInPodTopologySpread")
        self._counts_apart = handle.emulates(Behaviour.SPREAD_CONSTRAINTS_COUNT_APART)
        self._services = self._cluster.catalog(Service)
        self._by_group: ShapeCache[_ShapeConstraints] = ShapeCache(handle.cluster.has_placed)
        #: The shape that was looked up last: the constraints of a pod are needed several times in a cycle.
        self._latest: tuple[Shape | None, _ShapeConstraints] = (None, _ShapeConstraints(_SKIP, _SKIP, None))
        #: The labels that the selectors read, with the version that they depend on as in _ShapeConstraints.
        self._label_keys: dict[ShapeFamily, tuple[Hashable, frozenset[str]]] = {}
        self._counts = placed_pods(handle, Behaviour.TOPOLOGY_HINTS_LOOK_AT_NOMINATED_PODS)
        pod_events = Action.ADD | Action.UPDATE_POD_LABEL | Action.UPDATE_POD_TOLERATION | Action.DELETE
        node_events = Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_TAINT
        self.events_to_register = (
            on(
                EventResource.POD,
                pod_events,
                invalidates=Invalidation.ALL,
                hint=self._is_schedulable_after_pod_change,
                hint_keys=self._keys_of_pod_change,
            ),
            on(
                EventResource.NODE,
                node_events,
                invalidates=Invalidation.ALL,
                hint=self._is_schedulable_after_node_change,
                hint_keys=_keys_of_node_change,
            ),
            on(EventResource.WORKLOAD, Action.ALL, invalidates=Invalidation.ALL, requeues=False),
        )

    def applies_to(self, pod: PodInfo) -> bool:
        """Pods with constraints of their own, and pods that get default constraints."""
        constraints = self._constraints_of(pod.shape)
        return constraints.hard is not _SKIP or constraints.soft is not _SKIP

    def label_keys_for(self, pod: PodInfo) -> frozenset[str]:
        """The labels that the selectors of the constraints read, and those by which services select pods."""
        return self._label_keys_of(pod.shape, self._version(pod.shape))

    def signature(self, pod: PodInfo) -> Hashable:
        """Namespace, constraints, node selection, tolerations and controller, and the labels that selectors read."""
        return pod.shape.group(self._label_keys_of(pod.shape, self._version(pod.shape)))

    def hint_signature(self, pod: PodInfo) -> Hashable:
        """The hard constraints of its own; without any, the default ones depend on the whole shape."""
        own = pod.spec.topology_spread_constraints
        return (pod.namespace, tuple(self._hinted_constraints(pod))) if own else pod.shape

    def hint_keys(self, pod: PodInfo) -> HintKeys | None:
        """The index keys of the pods that the hard constraints select, and the topology keys of these constraints.

        None without constraints of its own, because the default ones may change.
        """
        if not pod.spec.topology_spread_constraints:
            return None
        constraints, namespaces = self._hinted_constraints(pod), frozenset((pod.namespace,))
        keys = {(each.topology_key,) for each in constraints} or {_ANY_TOPOLOGY}
        return keys.union(*(selected_index_keys(namespaces, each.selector) or () for each in constraints))

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        """Skips pods without hard constraints."""
        hard = self._constraints_of(pod.shape).hard
        if isinstance(hard, Status):
            return hard
        state.put(hard)
        return None

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        """Checks that the skew does not exceed maxSkew with the pod on the node."""
        keys = state[HardConstraints].verdict_keys(nodes)
        return Verdict.of(keys, _STATUSES) if keys.any() else None

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        """Skips pods without soft constraints."""
        soft = self._constraints_of(pod.shape).soft
        if isinstance(soft, Status):
            return soft
        state.put(soft.scored_nodes(nodes))
        return None

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        """The number of matching pods in the node's domains, weighted by topology; lower is better."""
        return state[ScoredNodes].raw_scores()

    def normalize(self, state: CycleState, pod: PodInfo, scores: NDArray[np.int64], nodes: Nodes) -> NDArray[np.int64]:
        """Reverses the scores relative to their maximum and minimum; ignored nodes get 0."""
        ignored = state[ScoredNodes].ignored
        scored = scores if ignored is None else scores[~ignored]
        highest = int(scored.max(initial=0))
        if highest == 0:
            normalized = np.full_like(scores, MAX_SCORE)
        else:
            normalized = MAX_SCORE * (highest + int(scored.min()) - scores) // highest
        if ignored is not None:
            normalized[ignored] = 0
        return normalized

    # -- constraints -----------------------------------------------------------------------------------------------

    def hard_constraints(self, shape: Shape) -> HardConstraints | None:
        """The hard constraints of pods of a shape, None without any or if one is invalid."""
        hard = self._constraints_of(shape).hard
        return hard if isinstance(hard, HardConstraints) else None

    def _constraints_of(self, shape: Shape) -> _ShapeConstraints:
        version = self._version(shape)
        latest, constraints = self._latest
        if latest is shape and constraints.version == version:
            return constraints
        group = shape.group(self._label_keys_of(shape, version))
        cached = self._by_group.get(group)
        if cached is None or cached.version != version:
            cached = self._by_group.put(group, _ShapeConstraints(self._hard(shape), self._soft(shape), version))
        self._latest = shape, cached
        return cached

    def _version(self, shape: Shape) -> Hashable:
        """What default constraints depend on besides the shape; None for a pod with its own constraints."""
        if shape.spec.topology_spread_constraints or not self._default_constraints:
            return None
        return self._services.version, owning_controller(self._cluster, shape)

    def _label_keys_of(self, shape: Shape, version: Hashable) -> frozenset[str]:
        known = self._label_keys.get(shape.family)
        if known is None or known[0] != version:
            if len(self._label_keys) >= _MOST_FAMILIES:
                self._label_keys.clear()
            own, keys = shape.spec.topology_spread_constraints, frozenset[str]()
            if own:
                keys = selected_label_keys(own)
            elif self._default_constraints:
                keys = default_label_keys(self._cluster, shape)
            known = self._label_keys[shape.family] = version, keys
        return known[1]

    def _hard(self, shape: Shape) -> HardConstraints | Status:
        try:
            constraints = self._compiled(shape, DO_NOT_SCHEDULE)
        except InvalidSelector as error:
            return Status.error(f"get constraints from pod: obtaining pod's hard topology spread constraints: {error}")
        if not constraints:
            return _SKIP
        return HardConstraints(
            self._cluster,
            shape,
            constraints,
            comparison_operators=self._comparison_operators,
            counts_apart=self._counts_apart,
        )

    def _soft(self, shape: Shape) -> SoftConstraints | Status:
        try:
            constraints = self._compiled(shape, SCHEDULE_ANYWAY)
        except InvalidSelector as error:
            return Status.error(f"calculating preScoreState: obtaining pod's soft topology spread constraints: {error}")
        if not constraints:
            return _SKIP
        return SoftConstraints(
            self._cluster,
            shape,
            constraints,
            require_all_topologies=bool(shape.spec.topology_spread_constraints) or not self._system_defaulted,
            comparison_operators=self._comparison_operators,
            counts_apart=self._counts_apart,
        )

    def _compiled(self, shape: Shape, when_unsatisfiable: str) -> list[SpreadConstraint]:
        """The pod's own hard or soft constraints, or the default ones. Raises InvalidSelector."""
        own = shape.spec.topology_spread_constraints
        constraints, selector = own or self._default_constraints, None
        if not own:
            if not any(constraint.when_unsatisfiable == when_unsatisfiable for constraint in constraints):
                return []
            selector = default_selector(self._cluster, shape)
            if selector.is_empty:
                return []
        return compile_constraints(
            constraints,
            shape.labels,
            when_unsatisfiable=when_unsatisfiable,
            match_label_keys=self._match_label_keys,
            node_inclusion_policies=self._node_inclusion_policies,
            selector=selector,
        )

    # -- queueing hints --------------------------------------------------------------------------------------------

    def _is_schedulable_after_pod_change(self, pod: PodInfo, old: PodInfo | None, new: PodInfo | None) -> bool:
        if not all(self._is_involved(pod, changed) for changed in (old, new) if changed is not None):
            return False
        constraints = self._hinted_constraints(pod)
        if old is None or new is None:
            labels = (old or new or pod).labels
            return any(constraint.matches(labels) for constraint in constraints)
        tolerations_changed = new.uid == pod.uid and old.spec.tolerations != new.spec.tolerations
        if tolerations_changed and any(constraint.honors_node_taints for constraint in constraints):
            return True
        return any(constraint.matches(old.labels) != constraint.matches(new.labels) for constraint in constraints)

    def _is_schedulable_after_node_change(self, pod: PodInfo, old: Node | None, new: Node | None) -> bool:
        keys = [constraint.topology_key for constraint in self._hinted_constraints(pod)]
        before, after = _has_all(old, keys), _has_all(new, keys)
        if old is None or new is None or before != after:
            return before or after
        return after and (
            old.spec.taints != new.spec.taints
            or any(old.metadata.labels[key] != new.metadata.labels[key] for key in keys)
        )

    def _keys_of_pod_change(self, old: PodInfo | None, new: PodInfo | None) -> HintKeys:
        changed = [each for each in (old, new) if each is not None]
        if not all(map(self._counts, changed)):  # a pod's own update counts, but its hints are called without keys
            return ()
        return {key for each in changed for key in each.shape.index_keys}

    def _is_involved(self, pod: PodInfo, changed: PodInfo) -> bool:
        """Whether a changed pod is the pod itself, or assigned or nominated in the same namespace."""
        return changed.uid == pod.uid or (self._counts(changed) and changed.namespace == pod.namespace)

    def _hinted_constraints(self, pod: PodInfo) -> Sequence[SpreadConstraint]:
        hard = self._constraints_of(pod.shape).hard
        return () if isinstance(hard, Status) else hard.constraints  # with an invalid one, no event helps the pod


def _keys_of_node_change(old: Node | None, new: Node | None) -> HintKeys:
    """The topology keys whose domains change, or in whose domains the taints of a node do."""
    labels = [{} if node is None else node.metadata.labels for node in (old, new)]
    if old is not None and new is not None and old.spec.taints == new.spec.taints:
        return [(key,) for key in changed_labels(*labels)]
    return {_ANY_TOPOLOGY, *((key,) for of_node in labels for key in of_node)}


def _has_all(node: Node | None, topology_keys: Sequence[str]) -> bool:
    labels: Mapping[str, str] = node.metadata.labels if node is not None else {}
    return node is not None and all(key in labels for key in topology_keys)


# -- hard constraints ----------------------------------------------------------------------------------------------


class _MissingKeys:
    """Whether no node has some of the topology keys that all nodes need, so that no pods have to be counted.

    kube-apiserver accepts each topology key twice in a pod, so of thousands of constraints most have such a key.
    """

    __slots__ = ("_are_missing", "_keys", "_revision", "_table")

    def __init__(self, cluster: Cluster, keys: Iterable[str]) -> None:
        self._table, self._keys = cluster.nodes, frozenset(keys)
        self._revision, self._are_missing = -1, False

    @property
    def are_missing(self) -> bool:
        if self._revision != self._table.revision:
            self._are_missing = not self._keys <= self._table.label_keys
            self._revision = self._table.revision
        return self._are_missing


class HardConstraints:
    """The DoNotSchedule constraints of pods of one shape, at least one.

    They ``counts_apart``, or share counts (:attr:`Behaviour.SPREAD_CONSTRAINTS_COUNT_APART`).
    """

    def __init__(
        self,
        cluster: Cluster,
        shape: Shape,
        constraints: Sequence[SpreadConstraint],
        *,
        comparison_operators: bool,
        counts_apart: bool,
    ) -> None:
        self._cluster, self._shape, self.constraints = cluster, shape, constraints
        self._comparison_operators, self._counts_apart = comparison_operators, counts_apart
        # A node that lacks a key counts no pods, and exceeds no skew but that of an invalid constraint.
        are_valid = min(constraint.max_skew for constraint in constraints) > 0
        self._missing_keys = _MissingKeys(cluster, {each.topology_key for each in constraints} if are_valid else ())
        self._counted: list[_HardConstraint] | None = None

    def verdict_keys(self, nodes: Nodes) -> NDArray[np.int32]:
        """0 or the result of the first constraint that fails, for each row of ``nodes``, int32."""
        if self._missing_keys.are_missing:
            return np.full(len(nodes), MISSING_TOPOLOGY_KEY, np.int32)
        first, *others = (constraint.verdict_keys(nodes) for constraint in self._counted_constraints())
        for keys in others:
            first = np.where(first, first, keys)
        return first

    def counts(self) -> Iterator[tuple[SpreadConstraint, DomainSums | SharedSums]]:
        """Each constraint with the pods that it counts; a SharedSums where it shares them with others."""
        return ((each.constraint, each.counts) for each in self._counted_constraints())

    def _counted_constraints(self) -> list[_HardConstraint]:
        if self._counted is None:
            self._counted = self._count()
        return self._counted

    def _count(self) -> list[_HardConstraint]:
        cluster, shape, constraints = self._cluster, self._shape, self.constraints
        topology_keys = [constraint.topology_key for constraint in constraints]
        operators = self._comparison_operators
        if not self._counts_apart and len(set(topology_keys)) < len(topology_keys):
            included = included_nodes(
                cluster, shape, constraints, topology_keys=topology_keys, comparison_operators=operators
            )
            return _with_shared_counts(cluster, shape, list(zip(constraints, included, strict=True)))
        counts = domain_counts(cluster, shape, constraints, topology_keys=topology_keys, comparison_operators=operators)
        return [_HardConstraint(constraint, shape, sums) for constraint, sums in zip(constraints, counts, strict=True)]


class _HardConstraint:
    def __init__(self, constraint: SpreadConstraint, shape: Shape, counts: DomainSums | SharedSums) -> None:
        self.constraint = constraint
        self._namespace = shape.namespace
        self._self_match = int(constraint.matches(shape.labels))
        self.counts = counts

    def verdict_keys(self, nodes: Nodes) -> NDArray[np.int32]:
        if isinstance(nodes, HypotheticalNodes):
            return self._simulated(nodes)
        counts = self.counts.by_domain
        minimum = 0 if self._has_too_few_domains else self.counts.minimum()
        limit = self.constraint.max_skew - self._self_match + minimum
        keys = (counts > limit).view(np.int8).astype(np.int32)
        keys[MISSING] = MISSING_TOPOLOGY_KEY
        return keys.take(nodes.label(self.constraint.topology_key))

    def _simulated(self, nodes: HypotheticalNodes) -> NDArray[np.int32]:
        """Each hypothetical row changes the count of its own domain, and so has its own minimum over all domains."""
        by_domain, domains = self.counts.by_domain, nodes.label(self.constraint.topology_key)
        included = self.counts.eligible[nodes.rows]
        counts = by_domain[domains] + self._changes(nodes)
        if self._has_too_few_domains:
            minimum = np.zeros(len(nodes), np.int64)
        else:
            critical_domain, smallest, second_smallest = self.counts.critical_paths()
            of_other_domains = np.where(domains == critical_domain, second_smallest, smallest)
            minimum = np.where(included, np.minimum(of_other_domains, counts), smallest)
        keys = (counts + self._self_match - minimum > self.constraint.max_skew).astype(np.int32)
        keys[domains == MISSING] = MISSING_TOPOLOGY_KEY
        return keys

    def _changes(self, nodes: HypotheticalNodes) -> NDArray[np.int64]:
        """The change of the count of each row's domain by that of the row, int64.

        QUIRK: unlike the counts, the changes include terminating pods and, for an empty selector, all pods.
        """
        return np.where(self.counts.eligible[nodes.rows], nodes.sum_of_changes(self.matches), 0)

    @property
    def _has_too_few_domains(self) -> bool:
        return len(self.counts.present) < max(1, self.constraint.min_domains)

    def matches(self, shape: Shape) -> bool:
        """Whether the constraint selects pods of a shape."""
        return shape.namespace == self._namespace and self.constraint.matches(shape.labels)


class _SharingHardConstraint(_HardConstraint):
    """One of several constraints with one topology key before :attr:`Behaviour.SPREAD_CONSTRAINTS_COUNT_APART`.

    ``counts`` are those of all of them. A pod changes them once for each of the constraints (``sharing``, set when all
    are made) that matches the pod and includes its node.
    """

    def __init__(self, constraint: SpreadConstraint, shape: Shape, counts: SharedSums, rows: EligibleRows) -> None:
        super().__init__(constraint, shape, counts)
        self.topology_key = constraint.topology_key
        self._rows = rows
        self.sharing: Sequence[_SharingHardConstraint] = ()

    def _changes(self, nodes: HypotheticalNodes) -> NDArray[np.int64]:
        changes = np.zeros(len(nodes), np.int64)
        for each in self.sharing:
            changes += np.where(each._rows.mask[nodes.rows], nodes.sum_of_changes(each.matches), 0)
        return changes


def _with_shared_counts(
    cluster: Cluster,
    shape: Shape,
    constraints: Sequence[tuple[SpreadConstraint, tuple[NodeInclusion, EligibleRows]]],
) -> list[_HardConstraint]:
    """Constraints, each with the nodes that it includes, that share the counts of their topology key."""
    by_key: dict[str, list[tuple[SpreadConstraint, NodeInclusion]]] = {}
    for constraint, (inclusion, _) in constraints:
        by_key.setdefault(constraint.topology_key, []).append((constraint, inclusion))
    counts = {key: counts_of_last_constraint(cluster, shape, of_key) for key, of_key in by_key.items()}
    made = [_SharingHardConstraint(c, shape, counts[c.topology_key], rows) for c, (_, rows) in constraints]
    for one in made:
        one.sharing = [other for other in made if other.topology_key == one.topology_key]
    return list(made)


# -- soft constraints ----------------------------------------------------------------------------------------------


class SoftConstraints:
    """The ScheduleAnyway constraints of pods of one shape, at least one.

    With ``require_all_topologies`` nodes that lack a topology key of any of the constraints are ignored. They
    ``counts_apart``, or the counts of one topology key are added up
    (:attr:`Behaviour.SPREAD_CONSTRAINTS_COUNT_APART`).
    """

    def __init__(
        self,
        cluster: Cluster,
        shape: Shape,
        constraints: Sequence[SpreadConstraint],
        *,
        require_all_topologies: bool,
        comparison_operators: bool,
        counts_apart: bool,
    ) -> None:
        self._table = cluster.nodes
        self._cluster, self._shape, self._constraints = cluster, shape, constraints
        self._comparison_operators = comparison_operators
        self._required_keys = [c.topology_key for c in constraints] if require_all_topologies else []
        self._counts_apart = counts_apart
        self._missing_keys = _MissingKeys(cluster, self._required_keys)
        self._counted: list[_SoftConstraint] | None = None
        self._latest: ScoredNodes | None = None

    def scored_nodes(self, nodes: Nodes) -> ScoredNodes:
        """The feasible nodes of a cycle, prepared for scoring; those of the previous cycle if they are the same."""
        latest, revision = self._latest, self._table.revision
        if latest is None or not latest.is_current(nodes, revision):
            ignored: Mask | None = None
            counted: Sequence[_SoftConstraint] = ()
            if self._missing_keys.are_missing:
                ignored = np.ones(len(nodes), np.bool_)
            else:
                counted = self._count()
                if self._required_keys:
                    lacking = np.logical_or.reduce([nodes.label(key) == MISSING for key in self._required_keys])
                    ignored = lacking if lacking.any() else None
            self._latest = latest = ScoredNodes(nodes, revision, ignored, counted)
        return latest

    def _count(self) -> list[_SoftConstraint]:
        if self._counted is None:
            counts = domain_counts(
                self._cluster,
                self._shape,
                self._constraints,
                topology_keys=self._required_keys,
                comparison_operators=self._comparison_operators,
            )
            by_key: dict[str, list[DomainSums]] = {}
            is_first = []
            for constraint, sums in zip(self._constraints, counts, strict=True):
                is_first.append(constraint.topology_key not in by_key)
                by_key.setdefault(constraint.topology_key, []).append(sums)
            self._counted = [
                _SoftConstraint(
                    constraint,
                    constraint.matching_pods(self._cluster, self._shape.namespace),
                    sums if self._counts_apart else SharedSums(by_key[constraint.topology_key]),
                    counts_domains=self._counts_apart or first,
                )
                for constraint, sums, first in zip(self._constraints, counts, is_first, strict=True)
            ]
        return self._counted


class ScoredNodes:
    """The feasible nodes of a cycle with what the soft constraints, none if all are ignored, derive from them alone.

    ``revision`` is that of the node table. ``ignored`` (bool, one per node; None for none) are the nodes that score 0.
    """

    def __init__(
        self, nodes: Nodes, revision: int, ignored: Mask | None, constraints: Iterable[_SoftConstraint]
    ) -> None:
        self._rows = nodes.rows
        self._count = len(nodes)
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
        if not self._scorers:
            return np.zeros(self._count, np.int64)
        first, *others = self._scorers
        total = first.scores()
        for scorer in others:
            total += scorer.scores()
        # Halves up, as Go's math.Round does for numbers that are not negative; 0.5 itself would round
        # 0.49999999999999994 up.
        scores = (total + _JUST_BELOW_HALF).astype(np.int64)
        if self.ignored is not None:
            scores[self.ignored] = 0
        return scores


@dataclass(frozen=True, slots=True)
class _SoftConstraint:
    constraint: SpreadConstraint
    #: The matching pods per node, and per domain of the included nodes.
    pods: PodCounter
    counts: DomainSums | SharedSums
    #: Whether its weight grows with the number of domains; not if an earlier constraint with its key has that weight.
    counts_domains: bool = True

    def scorer(self, nodes: Nodes, ignored: Mask | None) -> _HostnameScorer | _DomainScorer:
        """What scores feasible nodes; the weight of a pod grows with the number of domains of the scored nodes."""
        topology_key, offset = self.constraint.topology_key, float(self.constraint.max_skew - 1)
        domains = nodes.label(topology_key)
        scored = domains if ignored is None else domains[~ignored]
        if topology_key == _HOSTNAME:
            missing = domains == MISSING
            weight = math.log(len(scored) + 2)
            return _HostnameScorer(self.pods, nodes.rows, missing if missing.any() else None, weight, offset)
        column = nodes.label_column(topology_key)
        present, empty = np.zeros(len(column.values), np.bool_), column.id_of("")
        present[scored] = True
        if empty is not None and present[MISSING]:
            present[empty] = False  # nodes without the label are of the domain of the empty value
        weight = math.log((int(np.count_nonzero(present)) if self.counts_domains else 0) + 2)
        return _DomainScorer(self.counts, domains, empty, weight, offset)


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

    counts: DomainSums | SharedSums
    #: The domain of each node, int32.
    domains: NDArray[np.int32]
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
