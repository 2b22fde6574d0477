"""InterPodAffinity brings pods together, or keeps them apart, within topology domains (semantics 8.15)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import Node
from kubestow.cluster.events import Action, ClusterEvent, EventResource
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.cluster.topology.affinity import AffinityTerm
from kubestow.config.plugin_args import InterPodAffinityArgs
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import Invalidation, on
from kubestow.framework.interface import MAX_SCORE, FilterPlugin, Handle, PreFilterPlugin, PreScorePlugin, ScorePlugin
from kubestow.framework.status import Status, Verdict
from kubestow.plugins.inter_pod_affinity.state import LACKS_COMPANY, SHUNNED, SHUNS, PodCompany
from kubestow.plugins.shape_cache import ShapeMemory

__all__ = ["InterPodAffinity"]

_REFUSALS = {
    int(LACKS_COMPANY): Status.unresolvable("node(s) didn't match pod affinity rules"),
    int(SHUNS): Status.unschedulable("node(s) didn't match pod anti-affinity rules"),
    int(SHUNNED): Status.unschedulable("node(s) didn't satisfy existing pods anti-affinity rules"),
}


@dataclass(frozen=True, slots=True)
class _Known:
    """The company of pods of a shape, what it was made from, and the versions at which that was last looked at."""

    company: PodCompany
    stamp: tuple[int, int]
    seen: tuple[int, int]


class InterPodAffinity(PreFilterPlugin, FilterPlugin, PreScorePlugin, ScorePlugin):
    """Required terms, the pod's own and other pods' anti-affinity, filter; preferences of both sides score."""

    name = "InterPodAffinity"
    missing_pre_filter_error = 'error reading "PreFilterInterPodAffinity" from cycleState: not found'
    missing_pre_score_error = 'failed to read "PreScoreInterPodAffinity" from cycleState: not found'
    applicability_events = (ClusterEvent(EventResource.AFFINITY_TERM, Action.ALL),)

    def __init__(self, args: InterPodAffinityArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._cluster = handle.cluster
        self._hard_weight = args.hard_pod_affinity_weight
        self._ignores_others_preferences = args.ignore_preferred_terms_of_existing_pods
        self._memory: ShapeMemory[_Known] = ShapeMemory(handle.cluster.has_placed)
        pod_events = Action.ADD | Action.UPDATE_POD_LABEL | Action.DELETE
        self.events_to_register = (
            on(EventResource.POD, pod_events, invalidates=Invalidation.ALL, hint=_changes_company),
            on(
                EventResource.NODE,
                Action.ADD | Action.UPDATE_NODE_LABEL,
                invalidates=Invalidation.ALL,
                hint=_changes_domains,
            ),
            on(EventResource.NODE, Action.DELETE, invalidates=Invalidation.ALL, requeues=False),
            on(EventResource.NAMESPACE, Action.ALL, invalidates=Invalidation.ALL, requeues=False),
        )

    def applies_to(self, pod: PodInfo) -> bool:
        """Pods with terms of their own, and those that terms of placed pods may speak of."""
        shape = pod.shape
        return bool(
            shape.carried_terms or shape.affinity_terms.problems or self._cluster.carried_terms.speak_of(shape.groups)
        )

    def signature(self, pod: PodInfo) -> Hashable:
        """Namespace, labels and terms: nearly all of the shape matters."""
        return pod.shape

    # -- filtering -----------------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        """Skips when the pod requires nothing and nobody shuns it."""
        problems = pod.shape.affinity_terms.problems
        if problems:
            return Status.unresolvable(f"parsing pod: {_aggregate(problems)}")
        company = self._company(pod.shape)
        if not company.matters:
            return Status.skip()
        state.put(company)
        return None

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        """Affinity, then anti-affinity, then the anti-affinity of others."""
        keys = state[PodCompany].keys(nodes)
        return Verdict.of(keys, _REFUSALS) if keys.any() else None

    # -- scoring -------------------------------------------------------------------------------------------------

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        """Skips when there is no pod that any preference is about."""
        terms = pod.shape.affinity_terms
        if self._ignores_others_preferences and not _has_preferences(pod):
            return Status.skip()
        if terms.problems:
            return Status.error(f"failed to parse pod: {_aggregate(terms.problems)}")
        company = self._company(pod.shape)
        if not company.leans:
            return Status.skip()
        state.put(company)
        return None

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        """The weights of the preferences that pods in the node's domains are about, or have."""
        return state[PodCompany].scores(nodes)

    def normalize(self, state: CycleState, pod: PodInfo, scores: NDArray[np.int64], nodes: Nodes) -> NDArray[np.int64]:
        """The best node gets 100 and the worst 0."""
        lowest, highest = int(scores.min()), int(scores.max())
        if lowest == highest:
            return np.zeros_like(scores)
        return (MAX_SCORE * ((scores - lowest) / float(highest - lowest))).astype(np.int64)

    # -- preparing -----------------------------------------------------------------------------------------------

    def _company(self, shape: Shape) -> PodCompany:
        cluster, carried = self._cluster, self._cluster.carried_terms
        known = self._memory.get(shape)
        if known is not None and known.seen == (cluster.namespaces_version, carried.version):
            return known.company
        stamp = (cluster.namespaces_version, carried.version_about(shape.groups))
        if known is None or known.stamp != stamp:
            company = PodCompany(cluster, shape, hard_weight=self._hard_weight)
        else:
            company = known.company
        self._memory.put(shape, _Known(company, stamp, (cluster.namespaces_version, carried.version)))
        return company


def _has_preferences(pod: PodInfo) -> bool:
    affinity = pod.spec.affinity
    return affinity is not None and any(
        kind is not None and kind.preferred_during_scheduling_ignored_during_execution
        for kind in (affinity.pod_affinity, affinity.pod_anti_affinity)
    )


def _aggregate(problems: Sequence[str]) -> str:
    return problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"


# -- hints ---------------------------------------------------------------------------------------------------------


def _all_mean(terms: Sequence[AffinityTerm], pod: PodInfo) -> bool:
    """Whether there are terms and all of them speak of a pod."""
    return bool(terms) and all(term.matches(pod.namespace, pod.labels) for term in terms)


def _changes_company(pod: PodInfo, old: PodInfo | None, new: PodInfo | None) -> bool:
    if old is not None and new is not None and new.uid == pod.uid:
        return True
    if any(changed is not None and not _is_placed(changed) for changed in (old, new)):
        return False
    terms = pod.shape.affinity_terms
    if old is None:
        return new is not None and _all_mean(terms.required, new)
    if new is None:
        return _all_mean(terms.required_anti, old) or _all_mean(old.shape.affinity_terms.required_anti, pod)
    return (_all_mean(terms.required, new) and not _all_mean(terms.required, old)) or (
        _all_mean(terms.required_anti, old) and not _all_mean(terms.required_anti, new)
    )


def _is_placed(pod: PodInfo) -> bool:
    return bool(pod.spec.node_name or pod.status.nominated_node_name)


def _changes_domains(pod: PodInfo, old: Node | None, new: Node) -> bool:
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
