"""What a pod demands of the pods around it, and they of it: topology spread and inter-pod (anti-)affinity.

Each demand becomes a rule that says, for a node, what stands in the way, or "". Only hard demands count here; soft ones
never keep a pod from a node. Semantics 8.14 and 8.15, in plain loops over all bound pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kubestow.workloads.site import Site, selected, selects, untolerated
from kubestow.workloads.workload import Object

__all__ = ["Rule", "rules", "unjudged"]

#: What keeps the pod off a node, or "" when nothing does.
Rule = Callable[[Site], str]
#: A topology key and a node's value for it: one domain.
_Domain = tuple[str, str]
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def rules(pod: Object, sites: list[Site]) -> list[Rule]:
    """The rules that the company of all bound pods puts on one pending pod."""
    together, apart = _terms(pod, "podAffinity"), _terms(pod, "podAntiAffinity")
    hard = _hard_constraints(pod)
    return [
        *([_near(pod, together, sites)] if together else []),
        *([_apart(pod, apart, sites)] if apart else []),
        _not_avoided(pod, sites),
        *(_level(pod, constraint, [c["topologyKey"] for c in hard], sites) for constraint in hard),
    ]


def unjudged(pod: Object) -> bool:
    """Whether a demand depends on labels of namespaces, which are not at hand."""
    terms = _terms(pod, "podAffinity") + _terms(pod, "podAntiAffinity")
    return any(term.get("namespaceSelector") for term in terms)


def _terms(pod: Object, kind: str) -> list[Any]:
    affinity = (pod["spec"].get("affinity") or {}).get(kind) or {}
    return affinity.get(_REQUIRED) or []


def _matches(term: Object, owner: Object, pod: Object) -> bool:
    """Whether a pod is one that the term of another pod speaks of."""
    namespaces = term.get("namespaces") or []
    if not namespaces and term.get("namespaceSelector") is None:
        namespaces = [_namespace(owner)]
    anywhere = term.get("namespaceSelector") == {}
    return (anywhere or _namespace(pod) in namespaces) and selects(term.get("labelSelector"), _labels(pod))


def _namespace(pod: Object) -> str:
    return pod["metadata"].get("namespace") or "default"


def _labels(pod: Object) -> Mapping[str, str]:
    return pod["metadata"].get("labels") or {}


def _domains(keys: list[str], site: Site) -> Iterator[_Domain]:
    return ((key, site.labels[key]) for key in keys if key in site.labels)


def _near(pod: Object, terms: list[Any], sites: list[Site]) -> Rule:
    """Pod affinity: every term finds in its domain a pod that all terms speak of; the first of its kind is free."""
    keys = [term["topologyKey"] for term in terms]
    wanted = {
        domain
        for site in sites
        if any(all(_matches(term, pod, other) for term in terms) for other in site.pods)
        for domain in _domains(keys, site)
    }
    first = not wanted and all(_matches(term, pod, pod) for term in terms)

    def rule(site: Site) -> str:
        found = list(_domains(keys, site))
        near = len(found) == len(keys) and (first or wanted.issuperset(found))
        return "" if near else "not near the pods that its pod affinity wants"

    return rule


def _apart(pod: Object, terms: list[Any], sites: list[Site]) -> Rule:
    """Pod anti-affinity: no term finds in its domain a pod that it speaks of."""
    shunned = {
        domain
        for site in sites
        for term in terms
        if any(_matches(term, pod, other) for other in site.pods)
        for domain in _domains([term["topologyKey"]], site)
    }
    return lambda site: "near pods that its anti-affinity shuns" if shunned.intersection(site.labels.items()) else ""


def _not_avoided(pod: Object, sites: list[Site]) -> Rule:
    """The anti-affinity of bound pods: none of them keeps a domain free of this pod."""
    shunned = {
        domain
        for site in sites
        for other in site.pods
        for term in _terms(other, "podAntiAffinity")
        if _matches(term, other, pod)
        for domain in _domains([term["topologyKey"]], site)
    }
    return lambda site: "near pods whose anti-affinity shuns it" if shunned.intersection(site.labels.items()) else ""


def _hard_constraints(pod: Object) -> list[Any]:
    constraints = pod["spec"].get("topologySpreadConstraints") or []
    return [c for c in constraints if c.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"]


def _level(pod: Object, constraint: Object, keys: list[str], sites: list[Site]) -> Rule:
    """Topology spread: with this pod, its domain is no more than maxSkew above the emptiest."""
    key, selector = constraint["topologyKey"], _spread_selector(pod, constraint)
    counts: Counter[str] = Counter()
    for site in sites:
        if all(k in site.labels for k in keys) and _counts_for(pod, constraint, site):
            counts[site.labels[key]] += sum(_spreads_with(pod, selector, other) for other in site.pods)
    emptiest = min(counts.values(), default=0) if len(counts) >= (constraint.get("minDomains") or 1) else 0
    itself = selects(selector, _labels(pod))

    def rule(site: Site) -> str:
        if key not in site.labels:
            return f"without the label {key} that it spreads over"
        uneven = counts[site.labels[key]] + itself - emptiest > constraint["maxSkew"]
        return f"where the spread over {key} would be uneven" if uneven else ""

    return rule


def _spread_selector(pod: Object, constraint: Object) -> Object | None:
    selector, labels = constraint.get("labelSelector"), _labels(pod)
    same = {key: labels[key] for key in constraint.get("matchLabelKeys") or [] if key in labels}
    return (
        selector
        if not same or selector is None
        else {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), **same}}
    )


def _spreads_with(pod: Object, selector: Object | None, other: Object) -> bool:
    """Whether a bound pod counts. The reference lets an empty selector count none."""
    if not selector or "deletionTimestamp" in other["metadata"] or _namespace(other) != _namespace(pod):
        return False
    return selects(selector, _labels(other))


def _counts_for(pod: Object, constraint: Object, site: Site) -> bool:
    """Whether a node is counted: by default where the pod's node affinity holds, whatever its taints."""
    if constraint.get("nodeAffinityPolicy", "Honor") == "Honor" and not selected(pod, site):
        return False
    return constraint.get("nodeTaintsPolicy", "Ignore") == "Ignore" or untolerated(pod, site) is None
