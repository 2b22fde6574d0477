"""InterPodAffinity attracts pods to, or repels them from, the topology domains of other pods (semantics 8.15).

Required terms of the incoming pod and required anti-affinity terms of existing pods filter. Preferred terms of both and
required affinity terms of existing pods score. Its counts are cached per pod shape.

The counts are per topology key and domain. An :class:`InterPodAffinityState` is built once per pod shape, and again
when namespace labels or the terms of existing pods change. It holds counters that follow every pod event, so filtering
and scoring are arithmetic on one number per domain and one lookup per node. It does not check whether it is out of
date; the plugin does.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import Node
from kubestow.cluster.cache import Cluster
from kubestow.cluster.changes.events import Action, ClusterEvent, EventResource
from kubestow.cluster.nodes.columns import MISSING
from kubestow.cluster.nodes.views import HypotheticalNodes, Nodes
from kubestow.cluster.pods.affinity_terms import AffinityTerm, CarriedTerm, PodAffinityTerms, TermKind
from kubestow.cluster.pods.shapes import PodInfo, Shape, ShapeCache
from kubestow.cluster.topology.domains import DomainSums, domain_sums
from kubestow.config.plugin_args import InterPodAffinityArgs
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import Invalidation, on
from kubestow.framework.interface import MAX_SCORE, FilterPlugin, Handle, PreFilterPlugin, PreScorePlugin, ScorePlugin
from kubestow.framework.status import Status, Verdict, aggregate

Mask = NDArray[np.bool_]
VerdictKeys = NDArray[np.int8]
Terms = tuple[AffinityTerm, ...]
#: How often a pod counts.
Weight = Callable[[Shape], int]

#: Verdict keys by failed check. The check with the highest key is reported where several fail.
EXISTING_ANTI_AFFINITY, ANTI_AFFINITY, AFFINITY = np.int8(1), np.int8(2), np.int8(3)

_STATUSES = {
    int(AFFINITY): Status.unresolvable("node(s) didn't match pod affinity rules"),
    int(ANTI_AFFINITY): Status.unschedulable("node(s) didn't match pod anti-affinity rules"),
    int(EXISTING_ANTI_AFFINITY): Status.unschedulable("node(s) didn't satisfy existing pods anti-affinity rules"),
}


@dataclass(slots=True)
class _TopologyCounts:
    """The counts under one topology key, per domain."""

    #: Existing pods that match all required affinity terms of the incoming pod; None if no such term has the key.
    affinity: DomainSums | None = None
    #: Existing pods that match a required anti-affinity term of the incoming pod, by term, with whether a pod does.
    anti_affinity: list[tuple[Weight, DomainSums]] = field(default_factory=list)
    #: Existing pods with a required anti-affinity term that matches the incoming pod, by term.
    existing_anti_affinity: list[DomainSums] = field(default_factory=list)


class InterPodAffinityState:
    """The counts for incoming pods of one shape.

    ``hard_pod_affinity_weight`` is what a required affinity term of an existing pod adds to the topology score.
    """

    def __init__(self, cluster: Cluster, shape: Shape, *, hard_pod_affinity_weight: int) -> None:
        self._cluster = cluster
        self._shape = shape
        self._namespace_labels = cluster.namespaces.get(shape.namespace, {})
        #: The required affinity terms of the incoming pod, with namespace selectors resolved.
        self.required_affinity: Terms = tuple(
            term.resolved(cluster.namespaces) for term in shape.affinity_terms.required
        )
        #: Whether a pod matches all of them, and whether the incoming pod itself does.
        self.matches_affinity: Weight = partial(_matches_all, self.required_affinity)
        self.matches_own_affinity = _matches_all(self.required_affinity, shape)
        #: What Filter reads, by topology key.
        self.counts: defaultdict[str, _TopologyCounts] = defaultdict(_TopologyCounts)
        #: What Score reads, by topology key: weights (negative for anti-affinity) and the pods they apply to.
        self._topology_score: defaultdict[str, list[tuple[int, DomainSums]]] = defaultdict(list)
        #: How many required anti-affinity terms of a pod match the incoming pod, by topology key.
        self._repelled: dict[str, Weight] = {}
        self._add_incoming_terms(shape.affinity_terms)
        for carried in cluster.carried_terms.terms_for(shape.index_keys):
            if self.is_matched_by(carried.term):
                self._add_existing_term(carried, hard_pod_affinity_weight)

    def _add_incoming_terms(self, terms: PodAffinityTerms) -> None:
        """Count the pods that the pod's own terms select. Equal terms share their counts, and some select no pod."""
        for topology_key in dict.fromkeys(term.topology_key for term in self.required_affinity):
            self.counts[topology_key].affinity = self._matching_pods(self.required_affinity, topology_key)
        for term in dict.fromkeys(term for term in terms.required_anti if not term.selector.nothing):
            resolved = (term.resolved(self._cluster.namespaces),)
            matching = self._matching_pods(resolved, term.topology_key)
            self.counts[term.topology_key].anti_affinity.append((partial(_matches_all, resolved), matching))
        weights: Counter[AffinityTerm] = Counter()
        for weight, term in terms.preferred:
            if not term.selector.nothing:
                weights[term] += weight
        for term, weight in weights.items():
            matching = self._matching_pods((term.resolved(self._cluster.namespaces),), term.topology_key)
            self._topology_score[term.topology_key].append((weight, matching))

    def _add_existing_term(self, carried: CarriedTerm, hard_pod_affinity_weight: int) -> None:
        topology_key = carried.term.topology_key
        match carried.kind:
            case TermKind.REQUIRED_ANTI:
                self.counts[topology_key].existing_anti_affinity.append(self._pods_with(carried))
            case TermKind.PREFERRED:
                self._topology_score[topology_key].append((carried.weight, self._pods_with(carried)))
            case TermKind.REQUIRED if hard_pod_affinity_weight > 0:
                self._topology_score[topology_key].append((hard_pod_affinity_weight, self._pods_with(carried)))

    def is_matched_by(self, term: AffinityTerm) -> bool:
        """Whether a term of another pod matches the incoming pod."""
        return term.matches(self._shape.namespace, self._shape.labels, self._namespace_labels)

    def _matching_pods(self, terms: Terms, topology_key: str) -> DomainSums:
        """The existing pods that match all of the incoming pod's terms, per domain."""
        key = ("pods matching terms", tuple((t.namespaces, t.namespace_selector, t.selector) for t in terms))
        index_keys = next((index_keys for term in terms if (index_keys := term.index_keys) is not None), None)
        matches = partial(_matches_all, terms)
        counter = self._cluster.counter(key, matches, index_keys=index_keys, terminating=True)
        return domain_sums(self._cluster.nodes, counter, topology_key)

    def _pods_with(self, carried: CarriedTerm) -> DomainSums:
        """The existing pods that have a term, per domain; a pod counts as often as it has the term."""
        key = ("pods with term", carried)
        counter = self._cluster.counter(
            key, lambda other: other.carried_terms[carried], index_keys=frozenset((carried,)), terminating=True
        )
        return domain_sums(self._cluster.nodes, counter, carried.term.topology_key)

    # -- Filter ----------------------------------------------------------------------------------------------------

    def repelled_under(self, topology_key: str) -> Weight:
        """How many required anti-affinity terms with a topology key of a pod match the incoming pod."""
        weight = self._repelled.get(topology_key)
        if weight is None:
            weight = partial(self._repelled_by, lambda key: key == topology_key)
            if topology_key in self.counts:
                self._repelled[topology_key] = weight
        return weight

    def repelled_elsewhere(self, pods: Shape) -> int:
        """The same for topology keys that are not in :attr:`counts`."""
        return self._repelled_by(lambda key: key not in self.counts, pods)

    def _repelled_by(self, concerns: Callable[[str], bool], pods: Shape) -> int:
        terms = pods.affinity_terms.required_anti
        return sum(concerns(term.topology_key) and self.is_matched_by(term) for term in terms)

    @property
    def skips_filter(self) -> bool:
        """Whether the incoming pod has no required terms and no existing anti-affinity count is above 0."""
        terms = self._shape.affinity_terms
        return not (terms.required or terms.required_anti) and not any(
            pods.total for counts in self.counts.values() for pods in counts.existing_anti_affinity
        )

    def verdict_keys(self, nodes: Nodes) -> NDArray[np.int32]:
        """0 or the failed check for each row of ``nodes``, int32."""
        if isinstance(nodes, HypotheticalNodes):
            return _keys_of_hypothetical(self, nodes).astype(np.int32)
        is_first_pod = self.matches_own_affinity and not any(
            counts.affinity.total for counts in self.counts.values() if counts.affinity is not None
        )
        keys: VerdictKeys | None = None
        for topology_key, counts in self.counts.items():
            by_domain = _keys_by_domain(counts, is_first_pod=is_first_pod)
            if by_domain is not None:
                found = by_domain.take(nodes.label(topology_key))
                keys = found if keys is None else np.maximum(keys, found, out=keys)
        return np.zeros(len(nodes), np.int32) if keys is None else keys.astype(np.int32)

    # -- Score -----------------------------------------------------------------------------------------------------

    @property
    def skips_score(self) -> bool:
        """Whether no existing pod is counted in the topology score."""
        return not any(pods.total for weighted in self._topology_score.values() for _, pods in weighted)

    def scores(self, nodes: Nodes) -> NDArray[np.int64]:
        """The topology score of each row of ``nodes``, int64: weight times count, summed over all terms."""
        total: NDArray[np.int64] | None = None
        for topology_key, weighted in self._topology_score.items():
            (weight, pods), *others = weighted
            by_domain = weight * pods.by_domain
            for weight, pods in others:
                by_domain += weight * pods.by_domain
            by_domain[MISSING] = 0
            scores = by_domain.take(nodes.label(topology_key))
            total = scores if total is None else np.add(total, scores, out=total)
        return np.zeros(len(nodes), np.int64) if total is None else total


def _matches_all(terms: Terms, pods: Shape) -> bool:
    return all(term.matches(pods.namespace, pods.labels) for term in terms)


@dataclass(frozen=True, slots=True)
class _CachedState:
    """The state of a group of shapes with the versions that it depends on.

    ``built_at`` has the versions of the namespaces and of the existing terms that can match the pods; ``checked_at``
    has those of the namespaces and of all existing terms when ``built_at`` was last compared.
    """

    state: InterPodAffinityState
    built_at: tuple[int, int]
    checked_at: tuple[int, int]


class InterPodAffinity(PreFilterPlugin, FilterPlugin, PreScorePlugin, ScorePlugin):
    """Filters by required terms and by the anti-affinity of existing pods; scores by the preferences of both sides."""

    name = "InterPodAffinity"
    reads_requests = False
    missing_pre_filter_error = 'error reading "PreFilterInterPodAffinity" from cycleState: not found'
    missing_pre_score_error = 'failed to read "PreScoreInterPodAffinity" from cycleState: not found'
    applicability_events = (ClusterEvent(EventResource.AFFINITY_TERM, Action.ALL),)

    def __init__(self, args: InterPodAffinityArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._cluster = handle.cluster
        self._hard_pod_affinity_weight = args.hard_pod_affinity_weight
        self._ignores_existing_preferences = args.ignore_preferred_terms_of_existing_pods
        self._states: ShapeCache[_CachedState] = ShapeCache(handle.cluster.has_placed)
        #: The shape that was looked up last: the state of a pod is needed several times in a cycle.
        self._latest: tuple[Shape | None, _CachedState | None] = (None, None)
        self.events_to_register = (
            on(
                EventResource.POD,
                Action.ADD | Action.UPDATE_POD_LABEL | Action.DELETE,
                invalidates=Invalidation.ALL,
                hint=_is_schedulable_after_pod_change,
            ),
            on(
                EventResource.NODE,
                Action.ADD | Action.UPDATE_NODE_LABEL,
                invalidates=Invalidation.ALL,
                hint=_is_schedulable_after_node_change,
            ),
            on(EventResource.NODE, Action.DELETE, invalidates=Invalidation.ALL, requeues=False),
            on(EventResource.NAMESPACE, Action.ALL, invalidates=Invalidation.ALL, requeues=False),
        )

    def applies_to(self, pod: PodInfo) -> bool:
        """Pods with terms of their own, and pods that a term of an existing pod can match."""
        shape = pod.shape
        return bool(
            shape.carried_terms
            or shape.affinity_terms.problems
            or self._cluster.carried_terms.has_terms_for(shape.index_keys)
        )

    def label_keys_for(self, pod: PodInfo) -> frozenset[str]:
        """The labels that the terms of existing pods and the pod's own terms read."""
        existing = self._cluster.carried_terms.label_keys(pod.namespace)
        return existing.union(*(carried.term.selector.label_keys for carried in pod.shape.carried_terms))

    def signature(self, pod: PodInfo) -> Hashable:
        """Namespace, terms, and the labels that terms read."""
        return pod.shape.group(self.label_keys_for(pod))

    def hint_signature(self, pod: PodInfo) -> Hashable:
        return pod.shape

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        """Skips pods without required terms that no existing anti-affinity term matches."""
        problems = pod.shape.affinity_terms.problems
        if problems:
            return Status.unresolvable(f"parsing pod: {aggregate(problems)}")
        affinity = self._state(pod)
        if affinity.skips_filter:
            return Status.skip()
        state.put(affinity)
        return None

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        """Checks affinity, then anti-affinity, then the anti-affinity of existing pods."""
        keys = state[InterPodAffinityState].verdict_keys(nodes)
        return Verdict.of(keys, _STATUSES) if keys.any() else None

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        """Skips pods for which no existing pod counts in the topology score."""
        problems = pod.shape.affinity_terms.problems
        if self._ignores_existing_preferences and not _has_preferred_terms(pod):
            return Status.skip()
        if problems:
            return Status.error(f"failed to parse pod: {aggregate(problems)}")
        affinity = self._state(pod)
        if affinity.skips_score:
            return Status.skip()
        state.put(affinity)
        return None

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        """The topology score: the weights of matching terms, summed over the pods in the node's domains."""
        return state[InterPodAffinityState].scores(nodes)

    def normalize(self, state: CycleState, pod: PodInfo, scores: NDArray[np.int64], nodes: Nodes) -> NDArray[np.int64]:
        """Scales linearly: the highest score becomes 100, the lowest 0."""
        lowest, highest = scores.item(scores.argmin()), scores.item(scores.argmax())
        if lowest == highest:
            return np.zeros_like(scores)
        scaled = (scores - lowest).astype(np.float64)
        scaled /= float(highest - lowest)
        scaled *= MAX_SCORE
        return scaled.astype(np.int64)

    def _state(self, pod: PodInfo) -> InterPodAffinityState:
        """The state for a pod, rebuilt if namespaces or the existing terms that can match it have changed."""
        shape, cluster, carried = pod.shape, self._cluster, self._cluster.carried_terms
        checked_at = (cluster.namespaces_version, carried.version)
        latest_shape, latest = self._latest
        if latest is not None and latest_shape is shape and latest.checked_at == checked_at:
            return latest.state
        group = shape.group(self.label_keys_for(pod))
        cached = self._states.get(group)
        if cached is not None and cached.checked_at == checked_at:
            self._latest = shape, cached
            return cached.state
        built_at = (cluster.namespaces_version, carried.version_for(shape.index_keys))
        if cached is None or cached.built_at != built_at:
            state = InterPodAffinityState(cluster, shape, hard_pod_affinity_weight=self._hard_pod_affinity_weight)
        else:
            state = cached.state
        self._latest = shape, self._states.put(group, _CachedState(state, built_at, checked_at))
        return state


# -- queueing hints ------------------------------------------------------------------------------------------------


def _is_schedulable_after_pod_change(pod: PodInfo, old: PodInfo | None, new: PodInfo | None) -> bool:
    if old is not None and new is not None and new.uid == pod.uid:
        return True
    if any(changed is not None and not changed.is_assigned_or_nominated for changed in (old, new)):
        return False
    terms = pod.shape.affinity_terms
    if old is None:
        return new is not None and _all_match(terms.required, new)
    if new is None:
        return _all_match(terms.required_anti, old) or _all_match(old.shape.affinity_terms.required_anti, pod)
    return (_all_match(terms.required, new) and not _all_match(terms.required, old)) or (
        _all_match(terms.required_anti, old) and not _all_match(terms.required_anti, new)
    )


def _is_schedulable_after_node_change(pod: PodInfo, old: Node | None, new: Node) -> bool:
    terms = pod.shape.affinity_terms
    if old is None:
        return bool(terms.required_anti) or any(term.topology_key in new.metadata.labels for term in terms.required)
    before, after = old.metadata.labels, new.metadata.labels
    return any(
        term.topology_key in after and before.get(term.topology_key) != after[term.topology_key]
        for term in terms.required
    ) or any(
        term.topology_key in before and after.get(term.topology_key) != before[term.topology_key]
        for term in terms.required_anti
    )


def _all_match(terms: Sequence[AffinityTerm], pod: PodInfo) -> bool:
    """Whether there are terms and all of them match a pod."""
    return bool(terms) and all(term.matches(pod.namespace, pod.labels) for term in terms)


# -- arithmetic ----------------------------------------------------------------------------------------------------


def _keys_by_domain(counts: _TopologyCounts, *, is_first_pod: bool) -> VerdictKeys | None:
    """The verdict key of each domain, int8; None when all domains pass.

    ``is_first_pod``: no existing pod has any affinity count, and the incoming pod matches its own terms.
    """
    keys: VerdictKeys | None = None
    for pods in counts.existing_anti_affinity:
        if pods.total:
            keys = _raised(keys, pods.by_domain > 0, EXISTING_ANTI_AFFINITY)
    for _, pods in counts.anti_affinity:
        if pods.total:
            keys = _raised(keys, pods.by_domain > 0, ANTI_AFFINITY)
    if keys is not None:
        keys[MISSING] = 0
    if counts.affinity is not None:
        failed = np.zeros(len(counts.affinity.by_domain), np.bool_) if is_first_pod else counts.affinity.by_domain <= 0
        failed[MISSING] = True
        keys = _raised(keys, failed, AFFINITY)
    return keys


def _raised(keys: VerdictKeys | None, failed: Mask, key: np.int8) -> VerdictKeys:
    raised: VerdictKeys = failed.view(np.int8) * key
    return raised if keys is None else np.maximum(keys, raised, out=raised)


def _keys_of_hypothetical(state: InterPodAffinityState, nodes: HypotheticalNodes) -> VerdictKeys:
    """0 or the failed check for each row, int8; pods added to or removed from a node change its row only."""

    def count(pods: DomainSums) -> NDArray[np.int64]:
        """The count in the domain of each row, without the simulated changes."""
        counts: NDArray[np.int64] = pods.by_domain.take(nodes.label(pods.topology_key))
        return counts

    keys: VerdictKeys = np.zeros(len(nodes), np.int8)
    repelling_keys = set(state.counts)
    if nodes.sum_of_changes(state.repelled_elsewhere).any():
        terms = (term for shape in nodes.changed_shapes for term in shape.affinity_terms.required_anti)
        repelling_keys.update(term.topology_key for term in terms)
    for topology_key in repelling_keys:
        counts = nodes.sum_of_changes(state.repelled_under(topology_key))
        if topology_key in state.counts:
            counts = sum(map(count, state.counts[topology_key].existing_anti_affinity), counts)
        keys[(counts > 0) & (nodes.label(topology_key) != MISSING)] = EXISTING_ANTI_AFFINITY
    for topology_key, of_key in state.counts.items():
        for matches, pods in of_key.anti_affinity:
            repelled = count(pods) + nodes.sum_of_changes(matches) > 0
            keys[repelled & (nodes.label(topology_key) != MISSING)] = ANTI_AFFINITY
    if not state.required_affinity:
        return keys
    without_match, is_missing_key = np.zeros((2, len(nodes)), np.bool_)
    is_first_pod = np.full(len(nodes), state.matches_own_affinity)
    change = nodes.sum_of_changes(state.matches_affinity)
    for topology_key, of_key in state.counts.items():
        if of_key.affinity is not None:
            has_key = nodes.label(topology_key) != MISSING
            is_missing_key |= ~has_key
            without_match |= count(of_key.affinity) + change <= 0
            is_first_pod &= of_key.affinity.total + np.where(has_key, change, 0) == 0
    keys[is_missing_key | (without_match & ~is_first_pod)] = AFFINITY
    return keys


def _has_preferred_terms(pod: PodInfo) -> bool:
    affinity = pod.spec.affinity
    return affinity is not None and any(
        kind is not None and kind.preferred_during_scheduling_ignored_during_execution
        for kind in (affinity.pod_affinity, affinity.pod_anti_affinity)
    )
