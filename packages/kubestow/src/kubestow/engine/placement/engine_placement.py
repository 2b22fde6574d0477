"""Placements on the nodes of a solution, each accepted or refused by the engine as the cluster is at that moment.

Copies of a pod whose filters look at one node and its pods are counted per node and placed at once
(:class:`~kubestow.framework.evaluation.feasibility.PodCapacity`). All others are filtered one after another, again
until none is accepted any more: a pod may need one that comes later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.placement.modelled_pods import has_volumes_or_devices
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.evaluation.evaluation import best_rows
from kubestow.framework.profile import Profile

Assignment = tuple[PodInfo, str]
"""A pod and the name of its node."""

#: The Reserve plugins that do nothing for pods without volumes and resource claims.
_RESERVE_FOR_CLAIMS = ("VolumeBinding", "DynamicResources")


class EnginePlacement:
    """Places pods in a cluster cache, as assumed pods."""

    def __init__(self, cluster: Cluster, profiles: Mapping[str, Profile]) -> None:
        self._cluster, self._profiles = cluster, profiles
        #: What the Reserve plugins know of the pods that they reserved something for, by uid.
        self._states: dict[str, CycleState] = {}
        #: The ranks of nodes by their names, at a revision of the node table.
        self._ranks: tuple[int, NDArray[np.intp]] | None = None

    def place_all(self, assignments: Iterable[Assignment]) -> list[Assignment]:
        """Place pods, those of higher priority first. Returns the assignments that are refused. Raises PluginError."""
        groups: dict[object, list[Assignment]] = {}
        for pod, node_name in sorted(assignments, key=lambda assignment: -assignment[0].priority):
            profile = self._profiles[pod.spec.scheduler_name]
            key = -pod.priority, pod.spec.scheduler_name, profile.evaluations.group(pod)
            groups.setdefault(key, []).append((pod, node_name))
        refused = [assignment for group in groups.values() for assignment in self._place_group(group)]
        while refused:
            still = [assignment for assignment in refused if not self.place(*assignment)]
            if len(still) == len(refused):
                break
            refused = still
        return refused

    def place(self, pod: PodInfo, node_name: str) -> bool:
        """Place a pod if the node passes all filters and the Reserve plugins agree. Raises PluginError."""
        cluster, profile = self._cluster, self._profiles[pod.spec.scheduler_name]
        within = np.zeros(len(cluster.nodes), np.bool_)
        within[cluster.nodes.rows[node_name]] = True
        evaluation = profile.evaluations.of(pod)
        found = evaluation.find_feasible(pod, within)
        return found.error is None and found.count > 0 and self._reserve(pod, node_name, evaluation.state())

    def _reserve(self, pod: PodInfo, node_name: str, state: CycleState) -> bool:
        """Place a pod on a node that passes its filters, if the Reserve plugins agree."""
        profile = self._profiles[pod.spec.scheduler_name]
        self._cluster.assume(pod, node_name)
        if profile.binding.run_reserve_plugins(state, pod, node_name).ok:
            if _reserves(profile) or has_volumes_or_devices(profile, pod):
                self._states[pod.uid] = state
            return True
        profile.binding.run_unreserve_plugins(state, pod, node_name)
        self._cluster.forget(pod.uid)
        return False

    def give_back_reservations(self, assignments: Iterable[Assignment]) -> None:
        """Have the Reserve plugins give back what they reserved for pods that were placed in a simulation."""
        for pod, node_name in assignments:
            state = self._states.pop(pod.uid, None)
            if state is not None:
                self._profiles[pod.spec.scheduler_name].binding.run_unreserve_plugins(state, pod, node_name)

    def place_anywhere(self, pod: PodInfo, within: NDArray[np.bool_] | None = None) -> str:
        """Place a pod on the node with the highest total, the first of these by name; "" if it fits on none.

        ``within`` (bool per node) are the only nodes to choose from. Raises PluginError.
        """
        cluster, profile = self._cluster, self._profiles[pod.spec.scheduler_name]
        evaluation = profile.evaluations.of(pod)
        found = evaluation.find_feasible(pod, within)
        if found.error is not None or not found.count:
            return ""
        best = best_rows(evaluation.compute_totals(pod, found.rows), found.rows)
        node_name = cluster.nodes.names[int(best[self._ranks_by_name()[best].argmin()])]
        return node_name if self._reserve(pod, node_name, evaluation.state()) else ""

    def _ranks_by_name(self) -> NDArray[np.intp]:
        """The place of each node in the order of their names, intp per row."""
        table = self._cluster.nodes
        if self._ranks is None or self._ranks[0] != table.revision:
            ranks = np.empty(len(table), np.intp)
            ranks[np.argsort(np.array(table.names))] = np.arange(len(table))
            self._ranks = table.revision, ranks
        return self._ranks[1]

    def _place_group(self, group: Sequence[Assignment]) -> list[Assignment]:
        wanted = Counter(node_name for _, node_name in group)
        room = self._room(group[0][0], wanted)
        if room is None:
            return [assignment for assignment in group if not self.place(*assignment)]
        refused = []
        for pod, node_name in group:
            if room[node_name]:
                room[node_name] -= 1
                self._cluster.assume(pod, node_name)
            else:
                refused.append((pod, node_name))
        return refused

    def _room(self, pod: PodInfo, wanted: Counter[str]) -> dict[str, int] | None:
        """How many copies of a pod each wanted node takes, None when that cannot be counted."""
        cluster, profile = self._cluster, self._profiles[pod.spec.scheduler_name]
        if _reserves(profile) or has_volumes_or_devices(profile, pod):
            return None
        capacity = profile.evaluations.of(pod).capacity(pod, max(wanted.values()))
        if capacity is None:
            return None
        rows = np.array([cluster.nodes.rows[name] for name in wanted], np.intp)
        return dict(zip(wanted, capacity.on(Nodes(cluster.nodes, rows)).tolist(), strict=True))


def _reserves(profile: Profile) -> bool:
    """Whether a Reserve plugin may do something for a pod without volumes and resource claims."""
    return any(plugin.name not in _RESERVE_FOR_CLAIMS for plugin in profile.runtime.plugins.reserve)
