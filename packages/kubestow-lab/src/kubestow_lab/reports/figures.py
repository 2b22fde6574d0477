"""The data of a simulation's figures: the cluster over time, the nodes, and the pods.

Everything is columns of equal length, and pods refer to nodes, owners and messages by their index, because a report of
thousands of nodes and pods is read on a phone too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubestow_lab.simulation.results.outcomes import PodOutcome, PodState
from kubestow_lab.simulation.results.result import NodeState, SimulationResult
from kubestow_lab.simulation.results.timeline import Sample

__all__ = ["MOST_PODS", "nodes_data", "pods_data", "timeline_data"]

#: A report has no more pods than this; those that are not running come first.
MOST_PODS = 20_000
_ZONE = "topology.kubernetes.io/zone"


def timeline_data(name: str, result: SimulationResult) -> dict[str, Any]:
    """The samples of a simulation that is called ``name``: times in seconds, counts, and shares by resource."""
    timeline = result.timeline
    return {
        "name": name,
        "time": [round(sample.time, 3) for sample in timeline],
        "counts": {
            "pods": [sample.pods for sample in timeline],
            "pending": [sample.pending for sample in timeline],
            "nodes in use": [sample.nodes_used for sample in timeline],
        },
        "utilisation": {
            resource: [_share(sample, index) for sample in timeline] for index, resource in enumerate(result.resources)
        },
        "fragmentation": {
            resource: [round(sample.fragmentation[index], 4) for sample in timeline]
            for index, resource in enumerate(result.resources)
        },
    }


def nodes_data(name: str, result: SimulationResult, nodes: Sequence[NodeState]) -> dict[str, Any]:
    """The state of the nodes of a result, in order of their names; amounts in millicores, bytes or counts.

    Allocatable amounts are an index into ``capacities``, because most nodes are of few kinds.
    """
    zones = {node.metadata.name: node.metadata.labels.get(_ZONE, "") for node in result.api.nodes()}
    capacities: dict[tuple[int, ...], int] = {}
    kinds = [capacities.setdefault(_capacity(state, result.resources), len(capacities)) for state in nodes]
    return {
        "name": name,
        "names": [state.name for state in nodes],
        "zones": [zones.get(state.name, "") for state in nodes],
        "pods": [state.pods for state in nodes],
        "requested": {resource: [state.requested[resource] for state in nodes] for resource in result.resources},
        "capacities": [dict(zip(result.resources, amounts, strict=True)) for amounts in capacities],
        "capacity": kinds,
    }


def pods_data(outcomes: Sequence[PodOutcome]) -> dict[str, Any]:
    """At most :data:`MOST_PODS` pods; ``left_out`` is the number of others."""
    if len(outcomes) > MOST_PODS:
        order = (PodState.PENDING, PodState.PREEMPTED, PodState.RUNNING, PodState.COMPLETED)
        outcomes = sorted(outcomes, key=lambda outcome: order.index(outcome.state))
    shown = outcomes[:MOST_PODS]
    nodes, owners, messages = _Index(), _Index(), _Index()
    return {
        "leftOut": len(outcomes) - len(shown),
        "names": [outcome.key for outcome in shown],
        "owner": [owners.of(outcome.owner) for outcome in shown],
        "state": [outcome.state.value for outcome in shown],
        "node": [nodes.of(outcome.node) for outcome in shown],
        "priority": [outcome.priority for outcome in shown],
        "arrived": [_seconds(outcome.arrived) for outcome in shown],
        "bound": [_seconds(outcome.bound) for outcome in shown],
        "message": [messages.of(outcome.message) for outcome in shown],
        "nodes": list(nodes.values),
        "owners": list(owners.values),
        "messages": list(messages.values),
    }


class _Index:
    """Texts by the order in which they were first seen."""

    def __init__(self) -> None:
        self.values: dict[str, int] = {}

    def of(self, text: str) -> int:
        return self.values.setdefault(text, len(self.values))


def _share(sample: Sample, index: int) -> float:
    total = sample.allocatable[index]
    return round(sample.requested[index] / total, 4) if total else 0.0


def _capacity(state: NodeState, resources: Sequence[str]) -> tuple[int, ...]:
    amounts: Mapping[str, int] = state.allocatable
    return tuple(amounts[resource] for resource in resources)


def _seconds(time: float | None) -> float | None:
    return None if time is None else round(time, 3)
