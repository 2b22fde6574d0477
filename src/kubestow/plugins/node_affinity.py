"""NodeAffinity matches pods to nodes by the nodes' labels and names (semantics 8.6)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from kubestow.api import core
from kubestow.cluster.events import Action, EventResource
from kubestow.cluster.nodes.selectors import matches_any_term, matches_term, required_terms, selected_by
from kubestow.cluster.nodes.views import Nodes, alone
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.config.plugin_args import NodeAffinityArgs
from kubestow.errors import InvalidSelector
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import on
from kubestow.framework.interface import (
    FilterPlugin,
    Handle,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    ScorePlugin,
    normalized,
)
from kubestow.framework.status import Status, Verdict

__all__ = ["NodeAffinity"]

_REFUSAL = Status.unresolvable("node(s) didn't match Pod's node affinity/selector")
_ENFORCED_REFUSAL = Status.unresolvable("node(s) didn't match scheduler-enforced node affinity")
_CONFLICT = Status.unresolvable("pod affinity terms conflict")
_STATUSES = {1: _ENFORCED_REFUSAL, 2: _REFUSAL}

Terms = Sequence[core.NodeSelectorTerm]

_NO_ROWS = np.empty(0, np.intp)


def _affinity(pod: PodInfo) -> core.NodeAffinity:
    affinity = pod.spec.affinity
    return (affinity.node_affinity if affinity else None) or core.NodeAffinity()


def _required(affinity: core.NodeAffinity | None) -> Terms | None:
    """The required terms; None when there is no requirement (an empty list is one that nothing meets)."""
    selector = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    return None if selector is None else selector.node_selector_terms


def _preferred(affinity: core.NodeAffinity | None) -> Sequence[core.PreferredSchedulingTerm]:
    return affinity.preferred_during_scheduling_ignored_during_execution if affinity else []


def _names_in(term: core.NodeSelectorTerm) -> frozenset[str] | None:
    """The node names that a term's field requirements admit; None when it does not name any."""
    names: frozenset[str] | None = None
    for requirement in term.match_fields:
        if requirement.key == "metadata.name" and requirement.operator == "In":
            values = frozenset(requirement.values)
            names = values if names is None else names & values
    return names


class NodeAffinity(PreFilterPlugin, FilterPlugin, PreScorePlugin, ScorePlugin):
    """Required affinity and ``spec.nodeSelector`` filter; preferred affinity scores."""

    name = "NodeAffinity"

    def __init__(self, args: NodeAffinityArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._added_required = _required(args.added_affinity)
        self._added_preferred = _preferred(args.added_affinity)
        self.events_to_register = (
            on(EventResource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL, hint=self._began_to_match),
        )

    def applies_to(self, pod: PodInfo) -> bool:
        """Pods that select nodes in some way, or all of them when the profile does."""
        return bool(
            pod.spec.node_selector
            or (pod.spec.affinity and pod.spec.affinity.node_affinity)
            or self._added_required is not None
            or self._added_preferred
        )

    def signature(self, pod: PodInfo) -> Hashable:
        """Node selector and node affinity, as the shape has them."""
        return tuple(sorted(pod.spec.node_selector.items())), repr(_affinity(pod))

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | PreFilterResult | None:
        """Narrows to the nodes that the terms name, when each term names some."""
        terms = required_terms(pod.spec)
        if terms is None and not pod.spec.node_selector and self._added_required is None:
            return Status.skip()
        if not terms:
            return None
        names: frozenset[str] = frozenset()
        for term in terms:
            admitted = _names_in(term)
            if admitted is None:
                return None
            names |= admitted
        return PreFilterResult(names) if names else _CONFLICT

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        """The profile's own requirement first, then the pod's."""
        keys = np.where(selected_by(nodes, pod.spec), 0, 2).astype(np.int32)
        if self._added_required is not None:
            keys[~matches_any_term(nodes, self._added_required)] = 1
        return Verdict.of(keys, _STATUSES) if keys.any() else None

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        """Without preferences there is nothing to score; one that cannot be read fails the cycle."""
        preferences = self._preferences(pod)
        if not preferences:
            return Status.skip()
        try:
            for preferred in preferences:
                matches_term(nodes.select(_NO_ROWS), preferred.preference)
        except InvalidSelector as error:
            return Status.error(str(error))
        return None

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        """The weights of the preferences that a node meets."""
        scores = np.zeros(len(nodes), np.int64)
        for preferred in self._preferences(pod):
            scores += preferred.weight * matches_term(nodes, preferred.preference)
        return scores

    def normalize(self, state: CycleState, pod: PodInfo, scores: NDArray[np.int64], nodes: Nodes) -> NDArray[np.int64]:
        """The most preferred node gets 100."""
        return normalized(scores)

    def _preferences(self, pod: PodInfo) -> list[core.PreferredSchedulingTerm]:
        preferences = (*self._added_preferred, *_preferred(_affinity(pod)))
        return [preferred for preferred in preferences if preferred.weight]

    def _matches(self, pod: PodInfo, node: core.Node) -> bool:
        return bool(selected_by(alone(node), pod.spec)[0])

    def _began_to_match(self, pod: PodInfo, old: core.Node | None, new: core.Node) -> bool:
        if self._added_required is not None and not matches_any_term(alone(new), self._added_required)[0]:
            return False
        return self._matches(pod, new) and (old is None or not self._matches(pod, old))
