"""The last moment of a simulation: the pods that could be placed anew, and the cluster without them.

The pods of a simulation that are pending or running at its end take part. Those that the cluster had before keep their
nodes, and so do placed pods of DaemonSets, which can be nowhere else, and those that a problem cannot describe: with
volumes, claims, devices, or in a gang.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kubestow.api.core import Pod
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.offline_scheduler import OfflineScheduler, SchedulerOptions, unbound
from kubestow_lab.flow.equivalence import why_not_modelled
from kubestow_lab.simulation.outcomes import OutcomeState
from kubestow_lab.simulation.simulation import Simulation
from kubestow_lab.simulation.simulation_result import SimulationResult


@dataclass
class EndState:
    """The pods that take part by uid, without their nodes, and ``node_names`` of those that run.

    ``unmodelled`` pending pods stay pending; ``ineligible`` ones are gated, being deleted, or without a profile. Both
    say why, by namespace/name.
    """

    pods: dict[str, Pod] = field(default_factory=dict)
    node_names: dict[str, str] = field(default_factory=dict)
    unmodelled: dict[str, str] = field(default_factory=dict)
    ineligible: dict[str, str] = field(default_factory=dict)
    _fixed: list[Pod] = field(default_factory=list)
    _nodes: ClusterObjects = field(default_factory=ClusterObjects)
    _options: SchedulerOptions = field(default_factory=SchedulerOptions)

    @classmethod
    def of(cls, simulation: Simulation, result: SimulationResult) -> EndState:
        """The last moment of a simulation. Raises PluginError."""
        cluster = simulation.cluster_after(result)
        state = cls(
            _nodes=cluster.altered(pods=()),
            _options=SchedulerOptions(simulation.configuration, simulation.plugins, simulation.gates),
        )
        live = (OutcomeState.RUNNING, OutcomeState.PENDING)
        simulated = {outcome.key for outcome in result.outcomes if outcome.state in live}
        scheduler = state.scheduler()
        for pod in cluster.pods:
            if f"{pod.metadata.namespace}/{pod.metadata.name}" in simulated:
                state._add(scheduler, pod)
            elif pod.spec.node_name:
                state._fixed.append(pod)
        return state

    def _add(self, scheduler: OfflineScheduler, pod: Pod) -> None:
        info = scheduler.cache.shapes.info(unbound(pod))
        node_name = pod.spec.node_name
        profile = scheduler.profiles.get(pod.spec.scheduler_name)
        if profile is None:
            self.ineligible[info.key] = f"no profile has the scheduler name {pod.spec.scheduler_name}"
        elif node_name and (controller := pod.metadata.controller) is not None and controller.kind == "DaemonSet":
            self._fixed.append(pod)
        elif not node_name and info.terminating:
            self.ineligible[info.key] = "is being deleted"
        elif reason := why_not_modelled(profile, info):
            if node_name:
                self._fixed.append(pod)
            else:
                self.unmodelled[info.key] = reason
        elif not node_name and not (status := profile.queueing.run_pre_enqueue_plugins(info)).ok:
            self.ineligible[info.key] = f"gated by {status.plugin}"
        else:
            self.pods[info.uid] = info.pod
            if node_name:
                self.node_names[info.uid] = node_name

    def scheduler(self, pinned: Mapping[str, str] | None = None) -> OfflineScheduler:
        """A new scheduler whose cluster has the pods that keep their nodes, and those pinned to nodes (by uid)."""
        scheduler = OfflineScheduler(self._nodes.altered(pods=self._fixed), self._options)
        for uid, node_name in (pinned or {}).items():
            scheduler.cache.assume(scheduler.cache.shapes.info(self.pods[uid]), node_name)
        return scheduler

    def infos(self, scheduler: OfflineScheduler, uids: Iterable[str] | None = None) -> list[PodInfo]:
        """The pods, or some of them, as a scheduler sees them, in the order of arrival."""
        return [scheduler.cache.shapes.info(self.pods[uid]) for uid in (self.pods if uids is None else uids)]
