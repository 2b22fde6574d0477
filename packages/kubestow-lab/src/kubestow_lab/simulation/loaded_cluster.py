"""A cluster that a scheduler has listed, so that simulations need not put its nodes and pods into their own first.

A run uses it up: what happens in it, happens to these objects. So it is of use to processes that are forks of one that
has loaded the cluster. They share its memory, but for what a run writes to or refers to anew, and each makes one run.
"""

from __future__ import annotations

from dataclasses import dataclass

from kubestow.config import FeatureGates
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.turns import SchedulerInTurns
from kubestow.plugins import in_tree_registry
from kubestow.scheduling.scheduler_state import ListedState
from kubestow_lab.simulation.arrivals import Arrivals
from kubestow_lab.simulation.simulated_cluster import SimulatedCluster


@dataclass(frozen=True, slots=True)
class LoadedCluster:
    """An API server with everything of a cluster but its pending pods, and what a scheduler has listed of it.

    ``unplaced`` is the cluster without the pods that have a node, which a run need not look at.
    """

    source: ClusterObjects
    unplaced: ClusterObjects
    gates: FeatureGates
    api: SimulatedCluster
    listed: ListedState

    def holds(self, cluster: ClusterObjects, arrivals: Arrivals, gates: FeatureGates) -> bool:
        """Whether this is what a run of these pods on a cluster begins with: no other object comes with them."""
        comes_alone = not (arrivals.objects or arrivals.custom_resources or cluster.custom_resources)
        has_pods = bool(arrivals.pods or self.unplaced.pods)
        return cluster is self.source and gates == self.gates and comes_alone and has_pods

    def suits(self, scheduler: SchedulerInTurns) -> bool:
        """Whether a scheduler knows everything that it would have listed itself.

        Plugins of others may have followed the list as it came. In-tree plugins read the cluster cache.
        """
        in_tree = in_tree_registry(self.gates.minor)
        plugins = {type(plugin) for profile in scheduler.profiles.values() for plugin in profile.plugins}
        return plugins <= set(in_tree.values()) and tuple(scheduler.listed.watched) == tuple(self.listed.watched)
