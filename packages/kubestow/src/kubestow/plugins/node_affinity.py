"""NodeAffinity matches pods to nodes by the nodes' labels and names (semantics 8.6).

Node selectors and required node affinity filter; preferred node affinity scores. The profile's ``addedAffinity``
applies to all of its pods in addition to their own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from kubestow.api import core
from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.nodes.selectors import matches_any_term, matches_term, selected_by
from kubestow.cluster.nodes.views import Nodes, single_node
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.config.plugin_args import NodeAffinityArgs
from kubestow.errors import InvalidSelector
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import HintKeys, events_of_nodes_without_hints, on
from kubestow.framework.interface import (
    FilterPlugin,
    Handle,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    ScorePlugin,
    normalized,
)
from kubestow.framework.status import Status, Verdict, aggregate
from kubestow.rules.matching import changed_labels, required_terms

_NO_MATCH = Status.unresolvable("node(s) didn't match Pod's node affinity/selector")
_ENFORCED_NO_MATCH = Status.unresolvable("node(s) didn't match scheduler-enforced node affinity")
_CONFLICTING_TERMS = Status.unresolvable("pod affinity terms conflict")

#: Keys of the verdict.
_ENFORCED_KEY, _POD_KEY = 1, 2
_STATUSES = {_ENFORCED_KEY: _ENFORCED_NO_MATCH, _POD_KEY: _NO_MATCH}

_NO_ROWS = np.empty(0, np.intp)

_NAME_FIELD = "metadata.name"
#: Labels that most nodes share.
_COMMON_LABELS = frozenset(
    {"kubernetes.io/os", "kubernetes.io/arch", "beta.kubernetes.io/os", "beta.kubernetes.io/arch"}
)


class NodeAffinity(PreFilterPlugin, FilterPlugin, PreScorePlugin, ScorePlugin):
    """Required affinity and ``spec.nodeSelector`` filter; preferred affinity scores."""

    name = "NodeAffinity"
    reads_requests = reads_volumes = False
    label_keys = ()

    def __init__(self, args: NodeAffinityArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        added = args.added_affinity.required_during_scheduling_ignored_during_execution if args.added_affinity else None
        #: None without a requirement; an empty list is a requirement that no node matches.
        self._added_required = None if added is None else added.node_selector_terms
        self._added_preferred = _preferred_terms(args.added_affinity)
        self._views: deque[tuple[core.Node, Nodes]] = deque(maxlen=2)
        self.events_to_register = (
            on(
                EventResource.NODE,
                Action.ADD | Action.UPDATE_NODE_LABEL,
                hint=self._is_schedulable_after_node_change,
                hint_keys=_keys_of_node_change,
            ),
            *events_of_nodes_without_hints(handle),
        )

    def applies_to(self, pod: PodInfo) -> bool:
        """Pods with a node selector or node affinity; every pod if the profile has an ``addedAffinity``."""
        return bool(
            pod.spec.node_selector
            or (pod.spec.affinity and pod.spec.affinity.node_affinity)
            or self._added_required is not None
            or self._added_preferred
        )

    def signature(self, pod: PodInfo) -> Hashable:
        return pod.shape.node_selection

    hint_signature = signature

    def hint_keys(self, pod: PodInfo) -> HintKeys | None:
        """What of a new node, and which change of a node's labels, the pod may wait for."""
        return {*_keys_for_new_nodes(pod), *_keys_for_changed_labels(pod)}

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | PreFilterResult | None:
        """Restricts the cycle to the nodes that the required terms name, if every term names nodes."""
        terms = required_terms(pod.spec)
        if terms is None and not pod.spec.node_selector and self._added_required is None:
            return Status.skip()
        if not terms:
            return None
        names: frozenset[str] = frozenset()
        for term in terms:
            term_names = _node_names(term)
            if term_names is None:
                return None
            names |= term_names
        return PreFilterResult(names) if names else _CONFLICTING_TERMS

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        """Where both reject a node, the reason is that of ``addedAffinity``."""
        keys = np.where(selected_by(nodes, pod.spec), 0, _POD_KEY).astype(np.int32)
        if self._added_required is not None:
            keys[~matches_any_term(nodes, self._added_required)] = _ENFORCED_KEY
        return Verdict.of(keys, _STATUSES) if keys.any() else None

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        """Skips without preferred terms; a term that does not parse is an error."""
        preferred_terms = self._preferred_terms(pod)
        if not preferred_terms:
            return Status.skip()
        errors: dict[str, None] = {}
        for position, preferred in enumerate(_preferred_terms(_node_affinity(pod))):
            try:
                if preferred.weight:
                    matches_term(nodes.select(_NO_ROWS), preferred.preference)
            except InvalidSelector as error:
                errors[f"[{position}].{error}"] = None
        return None if not errors else Status.error(aggregate(list(errors)))

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        """The sum of the weights of the preferred terms that match the node."""
        scores = np.zeros(len(nodes), np.int64)
        for preferred in self._preferred_terms(pod):
            scores += preferred.weight * matches_term(nodes, preferred.preference)
        return scores

    def normalize(self, state: CycleState, pod: PodInfo, scores: NDArray[np.int64], nodes: Nodes) -> NDArray[np.int64]:
        """The node with the highest sum gets 100."""
        return normalized(scores)

    def _preferred_terms(self, pod: PodInfo) -> list[core.PreferredSchedulingTerm]:
        preferred_terms = (*self._added_preferred, *_preferred_terms(_node_affinity(pod)))
        return [preferred for preferred in preferred_terms if preferred.weight]

    # -- queueing hints ----------------------------------------------------------------------------------------------

    def _is_schedulable_after_node_change(self, pod: PodInfo, old: core.Node | None, new: core.Node) -> bool:
        """Whether the node matches now, and is new or did not match the pod's own requirements before."""
        if self._added_required is not None and not matches_any_term(self._view_of(new), self._added_required)[0]:
            return False
        return self._selects(pod, new) and (old is None or not self._selects(pod, old))

    def _selects(self, pod: PodInfo, node: core.Node) -> bool:
        return bool(selected_by(self._view_of(node), pod.spec)[0])

    def _view_of(self, node: core.Node) -> Nodes:
        """A view of one node object; the hints of an event are called for many pods with the same two objects."""
        for known, view in self._views:
            if known is node:
                return view
        view = single_node(node)
        self._views.append((node, view))
        return view


# -- keys of the queueing hints --------------------------------------------------------------------------------------
#
# A pod waits for a new node that meets one requirement of each of its terms, whichever is met by the fewest nodes. Once
# a node exists, it waits for a change of a label that a requirement names. Both kinds of keys are tuples: whether the
# node is new; the key of a label, or the field of the name; and its value, None for any.


def _keys_of_node_change(old: core.Node | None, new: core.Node) -> HintKeys:
    labels = new.metadata.labels
    if old is not None:
        changed = changed_labels(old.metadata.labels, labels)
        return {*((False, key, None) for key in changed), *((False, key, labels.get(key)) for key in changed)}
    keys = {(True, key, value) for label in labels.items() for key, value in (label, (label[0], None))}
    return keys | {(True, _NAME_FIELD, new.metadata.name), (True, None, None)}


def _keys_for_new_nodes(pod: PodInfo) -> Iterator[Hashable]:
    selected = [(key, (value,)) for key, value in pod.spec.node_selector.items()]
    best = min(selected, key=_selectivity, default=None)
    for term in required_terms(pod.spec) or (core.NodeSelectorTerm(),):
        requirements = (*term.match_expressions, *term.match_fields)
        listed = [(one.key, one.values) for one in requirements if one.operator == "In"]
        required = min(listed if best is None else [best, *listed], key=_selectivity, default=None)
        if required is None:
            named = (one.key for one in term.match_expressions if one.operator in ("Exists", "Gt", "Lt"))
            yield True, next(named, None), None
        else:
            yield from ((True, required[0], value) for value in required[1])


def _selectivity(required: tuple[str, Sequence[str]]) -> tuple[bool, int, str]:
    """Orders required labels by how many nodes may have them: least first."""
    key, values = required
    return key in _COMMON_LABELS, len(values), key


def _keys_for_changed_labels(pod: PodInfo) -> Iterator[Hashable]:
    yield from ((False, key, value) for key, value in pod.spec.node_selector.items())
    for term in required_terms(pod.spec) or ():
        for one in term.match_expressions:
            yield from ((False, one.key, value) for value in (one.values if one.operator == "In" else (None,)))


# -- reading node affinity -------------------------------------------------------------------------------------------


def _node_affinity(pod: PodInfo) -> core.NodeAffinity:
    affinity = pod.spec.affinity
    return (affinity.node_affinity if affinity else None) or core.NodeAffinity()


def _preferred_terms(affinity: core.NodeAffinity | None) -> Sequence[core.PreferredSchedulingTerm]:
    return affinity.preferred_during_scheduling_ignored_during_execution if affinity else []


def _node_names(term: core.NodeSelectorTerm) -> frozenset[str] | None:
    """The node names in all of a term's ``metadata.name In`` requirements; None when it has no such requirement."""
    names: frozenset[str] | None = None
    for requirement in term.match_fields:
        if requirement.key == _NAME_FIELD and requirement.operator == "In":
            values = frozenset(requirement.values)
            names = values if names is None else names & values
    return names
