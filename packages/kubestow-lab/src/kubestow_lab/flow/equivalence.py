"""The placement problem of a cluster and some pods: equivalence classes, and where the engine's filters let them go.

Pods of one group of shapes share an evaluation, so feasibility costs one call of the filters for all nodes per group.
Groups that the problem cannot tell apart become one class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.cache import Cluster
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.placement.modelled_pods import filter_plugin, passes_without_pods
from kubestow.framework.interface import MAX_SCORE
from kubestow.framework.profile import Profile
from kubestow.plugins.node_ports import NodePorts
from kubestow.plugins.node_resources.fit import NodeResourcesFit
from kubestow_lab.flow.cost_models import CostModel
from kubestow_lab.flow.problem import FlowProblem, PodClass

Amounts = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Formulation:
    """A problem, the pods of each of its classes, and the uids of pods whose filters read other nodes.

    Constraints between nodes, such as affinity and spread, are not in the problem.
    """

    problem: FlowProblem
    members: Sequence[Sequence[PodInfo]]
    interacting: frozenset[str]

    def solution(self, node_names: Mapping[str, str]) -> Amounts:
        """The solution in which pods are on these nodes, by uid."""
        columns = {name: column for column, name in enumerate(self.problem.nodes)}
        solution = np.zeros((len(self.members), len(self.problem.nodes)), np.int64)
        for row, members in enumerate(self.members):
            for pod in members:
                if (name := node_names.get(pod.uid)) is not None:
                    solution[row, columns[name]] += 1
        return solution

    def assignments(self, solution: Amounts, node_names: Mapping[str, str] | None = None) -> list[tuple[PodInfo, str]]:
        """A pod and its node for each placement of a solution.

        Pods that are on one of ``node_names`` (by uid) stay there as far as the solution has room for their class.
        """
        placed: list[tuple[PodInfo, str]] = []
        for row, members in enumerate(self.members):
            room = {
                self.problem.nodes[column]: int(solution[row, column])
                for column in np.flatnonzero(solution[row]).tolist()
            }
            moving: list[PodInfo] = []
            for pod in members:
                name = (node_names or {}).get(pod.uid, "")
                if room.get(name, 0):
                    room[name] -= 1
                    placed.append((pod, name))
                else:
                    moving.append(pod)
            moving.sort(key=lambda pod: pod.uid not in (node_names or {}))  # who ran before runs again
            targets = (name for name, count in room.items() for _ in range(count))
            placed += zip(moving, targets, strict=False)
        return placed


def formulate(
    cluster: Cluster,
    profiles: Mapping[str, Profile],
    pods: Sequence[PodInfo],
    cost_model: CostModel,
    *,
    waited: Mapping[str, float] | None = None,
    relaxed: bool = False,
) -> Formulation:
    """The problem of placing pods, none of which is placed, on a cluster as it is.

    Each pod has a profile and can be modelled (:func:`kubestow.engine.placement.modelled_pods.why_not_modelled`).
    ``waited`` has seconds by uid. ``relaxed`` leaves out the verdicts of filters that read other nodes, which other
    pods of the problem may still change; then a placement that the problem does not allow is impossible in any order.
    Raises PluginError.
    """
    groups: dict[tuple[str, object, int], list[PodInfo]] = {}
    for pod in pods:
        name = pod.spec.scheduler_name
        unscheduled = cost_model.unscheduled(waited.get(pod.uid, 0.0) if waited else 0.0)
        groups.setdefault((name, profiles[name].evaluations.group(pod), unscheduled), []).append(pod)
    nodes = cluster.all_nodes()
    merged: dict[object, tuple[PodClass, Mask, Amounts, list[PodInfo]]] = {}
    interacting: set[str] = set()
    for (name, _, unscheduled), members in groups.items():
        pod, profile = members[0], profiles[name]
        found = profile.evaluations.of(pod).find_feasible(pod)
        if relaxed:
            feasible = passes_without_pods(found)
        else:
            feasible = np.zeros(len(nodes), np.bool_)
            feasible[found.rows] = True
        if not found.filters.is_node_local:
            interacting.update(member.uid for member in members)
        costs = cost_model.placement(pod, nodes)
        if cost_model.preferences and feasible.any():
            rows_allowed = np.flatnonzero(feasible)
            for score in profile.evaluations.of(pod).score_by_plugin(pod, rows_allowed):
                if score.plugin in cost_model.preferences and score.weight > 0:
                    costs[rows_allowed] += cost_model.preference_cost * (MAX_SCORE - score.normalized) // MAX_SCORE
        fit = filter_plugin(profile, NodeResourcesFit)
        requests = dict(fit.checked_requests(pod.shape.requests)) if fit is not None else {}
        filters_ports = any(isinstance(plugin, NodePorts) for plugin in profile.runtime.plugins.filter)
        ports = pod.shape.host_ports if filters_ports else ()
        pod_class = PodClass(0, pod.priority, requests, tuple(ports), unscheduled)
        alike = (
            pod.priority,
            tuple(sorted(requests.items())),
            pod_class.host_ports,
            unscheduled,
            feasible.tobytes(),
            costs.tobytes(),
        )
        merged.setdefault(alike, (pod_class, feasible, costs, []))[3].extend(members)
    rows = list(merged.values())
    resources = sorted({name for pod_class, *_ in rows for name in pod_class.requests})
    shape = len(rows), len(nodes)
    problem = FlowProblem(
        classes=[
            PodClass(len(members), each.priority, each.requests, each.host_ports, each.unscheduled)
            for each, _, _, members in rows
        ],
        nodes=nodes.names,
        feasible=np.array([feasible for _, feasible, _, _ in rows], np.bool_).reshape(shape),
        free={name: np.maximum(nodes.allocatable(name) - nodes.requested(name), 0) for name in resources},
        slots=np.maximum(nodes.allowed_pods - nodes.pod_count, 0),
        costs=np.array([costs for _, _, costs, _ in rows], np.int64).reshape(shape),
        node_costs=cost_model.nodes(nodes),
    )
    return Formulation(problem, [members for *_, members in rows], frozenset(interacting))
