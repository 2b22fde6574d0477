"""Topology spread and inter-pod affinity the slow way: one node, one pod, one term at a time (semantics 8.14, 8.15).

What the plugins say with counters has to be what these functions say by walking over everything.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from kubestow.api.core import Node, Pod, PodAffinity, PodAffinityTerm, TopologySpreadConstraint
from kubestow.api.selectors import Requirement, Selector, compile_selector
from kubestow.cluster.nodes.taints import NO_EXECUTE, NO_SCHEDULE, untolerated
from kubestow.plugins.pod_topology_spread.default_constraints import SYSTEM_DEFAULT_CONSTRAINTS

Placed = Sequence[tuple[Node, Pod]]
Pair = tuple[str, str]
Namespaces = Mapping[str, Mapping[str, str]]

HOST = "kubernetes.io/hostname"


# -- topology spread -----------------------------------------------------------------------------------------------


def _constraints(pod: Pod, action: str) -> list[tuple[TopologySpreadConstraint, Selector]]:
    labels = pod.metadata.labels
    return [
        (
            constraint,
            compile_selector(constraint.label_selector).also(
                Requirement(key, "In", frozenset((labels[key],))) for key in constraint.match_label_keys
            ),
        )
        for constraint in pod.spec.topology_spread_constraints
        if constraint.when_unsatisfiable == action
    ]


def _admits(constraint: TopologySpreadConstraint, pod: Pod, node: Node) -> bool:
    wanted = pod.spec.node_selector.items()
    if constraint.node_affinity_policy != "Ignore" and not wanted <= node.metadata.labels.items():
        return False
    taints = untolerated(node.spec.taints, pod.spec.tolerations, effects=(NO_SCHEDULE, NO_EXECUTE))
    return constraint.node_taints_policy != "Honor" or not taints


def _matching(pod: Pod, node: Node, placed: Placed, selector: Selector) -> int:
    return sum(
        where is node
        and other.metadata.namespace == pod.metadata.namespace
        and other.metadata.deletion_timestamp is None
        and not selector.is_empty
        and selector.matches(other.metadata.labels)
        for where, other in placed
    )


def spread_refusal(pod: Pod, node: Node, nodes: Sequence[Node], placed: Placed) -> str:
    """Empty, or why the node is refused."""
    constraints = _constraints(pod, "DoNotSchedule")
    keys = {constraint.topology_key for constraint, _ in constraints}
    for constraint, selector in constraints:
        key = constraint.topology_key
        if key not in node.metadata.labels:
            return "missing label"
        counts: Counter[str] = Counter()
        for other in nodes:
            if keys <= other.metadata.labels.keys() and _admits(constraint, pod, other):
                counts[other.metadata.labels[key]] += _matching(pod, other, placed, selector)
        fewest = min(counts.values(), default=0)
        if len(counts) < (constraint.min_domains or 1):
            fewest = 0
        itself = selector.matches(pod.metadata.labels)
        if counts[node.metadata.labels[key]] + itself - fewest > constraint.max_skew:
            return "skew"
    return ""


def spread_scores(
    pod: Pod, feasible: Sequence[Node], nodes: Sequence[Node], placed: Placed, *, served: Selector | None = None
) -> list[int]:
    """Normalised scores of the feasible nodes; empty without soft constraints.

    Pods without constraints of their own that a service has ``served`` get the system's default ones. These leave out
    no node: the ones that lack a label are in the domain of ``""`` but get nothing for being there.
    """
    constraints = _constraints(pod, "ScheduleAnyway")
    keys = {constraint.topology_key for constraint, _ in constraints}
    if served is not None and not pod.spec.topology_spread_constraints:
        constraints = [(constraint, served) for constraint in SYSTEM_DEFAULT_CONSTRAINTS]
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
                _matching(pod, other, placed, selector)
                for other in nodes
                if keys <= other.metadata.labels.keys()
                and _domain(other, key) == _domain(node, key)
                and (key == HOST or _admits(constraint, pod, other))
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


def _kinds(pod: Pod) -> tuple[PodAffinity, PodAffinity]:
    affinity = pod.spec.affinity
    near, far = (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity else (None, None)
    return near or PodAffinity(), far or PodAffinity()


def _required(kind: PodAffinity) -> list[PodAffinityTerm]:
    return kind.required_during_scheduling_ignored_during_execution


def _preferred(kind: PodAffinity, sign: int) -> list[tuple[int, PodAffinityTerm]]:
    terms = kind.preferred_during_scheduling_ignored_during_execution
    return [(sign * weighted.weight, weighted.pod_affinity_term) for weighted in terms]


def _means(term: PodAffinityTerm, owner: Pod, other: Pod, namespaces: Namespaces, *, own: bool) -> bool:
    """Whether an owner's term speaks of another pod; ``own`` are the terms of the pod to be placed."""
    names = set(term.namespaces)
    if not names and term.namespace_selector is None:
        names = {owner.metadata.namespace}
    selector = compile_selector(term.namespace_selector)
    if own:
        names |= {name for name, labels in namespaces.items() if selector.matches(labels)}
        labels: Mapping[str, str] = {}
    else:
        labels = namespaces.get(other.metadata.namespace, {})
    in_namespace = other.metadata.namespace in names or selector.matches(labels)
    return in_namespace and compile_selector(term.label_selector).matches(other.metadata.labels)


def _pairs(terms: Iterable[PodAffinityTerm], node: Node) -> list[Pair]:
    labels = node.metadata.labels
    return [(term.topology_key, labels[term.topology_key]) for term in terms if term.topology_key in labels]


def affinity_refusal(pod: Pod, node: Node, placed: Placed, namespaces: Namespaces) -> str:
    """Empty, or why the node is refused."""
    near, far = _kinds(pod)
    wanted: Counter[Pair] = Counter()
    unwanted: Counter[Pair] = Counter()
    hostile: Counter[Pair] = Counter()
    for where, other in placed:
        if all(_means(term, pod, other, namespaces, own=True) for term in _required(near)):
            wanted.update(_pairs(_required(near), where))
        unwanted.update(_pairs((t for t in _required(far) if _means(t, pod, other, namespaces, own=True)), where))
        theirs = _required(_kinds(other)[1])
        hostile.update(_pairs((t for t in theirs if _means(t, other, pod, namespaces, own=False)), where))
    here = _pairs(_required(near), node)
    if len(here) < len(_required(near)):
        return "affinity"
    first = not wanted and all(_means(term, pod, pod, namespaces, own=True) for term in _required(near))
    if not first and not all(wanted[pair] for pair in here):
        return "affinity"
    if any(unwanted[pair] for pair in _pairs(_required(far), node)):
        return "anti-affinity"
    return "existing" if any(hostile[pair] for pair in node.metadata.labels.items()) else ""


def affinity_scores(pod: Pod, feasible: Sequence[Node], placed: Placed, namespaces: Namespaces) -> list[int]:
    """Normalised scores of the feasible nodes, with a hard weight of 1; empty when nobody prefers anything."""
    scores: dict[Pair, int] = {}
    for where, other in placed:
        for owner, subject in ((pod, other), (other, pod)):
            near, far = _kinds(owner)
            weighted = [*_preferred(near, +1), *_preferred(far, -1)]
            weighted += [(1, term) for term in _required(near) if owner is other]
            for weight, term in weighted:
                if _means(term, owner, subject, namespaces, own=owner is pod):
                    for pair in _pairs([term], where):
                        scores[pair] = scores.get(pair, 0) + weight
    if not scores:
        return []
    raw = [sum(scores.get(pair, 0) for pair in node.metadata.labels.items()) for node in feasible]
    spread = max(raw) - min(raw)
    return [int(100 * ((score - min(raw)) / spread)) if spread else 0 for score in raw]
