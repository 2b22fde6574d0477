"""InterPodAffinity attracts pods to, or repels them from, the topology domains of other pods (semantics 8.15).

Required terms of the incoming pod and required anti-affinity terms of existing pods filter. Preferred terms of both and
required affinity terms of existing pods score. Its counts are cached per pod shape.

The counts are per topology key and domain. An :class:`InterPodAffinityState` is built once per pod shape, and again
when namespace labels or the terms of existing pods change. It holds counters that follow every pod event, so filtering
and scoring are arithmetic on one number per domain and one lookup per node. It does not check whether it is out of
date; the plugin does.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import Node
from kubestow.cluster.cache import Cluster
from kubestow.cluster.changes.events import Action, ClusterEvent, EventResource
from kubestow.cluster.nodes.columns import MISSING
from kubestow.cluster.nodes.views import HypotheticalNodes, Nodes
from kubestow.cluster.pods.affinity_terms import PodAffinityTerms, TermWeights
from kubestow.cluster.pods.shapes import PodInfo, Shape, ShapeCache
from kubestow.cluster.topology.counters import PodCounter
from kubestow.cluster.topology.domains import DomainSums, domain_sums
from kubestow.config.plugin_args import InterPodAffinityArgs
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import HintKeys, Invalidation, on, placed_pods
from kubestow.framework.interface import MAX_SCORE, FilterPlugin, Handle, PreFilterPlugin, PreScorePlugin, ScorePlugin
from kubestow.framework.status import Status, Verdict, aggregate
from kubestow.rules.matching import changed_labels
from kubestow.rules.minors import Behaviour

Mask = NDArray[np.bool_]
VerdictKeys = NDArray[np.int8]
#: How often a pod counts.
Weight = Callable[[Shape], int]

#: Verdict keys by failed check. The check with the highest key is reported where several fail.
EXISTING_ANTI_AFFINITY, ANTI_AFFINITY, AFFINITY = np.int8(1), np.int8(2), np.int8(3)

#: Hint keys. Those of topology keys are tuples of one name, unlike the index keys of pods.
_ANY_TOPOLOGY, _ITSELF = ("",), "itself"

_STATUSES = {
    int(AFFINITY): Status.unresolvable("node(s) didn't match pod affinity rules"),
    int(ANTI_AFFINITY): Status.unschedulable("node(s) didn't match pod anti-affinity rules"),
    int(EXISTING_ANTI_AFFINITY): Status.unschedulable("node(s) didn't satisfy existing pods anti-affinity rules"),
}


@dataclass(frozen=True, slots=True)
class _TopologyCounts:
    """The counts under one topology key, per domain; None where there is nothing to count."""

    #: Existing pods that match all required affinity terms of the incoming pod.
    affinity: DomainSums | None
    #: How many required anti-affinity terms of the incoming pod the existing pods match.
    anti_affinity: DomainSums | None
    #: How many required anti-affinity terms of existing pods match the incoming pod.
    existing_anti_affinity: DomainSums | None
    #: What Score reads: weights (negative for anti-affinity) and what they apply to.
    scored: Sequence[tuple[int, DomainSums]]


class InterPodAffinityState:
    """The counts for incoming pods of one shape.

    ``hard_pod_affinity_weight`` is what a required affinity term of an existing pod adds to the topology score;
    ``matches_without_labels`` as in :meth:`PodAffinityTerms.resolved`.

    Pods are counted for all terms of a topology key together, since a sum of weights is all that is read. They are not
    counted for topology keys that no node has.
    """

    def __init__(
        self, cluster: Cluster, shape: Shape, *, hard_pod_affinity_weight: int, matches_without_labels: bool
    ) -> None:
        self._cluster = cluster
        self._shape = shape
        self._namespace_labels = cluster.namespaces.get(shape.namespace, {})
        self._hard_pod_affinity_weight = hard_pod_affinity_weight
        #: The terms of the incoming pod, with namespace selectors resolved.
        self._terms = shape.affinity_terms.resolved(cluster.namespaces, matches_without_labels=matches_without_labels)
        #: Whether the incoming pod matches all its required affinity terms.
        self.matches_own_affinity = self.matches_affinity(shape)
        #: The terms of existing pods of which one may match the incoming pod.
        self._carried = cluster.carried_terms.terms_for(shape.index_keys)
        #: The counts by topology key, of those that a node has at this revision of the node table.
        self._counts: dict[str, _TopologyCounts] = {}
        self._revision = -1
        self._matching_all: PodCounter | None = None
        #: The results of :meth:`repelled_by` and :meth:`repelled_under`.
        self._repelled_by: dict[str, Weight] = {}
        self._repelled_under: dict[str, Weight] = {}

    @property
    def counts(self) -> Mapping[str, _TopologyCounts]:
        """What is counted, by topology key; without those that no node has."""
        nodes = self._cluster.nodes
        if self._revision != nodes.revision:
            present: set[str] = set()
            for terms in (self._terms, *self._carried):
                present |= nodes.label_keys & terms.topology_keys
            self._counts = {
                key: self._counts[key] if key in self._counts else self._counted(key) for key in sorted(present)
            }
            self._revision = nodes.revision
        return self._counts

    def _counted(self, topology_key: str) -> _TopologyCounts:
        """The counts under a topology key."""
        terms, sums = self._terms, partial(domain_sums, self._cluster.nodes, topology_key=topology_key)
        matching_all = self._pods_matching_all() if topology_key in terms.required_topology_keys else None
        anti = terms.required_anti_by_topology.get(topology_key)
        repelling: dict[PodAffinityTerms, int] = {}
        scoring: dict[int, dict[PodAffinityTerms, int]] = {+1: {}, -1: {}, 0: {}}
        hard_weight = self._hard_pod_affinity_weight
        for carried in self._carried:
            if weight := self._weight(carried.required_anti_by_topology.get(topology_key)):
                repelling[carried] = weight
            for sign, by_topology in carried.preferred_by_topology.items():
                if weight := self._weight(by_topology.get(topology_key)):
                    scoring[sign][carried] = weight
            if hard_weight > 0 and (weight := self._weight(carried.required_by_topology.get(topology_key))):
                scoring[+1][carried] = scoring[+1].get(carried, 0) + hard_weight * weight
        scored = [self._pods_with(weights, sign) for sign, weights in scoring.items() if weights]
        for sign, of_sign in terms.preferred_by_topology.items():
            if (preferred := of_sign.get(topology_key)) is not None:
                scored.append(self._pods_matching(preferred, sign))
        return _TopologyCounts(
            None if matching_all is None else sums(matching_all),
            None if anti is None else sums(self._pods_matching(anti)[1]),
            sums(self._pods_with(repelling)[1]) if repelling else None,
            [(weight, sums(counter)) for weight, counter in scored],
        )

    def _weight(self, terms: TermWeights | None) -> int:
        """The weight of the incoming pod for terms of existing pods."""
        if terms is None:
            return 0
        return terms.of(self._shape.namespace, self._shape.labels, self._namespace_labels)

    def _pods_matching_all(self) -> PodCounter:
        """The existing pods that match all required affinity terms of the incoming pod."""
        if self._matching_all is None:
            terms = self._terms.every_required
            if len(terms) == 1:
                self._matching_all = self._pods_matching(terms)[1]
            else:
                self._matching_all = self._cluster.counter(
                    ("pods matching all terms", terms.key, terms.total),
                    partial(_matches_all, terms),
                    index_keys=terms.index_keys_of_all,
                    terminating=True,
                )
        return self._matching_all

    def _pods_matching(self, terms: TermWeights, sign: int = 1) -> tuple[int, PodCounter]:
        """The existing pods that match terms of the incoming pod, and the factor of their weights.

        Pods that match one term are counted once, so that the same counter serves terms of any weight.
        """
        factor = 1
        if len(terms) == 1:
            factor, terms = terms.total, terms.without_weights()
        matches = partial(_weight_of, terms)
        counter = self._cluster.counter(
            ("pods matching terms", terms.key), matches, index_keys=terms.index_keys, terminating=True
        )
        return sign * factor, counter

    def _pods_with(self, weights: dict[PodAffinityTerms, int], sign: int = 1) -> tuple[int, PodCounter]:
        """The existing pods that carry terms, weighted, and the factor of these weights."""
        factor = 1
        if len(weights) == 1:
            ((carried, factor),) = weights.items()
            weights = {carried: 1}
        counter = self._cluster.counter(
            ("pods with terms", frozenset(weights.items())),
            lambda other: weights.get(other.affinity_terms, 0),
            index_keys=frozenset(weights),
            terminating=True,
        )
        return sign * factor, counter

    # -- Filter ----------------------------------------------------------------------------------------------------

    def matches_affinity(self, pods: Shape) -> bool:
        """Whether pods of a shape match all required affinity terms of the incoming pod."""
        return _matches_all(self._terms.every_required, pods)

    @property
    def requires_affinity(self) -> bool:
        """Whether the incoming pod has required affinity terms."""
        return bool(self._terms.required)

    @property
    def requires_missing_key(self) -> bool:
        """Whether a required affinity term has a topology key that no node has."""
        return not self._terms.required_topology_keys <= self.counts.keys()

    def repelled_by(self, topology_key: str) -> Weight:
        """How many required anti-affinity terms of the incoming pod with a topology key match pods of a shape."""
        weight = self._repelled_by.get(topology_key)
        if weight is None:
            weight = partial(_weight_of, self._terms.required_anti_by_topology[topology_key])
            self._repelled_by[topology_key] = weight
        return weight

    def repelled_under(self, topology_key: str) -> Weight:
        """How many required anti-affinity terms with a topology key of a pod match the incoming pod."""
        weight = self._repelled_under.get(topology_key)
        if weight is None:
            weight = self._repelled_under[topology_key] = partial(self._repulsion, topology_key)
        return weight

    def repelled_elsewhere(self, pods: Shape) -> int:
        """The same for topology keys that are not in :attr:`counts`, but that a node has."""
        topology_keys = self._cluster.nodes.label_keys & pods.affinity_terms.required_anti_by_topology.keys()
        return sum(self._repulsion(key, pods) for key in topology_keys - self.counts.keys())

    def _repulsion(self, topology_key: str, pods: Shape) -> int:
        return self._weight(pods.affinity_terms.required_anti_by_topology.get(topology_key))

    @property
    def skips_filter(self) -> bool:
        """Whether the incoming pod has no required terms and no existing anti-affinity count is above 0."""
        terms = self._terms
        return not (terms.required or terms.required_anti) and not any(
            counts.existing_anti_affinity.total
            for counts in self.counts.values()
            if counts.existing_anti_affinity is not None
        )

    def verdict_keys(self, nodes: Nodes) -> NDArray[np.int32]:
        """0 or the failed check for each row of ``nodes``, int32."""
        if isinstance(nodes, HypotheticalNodes):
            return _keys_of_hypothetical(self, nodes).astype(np.int32)
        if self.requires_missing_key:
            return np.full(len(nodes), AFFINITY, np.int32)
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
        return not any(pods.total for counts in self.counts.values() for _, pods in counts.scored)

    def scores(self, nodes: Nodes) -> NDArray[np.int64]:
        """The topology score of each row of ``nodes``, int64: weight times count, summed over all terms."""
        total: NDArray[np.int64] | None = None
        for topology_key, counts in self.counts.items():
            if not counts.scored:
                continue
            (weight, pods), *others = counts.scored
            by_domain = weight * pods.by_domain
            for weight, pods in others:
                by_domain += weight * pods.by_domain
            by_domain[MISSING] = 0
            scores = by_domain.take(nodes.label(topology_key))
            total = scores if total is None else np.add(total, scores, out=total)
        return np.zeros(len(nodes), np.int64) if total is None else total


def _matches_all(terms: TermWeights, pods: Shape) -> bool:
    return terms.all_match(pods.namespace, pods.labels)


def _weight_of(terms: TermWeights, pods: Shape) -> int:
    return terms.of(pods.namespace, pods.labels)


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
    reads_requests = reads_volumes = False
    missing_pre_filter_error = 'error reading "PreFilterInterPodAffinity" from cycleState: not found'
    missing_pre_score_error = 'failed to read "PreScoreInterPodAffinity" from cycleState: not found'
    applicability_events = (ClusterEvent(EventResource.AFFINITY_TERM, Action.ALL),)

    def __init__(self, args: InterPodAffinityArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._cluster = handle.cluster
        self._hard_pod_affinity_weight = args.hard_pod_affinity_weight
        self._ignores_existing_preferences = args.ignore_preferred_terms_of_existing_pods
        self._matches_without_labels = handle.emulates(Behaviour.NAMESPACE_SELECTORS_MATCH_WITHOUT_LABELS)
        self._states: ShapeCache[_CachedState] = ShapeCache(handle.cluster.has_placed)
        #: The shape that was looked up last: the state of a pod is needed several times in a cycle.
        self._latest: tuple[Shape | None, _CachedState | None] = (None, None)
        self._counts = placed_pods(handle, Behaviour.TOPOLOGY_HINTS_LOOK_AT_NOMINATED_PODS)
        self._looks_at_the_pod_itself = handle.emulates(Behaviour.AFFINITY_HINT_LOOKS_AT_THE_POD_ITSELF)
        any_repels = handle.emulates(Behaviour.ANTI_AFFINITY_HINT_LOOKS_AT_EVERY_TERM)
        self._repels = _any_matches if any_repels else _all_match
        self.events_to_register = (
            on(
                EventResource.POD,
                Action.ADD | Action.UPDATE_POD_LABEL | Action.DELETE,
                invalidates=Invalidation.ALL,
                hint=self._is_schedulable_after_pod_change,
                hint_keys=self._keys_of_pod_change,
            ),
            on(
                EventResource.NODE,
                Action.ADD | Action.UPDATE_NODE_LABEL,
                invalidates=Invalidation.ALL,
                hint=_is_schedulable_after_node_change,
                hint_keys=_keys_of_node_change,
            ),
            on(EventResource.NODE, Action.DELETE, invalidates=Invalidation.ALL, requeues=False),
            on(EventResource.NAMESPACE, Action.ALL, invalidates=Invalidation.ALL, requeues=False),
        )

    def applies_to(self, pod: PodInfo) -> bool:
        """Pods with terms of their own, and pods that a term of an existing pod can match."""
        shape = pod.shape
        return bool(
            shape.affinity_terms
            or shape.affinity_terms.problems
            or self._cluster.carried_terms.has_terms_for(shape.index_keys)
        )

    def label_keys_for(self, pod: PodInfo) -> frozenset[str]:
        """The labels that the terms of existing pods and the pod's own terms read."""
        existing, own = self._cluster.carried_terms.label_keys(pod.namespace), pod.shape.affinity_terms
        return existing | own.label_keys if own else existing

    def signature(self, pod: PodInfo) -> Hashable:
        """Namespace, terms, and the labels that terms read."""
        return pod.shape.group(self.label_keys_for(pod))

    def hint_signature(self, pod: PodInfo) -> Hashable:
        return pod.shape

    def hint_keys(self, pod: PodInfo) -> HintKeys | None:
        """The index keys of the pods that the required terms select, and the topology keys of these terms."""
        terms = pod.shape.affinity_terms
        selected, repelling = terms.every_required.index_keys_of_all, terms.every_required_anti.index_keys
        if (selected is None and terms.required) or repelling is None:
            return None
        topology_keys = {(key,) for key in terms.required_topology_keys | terms.required_anti_topology_keys}
        if terms.required_anti:
            topology_keys.add(_ANY_TOPOLOGY)
        itself = {(_ITSELF, key) for key in pod.shape.index_keys} if self._looks_at_the_pod_itself else ()
        return {*(selected or ()), *repelling, *topology_keys, *itself}

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        """Skips pods without required terms that no existing anti-affinity term matches."""
        problems = pod.shape.affinity_terms.problems
        if problems:
            return Status.unresolvable(f"parsing pod: {aggregate(problems)}")
        affinity = self.state_of(pod)
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
        affinity = self.state_of(pod)
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

    def state_of(self, pod: PodInfo) -> InterPodAffinityState:
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
            state = InterPodAffinityState(
                cluster,
                shape,
                hard_pod_affinity_weight=self._hard_pod_affinity_weight,
                matches_without_labels=self._matches_without_labels,
            )
        else:
            state = cached.state
        self._latest = shape, self._states.put(group, _CachedState(state, built_at, checked_at))
        return state

    # -- queueing hints --------------------------------------------------------------------------------------------

    def _is_schedulable_after_pod_change(self, pod: PodInfo, old: PodInfo | None, new: PodInfo | None) -> bool:
        if self._looks_at_the_pod_itself and old is not None and new is not None and new.uid == pod.uid:
            return True
        if any(changed is not None and not self._counts(changed) for changed in (old, new)):
            return False
        terms = pod.shape.affinity_terms
        if old is None:
            return new is not None and _all_match(terms.every_required, new)
        if new is None:
            repelling = old.shape.affinity_terms.every_required_anti
            return self._repels(terms.every_required_anti, old) or (
                self._looks_at_the_pod_itself and self._repels(repelling, pod)
            )
        return (_all_match(terms.every_required, new) and not _all_match(terms.every_required, old)) or (
            self._repels(terms.every_required_anti, old) and not self._repels(terms.every_required_anti, new)
        )

    def _keys_of_pod_change(self, old: PodInfo | None, new: PodInfo | None) -> HintKeys | None:
        changed = [each for each in (old, new) if each is not None]
        if not all(map(self._counts, changed)):
            return ()
        keys = {key for each in changed for key in each.shape.index_keys}
        if new is None and old is not None and self._looks_at_the_pod_itself:
            repelled = old.shape.affinity_terms.every_required_anti.index_keys
            if repelled is None:
                return None
            keys |= {(_ITSELF, key) for key in repelled}
        return keys


# -- queueing hints ------------------------------------------------------------------------------------------------


def _keys_of_node_change(old: Node | None, new: Node) -> HintKeys:
    """The topology keys whose domains change: all of a new node, which has none of those that it lacks."""
    if old is None:
        return [_ANY_TOPOLOGY, *((key,) for key in new.metadata.labels)]
    return [(key,) for key in changed_labels(old.metadata.labels, new.metadata.labels)]


def _is_schedulable_after_node_change(pod: PodInfo, old: Node | None, new: Node) -> bool:
    terms = pod.shape.affinity_terms
    required, required_anti = terms.required_topology_keys, terms.required_anti_topology_keys
    if old is None:
        return bool(required_anti) or not required.isdisjoint(new.metadata.labels)
    before, after = old.metadata.labels, new.metadata.labels
    changed = changed_labels(before, after)
    return any(key in after and key in required for key in changed) or any(
        key in before and key in required_anti for key in changed
    )


def _all_match(terms: TermWeights, pod: PodInfo) -> bool:
    """Whether there are terms and all of them match a pod."""
    return terms.total > 0 and terms.all_match(pod.namespace, pod.labels)


def _any_matches(terms: TermWeights, pod: PodInfo) -> bool:
    return terms.any_matches(pod.namespace, pod.labels)


# -- arithmetic ----------------------------------------------------------------------------------------------------


def _keys_by_domain(counts: _TopologyCounts, *, is_first_pod: bool) -> VerdictKeys | None:
    """The verdict key of each domain, int8; None when all domains pass.

    ``is_first_pod``: no existing pod has any affinity count, and the incoming pod matches its own terms.
    """
    keys: VerdictKeys | None = None
    for pods, key in (
        (counts.existing_anti_affinity, EXISTING_ANTI_AFFINITY),
        (counts.anti_affinity, ANTI_AFFINITY),
    ):
        if pods is not None and pods.total:
            keys = _raised(keys, pods.by_domain > 0, key)
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

    if state.requires_missing_key:
        return np.full(len(nodes), AFFINITY)
    keys: VerdictKeys = np.zeros(len(nodes), np.int8)
    repelling_keys = set(state.counts)
    if nodes.sum_of_changes(state.repelled_elsewhere).any():
        terms = (shape.affinity_terms.required_anti_by_topology for shape in nodes.changed_shapes)
        repelling_keys.update(key for of_shape in terms for key in nodes.label_keys & of_shape.keys())
    for topology_key in repelling_keys:
        counts = nodes.sum_of_changes(state.repelled_under(topology_key))
        of_key = state.counts.get(topology_key)
        if of_key is not None and of_key.existing_anti_affinity is not None:
            counts = counts + count(of_key.existing_anti_affinity)
        keys[(counts > 0) & (nodes.label(topology_key) != MISSING)] = EXISTING_ANTI_AFFINITY
    for topology_key, of_key in state.counts.items():
        if of_key.anti_affinity is not None:
            change = nodes.sum_of_changes(state.repelled_by(topology_key))
            repelled = count(of_key.anti_affinity) + change > 0
            keys[repelled & (nodes.label(topology_key) != MISSING)] = ANTI_AFFINITY
    if not state.requires_affinity:
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
