"""What each node lacks, estimated for all nodes at once: how many edits would satisfy a plugin there.

A remedy is for one plugin. It estimates the edits per node as an array, and makes the change for one node. Estimates
choose what is worth trying; whether a change really helps is up to the engine (:mod:`.counterfactuals`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import (
    Affinity,
    Container,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    Taint,
    TopologySpreadConstraint,
)
from kubestow.cluster.nodes.selectors import labels_match, matches_term
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.explanation.changes import UNSCHEDULABLE_TAINT, AlterNode, AlterPod, Change, LowerRequest, Tolerate
from kubestow.errors import InvalidSelector
from kubestow.rules.matching import NO_EXECUTE, NO_SCHEDULE, required_terms, untolerated
from kubestow.rules.requests import EPHEMERAL_STORAGE, MEMORY

replace = msgspec.structs.replace

Estimate = NDArray[np.float64]

_EFFECTS = (NO_SCHEDULE, NO_EXECUTE)
_MEBIBYTE = 2**20
#: Taints that say that a node does not work: to tolerate them is no remedy.
_UNUSABLE = frozenset(
    f"node.kubernetes.io/{name}"
    for name in (
        "not-ready",
        "unreachable",
        "memory-pressure",
        "disk-pressure",
        "pid-pressure",
        "network-unavailable",
        "out-of-service",
    )
) | {"node.cloudprovider.kubernetes.io/uninitialized", "node.cloudprovider.kubernetes.io/shutdown"}
#: Labels that state what a node is and where: to set them to something else is no remedy.
_FACTS = (
    "kubernetes.io/",
    "topology.kubernetes.io/",
    "node.kubernetes.io/",
    "beta.kubernetes.io/",
    "failure-domain.beta.kubernetes.io/",
)


@dataclass(frozen=True, slots=True)
class Remedy:
    """``edits`` per node (float64, infinite where there is no such change), and the ``share`` of requests given up.

    ``changes`` makes the changes for the node at a row.
    """

    plugin: str
    edits: Estimate
    share: Estimate
    changes: Callable[[int], Sequence[Change]]


def remedies(pod: PodInfo, nodes: Nodes) -> dict[str, list[Remedy]]:
    """The remedies by plugin; ``nodes`` are all nodes."""
    found = [_lower_requests(pod, nodes), _tolerate(pod, nodes), _uncordon(nodes), *_label(pod, nodes)]
    by_plugin = {remedy.plugin: [remedy] for remedy in found}
    for plugin, alterations in pod_alterations(pod.spec).items():
        by_plugin.setdefault(plugin, []).append(_anywhere(plugin, alterations, len(nodes)))
    return by_plugin


def _anywhere(plugin: str, changes: Sequence[Change], count: int) -> Remedy:
    """Changes of the pod that together help on every node."""
    return Remedy(plugin, np.full(count, float(len(changes))), np.zeros(count), lambda row: changes)


def _lower_requests(pod: PodInfo, nodes: Nodes) -> Remedy:
    """Request no more than is free; no remedy where a resource is used up or no further pod is allowed."""
    requests = {name: amount for name, amount in pod.shape.requests.items() if amount > 0}
    edits, share = np.zeros(len(nodes)), np.zeros(len(nodes))
    edits[nodes.pod_count >= nodes.allowed_pods] = np.inf
    free = {name: nodes.allocatable(name) - nodes.requested(name) for name in requests}
    for name, amount in requests.items():
        short = free[name] < amount
        edits += short
        share += np.where(short, (amount - free[name]) / amount, 0)
        edits[free[name] <= 0] = np.inf

    def changes(row: int) -> Sequence[Change]:
        return [
            LowerRequest(name, amount, _in_whole_mebibytes(name, int(free[name][row])))
            for name, amount in requests.items()
            if free[name][row] < amount
        ]

    edits[edits == 0] = np.inf  # rejected for something else
    return Remedy("NodeResourcesFit", edits, share, changes)


def _in_whole_mebibytes(resource: str, amount: int) -> int:
    """An amount that can be read: bytes are rounded."""
    is_large = resource in (MEMORY, EPHEMERAL_STORAGE) and amount >= _MEBIBYTE
    return amount // _MEBIBYTE * _MEBIBYTE if is_large else amount


def _tolerate(pod: PodInfo, nodes: Nodes) -> Remedy:
    """Tolerate each taint; a cordoned node has to be uncordoned instead."""

    def missing(taints: Sequence[Taint]) -> list[Taint]:
        found = untolerated(taints, pod.spec.tolerations, effects=_EFFECTS)
        return [taint for taint in found if taint.key != UNSCHEDULABLE_TAINT]

    def count(taints: Sequence[Taint]) -> float:
        found = missing(taints)
        return np.inf if any(taint.key in _UNUSABLE for taint in found) else len(found)

    edits = nodes.by_taints(count, np.float64)

    def changes(row: int) -> Sequence[Change]:
        return [Tolerate(taint) for taint in missing(nodes.node(row).spec.taints)]

    return Remedy("TaintToleration", edits, np.zeros(len(nodes)), changes)


def _uncordon(nodes: Nodes) -> Remedy:
    edits, share = np.where(nodes.unschedulable, 1.0, np.inf), np.zeros(len(nodes))
    return Remedy("NodeUnschedulable", edits, share, lambda row: [AlterNode(nodes.name(row), {}, uncordon=True)])


# -- labels of nodes -------------------------------------------------------------------------------------------------


def _label(pod: PodInfo, nodes: Nodes) -> Iterator[Remedy]:
    """Set the labels that the node selector and the cheapest term of the required affinity ask for."""
    spec = pod.spec
    terms = required_terms(spec)
    if not spec.node_selector and not terms:
        return
    edits = np.zeros(len(nodes))
    for key, value in spec.node_selector.items():
        cost = 1.0 if _is_settable(key) else np.inf
        edits += np.where(labels_match(nodes, {key: value}), 0.0, cost)
    costs = [_term_cost(nodes, term) for term in terms or ()]
    cheapest = np.zeros(len(nodes), np.intp)
    if costs:
        stacked = np.stack(costs)
        cheapest = stacked.argmin(axis=0)
        edits += stacked.min(axis=0)

    def changes(row: int) -> Sequence[Change]:
        have = nodes.node(row).metadata.labels
        labels = {key: value for key, value in spec.node_selector.items() if have.get(key) != value}
        for requirement in terms[int(cheapest[row])].match_expressions if terms else ():
            if not _matches(nodes, requirement)[row]:
                labels[requirement.key] = requirement.values[0] if requirement.operator == "In" else "true"
        return [AlterNode(nodes.name(row), labels)]

    edits[edits == 0] = np.inf
    yield Remedy("NodeAffinity", edits, np.zeros(len(nodes)), changes)


def _term_cost(nodes: Nodes, term: NodeSelectorTerm) -> Estimate:
    """How many labels a node needs to match a term, infinite where labels do not help."""
    cost = np.zeros(len(nodes))
    if term.match_fields:
        fields = NodeSelectorTerm(match_fields=term.match_fields)
        cost[~_matches_term(nodes, fields)] = np.inf
    elif not term.match_expressions:
        cost[:] = np.inf
    for requirement in term.match_expressions:
        can_be_set = requirement.operator in ("In", "Exists") and _is_settable(requirement.key)
        cost += np.where(_matches(nodes, requirement), 0.0, 1.0 if can_be_set else np.inf)
    return cost


def _matches(nodes: Nodes, requirement: NodeSelectorRequirement) -> NDArray[np.bool_]:
    return _matches_term(nodes, NodeSelectorTerm(match_expressions=[requirement]))


def _matches_term(nodes: Nodes, term: NodeSelectorTerm) -> NDArray[np.bool_]:
    try:
        return matches_term(nodes, term)
    except InvalidSelector:
        return np.zeros(len(nodes), np.bool_)


def _is_settable(key: str) -> bool:
    return not key.startswith(_FACTS)


# -- constraints of the pod ------------------------------------------------------------------------------------------


def pod_alterations(spec: PodSpec) -> Mapping[str, Sequence[AlterPod]]:
    """For each plugin, the constraints of the pod that it enforces, each removed or relaxed."""
    found: dict[str, list[AlterPod]] = {}
    for plugin, what, alter in _alterations(spec):
        found.setdefault(plugin, []).append(AlterPod(what, alter))
    return found


_Alteration = tuple[str, str, Callable[[PodSpec], PodSpec]]
"""The plugin, what is altered, and how."""


def _alterations(spec: PodSpec) -> Iterator[_Alteration]:
    for key, value in spec.node_selector.items():
        yield "NodeAffinity", f"drop {key}={value} from the node selector", partial(_without_selector, key=key)
    if spec.affinity is not None:
        yield from _affinity_alterations(spec.affinity)
    for constraint in spec.topology_spread_constraints:
        if constraint.when_unsatisfiable == "DoNotSchedule":
            what = f"spread over {constraint.topology_key} with ScheduleAnyway instead of DoNotSchedule"
            yield "PodTopologySpread", what, partial(_with_soft_constraint, constraint=constraint)
    if any(port.host_port for container in (*spec.containers, *spec.init_containers) for port in container.ports):
        yield "NodePorts", "do without host ports", _without_host_ports


def _affinity_alterations(affinity: Affinity) -> Iterator[_Alteration]:
    node = affinity.node_affinity
    if node is not None and node.required_during_scheduling_ignored_during_execution is not None:
        yield "NodeAffinity", "drop the required node affinity", _without_node_affinity
    for field, name in (("pod_affinity", "affinity"), ("pod_anti_affinity", "anti-affinity")):
        terms: PodAffinity | None = getattr(affinity, field)
        for term in terms.required_during_scheduling_ignored_during_execution if terms is not None else ():
            what = f"drop the required pod {name} within {term.topology_key}"
            yield "InterPodAffinity", what, partial(_without_pod_term, field=field, term=term)


def _without_selector(spec: PodSpec, key: str) -> PodSpec:
    return replace(spec, node_selector={k: v for k, v in spec.node_selector.items() if k != key})


def _without_node_affinity(spec: PodSpec) -> PodSpec:
    assert spec.affinity is not None
    assert spec.affinity.node_affinity is not None
    node = replace(spec.affinity.node_affinity, required_during_scheduling_ignored_during_execution=None)
    return replace(spec, affinity=replace(spec.affinity, node_affinity=node))


def _without_pod_term(spec: PodSpec, field: str, term: PodAffinityTerm) -> PodSpec:
    assert spec.affinity is not None
    terms: PodAffinity = getattr(spec.affinity, field)
    left = [other for other in terms.required_during_scheduling_ignored_during_execution if other != term]
    part = replace(terms, required_during_scheduling_ignored_during_execution=left)
    return replace(spec, affinity=replace(spec.affinity, **{field: part}))


def _with_soft_constraint(spec: PodSpec, constraint: TopologySpreadConstraint) -> PodSpec:
    soft = replace(constraint, when_unsatisfiable="ScheduleAnyway")
    altered = [soft if other == constraint else other for other in spec.topology_spread_constraints]
    return replace(spec, topology_spread_constraints=altered)


def _without_host_ports(spec: PodSpec) -> PodSpec:
    def without(containers: Sequence[Container]) -> list[Container]:
        return [replace(c, ports=[port for port in c.ports if not port.host_port]) for c in containers]

    return replace(spec, containers=without(spec.containers), init_containers=without(spec.init_containers))
