"""InterPodAffinity attracts pods to, or repels them from, the topology domains of other pods (semantics 8.15).

Required terms of the incoming pod and required anti-affinity terms of existing pods filter. Preferred terms of both and
required affinity terms of existing pods score. The counts are in :mod:`.state`, cached per pod shape.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import Node
from kubestow.cluster.events import Action, ClusterEvent, EventResource
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.affinity_terms import AffinityTerm
from kubestow.cluster.pods.shape_cache import ShapeCache
from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.config.plugin_args import InterPodAffinityArgs
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import Invalidation, on
from kubestow.framework.interface import MAX_SCORE, FilterPlugin, Handle, PreFilterPlugin, PreScorePlugin, ScorePlugin
from kubestow.framework.status import Status, Verdict
from kubestow.plugins.inter_pod_affinity.state import (
    AFFINITY,
    ANTI_AFFINITY,
    EXISTING_ANTI_AFFINITY,
    InterPodAffinityState,
)

__all__ = ["InterPodAffinity"]

_REASON_AFFINITY = "node(s) didn't match pod affinity rules"
_REASON_ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
_REASON_EXISTING_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"

_STATUSES = {
    int(AFFINITY): Status.unresolvable(_REASON_AFFINITY),
    int(ANTI_AFFINITY): Status.unschedulable(_REASON_ANTI_AFFINITY),
    int(EXISTING_ANTI_AFFINITY): Status.unschedulable(_REASON_EXISTING_ANTI_AFFINITY),
}


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
            return Status.unresolvable(f"parsing pod: {_aggregate(problems)}")
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
            return Status.error(f"failed to parse pod: {_aggregate(problems)}")
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
    if any(changed is not None and not _is_assigned_or_nominated(changed) for changed in (old, new)):
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


def _is_assigned_or_nominated(pod: PodInfo) -> bool:
    return bool(pod.spec.node_name or pod.status.nominated_node_name)


# -- terms ---------------------------------------------------------------------------------------------------------


def _has_preferred_terms(pod: PodInfo) -> bool:
    affinity = pod.spec.affinity
    return affinity is not None and any(
        kind is not None and kind.preferred_during_scheduling_ignored_during_execution
        for kind in (affinity.pod_affinity, affinity.pod_anti_affinity)
    )


def _aggregate(problems: Sequence[str]) -> str:
    """Several errors in one line, as ``utilerrors.Aggregate`` writes them."""
    return problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
