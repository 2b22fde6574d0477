"""Topology spread and inter-pod affinity without counters: one node, pod and term at a time (semantics 8.14, 8.15).

The plugins must give the same results as these functions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from kubestow.api.core import Node, Pod, PodAffinity, PodAffinityTerm, TopologySpreadConstraint
from kubestow.api.selectors import Requirement, Selector, compile_selector
from kubestow.plugins.pod_topology_spread.constraints import SYSTEM_DEFAULT_CONSTRAINTS
from kubestow.rules.matching import NO_EXECUTE, NO_SCHEDULE, untolerated

PlacedPods = Sequence[tuple[Node, Pod]]
Pair = tuple[str, str]
Namespaces = Mapping[str, Mapping[str, str]]

HOST = "kubernetes.io/hostname"


# -- topology spread -----------------------------------------------------------------------------------------------


def _constraints(pod: Pod, action: str) -> list[tuple[TopologySpreadConstraint, Selector]]:
    labels = pod.metadata.labels
    return [
        (
            constraint,
            compile_selector(constraint.label_selector).with_requirements(
                Requirement(key, "In", frozenset((labels[key],))) for key in constraint.match_label_keys
            ),
        )
        for constraint in pod.spec.topology_spread_constraints
        if constraint.when_unsatisfiable == action
    ]


def _includes(constraint: TopologySpreadConstraint, pod: Pod, node: Node) -> bool:
    node_selector = pod.spec.node_selector.items()
    if constraint.node_affinity_policy != "Ignore" and not node_selector <= node.metadata.labels.items():
        return False
    taints = untolerated(node.spec.taints, pod.spec.tolerations, effects=(NO_SCHEDULE, NO_EXECUTE))
    return constraint.node_taints_policy != "Honor" or not taints


def _matching_pods(pod: Pod, node: Node, placed: PlacedPods, selector: Selector) -> int:
    return sum(
        placed_on is node
        and other.metadata.namespace == pod.metadata.namespace
        and other.metadata.deletion_timestamp is None
        and not selector.is_empty
        and selector.matches(other.metadata.labels)
        for placed_on, other in placed
    )


def spread_rejection(pod: Pod, node: Node, nodes: Sequence[Node], placed: PlacedPods) -> str:
    """Why the node is rejected; empty if it passes."""
    constraints = _constraints(pod, "DoNotSchedule")
    keys = {constraint.topology_key for constraint, _ in constraints}
    for constraint, selector in constraints:
        key = constraint.topology_key
        if key not in node.metadata.labels:
            return "missing label"
        counts: Counter[str] = Counter()
        for other in nodes:
            if keys <= other.metadata.labels.keys() and _includes(constraint, pod, other):
                counts[other.metadata.labels[key]] += _matching_pods(pod, other, placed, selector)
        minimum = min(counts.values(), default=0)
        if len(counts) < (constraint.min_domains or 1):
            minimum = 0
        self_match = selector.matches(pod.metadata.labels)
        if counts[node.metadata.labels[key]] + self_match - minimum > constraint.max_skew:
            return "skew"
    return ""


def spread_scores(
    pod: Pod,
    feasible: Sequence[Node],
    nodes: Sequence[Node],
    placed: PlacedPods,
    *,
    default_selector: Selector | None = None,
) -> list[int]:
    """The normalized scores of the feasible nodes; empty without soft constraints.

    Pods without constraints of their own get the system default constraints with ``default_selector``, if it is given.
    These ignore no node: nodes without a topology key are in the domain ``""``, which does not add to their scores.
    """
    constraints = _constraints(pod, "ScheduleAnyway")
    keys = {constraint.topology_key for constraint, _ in constraints}
    if default_selector is not None and not pod.spec.topology_spread_constraints:
        constraints = [(constraint, default_selector) for constraint in SYSTEM_DEFAULT_CONSTRAINTS]
    scored = [node for node in feasible if keys <= node.metadata.labels.keys()]
    raw: dict[str, int] = {}
    for node in scored:
        score = 0.0
        for constraint, selector in constraints:
            key = constraint.topology_key
            if key not in node.metadata.labels:
                continue
            size = len(scored) if key == HOST else len({_domain(other, key) for other in scored})
            count = sum(
                _matching_pods(pod, other, placed, selector)
                for other in nodes
                if keys <= other.metadata.labels.keys()
                and _domain(other, key) == _domain(node, key)
                and (key == HOST or _includes(constraint, pod, other))
            )
            score += count * math.log(size + 2) + (constraint.max_skew - 1)
        raw[node.metadata.name] = math.floor(score + 0.5)
    highest, lowest = max(raw.values(), default=0), min(raw.values(), default=0)
    return [
        0
        if node.metadata.name not in raw
        else 100
        if highest == 0
        else 100 * (highest + lowest - raw[node.metadata.name]) // highest
        for node in (feasible if constraints else ())
    ]


def _domain(node: Node, key: str) -> str:
    return node.metadata.labels.get(key, "")


# -- inter-pod affinity --------------------------------------------------------------------------------------------


def _affinity_and_anti_affinity(pod: Pod) -> tuple[PodAffinity, PodAffinity]:
    spec = pod.spec.affinity
    affinity, anti_affinity = (spec.pod_affinity, spec.pod_anti_affinity) if spec else (None, None)
    return affinity or PodAffinity(), anti_affinity or PodAffinity()


def _required(kind: PodAffinity) -> list[PodAffinityTerm]:
    return kind.required_during_scheduling_ignored_during_execution


def _preferred(kind: PodAffinity, sign: int) -> list[tuple[int, PodAffinityTerm]]:
    terms = kind.preferred_during_scheduling_ignored_during_execution
    return [(sign * weighted.weight, weighted.pod_affinity_term) for weighted in terms]


def _matches(term: PodAffinityTerm, owner: Pod, other: Pod, namespaces: Namespaces, *, incoming: bool) -> bool:
    """Whether a term of ``owner`` matches another pod; ``incoming`` says whether the owner is the incoming pod."""
    names = set(term.namespaces)
    if not names and term.namespace_selector is None:
        names = {owner.metadata.namespace}
    selector = compile_selector(term.namespace_selector)
    if incoming:
        names |= {name for name, labels in namespaces.items() if selector.matches(labels)}
        labels: Mapping[str, str] = {}
    else:
        labels = namespaces.get(other.metadata.namespace, {})
    in_namespace = other.metadata.namespace in names or selector.matches(labels)
    return in_namespace and compile_selector(term.label_selector).matches(other.metadata.labels)


def _pairs(terms: Iterable[PodAffinityTerm], node: Node) -> list[Pair]:
    labels = node.metadata.labels
    return [(term.topology_key, labels[term.topology_key]) for term in terms if term.topology_key in labels]


def affinity_rejection(pod: Pod, node: Node, placed: PlacedPods, namespaces: Namespaces) -> str:
    """Why the node is rejected; empty if it passes."""
    affinity, anti_affinity = _affinity_and_anti_affinity(pod)
    affinity_counts: Counter[Pair] = Counter()
    anti_affinity_counts: Counter[Pair] = Counter()
    existing_counts: Counter[Pair] = Counter()
    for placed_on, other in placed:
        if all(_matches(term, pod, other, namespaces, incoming=True) for term in _required(affinity)):
            affinity_counts.update(_pairs(_required(affinity), placed_on))
        terms = [t for t in _required(anti_affinity) if _matches(t, pod, other, namespaces, incoming=True)]
        anti_affinity_counts.update(_pairs(terms, placed_on))
        existing_terms = _required(_affinity_and_anti_affinity(other)[1])
        terms = [t for t in existing_terms if _matches(t, other, pod, namespaces, incoming=False)]
        existing_counts.update(_pairs(terms, placed_on))
    here = _pairs(_required(affinity), node)
    if len(here) < len(_required(affinity)):
        return "affinity"
    matches_itself = all(_matches(term, pod, pod, namespaces, incoming=True) for term in _required(affinity))
    is_first_pod = matches_itself and not affinity_counts
    if not is_first_pod and not all(affinity_counts[pair] for pair in here):
        return "affinity"
    if any(anti_affinity_counts[pair] for pair in _pairs(_required(anti_affinity), node)):
        return "anti-affinity"
    return "existing" if any(existing_counts[pair] for pair in node.metadata.labels.items()) else ""


def affinity_scores(pod: Pod, feasible: Sequence[Node], placed: PlacedPods, namespaces: Namespaces) -> list[int]:
    """The normalized scores with a hardPodAffinityWeight of 1; empty if no term counts."""
    scores: dict[Pair, int] = {}
    for placed_on, other in placed:
        for owner, subject in ((pod, other), (other, pod)):
            affinity, anti_affinity = _affinity_and_anti_affinity(owner)
            weighted = [*_preferred(affinity, +1), *_preferred(anti_affinity, -1)]
            weighted += [(1, term) for term in _required(affinity) if owner is other]
            for weight, term in weighted:
                if _matches(term, owner, subject, namespaces, incoming=owner is pod):
                    for pair in _pairs([term], placed_on):
                        scores[pair] = scores.get(pair, 0) + weight
    if not scores:
        return []
    raw = [sum(scores.get(pair, 0) for pair in node.metadata.labels.items()) for node in feasible]
    spread = max(raw) - min(raw)
    return [int(100 * ((score - min(raw)) / spread)) if spread else 0 for score in raw]
