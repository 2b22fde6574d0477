"""Pod constraints: topology spread and inter-pod (anti-)affinity, checked in plain loops over all bound pods.

Each constraint becomes a check that returns, for a node, the reason why it is infeasible, or "". Only hard constraints
are checked; soft ones never make a node infeasible (semantics 8.14, 8.15).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kubestow_lab.oracle.node_with_pods import (
    NodeWithPods,
    Object,
    matches_node_affinity,
    matches_selector,
    untolerated_taint,
)

#: Returns the reason why the node is infeasible, or "".
NodeCheck = Callable[[NodeWithPods], str]
#: A topology key and a node's value for it.
_Domain = tuple[str, str]
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def pod_constraint_checks(pod: Object, nodes: list[NodeWithPods]) -> list[NodeCheck]:
    """The checks for a pending pod, given all nodes with their pods."""
    affinity, anti_affinity = _terms(pod, "podAffinity"), _terms(pod, "podAntiAffinity")
    hard = _hard_constraints(pod)
    return [
        *([_affinity_check(pod, affinity, nodes)] if affinity else []),
        *([_anti_affinity_check(pod, anti_affinity, nodes)] if anti_affinity else []),
        _existing_anti_affinity_check(pod, nodes),
        *(_spread_check(pod, constraint, [c["topologyKey"] for c in hard], nodes) for constraint in hard),
    ]


def has_namespace_selector(pod: Object) -> bool:
    """Whether a term of the pod has a namespace selector; namespaces are not available to the checks."""
    terms = _terms(pod, "podAffinity") + _terms(pod, "podAntiAffinity")
    return any(term.get("namespaceSelector") for term in terms)


def _terms(pod: Object, kind: str) -> list[Any]:
    affinity = (pod["spec"].get("affinity") or {}).get(kind) or {}
    return affinity.get(_REQUIRED) or []


def _matches(term: Object, owner: Object, pod: Object) -> bool:
    """Whether a term of the pod ``owner`` matches another pod."""
    namespaces = term.get("namespaces") or []
    if not namespaces and term.get("namespaceSelector") is None:
        namespaces = [_namespace(owner)]
    all_namespaces = term.get("namespaceSelector") == {}
    return (all_namespaces or _namespace(pod) in namespaces) and matches_selector(
        term.get("labelSelector"), _labels(pod)
    )


def _namespace(pod: Object) -> str:
    return pod["metadata"].get("namespace") or "default"


def _labels(pod: Object) -> Mapping[str, str]:
    return pod["metadata"].get("labels") or {}


def _domains(keys: list[str], node: NodeWithPods) -> Iterator[_Domain]:
    return ((key, node.labels[key]) for key in keys if key in node.labels)


def _affinity_check(pod: Object, terms: list[Any], nodes: list[NodeWithPods]) -> NodeCheck:
    """Pod affinity: each domain of the node has a pod that matches all terms, or the pod is the first of its group."""
    keys = [term["topologyKey"] for term in terms]
    matching_domains = {
        domain
        for node in nodes
        if any(all(_matches(term, pod, other) for term in terms) for other in node.pods)
        for domain in _domains(keys, node)
    }
    is_first = not matching_domains and all(_matches(term, pod, pod) for term in terms)

    def check(node: NodeWithPods) -> str:
        domains = list(_domains(keys, node))
        satisfied = len(domains) == len(keys) and (is_first or matching_domains.issuperset(domains))
        return "" if satisfied else "node(s) didn't match pod affinity rules"

    return check


def _anti_affinity_check(pod: Object, terms: list[Any], nodes: list[NodeWithPods]) -> NodeCheck:
    """Pod anti-affinity: no domain of the node has a pod that matches a term."""
    domains = {
        domain
        for node in nodes
        for term in terms
        if any(_matches(term, pod, other) for other in node.pods)
        for domain in _domains([term["topologyKey"]], node)
    }
    reason = "node(s) didn't match pod anti-affinity rules"
    return lambda node: reason if domains.intersection(node.labels.items()) else ""


def _existing_anti_affinity_check(pod: Object, nodes: list[NodeWithPods]) -> NodeCheck:
    """Anti-affinity of existing pods: no domain of the node has a pod with a term that matches the pending pod."""
    domains = {
        domain
        for node in nodes
        for other in node.pods
        for term in _terms(other, "podAntiAffinity")
        if _matches(term, other, pod)
        for domain in _domains([term["topologyKey"]], node)
    }
    reason = "node(s) didn't satisfy existing pods anti-affinity rules"
    return lambda node: reason if domains.intersection(node.labels.items()) else ""


def _hard_constraints(pod: Object) -> list[Any]:
    constraints = pod["spec"].get("topologySpreadConstraints") or []
    return [c for c in constraints if c.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"]


def _spread_check(pod: Object, constraint: Object, keys: list[str], nodes: list[NodeWithPods]) -> NodeCheck:
    """Topology spread: with this pod, the skew of the node's domain is at most maxSkew."""
    key, selector = constraint["topologyKey"], _spread_selector(pod, constraint)
    counts: Counter[str] = Counter()
    for node in nodes:
        if all(k in node.labels for k in keys) and _is_included(pod, constraint, node):
            counts[node.labels[key]] += sum(_is_counted(pod, selector, other) for other in node.pods)
    global_minimum = min(counts.values(), default=0) if len(counts) >= (constraint.get("minDomains") or 1) else 0
    self_match = matches_selector(selector, _labels(pod))

    def check(node: NodeWithPods) -> str:
        if key not in node.labels:
            return f"node(s) didn't match pod topology spread constraints (missing required label {key})"
        skew = counts[node.labels[key]] + self_match - global_minimum
        return f"node(s) didn't match pod topology spread constraints ({key})" if skew > constraint["maxSkew"] else ""

    return check


def _spread_selector(pod: Object, constraint: Object) -> Object | None:
    selector, labels = constraint.get("labelSelector"), _labels(pod)
    same = {key: labels[key] for key in constraint.get("matchLabelKeys") or [] if key in labels}
    return (
        selector
        if not same or selector is None
        else {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), **same}}
    )


def _is_counted(pod: Object, selector: Object | None, other: Object) -> bool:
    """Whether a bound pod is counted; as in kube-scheduler, an empty selector counts none."""
    if not selector or "deletionTimestamp" in other["metadata"] or _namespace(other) != _namespace(pod):
        return False
    return matches_selector(selector, _labels(other))


def _is_included(pod: Object, constraint: Object, node: NodeWithPods) -> bool:
    """Whether a node is included: by default if it matches the pod's node affinity, regardless of taints."""
    if constraint.get("nodeAffinityPolicy", "Honor") == "Honor" and not matches_node_affinity(pod, node):
        return False
    return constraint.get("nodeTaintsPolicy", "Ignore") == "Ignore" or untolerated_taint(pod, node) is None
