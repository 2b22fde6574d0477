"""An independent feasibility check: the nodes on which a pending pod could run.

It takes plain objects as the API server returns them and applies the rules one by one
(:mod:`kubestow_lab.oracle.node_with_pods`, :mod:`kubestow_lab.oracle.pod_constraints`): scheduling gates, cordons,
taints, node selector and affinity, resources, number of pods, host ports, inter-pod (anti-)affinity and topology
spread. Constraints that it does not evaluate (volume claims, resource claims, namespace selectors) are reported as
unchecked. Preemption is not considered.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kubestow_lab.oracle.node_with_pods import NodeWithPods, Object, pod_requests, unresolvable_reason
from kubestow_lab.oracle.pod_constraints import has_namespace_selector, pod_constraint_checks


@dataclass(frozen=True, slots=True)
class Shortage:
    """A resource that is insufficient for a pod: ``requested`` by it, insufficient on ``nodes`` of the checked nodes,
    of which the largest has ``largest`` allocatable. Millicores for CPU, units otherwise."""

    requested: int
    nodes: int
    largest: int


@dataclass(frozen=True, slots=True)
class Feasibility:
    """The result for one pod.

    ``nodes`` are the feasible nodes. ``unresolvable`` counts the nodes that are infeasible even when empty, by reason.
    Of the ``eligible`` other nodes, ``large_enough`` would be feasible when empty. ``shortages`` by resource and the
    counts of ``conflicts`` with other pods are those of the nodes that are large enough, or of all eligible nodes if
    none is. A node can have several shortages and conflicts.
    """

    nodes: tuple[str, ...]
    gates: tuple[str, ...]
    unchecked: tuple[str, ...]
    unresolvable: Mapping[str, int]
    eligible: int
    large_enough: int
    shortages: Mapping[str, Shortage]
    conflicts: Mapping[str, int]

    @property
    def is_feasible(self) -> bool:
        """Whether the pod could run on some node: if it is pending, the scheduler missed that node."""
        return bool(self.nodes) and not self.gates and not self.unchecked


def check_feasibility(
    pending_pods: Sequence[Object], nodes: Iterable[Object], bound_pods: Iterable[Object]
) -> list[Feasibility]:
    """Check each pending pod individually; the results are in the order of the pods.

    Terminated bound pods, and bound pods of deleted nodes, use no resources. Raises InvalidQuantity.
    """
    node_infos = {node["metadata"]["name"]: NodeWithPods(node) for node in nodes}
    for pod in bound_pods:
        node_name = pod["spec"].get("nodeName")
        if node_name in node_infos and holds_resources(pod):
            node_infos[node_name].add(pod)
    results: dict[str, Feasibility] = {}
    for pod in pending_pods:
        if _shape(pod) not in results:
            results[_shape(pod)] = _check(pod, list(node_infos.values()))
    return [results[_shape(pod)] for pod in pending_pods]


def holds_resources(pod: Object) -> bool:
    """Whether a bound pod has not terminated."""
    return (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")


def _shape(pod: Object) -> str:
    """The fields that determine the result: pods of equal shape are checked once."""
    metadata = pod["metadata"]
    return json.dumps([metadata.get("namespace"), metadata.get("labels"), pod["spec"]], sort_keys=True)


def _check(pod: Object, nodes: list[NodeWithPods]) -> Feasibility:
    reasons = [unresolvable_reason(pod, node) for node in nodes]
    eligible = [node for node, reason in zip(nodes, reasons, strict=True) if not reason]
    requested = {name: amount for name, amount in pod_requests(pod).items() if amount > 0}
    large_enough = [node for node in eligible if _fits(node.allocatable, requested)]
    checks = pod_constraint_checks(pod, nodes)
    conflicts = {
        node.name: [*node.conflicts(pod), *filter(None, (check(node) for check in checks))]
        for node in large_enough or eligible
    }
    return Feasibility(
        nodes=tuple(node.name for node in large_enough if _fits(node.free, requested) and not conflicts[node.name]),
        gates=tuple(gate["name"] for gate in pod["spec"].get("schedulingGates") or []),
        unchecked=_unchecked(pod),
        unresolvable=Counter(filter(None, reasons)),
        eligible=len(eligible),
        large_enough=len(large_enough),
        shortages=_shortages(requested, large_enough or eligible),
        conflicts=Counter(conflict for found in conflicts.values() for conflict in found),
    )


def _fits(capacity: Mapping[str, int], requested: Mapping[str, int]) -> bool:
    return all(capacity[name] >= amount for name, amount in requested.items())


def _shortages(requested: Mapping[str, int], nodes: list[NodeWithPods]) -> dict[str, Shortage]:
    return {
        name: Shortage(requested=amount, nodes=short, largest=max(node.allocatable[name] for node in nodes))
        for name, amount in requested.items()
        if (short := sum(node.free[name] < amount for node in nodes))
    }


def _unchecked(pod: Object) -> tuple[str, ...]:
    spec = pod["spec"]
    claims = any(volume.get("persistentVolumeClaim") or volume.get("ephemeral") for volume in spec.get("volumes") or [])
    return tuple(
        name
        for name, present in (
            ("volume claims", claims),
            ("resource claims", bool(spec.get("resourceClaims"))),
            ("namespace selectors", has_namespace_selector(pod)),
        )
        if present
    )
